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

Files of a few rows each would be many, and slow to read: hence the three.  Each batch of pairs is divided while it is
in the processor's cache; what is of one kind waits until there is much of it.

In:  batches of pairs, and the queries that want each.  Out: files, row groups and rows of a task's output.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.out.notes import Buffers, common_note
from penstock.engine.out.routes import FileRoute, own_rows
from penstock.join import width
from penstock.log import output_file
from penstock.log.common_file import CommonFile, can_share
from penstock.log.output_file import Encoder

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
"""Runs of neighbours of one kind, for each kind, up to which rows are taken as they lie: others are sorted first."""

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
        self._sets = {0: 0}
        """Kinds by their sets of queries; what none of these queries gets is kind 0."""
        self._waiting: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._rows = 0
        self.waiting = 0
        """Bytes of the rows taken and not encoded yet."""
        self._common: dict[int, CommonFile] = {}
        self._arrivals: dict[int, Counter[float]] = defaultdict(Counter)
        """Of each kind, how many pairs arrived when."""

    def take(self, pairs: PairBatch) -> None:
        """Take those of a batch of pairs that some of the queries get."""
        kinds = self._kinds_of(pairs)
        counts = np.bincount(kinds, minlength=len(self._sets))
        for kind in np.flatnonzero(counts).tolist():
            self._arrivals[kind][pairs.arrived] += int(counts[kind])
        if len(kinds) > counts[0]:
            rows = own_rows(pairs, self.targets[0], None, after={_KIND: pa.array(kinds, pa.int32())})
            self._task.put(self, rows)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take some rows with their kinds, and leave out those of kind 0."""
        last = batch.num_columns - 1
        kinds, rows = batch.column(last).to_numpy(), batch.remove_column(last)
        runs = _runs(kinds)
        if len(runs) > MOST_RUNS * len(self._sets):
            order = np.argsort(narrowed(kinds), kind="stable")
            kinds, rows = kinds[order], rows.take(pa.array(order))
            runs = _runs(kinds)
        for start, end in runs:
            if kind := int(kinds[start]):
                self._waiting[kind].append(rows.slice(start, end - start))
                self._rows += end - start
        self.waiting += rows.nbytes
        if self._rows >= MOST_WAITING or 2 * self.waiting >= width.MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Encode the rows taken so far, those of a kind once for all files unless they are few."""
        waiting, self._waiting, self._rows, self.waiting = self._waiting, defaultdict(list), 0, 0
        few = list[int]()
        for kind, batches in waiting.items():
            rows = sum(each.num_rows for each in batches)
            if self._is_file(kind, rows):
                self._append(batches, [self._common_file(kind)])
            elif rows >= LEAST_OF_KIND:
                self._append(batches, self._files_of(kind))
            else:
                few.append(kind)
        for kind in few:  # last, so that files are not opened for nothing
            rest = pa.concat_batches(waiting[kind])
            for file in self._files_of(kind):
                self._task.put(file, rest)

    def close(self) -> list[WrittenFile]:
        """Encode what is left, complete the files that queries have in common, and say what each query has."""
        self.flush()
        delivery = self._task.delivery
        written: list[WrittenFile] = []
        for kind, file in self._common.items():
            buffers = {each: delivery.buffers.get(each, Buffers()) for each in file.queries}
            written += file.close(common_note(buffers, delivery.unit, self._arrivals[kind].items()))
        return written

    def _is_file(self, kind: int, rows: int) -> bool:
        """Say whether a kind has a file that its queries have in common, or is to have one."""
        if kind in self._common:
            return True
        routes = [self._routes[each] for each in self._wanting(kind)]
        if rows < LEAST_OF_FILE or len(routes) == 1 or not all(each.shares_files for each in routes):
            return False
        return can_share(frozenset(each.root for each in routes))

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
        wanting = list(self._sets)[kind]
        return [each for each in self.targets if wanting >> each.number & 1]

    def _kinds_of(self, pairs: PairBatch) -> Kinds:
        """Give each pair a number by the queries that get it."""
        if pairs.sets is None:
            return self._kinds_of_levels[np.minimum(pairs.level, len(self._kinds_of_levels) - 1)]
        own = sum(1 << each.number for each in self.targets)
        packed = np.ascontiguousarray(pairs.sets)
        word = pa.binary(packed.itemsize * packed.shape[1])
        column = pa.FixedSizeBinaryArray.from_buffers(word, len(packed), [None, pa.py_buffer(packed)])
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
        return np.array([self._sets.setdefault(each, len(self._sets)) for each in sets], np.int32)


def narrowed(kinds: Kinds) -> Kinds:
    """Make numbers as narrow as they may be: those of 16 bits are sorted in linear time.

    >>> narrowed(np.array([1, 5])).dtype, narrowed(np.array([1, 1 << 15])).dtype
    (dtype('int16'), dtype('int64'))
    """
    return kinds.astype(np.int16) if kinds.max(initial=0) <= np.iinfo(np.int16).max else kinds


def _runs(kinds: Kinds) -> list[tuple[int, int]]:
    """Find where neighbours are of one kind.

    >>> _runs(np.array([4, 4, 1]))
    [(0, 2), (2, 3)]
    """
    starts = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
    return list(pairwise(starts))


def _pieces(rows: pa.Table) -> Iterator[list[pa.RecordBatch]]:
    """Divide the rows of a kind into row groups of about the same size."""
    groups = max(1, round(rows.num_rows / output_file.ROWS_PER_WRITE))
    for start, end in pairwise(rows.num_rows * each // groups for each in range(groups + 1)):
        yield rows.slice(start, end - start).to_batches()
