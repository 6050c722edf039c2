"""Tasks that release results in order: what is due goes to the sink, what is not stays held."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.runners.runner import RELEASED
from penstock.engine.sinks.notes import Buffers, note
from penstock.state.hold import (
    ARRIVED,
    TIME,
    Held,
    hold_folder,
    in_order,
    own_columns,
    read_hold,
    rest_of,
    write_hold,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.engine.sinks.destination import Destination
    from penstock.state.files import Files
    from penstock.state.output_file import WrittenFile

RELEASE = "release-"
"""How the id of a release begins, by which a callback gets it; a unit's begins with its group."""


@dataclass(frozen=True, slots=True)
class Release:
    """What one task is told: which hold files of a query have results below `until`, and which to merge of the rest."""

    query: str
    until: int
    due: tuple[Held, ...]
    merges: tuple[tuple[Held, ...], ...]
    destination: Destination | None
    """Where the results go; None if they are only counted."""
    name: str
    """The name of their file; names ascend, so that files can be read in order."""
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
    out = release.destination.file(release.name) if release.destination else None
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


def _unsorted(files: Files, holds: Iterable[Held], since: int, until: int) -> Iterator[pa.Table]:
    """Read what is due where it is only counted."""
    for run in (run for each in holds for run in read_hold(files, each, since, until)):
        yield pa.Table.from_batches([run])


def _arrivals(column: pa.Array | pa.ChunkedArray) -> dict[float, int]:
    """Count results by when the later of their rows arrived."""
    return {each["values"]: each["counts"] for each in pc.value_counts(column).to_pylist()}
