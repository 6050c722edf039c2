"""A stream's roll: the sorted event times of all its rows, for windows that count rows.

A row's *position* is the number of rows of its stream that are older, or equally old and counted before it.  It is
final once the watermark has passed the row; then the row is *sealed*::

    position    0  1  2  3   4  5  6
    pieces     [1  1  4  7] [8  8  9]  |  horizon 10: no older row can arrive in time
    waiting                    [9 12 15]  [11 13]         one file for each task of a batch; the 9 is sealed

The roll has every row that is in time, also rows without a key or without a query: the window is over the stream,
before any selection.  Sealing sorts the waiting times below the new horizon and appends them as a piece.  Small pieces
are merged into the next one; a piece is removed when no window reaches it.

In:  the event times of each batch (`write_times`).
Out: `Roll`, the ledger's entry, and `Positions`, which counts the rows up to a time.
"""

from __future__ import annotations

import re
import uuid
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.plan.stored import LONGEST_NAME_BYTES
from penstock.state.checksum import map_whole, summed_writer
from penstock.state.segment import TIME, Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernels.key_hash import Ints
    from penstock.state.checksum import JournaledFile
    from penstock.state.files import Files

LONG_AGO, NOT_YET = -(1 << 62), 1 << 62
"""The times of positions before the first row of a stream, and after its last."""


@dataclass(frozen=True, slots=True)
class Roll:
    """The files of a stream's event times.

    `horizon` is the event time below which every row is sealed; None before the first.  A piece has the positions
    ``first .. last``; those before the first piece have been removed.
    """

    horizon: int | None = None
    pieces: tuple[Segment, ...] = ()
    waiting: tuple[Segment, ...] = ()

    @property
    def end(self) -> int:
        """Return the position after the last sealed row."""
        return self.pieces[-1].last + 1 if self.pieces else 0

    def sealed(self) -> Roll:
        """Return the sealed pieces without the waiting files, for tasks."""
        return replace(self, waiting=())


def roll_folder(stream: str) -> str:
    """Return the directory of a stream's roll, among those of the logs.

    >>> roll_folder("Temperature")
    'roll-temperature-38d2a5bb'
    """
    slug = re.sub(r"[^a-z0-9]+", "_", stream.lower()).strip("_")[: LONGEST_NAME_BYTES - 14]
    return f"roll-{slug}-{crc32(stream.encode()):08x}"


def write_times(files: Files, name: str, t: Ints, *, first: int, last: int) -> Segment:
    """Write sorted event times as a file that can be mapped."""
    batch = pa.RecordBatch.from_arrays([pa.array(np.sort(t))], [TIME])
    with summed_writer(files, name) as sink, pa.ipc.new_file(sink, batch.schema) as out:
        out.write_batch(batch)
    made = Segment(name, first, last, t.size, int(t.min()), int(t.max()), batch.nbytes)
    return replace(made, checksum=sink.checksum)


def read_times(files: Files, piece: JournaledFile) -> Ints:
    """Map a file of event times."""
    times: Ints = pa.ipc.open_file(map_whole(files, piece)).get_batch(0).column(0).to_numpy()
    return times


@dataclass(frozen=True, slots=True)
class Sealing:
    """A task that writes a stream's next piece, from small pieces before it and waiting times in ``[since, until)``.

    `ended` are pieces that no window reaches; the same commit removes them.
    """

    stream: str
    absorbed: tuple[Segment, ...]
    waiting: tuple[Segment, ...]
    since: int
    until: int
    position: int
    ended: tuple[Segment, ...] = ()

    def run(self, files: Files) -> Segment | None:
        """Write the piece; None if no row is sealed."""
        return seal(files, self)


def plan_sealing(stream: str, roll: Roll, until: int, ended: Sequence[Segment] = ()) -> Sealing:
    """Choose the parts of the next piece."""
    since = LONG_AGO if roll.horizon is None else roll.horizon
    waiting = tuple(file for file in roll.waiting if file.min_t < until)
    rows = sum(file.rows for file in waiting)
    gone = tuple(piece for piece in ended if piece != roll.pieces[-1])  # the last one has the next position
    kept = [piece for piece in roll.pieces if piece not in gone]
    absorbed: list[Segment] = []
    while rows and kept and kept[-1].rows <= rows and kept[-1].rows + rows <= limits.MAX_ROWS_PER_PIECE:
        rows += kept[-1].rows
        absorbed.insert(0, kept.pop())
    return Sealing(stream, tuple(absorbed), waiting, since, until, roll.end, gone)


def seal(files: Files, sealing: Sealing) -> Segment | None:
    """Write the next piece of a roll; None if no row is sealed."""
    times = [read_times(files, file) for file in sealing.waiting]
    fresh = [t[np.searchsorted(t, sealing.since) : np.searchsorted(t, sealing.until)] for t in times]
    count = sum(t.size for t in fresh)
    if not count:
        return None
    first = sealing.absorbed[0].first if sealing.absorbed else sealing.position
    whole = np.concatenate([*(read_times(files, piece) for piece in sealing.absorbed), *fresh])
    name = f"log/{roll_folder(sealing.stream)}/{first:015d}-{uuid.uuid4().hex}.arrow"
    return write_times(files, name, whole, first=first, last=sealing.position + count - 1)


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of a roll; pieces are mapped on demand."""

    files: Files
    roll: Roll

    def before(self, t: int) -> int:
        """Return the number of sealed rows older than t: the position of the first that is not."""
        pieces = self.roll.pieces
        number = bisect_right([piece.min_t for piece in pieces], t - 1) - 1
        if number < 0:
            return pieces[0].first if pieces else 0
        times = read_times(self.files, pieces[number])
        return pieces[number].first + int(np.searchsorted(times, t))

    def times(self, first: int, last: int) -> Ints:
        """Return the sorted event times at the positions ``first .. last - 1``.

        Positions before the stream's first row have `LONG_AGO`, those after its last sealed row `NOT_YET`.  Removed
        positions have the time of the first one left: rows that old cannot be counted.
        """
        pieces = self.roll.pieces
        start, end = (pieces[0].first, self.roll.end) if pieces else (0, 0)
        oldest = pieces[0].min_t if start else LONG_AGO
        parts = [np.full(max(0, min(last, start) - first), oldest)]
        for piece in pieces:
            low, high = max(first, piece.first), min(last, piece.last + 1)
            if low < high:
                parts.append(read_times(self.files, piece)[low - piece.first : high - piece.first])
        parts.append(np.full(max(0, last - max(first, end)), NOT_YET))
        return np.concatenate(parts)

    def span(self, sealed_until: int, rows: int) -> int | None:
        """Return the extent in time of the last `rows` rows before `sealed_until`, in microseconds; None: all rows.

        A row is one of them exactly if its time is greater than ``sealed_until - span``.
        """
        position = self.before(sealed_until) - rows
        return None if position < 0 else sealed_until - int(self.times(position, position + 1)[0]) + 1
