"""Release: give results their turn, where a query wants them in order.

The time of a pair is the later of its two rows' event times.  A pair still to be found has a row still to be joined,
which is not older than its stream's watermark at the group's cursor.  So below the *horizon*, the lower of the two,
every pair is there: those are released, sorted, and the rest stays held (`penstock.state.hold`)::

    watermarks     left ----------------------o 40
                   right ---------------o 31                  H = 31
    pairs          ...  22  25  27  30 |  33  38  41          released | held

The sequence that a query gets is therefore that of its sorted result, whatever the batches, the chain and the other
queries.  Two things end a sequence early and begin a new one: the end of a run over all input that is there, and a new
definition of the query; what is held is released then, since nothing would be waited for any more.

In:  the plan and the ledger.  Out: `Release`, one task each, and the ``release`` commit made of what they report.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.runners.runner import RELEASED, Job, counted
from penstock.engine.sinks.notes import Buffers, note
from penstock.engine.sinks.sinks import SPOOLED, kept_files, publications, results_folder, sink_root
from penstock.engine.views.waiting import lag_rows
from penstock.plan.order_policy import trigger
from penstock.state.commits import Output, Released
from penstock.state.hold import (
    ARRIVED,
    TIME,
    Held,
    choose_merges,
    hold_folder,
    in_order,
    own_columns,
    read_hold,
    rest_of,
    write_hold,
)
from penstock.state.output_file import OutputFile, WrittenFile
from penstock.state.recent import delays_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from penstock.engine.views.idle import IdleClock
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Query, Side
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger


RELEASE = "release-"
"""How the id of a release begins, by which a callback gets it; a unit's begins with its group."""


@dataclass(frozen=True, slots=True)
class Release:
    """What one task is told: which hold files of a query have results below `until`, and which to merge of the rest."""

    query: str
    until: int
    due: tuple[Held, ...]
    merges: tuple[tuple[Held, ...], ...]
    root: str
    """Where the results go, empty if they are only counted, or kept in the state."""
    final: str
    compression: str
    spooled: bool
    kept: str = ""
    """The directory of the state where they are kept."""
    released: int | None = None
    """The time of the last result released before; what is older is out of order now."""
    last: bool = False
    """Whether the sequence ends here."""
    unit: str = ""
    """The id of the release."""
    buffers: Buffers = field(default_factory=Buffers)
    """What waited when it began."""

    def run(self, files: Files) -> ReleaseReport:
        """Write the results that are due, in order, and what is still held of the files they were in."""
        return run_release(files, self)


def horizon(plan: Plan, ledger: Ledger, query: str, silence: IdleClock | None = None) -> int | None:
    """Give the time below which a query has all its pairs, whichever groups they come from; None if there is none.

    Streams that are idle by now are not waited for, if the query says so; if all are, there is nothing to wait for.
    """
    marks = [
        mark
        for group, _, member in plan.groups_of(query)
        for mark in _marks(group, member.query, ledger, silence)
    ]
    return trigger(marks) if marks else _NOTHING_TO_WAIT_FOR


_NOTHING_TO_WAIT_FOR = 1 << 62


def side_marks(
    plan: Plan, ledger: Ledger, query: Query, silence: IdleClock | None = None
) -> dict[Side, int | None]:
    """Give, by input of a query, the time below which all its rows are joined; None if not known."""
    marks: dict[Side, list[int | None]] = {side: [] for side in query.sides}
    for group, _, member in plan.groups_of(query.name):
        state = ledger.groups.get(group.id)
        slices, none = group.chain.read_by(query.name), len(group.inputs)
        known = state.watermarks_of(slices) if state else (None,) * none
        joined = min(state.cursors[each] for each in slices).batches if state else (0,) * none
        for side, mark, stream, batches in zip(group.sides, known, group.streams, joined, strict=True):
            has_sent = batches < ledger.stream(stream).batches
            if silence is None or has_sent or not silence.is_idle(ledger, member.query, stream):
                marks[side].append(mark)
    return {side: trigger(each) if each else _NOTHING_TO_WAIT_FOR for side, each in marks.items()}


def _marks(group: Group, query: Query, ledger: Ledger, silence: IdleClock | None) -> list[int | None]:
    """Give the watermarks of the slowest slice that a query reads: those farther out do not concern it."""
    state = ledger.groups.get(group.id)
    if state is None:
        return [None]
    slices = group.chain.read_by(query.name)
    joined = min(state.cursors[each] for each in slices).batches
    return [
        mark
        for mark, stream, batches in zip(state.watermarks_of(slices), group.streams, joined, strict=True)
        if silence is None
        or batches < ledger.stream(stream).batches  # it has sent something after all
        or not silence.is_idle(ledger, query, stream)
    ]


def choose_releases(
    plan: Plan, ledger: Ledger, files: Files, silence: IdleClock | None = None
) -> list[Release]:
    """List what can be released, or should be merged, by now."""
    releases = []
    for query in plan.queries:
        held = ledger.hold(query.name).files
        if held:
            until = horizon(plan, ledger, query.name, silence)
            first, last = min(each.min_t for each in held), max(each.max_t for each in held)
            until = first if until is None else min(until, last + 1)
            releases.append(_release(plan, ledger, files, query, until))
    return [each for each in releases if each.due or each.merges]


def last_releases(
    plan: Plan, ledger: Ledger, files: Files, only: Container[str] | None = None
) -> list[Release]:
    """List everything that is held, of all queries or of some: their sequences end here."""
    return [
        replace(_release(plan, ledger, files, query, 1 + max(each.max_t for each in held)), last=True)
        for query in plan.queries
        if (held := ledger.hold(query.name).files) and (only is None or query.name in only)
    ]


def is_due(plan: Plan, ledger: Ledger, silence: IdleClock | None = None) -> bool:
    """Say whether something is held whose turn it is."""
    return any(
        each.min_t < until
        for query in plan.queries
        if (held := ledger.hold(query.name).files)
        and (until := horizon(plan, ledger, query.name, silence)) is not None
        for each in held
    )


def _release(plan: Plan, ledger: Ledger, files: Files, query: Query, until: int) -> Release:
    """Describe one query's release."""
    hold = ledger.hold(query.name)
    waiting = max(lag_rows(group, ledger, query.name) for group, _, _ in plan.groups_of(query.name))
    return Release(
        query=query.name,
        until=until,
        due=tuple(each for each in hold.files if each.min_t < until),
        merges=tuple(choose_merges(each for each in hold.files if each.max_t >= until)),
        root=sink_root(query, files),
        final=f"released-{ledger.releases:012d}",
        compression=query.sink.option("compression", "snappy"),
        spooled=query.sink.kind in SPOOLED,
        kept=results_folder(query.name) if query.sink.kind == "table" else "",
        released=hold.until,
        unit=f"{RELEASE}{ledger.releases:012d}",
        buffers=Buffers(waiting, hold.rows, ledger.undelivered.get(query.name, 0)),
    )


@dataclass(frozen=True, slots=True)
class ReleaseReport:
    """What a task has released of one query, and what is held of it from here on."""

    results: int
    arrivals: tuple[tuple[float, int], ...]
    """When the later of their rows had arrived, and how many results."""
    files: tuple[WrittenFile, ...]
    disordered: int
    newest: int
    """The time of the last result."""
    gone: tuple[str, ...] = ()
    held: tuple[Held, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return what the runner adds up."""
        return {RELEASED: self.results}


def run_release(files: Files, release: Release) -> ReleaseReport:
    """Write a query's results whose turn it is, in order, and what is still held of the files they were in."""
    merged = [
        write_hold(
            files,
            hold_folder(release.query),
            in_order(files, run, release.until, 1 + max(each.max_t for each in run)),
            run[0].generation + 1,
        )
        for run in release.merges
    ]
    moved = {each.name for run in release.merges for each in run}
    kept = [rest_of(files, each, release.until) for each in release.due if each.name not in moved]
    return replace(
        _write_due(files, release),
        gone=tuple(sorted({each.name for each in release.due} | moved)),
        held=tuple(each for each in (*merged, *kept) if each),
    )


def _write_due(files: Files, release: Release) -> ReleaseReport:
    """Write what is due as one file in order, or only count it."""
    first = min((each.min_t for each in release.due), default=release.until)
    arrivals, disordered, newest = Counter[float](), 0, first
    out = _output_file(files, release)
    tables = _unsorted if out is None else in_order
    for table in tables(files, release.due, first, release.until):
        arrivals.update(_arrivals(table.column(ARRIVED)))
        newest = max(newest, pc.max(table.column(TIME)).as_py())
        if release.released is not None:
            disordered += pc.sum(pc.less(table.column(TIME), release.released)).as_py() or 0
        if out is not None:
            for batch in own_columns(table).to_batches():
                out.write(batch)
    buffers = replace(release.buffers, held=release.buffers.held - arrivals.total())
    if out is not None:
        out.close(note(release.query, release.unit, arrivals.items(), buffers))
    written = (out.report(release.query),) if out is not None and out.rows else ()
    return ReleaseReport(arrivals.total(), tuple(arrivals.items()), written, disordered, newest)


def _output_file(files: Files, release: Release) -> OutputFile | None:
    """Name the file of a release, for a sink or for the state to keep; None if results are only counted."""
    if release.kept:  # names ascend, so that what is kept can be read in order
        name = f"{release.kept}/{release.final}-{uuid.uuid4().hex}.parquet"
        return OutputFile(files.root, name, kept=True)
    return OutputFile(release.root, f"{release.final}.parquet", release.compression) if release.root else None


def _unsorted(files: Files, holds: Iterable[Held], since: int, until: int) -> Iterator[pa.Table]:
    """Read what is due where it is only counted."""
    for run in (run for each in holds for run in read_hold(files, each, since, until)):
        yield pa.Table.from_batches([run])


def _arrivals(column: pa.Array | pa.ChunkedArray) -> dict[float, int]:
    """Count results by when the later of their rows arrived."""
    return {each["values"]: each["counts"] for each in pc.value_counts(column).to_pylist()}


def release_job(releases: Sequence[Release]) -> Job:
    """Describe the job that releases results."""
    return Job("release", f"release results in order, {counted(len(releases), 'query', 'queries')}")


def release_commit(releases: Sequence[Release], reports: Sequence[ReleaseReport]) -> Released:
    """Say what was released, what is still held, and what there is to publish."""
    done = [(each.query, report) for each, report in zip(releases, reports, strict=True)]
    ends = [None if each.last else report.newest for each, report in zip(releases, reports, strict=True)]
    return Released(
        gone={query: report.gone for query, report in done},
        until={each.query: end for each, end in zip(releases, ends, strict=True) if each.due},
        disordered={query: report.disordered for query, report in done if report.disordered},
        output=_output(releases, done),
    )


def _output(releases: Sequence[Release], done: Sequence[tuple[str, ReleaseReport]]) -> Output:
    """Say what is to be published, kept and held of what was released."""
    written = [file for _, report in done for file in report.files]
    spooled = {each.query for each in releases if each.spooled}
    return Output(
        results={query: report.results for query, report in done if report.results},
        delays={query: tuple(delays_of(report.arrivals, time.time())) for query, report in done},
        held={query: report.held for query, report in done},
        publish=publications(releases[0].unit, written, spooled),
        kept=kept_files(written),
    )
