"""Results that several files get, encoded once.

Queries that differ in their windows or predicates write the same columns of the same pairs: a pair within the narrowest
window is in the file of every query.  Encoding is most of what a file costs, so pairs that the same queries get are
brought together and encoded once, and the bytes are written into the file of each (`penstock.log.row_groups`)::

    levels         0 1     2 3     4 5
    q0                    ▒▒▒▒▒
    q1            ▓▓▓▓▓▓▓▓▒▒▒▒▒▓▓▓▓▓▓▓▓
    encoded       q1      q0, q1    q1          a row group ▓ for one file, a row group ▒ for two

Where there are few pairs of a kind, because queries are many and their sets all different, row groups would be many and
small; such pairs are encoded for each query by itself.

In:  batches of pairs, and the queries that want each.  Out: row groups in the files of a task's output.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.out.routes import FileRoute, rows_at
from penstock.join import width
from penstock.log import output_file
from penstock.log.output_file import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.out.deliver import PairBatch, Target, TaskOutput
    from penstock.log.output_file import OutputFile

LEAST_ROWS = 1 << 10
"""Pairs of a batch that the same queries get, if they are to be encoded together."""

LEAST_GROUP = 1 << 13
"""Rows of a row group that is written into several files; what is left at the end and fewer, each file encodes."""


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
        self.kinds: dict[int, RowsOfKind] = {}
        """By the set of queries that get them: rows that are not encoded yet."""

    def take(self, pairs: PairBatch) -> None:
        """Take a batch of pairs: each goes to those that get the same."""
        numbers, sets = self._kinds_of(pairs)
        counts = np.bincount(numbers, minlength=len(sets))
        large = [each for each in range(len(sets)) if counts[each] >= LEAST_ROWS and sets[each]]
        if large:
            order = np.argsort(numbers, kind="stable")
            ends = np.cumsum(counts)
            for each in large:
                rows = rows_at(pairs, self.targets[0], order[ends[each] - counts[each] : ends[each]])
                self._task.put(self._rows_of(sets[each]), rows)
        if len(large) < np.count_nonzero(counts):
            self._take_rest(pairs, ~np.isin(numbers, large))

    def _take_rest(self, pairs: PairBatch, rest: NDArray[np.bool_]) -> None:
        """Let each query by itself have what it gets of some pairs."""
        for target in self.targets:
            target.route.take(self._task, target, pairs, pairs.wanted_by(target) & rest)

    def _rows_of(self, wanting: int) -> RowsOfKind:
        if wanting not in self.kinds:
            routes = {each.query: route for each, route in self._routes.items() if wanting >> each.number & 1}
            self.kinds[wanting] = RowsOfKind(self._task, routes)
        return self.kinds[wanting]

    def _kinds_of(self, pairs: PairBatch) -> tuple[NDArray[np.integer], list[int]]:
        """Give each pair a number by the queries that get it, and say which these are for each number."""
        if pairs.sets is None:
            return self._by_level(pairs.level)
        own = sum(1 << each.number for each in self.targets)
        packed = np.ascontiguousarray(pairs.sets)
        kind = pa.binary(packed.itemsize * packed.shape[1])
        column = pa.FixedSizeBinaryArray.from_buffers(kind, len(packed), [None, pa.py_buffer(packed)])
        encoded = column.dictionary_encode()
        wanting = [int.from_bytes(each, "little") & own for each in encoded.dictionary.to_pylist()]
        return _renumbered(encoded.indices.to_numpy(), wanting)

    def _by_level(self, level: NDArray[np.int16]) -> tuple[NDArray[np.integer], list[int]]:
        last = max(each.levels[1] for each in self.targets)
        wanting = [
            sum(1 << each.number for each in self.targets if each.levels[0] <= number < each.levels[1])
            for number in range(last + 1)
        ]
        return _renumbered(np.minimum(level, last), wanting)

    def finish(self) -> None:
        """Bring all rows into their files."""
        for each in self.kinds.values():
            each.finish()


def _renumbered(numbers: NDArray[np.integer], sets: Sequence[int]) -> tuple[NDArray[np.integer], list[int]]:
    """Give equal sets one number.

    >>> _renumbered(np.array([0, 1, 2, 1]), [5, 7, 5])
    (array([0, 1, 0, 1], dtype=int16), [5, 7])
    """
    distinct = {each: number for number, each in enumerate(dict.fromkeys(sets))}
    # of 16 bits where that is enough: such numbers are sorted in linear time
    kind = np.int16 if len(distinct) < np.iinfo(np.int16).max else np.int64
    return np.array([distinct[each] for each in sets], kind)[numbers], list(distinct)


class RowsOfKind:
    """Rows that the same files get, until they are encoded."""

    def __init__(self, task: TaskOutput, routes: Mapping[str, FileRoute]) -> None:
        """Begin with nothing; routes are by the names of queries."""
        self._task, self._routes = task, routes
        self.waiting = 0
        """Bytes of the rows taken and not encoded yet."""
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.waiting += batch.nbytes
        if self._waiting_rows >= output_file.ROWS_PER_WRITE or self.waiting >= width.MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Encode the rows taken so far, once for all files."""
        if self._waiting:
            compression = next(iter(self._routes.values())).compression
            groups = encode(self._waiting, compression)
            for file in self._files():
                file.append(groups)
        self._waiting, self._waiting_rows, self.waiting = [], 0, 0

    def finish(self) -> None:
        """Encode what is left; of few rows, let each file do it, together with others."""
        if self._waiting_rows >= LEAST_GROUP:
            self.flush()
        for file in self._files() if self._waiting else ():
            for batch in self._waiting:
                file.write(batch)
        self._waiting, self._waiting_rows, self.waiting = [], 0, 0

    def _files(self) -> list[OutputFile]:
        return [self._task.file(query, route) for query, route in self._routes.items()]
