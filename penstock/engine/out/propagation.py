"""Punctuations of a result: the values of the join's key that no more results of a query will have.

A value that is finished for a query (`penstock.engine.out.finished`) is told once, after all results that have it: the
stage comes after those that deliver, and what it tells is published with them or later::

    results  ... (k = 7) ... (k = 9) ... (k = 7)
    told                                         7         no result with k = 7 after this

A parquet sink with ``punctuations = 'true'`` gets them as files below ``_punctuations``, where Spark does not look for
results.  What was told is kept like promises are, sorted by the hash of the key, so that nothing is told twice.

In:  the plan and the ledger.  Out: `Propagation`, one task each, and the ``propagate`` commit made of what they report.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.out.finished import FinishedKeys, PromisedSide
from penstock.engine.out.release import side_marks
from penstock.engine.out.sinks import publications
from penstock.errors import InputError
from penstock.join.key_hash import unmixed
from penstock.log.commits import Output, Propagated
from penstock.log.output_file import OutputFile, WrittenFile
from penstock.log.promises import NEVER, PromiseFiles, in_order, open_promises, write_exact
from penstock.log.segment import Segment
from penstock.plan.group import reach
from penstock.plan.promises import promised_sides, tells, told_index
from penstock.sql.query import FOREVER, SIDES
from penstock.sql.tree import always_quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.jobs import UnitJobs
    from penstock.engine.readings.idle import IdleClock
    from penstock.join.key_hash import Hashes
    from penstock.log.files import Files
    from penstock.log.ledger import Ledger
    from penstock.plan.build import Plan
    from penstock.plan.stored import KeyPart
    from penstock.sql.query import Query, Side, Stream

PUNCTUATIONS = "_punctuations"
"""The directory below a sink's own where its punctuations are; Spark passes over names that begin so."""

LOOK_SHARE = 64
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


@dataclass(frozen=True, slots=True)
class PropagationReport:
    """What a task has told."""

    file: WrittenFile | None = None
    told: Segment | None = None


# --- which values are finished --------------------------------------------------------------------------------------


def finished_keys(
    plan: Plan,
    ledger: Ledger,
    query: Query,
    columns: tuple[int, ...] = (),
    silence: IdleClock | None = None,
) -> FinishedKeys | None:
    """Give the promises that finish values for a query, with its watermarks; None if there are none yet."""
    indexes = promised_sides(plan, query) if ledger.promises else None
    marks = side_marks(plan, ledger, query.name, silence)
    if indexes is None or None in marks:
        return None
    left, right = (
        _side(query, side, ledger.promises.get(index.id if index else "", PromiseFiles()), mark or 0)
        for side, index, mark in zip(SIDES, indexes, marks, strict=True)
    )
    return FinishedKeys(columns, next(each for each in indexes if each).whole_key, left, right)


def _side(query: Query, side: Side, known: PromiseFiles, watermark: int) -> PromisedSide:
    far = reach(query.window, side)
    return PromisedSide(known, watermark, far if far < FOREVER and not any(query.rows) else None)


# --- what is due ----------------------------------------------------------------------------------------------------


def choose_propagations(plan: Plan, ledger: Ledger, jobs: UnitJobs) -> list[Propagation]:
    """List the queries that may have something to tell by now."""
    asking = [each for each in plan.queries if tells(each)]
    return [task for each in asking if (task := _due(plan, ledger, each, jobs))]


def _due(plan: Plan, ledger: Ledger, query: Query, jobs: UnitJobs) -> Propagation | None:
    if ledger.query(query.name).backfill:
        return None  # its past comes first
    finishing, state = finished_keys(plan, ledger, query), ledger.told(query.name)
    if finishing is None:
        return None
    known = finishing.left.known.rows + finishing.right.known.rows
    if finishing.spoken - state.seen < max(1, known // LOOK_SHARE):
        return None
    return Propagation(
        query=query.name,
        index=told_index(query),
        finishing=finishing.bare(),
        columns=key_columns(plan, query, jobs),
        told=ledger.promises.get(told_index(query), PromiseFiles()).bare(),
        root=query.sink.option("path"),
        final=f"{PUNCTUATIONS}/told-{state.times:012d}.parquet",
        compression=query.sink.option("compression", "snappy"),
        seen=finishing.spoken,
    )


def finished_now(plan: Plan, ledger: Ledger, query: Query, jobs: UnitJobs) -> Propagation | None:
    """Say how to find all values that are finished for a query; None if there cannot be any."""
    if promised_sides(plan, query) is None:
        raise InputError(
            f"values of query {query.name} are never finished: no stream makes promises about the columns it joins on; "
            "declare punctuates or unique on one of them"
        )
    finishing = finished_keys(plan, ledger, query)
    if finishing is None:
        return None
    return Propagation(query.name, "", finishing.bare(), key_columns(plan, query, jobs))


def _key_parts(plan: Plan, query: Query) -> list[tuple[Stream, KeyPart]]:
    """Give for each part of a query's join key a plain column of either side, if it can be of the type compared."""
    group, parts = plan.find(query.name)[0], []
    for number in range(len(query.keys)):
        sides = [(plan.stream(group.log(side).stream), group.log(side).key[number]) for side in SIDES]
        plain = [(stream, part) for stream, part in sides if part.column]
        computed = (sides[0][0], replace(sides[0][1], column=f"key{number}", cast=True))
        parts.append(next((each for each in plain if not each[1].cast), (*plain, computed)[0]))
    return parts


def key_columns(plan: Plan, query: Query, jobs: UnitJobs) -> tuple[tuple[str, pa.DataType | None], ...]:
    """Name the parts of a query's join key by columns, and give their Arrow types; None where it is another."""
    return tuple(
        (part.column, None if part.cast else jobs.arrow_types(stream)[part.column])
        for stream, part in _key_parts(plan, query)
    )


def key_ddl(plan: Plan, query: Query) -> str:
    """Write the same as Spark DDL."""
    return ", ".join(f"{always_quoted(part.column)} {part.type}" for _, part in _key_parts(plan, query))


# --- in a task ------------------------------------------------------------------------------------------------------


def told_values(files: Files, task: Propagation) -> tuple[pa.Table, Hashes, list[pa.Array]]:
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


def run_propagation(files: Files, task: Propagation) -> PropagationReport:
    """Write the values that are finished, for the sink and as told."""
    table, h, keys = told_values(files, task)
    if not h.size:
        return PropagationReport()
    told = write_exact(files, task.index, in_order(h, np.zeros(h.size, np.int64), keys), 0)
    out = OutputFile(task.root, task.final, task.compression)
    for batch in table.combine_chunks().to_batches():
        out.write(batch)
    out.close({"query": task.query, "punctuations": table.num_rows})
    return PropagationReport(out.report(task.query), told)


# --- the commit -----------------------------------------------------------------------------------------------------


def propagate_commit(
    tasks: Sequence[Propagation], reports: Sequence[PropagationReport], number: int
) -> Propagated:
    """Say what was told, and what there is to publish."""
    done = list(zip(tasks, reports, strict=True))
    written = [report.file for _, report in done if report.file]
    return Propagated(
        told={task.index: PromiseFiles((report.told,)) for task, report in done if report.told},
        seen={task.query: task.seen for task, _ in done},
        output=Output(publish=publications(f"told-{number:012d}", written, set())),
    )
