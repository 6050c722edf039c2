"""Write identical results of several queries once, as a file that is linked or copied for each query.

Queries that differ in their windows or predicates write the same columns of the same pairs: a pair within the narrowest
window is a result of every query.  Pairs with the same set of queries are of one *kind*::

    levels         0 1     2 3     4 5
    q0                    ▒▒▒▒▒
    q1            ▓▓▓▓▓▓▓▓▒▒▒▒▒▓▓▓▓▓▓▓▓
    kinds         q1      q0, q1    q1          ▓ only q1, ▒ both

    a kind of many rows       a file of its own, shared by its queries (`OutputFile.share`)
    a kind of few rows        encoded for each of its queries, with the other rows of that query
    a kind of one query       in the file of that query

Pairs wait until there are many, so that few kinds have few rows.  Where pairs come slice by slice, they are divided by
kind without a copy.

In:  batches of pairs, and the queries that get each.  Out: files of a task's output.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.sinks.notes import Buffers, common_note
from penstock.engine.sinks.routes import FileRoute, own_rows
from penstock.state.output_file import RowBuffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.sinks.destination import Destination
    from penstock.engine.sinks.pair_batch import PairBatch, Target
    from penstock.engine.tasks.route_pairs import TaskOutput
    from penstock.state.output_file import OutputFile, WrittenFile

    Kinds = NDArray[np.integer]

MOST_WAITING = 1 << 20
"""Rows that wait before they are divided by kind and encoded."""

LEAST_OF_FILE = 1 << 13
"""The fewest waiting rows of a kind for which a file is opened: `MOST_WAITING` rows open at most 128 files."""

MOST_RUNS = 4
"""The most runs of neighbours for each kind with many rows, for which a batch is divided without sorting."""

_KIND = "kind"


def shared_files(task: TaskOutput, targets: Iterable[Target]) -> list[SharedFiles]:
    """Return the queries whose files have the same columns, where there are several."""
    alike: dict[object, list[tuple[Target, Destination]]] = defaultdict(list)
    for target in targets:
        route = target.route
        if isinstance(route, FileRoute) and route.destination.shared and not target.computed:
            key = target.columns, target.types, route.destination.compression
            alike[key].append((target, route.destination))
    return [SharedFiles(task, dict(some)) for some in alike.values() if len(some) > 1]


class SharedFiles:
    """The files of one task for queries with the same columns."""

    def __init__(self, task: TaskOutput, destinations: Mapping[Target, Destination]) -> None:
        """Begin with nothing."""
        self.targets, self._task = tuple(destinations), task
        self._destinations = destinations
        self._kinds, self._sets = {0: 0}, [0]
        """Kinds by their sets of queries, and the reverse; pairs that none of these queries gets are of kind 0."""
        self._waiting = RowBuffer(MOST_WAITING, copies=2)
        self._arrivals: list[float] = []
        """When the batches that wait arrived."""
        self.files: dict[int, OutputFile] = {}
        """The files of kinds."""
        self._in_files: dict[int, Counter[float]] = defaultdict(Counter)
        """For each kind that has a file, the number of its results by when they arrived."""

    @property
    def waiting(self) -> int:
        """Return the bytes of the rows that are not encoded yet."""
        return self._waiting.bytes

    def take(self, pairs: PairBatch) -> None:
        """Add the pairs of a batch that some of the queries get."""
        kinds = self._kinds_of(pairs)
        wanted = kinds > 0
        if wanted.any():
            # a few rows that no query wants are left out later, without a copy of the rest
            mask = None if 2 * np.count_nonzero(wanted) > wanted.size else wanted
            self._arrivals.append(pairs.arrived)
            columns = {_KIND: pa.array(kinds, pa.int32())}
            self._task.put(self, own_rows(pairs, self.targets[0], mask, after=columns))

    def write(self, batch: pa.RecordBatch) -> None:
        """Add some rows with their kinds."""
        if self._waiting.add(batch):
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait: kinds with many rows once, the others for each query."""
        arrivals, self._arrivals = self._arrivals, []
        batches = [_Divided.of(rows, at) for rows, at in zip(self._waiting.drain(), arrivals, strict=True)]
        counts = np.zeros(len(self._sets), np.int64)
        for batch in batches:
            counts += np.bincount(batch.kinds, minlength=counts.size)
        counts[0] = 0
        many = counts >= LEAST_OF_FILE
        many[[kind for kind in self.files if counts[kind]]] = True
        few = (counts > 0) & ~many
        found: dict[int, list[tuple[pa.RecordBatch, float]]] = defaultdict(list)
        for batch in batches if many.any() else ():
            for kind, rows in batch.runs(many):
                found[kind].append((rows, batch.arrived))
        for kind, some in found.items():
            self._write_kind(kind, some)
        if few.any():
            self._write_few([batch.rows_of(few) for batch in batches])

    def _write_kind(self, kind: int, some: Sequence[tuple[pa.RecordBatch, float]]) -> None:
        """Write rows of one kind once, into the file of the kind or of its only query."""
        first, *others = self._wanting(kind)
        file = self._file(kind) if others else self._task.file(first.query, self._destinations[first])
        for rows, arrived in some:
            self._task.put(file, rows)
            if others:
                self._in_files[kind][arrived] += rows.num_rows
        self._task.flush(file)  # else its rows, which are slices, keep whole batches in memory

    def _write_few(self, few: Sequence[tuple[pa.RecordBatch, Kinds]]) -> None:
        """Write the rows of kinds with few rows into the file of each query."""
        rows = pa.concat_batches([batch for batch, _ in few])
        kinds = np.concatenate([kinds for _, kinds in few])
        for target in self.targets:
            wanting = np.array([bool(queries >> target.number & 1) for queries in self._sets])[kinds]
            if wanting.any():
                file = self._task.file(target.query, self._destinations[target])
                self._task.put(file, rows.filter(pa.array(wanting)))

    def close(self) -> list[WrittenFile]:
        """Write the remaining rows, complete the files of kinds, and return the files of each query."""
        self.flush()
        delivery = self._task.delivery
        written: list[WrittenFile] = []
        for kind, file in self.files.items():
            first, *others = self._wanting(kind)
            buffers = {one.query: delivery.buffers.get(one.query, Buffers()) for one in (first, *others)}
            file.close(common_note(buffers, delivery.unit, self._in_files[kind].items()))
            written.append(file.report(first.query))
            written += [file.share(self._destinations[other].root, other.query) for other in others]
        return written

    def in_files(self, number: int) -> Counter[float]:
        """Count the results of one query in files of kinds, by their arrival."""
        mine = (counts for kind, counts in self._in_files.items() if self._sets[kind] >> number & 1)
        return sum(mine, Counter[float]())

    def _file(self, kind: int) -> OutputFile:
        """Open (once) the file of a kind, in the directory of its first query."""
        if kind not in self.files:
            destination = self._destinations[self._wanting(kind)[0]]
            self.files[kind] = destination.file(f"{self._task.part_name}-{kind:02d}")
        return self.files[kind]

    def _wanting(self, kind: int) -> list[Target]:
        """List the queries that get a kind."""
        return [target for target in self.targets if self._sets[kind] >> target.number & 1]

    def _kinds_of(self, pairs: PairBatch) -> Kinds:
        """Return the kind of each pair, by the set of queries that get it."""
        if pairs.sets is None:
            return self._kinds_of_levels[np.minimum(pairs.level, len(self._kinds_of_levels) - 1)]
        own = sum(1 << target.number for target in self.targets)
        packed = np.ascontiguousarray(pairs.sets)
        packed_type = pa.binary(packed.itemsize * packed.shape[1])
        column = pa.FixedSizeBinaryArray.from_buffers(packed_type, len(packed), [None, pa.py_buffer(packed)])
        encoded = column.dictionary_encode()
        wanting = (int.from_bytes(words, "little") & own for words in encoded.dictionary.to_pylist())
        return self._numbered(wanting)[encoded.indices.to_numpy()]

    @cached_property
    def _kinds_of_levels(self) -> Kinds:
        """The kind of each level, up to the last that some query reads, and of all beyond."""
        last = max(target.levels[1] for target in self.targets)
        return self._numbered(
            sum(
                1 << target.number for target in self.targets if target.levels[0] <= number < target.levels[1]
            )
            for number in range(last + 1)
        )

    def _numbered(self, sets: Iterable[int]) -> Kinds:
        """Return the kinds of some sets; a new set is the next kind."""
        return np.array([self._kind_of(queries) for queries in sets], np.int32)

    def _kind_of(self, queries: int) -> int:
        """Return the kind of a set of queries."""
        if queries not in self._kinds:
            self._kinds[queries] = len(self._sets)
            self._sets.append(queries)
        return self._kinds[queries]


@dataclass(frozen=True, slots=True)
class _Divided:
    """A batch of rows with the kind of each, and when it arrived."""

    rows: pa.RecordBatch
    kinds: Kinds
    arrived: float

    @classmethod
    def of(cls, batch: pa.RecordBatch, arrived: float) -> _Divided:
        """Take the kinds, which are the last column, from a batch."""
        last = batch.num_columns - 1
        return cls(batch.remove_column(last), batch.column(last).to_numpy(), arrived)

    def runs(self, kinds: NDArray[np.bool_]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of some kinds; rows are sorted first if neighbours are of different kinds."""
        own, rows = self.kinds, self.rows
        starts = _starts(own)
        if starts.size > MOST_RUNS * (1 + np.count_nonzero(kinds)):
            order = np.argsort(narrowed(own), kind="stable")
            own, rows = own[order], rows.take(pa.array(order))
            starts = _starts(own)
        ends = np.append(starts[1:], own.size)
        for run in np.flatnonzero(kinds[own[starts]]).tolist():
            yield int(own[starts[run]]), rows.slice(starts[run], ends[run] - starts[run])

    def rows_of(self, kinds: NDArray[np.bool_]) -> tuple[pa.RecordBatch, Kinds]:
        """Return the rows of some kinds, with the kind of each."""
        mine = kinds[self.kinds]
        return self.rows.filter(pa.array(mine)), self.kinds[mine]


def _starts(kinds: Kinds) -> NDArray[np.integer]:
    """Find where runs of neighbours of one kind begin.

    >>> _starts(np.array([4, 4, 1])).tolist()
    [0, 2]
    """
    return np.concatenate([[0], np.flatnonzero(np.diff(kinds)) + 1])


def narrowed(kinds: Kinds) -> Kinds:
    """Return numbers of 16 bits if they fit: these are sorted in linear time.

    >>> narrowed(np.array([1, 5])).dtype, narrowed(np.array([1, 1 << 15])).dtype
    (dtype('int16'), dtype('int64'))
    """
    return kinds.astype(np.int16) if kinds.max(initial=0) <= np.iinfo(np.int16).max else kinds
