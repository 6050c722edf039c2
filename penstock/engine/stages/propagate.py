"""Punctuations of a result: the values of the join's key that no more results of a query will have.

A value that is finished for a query (`penstock.engine.views.finished`) is told once, after all results that have it: the
stage comes after those that deliver, and what it tells is published with them or later::

    results  ... (k = 7) ... (k = 9) ... (k = 7)
    told                                         7         no result with k = 7 after this

A parquet sink with ``punctuations = 'true'`` gets them as files below ``_punctuations``, where Spark does not look for
results.  What was told is kept like promises are, sorted by the hash of the key, so that nothing is told twice.

In:  the plan and the ledger.  Out: `Propagation`, one task each, and the ``propagate`` commit made of what they report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.engine.sinks.sinks import publications
from penstock.engine.stages.release import side_marks
from penstock.engine.views.finished import FinishedKeys, PromisedSide
from penstock.errors import InputError
from penstock.kernels.key_hash import unmixed
from penstock.plan.group import reach
from penstock.plan.promises import finishing_of, promised_sides, tells, told_index
from penstock.sql.query import FOREVER, SIDES
from penstock.sql.tree import always_quoted
from penstock.state.commits import Output, Propagated
from penstock.state.output_file import OutputFile, WrittenFile
from penstock.state.promises import NEVER, PromiseFiles, in_order, open_promises, write_exact
from penstock.state.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.backend import Backend
    from penstock.kernels.key_hash import Hashes
    from penstock.plan.build import Plan
    from penstock.plan.stored import KeyPart
    from penstock.sql.query import Query, Side, Stream
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger

PUNCTUATIONS = "_punctuations"
"""The directory below a sink's own where its punctuations are; Spark passes over names that begin so."""

LOOK_SHARE = 1024
"""Values are told when a promise has taken effect for each so many that are remembered."""


@dataclass(frozen=True, slots=True)
class Propagation:
    """What one task is told: which values may be finished, which were told already, and where the others go."""

    query: str
    index: str
    """Where what was told is kept."""
    finishing: FinishedKeys
    columns: tuple[tuple[str, pa.DataType | None], ...]
    """For each part of the key its name, and its type if that is not the one it is kept in."""
    told: PromiseFiles = field(default_factory=PromiseFiles)
    root: str = ""
    final: str = ""
    compression: str = "snappy"
    seen: float = 0.0
    """How many promises had taken effect."""

    def run(self, files: Files) -> PropagationReport:
        """Write the values that are finished, for the sink and as told."""
        table, h, keys = finished_values(files, self)
        if not h.size:
            return PropagationReport()
        when = min(self.finishing.left.watermark, self.finishing.right.watermark)
        told = write_exact(files, self.index, in_order(h, np.full(h.size, when, np.int64), keys), 0)
        out = OutputFile(self.root, self.final, self.compression)
        for batch in table.combine_chunks().to_batches():
            out.write(batch)
        out.close({"query": self.query, "punctuations": table.num_rows})
        return PropagationReport(out.report(self.query), told)


@dataclass(frozen=True, slots=True)
class PropagationReport:
    """What a task has told."""

    file: WrittenFile | None = None
    told: Segment | None = None


# --- which values are finished --------------------------------------------------------------------------------------


def finished_keys(
    plan: Plan, ledger: Ledger, query: Query, columns: tuple[int, ...] = ()
) -> FinishedKeys | None:
    """Give the promises that finish values for a query, with its watermarks; None if there are none yet.

    The watermark of an idle stream stays where it is, and its promises wait.  An ordered query has its results below
    the lower watermark only, so that one counts for both sides.
    """
    indexes = promised_sides(plan, query) if ledger.promises else None
    known = [each for each in side_marks(plan, ledger, query).values() if each is not None]
    if indexes is None or len(known) < len(SIDES) or ledger.query(query.name).backfill:
        return None
    marks = [min(known)] * len(SIDES) if query.ordered else known
    left, right = (
        _side(query, side, ledger.promises.get(index.id if index else "", PromiseFiles()), mark)
        for side, index, mark in zip(SIDES, indexes, marks, strict=True)
    )
    return FinishedKeys(columns, next(each for each in indexes if each).whole_key, left, right)


def _side(query: Query, side: Side, known: PromiseFiles, watermark: int) -> PromisedSide:
    far = reach(query.window, side)
    return PromisedSide(known, watermark, far if far < FOREVER and not any(query.rows) else None)


# --- what is due ----------------------------------------------------------------------------------------------------


def choose_propagations(
    plan: Plan, ledger: Ledger, backend: Backend[Any], least: int | None = None
) -> list[Propagation]:
    """List the queries that may have something to tell by now; `least` promises must have taken effect since."""
    asking = [each for each in plan.queries if tells(each)]
    return [task for each in asking if (task := _due(plan, ledger, each, backend, least))]


def _due(
    plan: Plan, ledger: Ledger, query: Query, backend: Backend[Any], least: int | None
) -> Propagation | None:
    finishing, index = finished_keys(plan, ledger, query), told_index(query)
    if finishing is None or not _is_answered(ledger, query, finishing):
        return None
    known = finishing.left.known.rows + finishing.right.known.rows
    if finishing.spoken - ledger.propagated.get(index, 0.0) < (least or max(1, known // LOOK_SHARE)):
        return None
    return Propagation(
        query=query.name,
        index=index,
        finishing=finishing.bare(),
        columns=key_columns(plan, query, backend),
        told=ledger.promises.get(index, PromiseFiles()).bare(),
        root=query.sink.option("path"),
        final=f"{PUNCTUATIONS}/told-{ledger.tellings:012d}.parquet",
        compression=query.sink.option("compression", "snappy"),
        seen=finishing.spoken,
    )


def _is_answered(ledger: Ledger, query: Query, finishing: FinishedKeys) -> bool:
    """Say whether a query has got all answers with values that are finished so far; without an aggregate it has."""
    state = next((each for each in ledger.panes.values() if query.name in each.panes.readers), None)
    if state is None or not state.files:
        return True
    if state.panes.emit == "changes":
        return all(each.folded for each in state.files)  # what is not folded is not answered yet
    return state.promises_seen >= finishing.spoken


def check_propagation(plan: Plan) -> None:
    """Refuse to tell which values are finished where results with them may still follow."""
    for query in plan.queries:
        if not tells(query):
            continue
        _refuse_unfinished(plan, query)


def _refuse_unfinished(plan: Plan, query: Query) -> None:
    if promised_sides(plan, query) is None:
        raise InputError(
            f"values of query {query.name} are never finished: no stream makes promises about the columns it joins on; "
            "declare punctuates or unique on one of them"
        )
    emit = query.aggregation.emit if query.aggregation else "changes"
    if emit == "sliding" or (emit == "final" and not finishing_of(plan, query)):
        raise InputError(
            f"query {query.name} cannot say which values are finished: its answers go on after the last pair; use "
            "emit = 'final' grouped by the columns it joins on, or emit = 'changes'"
        )


def finished_now(plan: Plan, ledger: Ledger, query: Query, backend: Backend[Any]) -> Propagation | None:
    """Say how to find all values that are finished for a query; None if there cannot be any."""
    _refuse_unfinished(plan, query)
    finishing = finished_keys(plan, ledger, query)
    if finishing is None or not _is_answered(ledger, query, finishing):
        return None
    return Propagation(query.name, "", finishing.bare(), key_columns(plan, query, backend))


def _key_parts(plan: Plan, query: Query) -> list[tuple[str, Stream, KeyPart]]:
    """Name each part of a query's join key, by a plain column of either side that is of the type compared."""
    group = plan.find(query.name)[0]
    parts: list[tuple[str, Stream, KeyPart]] = []
    for number in range(len(query.keys)):
        sides = [(plan.stream(group.log(side).stream), group.log(side).key[number]) for side in SIDES]
        plain = [each for each in sides if each[1].column] or sides[:1]
        stream, part = next((each for each in plain if not each[1].cast), plain[0])
        taken = {name.lower() for name, _, _ in parts}
        name = part.column or f"key{number}"
        parts.append((f"{name}_{number}" if name.lower() in taken else name, stream, part))
    return parts


def key_columns(
    plan: Plan, query: Query, backend: Backend[Any]
) -> tuple[tuple[str, pa.DataType | None], ...]:
    """Name the parts of a query's join key, and give their Arrow types; None where they are kept as they are."""
    return tuple(
        (
            name,
            _ARROW.get(part.type)
            if part.cast or not part.column
            else backend.arrow_types(stream)[part.column],
        )
        for name, stream, part in _key_parts(plan, query)
    )


_ARROW = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
"""Types that values are kept in as 64-bit numbers."""


def key_ddl(plan: Plan, query: Query) -> str:
    """Write the same as Spark DDL."""
    return ", ".join(f"{always_quoted(name)} {part.type}" for name, _, part in _key_parts(plan, query))


# --- in a task ------------------------------------------------------------------------------------------------------


def finished_values(files: Files, task: Propagation) -> tuple[pa.Table, Hashes, list[pa.Array]]:
    """Find the values that are finished and were not told before, as columns, and as they are kept."""
    h, keys = _candidates(files, task.finishing)
    if not h.size:
        return pa.table({}), h, keys
    finished = task.finishing.holds_for(files, h, keys)
    finished &= open_promises(files, task.told).earliest(h, keys) == NEVER
    rows = np.flatnonzero(finished)
    h, keys = h[rows], [each.take(pa.array(rows)) for each in keys]
    kept = keys or [pa.array(unmixed(h))]
    named = {
        name: values if kind is None else _as_type(values, kind)
        for (name, kind), values in zip(task.columns, kept, strict=True)
    }
    return pa.table(named), h, keys


def _candidates(files: Files, finishing: FinishedKeys) -> tuple[Hashes, list[pa.Array]]:
    """Give every value that a promise is about, once; ranges name no values."""
    parts = [
        each
        for side in (finishing.left, finishing.right)
        for each in open_promises(files, side.known).exact
        if each.h.size
    ]
    if not parts:
        return np.zeros(0, np.uint64), []
    h = np.concatenate([each.h for each in parts])
    keys = [pa.concat_arrays(each) for each in zip(*(part.keys for part in parts), strict=True)]
    once = in_order(h, np.zeros(h.size, np.int64), keys)
    return once.h, list(once.keys)


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Give the values of a key as they stood in their column."""
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8()).cast(kind)
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).view(kind) if values.type != kind else values
    if pa.types.is_timestamp(kind) and pa.types.is_int64(values.type):
        return values.view(kind)
    return values.cast(kind)


# --- the commit -----------------------------------------------------------------------------------------------------


def propagate_commit(
    tasks: Sequence[Propagation], reports: Sequence[PropagationReport], number: int
) -> Propagated:
    """Say what was told, and what there is to publish."""
    done = list(zip(tasks, reports, strict=True))
    written = [report.file for _, report in done if report.file]
    return Propagated(
        told={task.index: PromiseFiles((report.told,)) for task, report in done if report.told},
        seen={task.index: task.seen for task, _ in done},
        output=Output(publish=publications(f"told-{number:012d}", written, set())),
    )
