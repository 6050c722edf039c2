"""Release results in order: a task writes the results that are due for the sink, and the others to new hold files."""

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
"""The prefix of the id of a release; the id of a unit begins with its group."""


@dataclass(frozen=True, slots=True)
class ReleaseTask:
    """Releases the results of one query below `until`, and merges hold files of the rest."""

    query: str
    until: int
    due: tuple[Held, ...]
    merges: tuple[tuple[Held, ...], ...]
    destination: Destination | None
    """Where the results go; None if they are only counted."""
    name: str
    """The name of their file; names ascend, so that files can be read in order."""
    released: int | None = None
    """The time of the last result released before; older results are out of order."""
    last: bool = False
    """Whether this is the last release."""
    unit: str = ""
    """The id of the release."""
    buffers: Buffers = field(default_factory=Buffers)
    """What waited when the release began."""

    def run(self, files: Files) -> ReleaseReport:
        """Write the results that are due, in order, and the rest of their files."""
        merged = [
            write_hold(
                files,
                hold_folder(self.query),
                in_order(files, run, self.until, 1 + max(held.max_t for held in run)),
                run[0].generation + 1,
            )
            for run in self.merges
        ]
        moved = {held.name for run in self.merges for held in run}
        kept = [rest_of(files, held, self.until) for held in self.due if held.name not in moved]
        return replace(
            _write_due(files, self),
            gone=tuple(sorted({held.name for held in self.due} | moved)),
            held=tuple(held for held in (*merged, *kept) if held),
        )


@dataclass(frozen=True, slots=True)
class ReleaseReport:
    """The results of one query that a task has released, and the hold files that remain."""

    results: int
    arrivals: tuple[tuple[float, int], ...]
    """The number of results by the arrival of the later of their rows."""
    files: tuple[WrittenFile, ...]
    disordered: int
    newest: int
    """The time of the last result."""
    gone: tuple[str, ...] = ()
    held: tuple[Held, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts for the runner's accumulators."""
        return {RELEASED: self.results}


def _write_due(files: Files, release: ReleaseTask) -> ReleaseReport:
    """Write the results that are due as one file in order, or only count them."""
    first = min((held.min_t for held in release.due), default=release.until)
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
    """Read the results that are due, where they are only counted."""
    for held in holds:
        for run in read_hold(files, held, since, until):
            yield pa.Table.from_batches([run])


def _arrivals(column: pa.Array | pa.ChunkedArray) -> dict[float, int]:
    """Count results by the arrival of the later of their rows."""
    return {count["values"]: count["counts"] for count in pc.value_counts(column).to_pylist()}
