"""Results that several queries get, encoded once, and written once where directories can share a file.

Queries that differ in their windows or predicates write the same columns of the same pairs: a pair within the narrowest
window is a result of every query.  Pairs that the same queries get are of one *kind*::

    levels         0 1     2 3     4 5
    q0                    ▒▒▒▒▒
    q1            ▓▓▓▓▓▓▓▓▒▒▒▒▒▓▓▓▓▓▓▓▓
    kinds         q1      q0, q1    q1          ▓ is q1's alone, ▒ both have

    many of a kind     a file of their own, with a name in the directory of each query (`penstock.log.common_file`)
    fewer              encoded once, the bytes written into the file of each query (`penstock.log.row_groups`)
    few                encoded for each query, with its other rows

Files of a few rows each would be many, and slow to read: hence three ways.  Pairs that come level by level are divided
without being moved.

In:  batches of pairs, and the queries that want each.  Out: files, row groups and rows of a task's output.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.out.notes import Buffers, common_note
from penstock.engine.out.routes import FileRoute, own_rows
from penstock.log import output_file
from penstock.log.common_file import CommonFile, can_share
from penstock.log.output_file import Encoder
from penstock.log.row_buffer import RowBuffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.out.deliver import PairBatch, Target, TaskOutput
    from penstock.log.output_file import OutputFile, WrittenFile

    Kinds = NDArray[np.integer]

MOST_WAITING = 1 << 20
"""Rows that wait to be encoded."""

LEAST_OF_FILE = 1 << 14
"""Rows of a kind, if they are to be a file of several queries."""

LEAST_OF_KIND = 1 << 13
"""Rows of a kind, if they are to be encoded for several files: of fewer, each file makes row groups with its others."""

MOST_RUNS = 4
"""Runs of neighbours of one kind, for each kind that has many rows, up to which a batch is divided as it lies."""

_KIND = "kind"


def shared_files(task: TaskOutput, targets: Iterable[Target]) -> list[SharedFiles]:
    """Find the queries whose files have the same columns, several at a time."""
    alike: dict[object, list[tuple[Target, FileRoute]]] = defaultdict(list)
    for each in targets:
        if isinstance(each.route, FileRoute) and not each.computed:
            alike[each.columns, each.types, each.route.compression].append((each, each.route))
    return [SharedFiles(task, dict(some)) for some in alike.values() if len(some) > 1]


class SharedFiles:
    """The files of some queries of one task, which all have the same columns."""

    def __init__(self, task: TaskOutput, routes: Mapping[Target, FileRoute]) -> None:
        """Begin with nothing."""
        self.targets, self._routes, self._task = tuple(routes), routes, task
        self._encoder = Encoder(routes[self.targets[0]].compression)
        self._kinds, self._sets = {0: 0}, [0]
        """Kinds by their sets of queries, and the other way; what none of these queries gets is kind 0."""
        self._waiting = RowBuffer(MOST_WAITING, copies=2)
        self._arrivals: list[float] = []
        """When the batches that wait arrived."""
        self._common: dict[int, CommonFile] = {}
        self._in_common: dict[int, Counter[float]] = defaultdict(Counter)
        """Of each kind that has a file of its own, how many of the pairs in it arrived when."""

    @property
    def waiting(self) -> int:
        """Count the bytes of the rows taken and not encoded yet."""
        return self._waiting.bytes

    def take(self, pairs: PairBatch) -> None:
        """Take those of a batch of pairs that some of the queries get."""
        kinds = self._kinds_of(pairs)
        wanted = kinds > 0
        if wanted.any():
            # what little nobody wants is left out later, without a copy of the rest
            mask = None if 2 * np.count_nonzero(wanted) > wanted.size else wanted
            self._arrivals.append(pairs.arrived)
            columns = {_KIND: pa.array(kinds, pa.int32())}
            self._task.put(self, own_rows(pairs, self.targets[0], mask, after=columns))

    def write(self, batch: pa.RecordBatch) -> None:
        """Take some rows with their kinds."""
        if self._waiting.add(batch):
            self.flush()

    def flush(self) -> None:
        """Encode the rows taken so far, those of a kind once for all files unless they are few."""
        arrivals, self._arrivals = self._arrivals, []
        batches = [_Divided.of(each, at) for each, at in zip(self._waiting.drain(), arrivals, strict=True)]
        counts = np.zeros(len(self._sets), np.int64)
        for each in batches:
            counts += np.bincount(each.kinds, minlength=counts.size)
        counts[0] = 0
        many, few = counts >= LEAST_OF_KIND, (counts > 0) & (counts < LEAST_OF_KIND)
        found: dict[int, list[tuple[pa.RecordBatch, float]]] = defaultdict(list)
        for each in batches if many.any() else ():
            for kind, rows in each.runs(many):
                found[kind].append((rows, each.arrived))
        for kind, some in found.items():
            self._write_kind(kind, some)
        if few.any():
            self._write_few([each.rows_of(few) for each in batches])

    def _write_kind(self, kind: int, some: Sequence[tuple[pa.RecordBatch, float]]) -> None:
        """Encode rows of one kind, once, for the file that its queries have in common or for the file of each."""
        batches, count = [each for each, _ in some], sum(each.num_rows for each, _ in some)
        if not self._has_common_file(kind, count):
            self._append(batches, self._files_of(kind))
            return
        self._append(batches, [self._common_file(kind)])
        for rows, arrived in some:
            self._in_common[kind][arrived] += rows.num_rows

    def _write_few(self, few: Sequence[tuple[pa.RecordBatch, Kinds]]) -> None:
        """Let each file by itself have what it gets of the kinds that have few rows."""
        rows = pa.concat_batches([each for each, _ in few])
        kinds = np.concatenate([each for _, each in few])
        for target in self.targets:
            wanting = np.array([bool(each >> target.number & 1) for each in self._sets])[kinds]
            if wanting.any():
                file = self._task.file(target.query, self._routes[target])
                self._task.put(file, rows.filter(pa.array(wanting)))

    def close(self) -> list[WrittenFile]:
        """Encode what is left, complete the files that queries have in common, and say what each query has."""
        self.flush()
        delivery = self._task.delivery
        written: list[WrittenFile] = []
        for kind, file in self._common.items():
            buffers = {each: delivery.buffers.get(each, Buffers()) for each in file.queries}
            written += file.close(common_note(buffers, delivery.unit, self._in_common[kind].items()))
        return written

    def in_common(self, number: int) -> Counter[float]:
        """Count, by when they arrived, the results of one query that are in files which it shares."""
        mine = (each for kind, each in self._in_common.items() if self._sets[kind] >> number & 1)
        return sum(mine, Counter[float]())

    def _has_common_file(self, kind: int, rows: int) -> bool:
        """Say whether a kind has a file that its queries have in common, or is to have one."""
        if kind in self._common:
            return True
        routes = [self._routes[each] for each in self._wanting(kind)]
        if rows < LEAST_OF_FILE or len(routes) == 1 or not all(each.shares_files for each in routes):
            return False
        first, *others = (each.root for each in routes)
        return all(can_share(first, each) for each in others)

    def _append(self, batches: list[pa.RecordBatch], files: Sequence[CommonFile | OutputFile]) -> None:
        """Encode rows of one kind, and let files have them."""
        for some in _pieces(pa.Table.from_batches(batches)):
            groups = self._encoder.encode(some)
            for file in files:
                file.append(groups)

    def _common_file(self, kind: int) -> CommonFile:
        """Open (once) the file of a kind."""
        if kind not in self._common:
            roots = {each.query: self._routes[each].root for each in self._wanting(kind)}
            self._common[kind] = CommonFile(roots, f"{self._task.part_name}-{kind:02d}.parquet")
        return self._common[kind]

    def _files_of(self, kind: int) -> list[OutputFile]:
        return [self._task.file(each.query, self._routes[each]) for each in self._wanting(kind)]

    def _wanting(self, kind: int) -> list[Target]:
        """List the queries that get a kind."""
        return [each for each in self.targets if self._sets[kind] >> each.number & 1]

    def _kinds_of(self, pairs: PairBatch) -> Kinds:
        """Give each pair a number by the queries that get it."""
        if pairs.sets is None:
            return self._kinds_of_levels[np.minimum(pairs.level, len(self._kinds_of_levels) - 1)]
        own = sum(1 << each.number for each in self.targets)
        packed = np.ascontiguousarray(pairs.sets)
        packed_type = pa.binary(packed.itemsize * packed.shape[1])
        column = pa.FixedSizeBinaryArray.from_buffers(packed_type, len(packed), [None, pa.py_buffer(packed)])
        encoded = column.dictionary_encode()
        wanting = (int.from_bytes(each, "little") & own for each in encoded.dictionary.to_pylist())
        return self._numbered(wanting)[encoded.indices.to_numpy()]

    @cached_property
    def _kinds_of_levels(self) -> Kinds:
        """The kind of each level, up to the last that some query reads, and of all beyond."""
        last = max(each.levels[1] for each in self.targets)
        return self._numbered(
            sum(1 << each.number for each in self.targets if each.levels[0] <= number < each.levels[1])
            for number in range(last + 1)
        )

    def _numbered(self, sets: Iterable[int]) -> Kinds:
        """Give the kinds of some sets; a set that is new is the next one."""
        return np.array([self._kind_of(each) for each in sets], np.int32)

    def _kind_of(self, queries: int) -> int:
        """Give a set of queries its number."""
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
        """Give the rows of some kinds, as they lie if neighbours are of one kind, else sorted."""
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
        """Give the rows of some kinds with the kind of each."""
        mine = kinds[self.kinds]
        return self.rows.filter(pa.array(mine)), self.kinds[mine]


def _starts(kinds: Kinds) -> NDArray[np.integer]:
    """Find where runs of neighbours of one kind begin.

    >>> _starts(np.array([4, 4, 1])).tolist()
    [0, 2]
    """
    return np.concatenate([[0], np.flatnonzero(np.diff(kinds)) + 1])


def narrowed(kinds: Kinds) -> Kinds:
    """Make numbers as narrow as they may be: those of 16 bits are sorted in linear time.

    >>> narrowed(np.array([1, 5])).dtype, narrowed(np.array([1, 1 << 15])).dtype
    (dtype('int16'), dtype('int64'))
    """
    return kinds.astype(np.int16) if kinds.max(initial=0) <= np.iinfo(np.int16).max else kinds


def _pieces(rows: pa.Table) -> Iterator[list[pa.RecordBatch]]:
    """Divide the rows of a kind into row groups of about the same size."""
    groups = max(1, round(rows.num_rows / output_file.ROWS_PER_WRITE))
    for start, end in pairwise(rows.num_rows * each // groups for each in range(groups + 1)):
        yield rows.slice(start, end - start).to_batches()
