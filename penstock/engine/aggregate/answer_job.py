"""The job of one task that answers: keys and measures from a pane set, SELECT lists over them, and files of results.

    AnswerTask ──▶ rows (q, e, g0 …, a0 …) ──▶ Spark SQL, for expressions and HAVING ──▶ results, by reader ──▶ files

In:  an `AnswerJob`.  Out: files of results, and an `AnswerReport`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.aggregate.answer_task import INSTANT, NOTE, READER, WAS, AnswerTask, Counted, PaneReport
from penstock.engine.aggregate.pane_answers import answer_rows
from penstock.engine.runners.runner import ANSWERS
from penstock.state.codec import from_json, to_json
from penstock.state.spark_schema import SPARK_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.engine.sinks.destination import Destination
    from penstock.sql.query import Answer
    from penstock.state.files import Files
    from penstock.state.output_file import OutputFile, WrittenFile

WINDOW_END, OPERATION, SEQUENCE = "window_end", "_op", "_seq"
"""Columns of answers that are not in the SELECT list."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One query that is answered: its columns, and where they go."""

    query: str
    number: int
    """Its number among the readers of its job."""
    answers: tuple[Answer, ...]
    having: str
    emit: str
    instant: pa.DataType
    """The type of window_end."""
    types: str
    """Spark's description of its columns (JSON), where a file does not tell by itself."""
    destination: Destination | None
    """Where the answers go; None if they are only counted."""
    again: bool = False
    """Whether all groups are answered again, and groups that no longer satisfy HAVING are deleted."""

    @property
    def computed(self) -> bool:
        """Return whether Spark SQL computes its answers or its HAVING."""
        return bool(self.having) or not all(answer.plain for answer in self.answers)

    @property
    def is_counted(self) -> bool:
        """Return whether its answers are only counted."""
        return not (self.computed or self.destination) and self.emit != "changes"


@dataclass(frozen=True, slots=True)
class AnswerJob:
    """One task: answers from a pane set, and the readers that get them."""

    task: AnswerTask
    readers: tuple[Reader, ...]
    answered: Mapping[str, int]
    """By query, the last instant that is answered by this job."""
    file_name: str
    promises_seen: float | None = None
    """The number of promises that its groups are compared with; None if promises end no group."""

    @property
    def computed(self) -> bool:
        """Return whether some answer needs Spark SQL."""
        return any(reader.computed for reader in self.readers)

    def run(self, files: Files) -> AnswerReport:
        """Compute the answers and write them."""
        return deliver_answers(self, answer_rows(files, self.task))

    def rows(self, files: Files) -> Iterator[pa.RecordBatch]:
        """Compute the keys and measures, for Spark SQL; the report on the pane files is one more row."""
        for answers in answer_rows(files, self.task):
            yield _noted(self, answers) if isinstance(answers, PaneReport) else answers

    def finish(self, _files: Files, rows: Iterator[pa.RecordBatch]) -> AnswerReport:
        """Write the answers that Spark SQL has computed."""
        return deliver_answers(self, (part for batch in rows for part in _without_note(batch)))


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """What a task has answered, and how the pane files have changed."""

    panes: PaneReport
    results: Mapping[str, int] = field(default_factory=dict)
    files: tuple[WrittenFile, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return what the runner adds up."""
        return {ANSWERS: sum(self.results.values())}


def deliver_answers(job: AnswerJob, rows: Iterable[pa.RecordBatch | Counted | PaneReport]) -> AnswerReport:
    """Write answers to the files of their readers, and report."""
    panes, results = PaneReport(), dict[str, int]()
    written: dict[str, OutputFile] = {}
    names = {reader.number: reader.query for reader in job.readers}
    for answers in rows:
        if isinstance(answers, PaneReport):
            panes = answers
            continue
        if isinstance(answers, Counted):
            query = names[answers.reader]
            results[query] = results.get(query, 0) + answers.answers
            continue
        for reader, batch in _by_reader(job, answers):
            made = batch if reader.is_counted else _result(reader, batch)
            if not made.num_rows:
                continue
            results[reader.query] = results.get(reader.query, 0) + made.num_rows
            if reader.query not in written and reader.destination:
                written[reader.query] = reader.destination.file(job.file_name)
            if reader.query in written:
                written[reader.query].write(made)
    for query, out in written.items():
        out.close({"query": query, "results": results[query]})
    return AnswerReport(panes, results, tuple(out.report(query) for query, out in written.items()))


def _by_reader(job: AnswerJob, batch: pa.RecordBatch) -> Iterator[tuple[Reader, pa.RecordBatch]]:
    """Divide rows by their reader."""
    numbers = batch.column(READER).to_numpy(zero_copy_only=False)
    if (numbers == numbers[:1]).all():
        yield from ((reader, batch) for reader in job.readers if reader.number in numbers[:1])
        return
    for reader in job.readers:
        mine = numbers == reader.number
        if mine.any():
            yield reader, batch if mine.all() else batch.filter(pa.array(mine))


def _result(reader: Reader, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a query's result."""
    if reader.computed:
        struct = batch.column(f"o{reader.number}")
        names, arrays = [field.name for field in struct.type], struct.flatten()
    else:
        names = [answer.name for answer in reader.answers]
        arrays = [batch.column(answer.plain) for answer in reader.answers]
    wanted = np.ones(batch.num_rows, np.bool_)
    if reader.emit == "changes":
        is_result = _holds(reader, batch, "h")
        was = batch.column(WAS) if reader.again else _holds(reader, batch, "w")
        operation = pc.if_else(is_result, pc.if_else(was, "update", "insert"), "delete")
        names = [OPERATION, SEQUENCE, *names]
        arrays = [operation, batch.column(INSTANT), *arrays]
        wanted = np.asarray(pc.or_(is_result, was).to_numpy(zero_copy_only=False))
    elif reader.having:
        wanted = np.asarray(_holds(reader, batch, "h").to_numpy(zero_copy_only=False))
    if reader.emit == "sliding":
        names = [WINDOW_END, *names]
        arrays = [
            batch.column(INSTANT).cast(pa.int64()).view(pa.timestamp("us")).view(reader.instant),
            *arrays,
        ]
    if not wanted.all():
        arrays = [array.filter(pa.array(wanted)) for array in arrays]
    metadata = {SPARK_SCHEMA: reader.types} if reader.types else None
    return pa.RecordBatch.from_arrays(arrays, names).replace_schema_metadata(metadata)


def _holds(reader: Reader, batch: pa.RecordBatch, what: str) -> pa.Array:
    """Return for each group whether HAVING holds now (h), or held before the change (w)."""
    was = batch.column(WAS) if what == "w" else pa.array(np.ones(batch.num_rows, np.bool_))
    if not reader.having:
        return was
    return pc.and_(was, pc.fill_null(batch.column(f"{what}{reader.number}"), fill_value=False))


def _noted(job: AnswerJob, report: PaneReport) -> pa.RecordBatch:
    """Write a report as a row, which passes through Spark SQL."""
    text = json.dumps(to_json(report))
    fixed = {READER: pa.array([-1], pa.int32()), NOTE: pa.array([text]), INSTANT: pa.array([0], pa.int64())}
    columns = fixed | {column.name: pa.nulls(1, column.type) for column in job.task.schema}
    if job.task.spec.panes.emit == "changes":
        columns[WAS] = pa.nulls(1, pa.bool_())
    if job.task.with_before:
        columns |= {
            f"b{column.name[1:]}": pa.nulls(1, column.type)
            for column in job.task.schema
            if column.name[0] == "a"
        }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _without_note(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | PaneReport]:
    """Separate the row with the report from the answers."""
    notes = batch.column(NOTE)
    if notes.null_count == batch.num_rows:
        yield batch
        return
    (text,) = notes.drop_null().to_pylist()
    yield from_json(json.loads(text), PaneReport)
    rest = batch.filter(notes.is_null())
    if rest.num_rows:
        yield rest
