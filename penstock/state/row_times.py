"""A stream's roll: the event times of all its rows in order, so that a window can count rows.

A row's *position* is how many rows of its stream are older, or of equal time and counted before it.  It is known for
good once the watermark has passed the row, because nothing can come between any more: then the row is *sealed*::

    position    0  1  2  3   4  5  6
    pieces     [1  1  4  7] [8  8  9]  |  horizon 10: nothing older comes any more
    waiting                    [9 12 15]  [11 13]         one file for each task of a batch; the 9 is sealed

Every row that came in time is on it, also one without a key or wanted by nobody: the window is over the stream,
before any selection.  Sealing sorts the waiting times below the new horizon and appends them as a piece.  It takes the
small pieces before it along, so that there are never many; a piece goes when no window reaches it any more.

In:  the event times of each batch (`write_times`).
Out: `Roll`, what the ledger knows, and `Positions`, which answers how many rows there are up to a time.
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
    from penstock.state.checksum import Kept
    from penstock.state.files import Files

LONG_AGO, NOT_YET = -(1 << 62), 1 << 62
"""The time of a position before the first row of a stream, and of one after its last."""


@dataclass(frozen=True, slots=True)
class Roll:
    """How far a stream is counted.

    `horizon` is the event time below which every row is sealed; None before the first.  A piece's ``first .. last`` are
    the positions it holds; those before the first piece have been let go.
    """

    horizon: int | None = None
    pieces: tuple[Segment, ...] = ()
    waiting: tuple[Segment, ...] = ()

    @property
    def end(self) -> int:
        """Give the position after the last sealed row."""
        return self.pieces[-1].last + 1 if self.pieces else 0

    def sealed(self) -> Roll:
        """Give what is sealed, without what waits: all that a task needs."""
        return replace(self, waiting=())


def roll_folder(stream: str) -> str:
    """Name the directory of a stream's roll, beside the logs.

    >>> roll_folder("Temperature")
    'roll-temperature-38d2a5bb'
    """
    slug = re.sub(r"[^a-z0-9]+", "_", stream.lower()).strip("_")[: LONGEST_NAME_BYTES - 14]
    return f"roll-{slug}-{crc32(stream.encode()):08x}"


def write_times(files: Files, name: str, t: Ints, *, first: int, last: int) -> Segment:
    """Write event times in order, as a file that can be mapped."""
    batch = pa.RecordBatch.from_arrays([pa.array(np.sort(t))], [TIME])
    with summed_writer(files, name) as sink, pa.ipc.new_file(sink, batch.schema) as out:
        out.write_batch(batch)
    made = Segment(name, first, last, t.size, int(t.min()), int(t.max()), batch.nbytes)
    return replace(made, checksum=sink.checksum)


def read_times(files: Files, piece: Kept) -> Ints:
    """Map a file of event times."""
    times: Ints = pa.ipc.open_file(map_whole(files, piece)).get_batch(0).column(0).to_numpy()
    return times


@dataclass(frozen=True, slots=True)
class Sealing:
    """What a stream's next piece is made of: small pieces before it, and waiting times in ``[since, until)``.

    `ended` are pieces that no window reaches any more: they go with the same commit.
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
    """Choose what goes into the next piece."""
    since = LONG_AGO if roll.horizon is None else roll.horizon
    waiting = tuple(each for each in roll.waiting if each.min_t < until)
    rows = sum(each.rows for each in waiting)
    gone = tuple(each for each in ended if each != roll.pieces[-1])  # the last says where the next begins
    kept = [each for each in roll.pieces if each not in gone]
    absorbed: list[Segment] = []
    while rows and kept and kept[-1].rows <= rows and kept[-1].rows + rows <= limits.MAX_ROWS_PER_PIECE:
        rows += kept[-1].rows
        absorbed.insert(0, kept.pop())
    return Sealing(stream, tuple(absorbed), waiting, since, until, roll.end, gone)


def seal(files: Files, sealing: Sealing) -> Segment | None:
    """Write the next piece of a roll; None if no row is sealed, so that the pieces before stay as they are."""
    times = [read_times(files, each) for each in sealing.waiting]
    fresh = [t[np.searchsorted(t, sealing.since) : np.searchsorted(t, sealing.until)] for t in times]
    count = sum(t.size for t in fresh)
    if not count:
        return None
    first = sealing.absorbed[0].first if sealing.absorbed else sealing.position
    whole = np.concatenate([*(read_times(files, each) for each in sealing.absorbed), *fresh])
    name = f"log/{roll_folder(sealing.stream)}/{first:015d}-{uuid.uuid4().hex}.arrow"
    return write_times(files, name, whole, first=first, last=sealing.position + count - 1)


@dataclass(frozen=True, slots=True)
class Positions:
    """Answers questions about a roll by mapping the pieces it needs."""

    files: Files
    roll: Roll

    def before(self, t: int) -> int:
        """Count the sealed rows that are older than t: the position of the first that is not."""
        pieces = self.roll.pieces
        number = bisect_right([each.min_t for each in pieces], t - 1) - 1
        if number < 0:
            return pieces[0].first if pieces else 0
        times = read_times(self.files, pieces[number])
        return pieces[number].first + int(np.searchsorted(times, t))

    def times(self, first: int, last: int) -> Ints:
        """Give the event times at the positions ``first .. last - 1``, in order.

        Before the stream's first row that is `LONG_AGO`, after its last sealed one `NOT_YET`.  Positions that have been
        let go have the time of the first that is held: rows that old cannot be counted any more.
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
        """Say how far before `sealed_until` the last so many rows reach, in microseconds; None: to the first row.

        A row is among them exactly if its time is greater than ``sealed_until - span``.
        """
        position = self.before(sealed_until) - rows
        return None if position < 0 else sealed_until - int(self.times(position, position + 1)[0]) + 1
