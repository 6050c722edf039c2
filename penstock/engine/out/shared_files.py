"""Results that several files get, encoded once.

Queries that differ in their windows or predicates write the same columns of the same pairs: a pair within the narrowest
window is in the file of every query.  Encoding is most of what a file costs, so pairs that the same queries get, of one
*kind*, are brought together and encoded once, and the bytes are written into the file of each
(`penstock.log.row_groups`)::

    levels         0 1     2 3     4 5
    q0                    ▒▒▒▒▒
    q1            ▓▓▓▓▓▓▓▓▒▒▒▒▒▓▓▓▓▓▓▓▓
    encoded       q1      q0, q1    q1          a row group ▓ for one file, a row group ▒ for two

Pairs wait undivided until there are many: then each kind has as many rows as it can have, and is gathered in one go.
Where there are few of a kind all the same, because queries are many and their sets all different, row groups would be
many and small; such pairs are encoded for each query by itself.

In:  batches of pairs, and the queries that want each.  Out: row groups in the files of a task's output.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.out.routes import FileRoute, own_rows
from penstock.log import output_file
from penstock.log.output_file import Encoder
from penstock.log.row_buffer import RowBuffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from penstock.engine.out.deliver import PairBatch, Target, TaskOutput
    from penstock.log.output_file import OutputFile

    Kinds = NDArray[np.integer]

MOST_WAITING = 1 << 20
"""Rows that wait to be divided by kind."""

LEAST_OF_KIND = 1 << 13
"""Rows of a kind, if they are to be encoded for several files: of fewer, each file makes row groups with its others."""

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
        self._waiting = RowBuffer(MOST_WAITING, copies=2)
        self._encoder = Encoder(routes[self.targets[0]].compression)
        self._sets = {0: 0}
        """Kinds by their sets of queries; what none of these queries gets is kind 0."""

    @property
    def waiting(self) -> int:
        """Count the bytes of the rows taken and not encoded yet."""
        return self._waiting.bytes

    def take(self, pairs: PairBatch) -> None:
        """Take those of a batch of pairs that some of the queries get."""
        kinds = self._kinds_of(pairs)
        wanted = kinds > 0
        if wanted.any():
            rows = own_rows(pairs, self.targets[0], wanted, after={_KIND: pa.array(kinds, pa.int32())})
            self._task.put(self, rows)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take some rows with their kinds."""
        if self._waiting.add(batch):
            self.flush()

    def flush(self) -> None:
        """Encode the rows taken so far, those of a kind once for all files."""
        if not (batches := self._waiting.drain()):
            return
        together = pa.concat_batches(batches)
        last = together.num_columns - 1
        kinds, rows = together.column(last).to_numpy(), together.remove_column(last)
        counts = np.bincount(kinds, minlength=len(self._sets))
        if (counts >= LEAST_OF_KIND).any():
            self._share(rows, kinds, counts)
        self._write_rest(rows, kinds, (counts > 0) & (counts < LEAST_OF_KIND))

    def _share(self, rows: pa.RecordBatch, kinds: Kinds, counts: NDArray[np.integer]) -> None:
        """Encode each kind that has many rows, and let all its files have them."""
        order, ends = np.argsort(narrowed(kinds), kind="stable"), np.cumsum(counts)
        for kind in np.flatnonzero(counts >= LEAST_OF_KIND).tolist():
            files = self._files_of(kind)
            for some in _pieces(order[ends[kind] - counts[kind] : ends[kind]]):
                groups = self._encoder.encode([rows.take(pa.array(some))])
                for file in files:
                    file.append(groups)

    def _write_rest(self, rows: pa.RecordBatch, kinds: Kinds, small: NDArray[np.bool_]) -> None:
        """Let each file by itself have what it gets of the kinds that have few rows."""
        sets = list(self._sets)
        for target in self.targets if small.any() else ():
            wanting = small & np.array([bool(each >> target.number & 1) for each in sets])
            if wanting.any():
                self._task.put(self._file(target), rows.filter(pa.array(wanting[kinds])))

    def _files_of(self, kind: int) -> list[OutputFile]:
        wanting = list(self._sets)[kind]
        return [self._file(each) for each in self.targets if wanting >> each.number & 1]

    def _file(self, target: Target) -> OutputFile:
        return self._task.file(target.query, self._routes[target])

    def _kinds_of(self, pairs: PairBatch) -> Kinds:
        """Give each pair a number by the queries that get it."""
        if pairs.sets is None:
            return self._kinds_of_levels[np.minimum(pairs.level, len(self._kinds_of_levels) - 1)]
        own = sum(1 << each.number for each in self.targets)
        packed = np.ascontiguousarray(pairs.sets)
        width = pa.binary(packed.itemsize * packed.shape[1])
        column = pa.FixedSizeBinaryArray.from_buffers(width, len(packed), [None, pa.py_buffer(packed)])
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


def _pieces(rows: NDArray[np.integer]) -> list[NDArray[np.integer]]:
    """Divide the rows of a kind into row groups of about the same size."""
    return np.array_split(rows, max(1, round(len(rows) / output_file.ROWS_PER_WRITE)))
