"""A file of results that several queries get: written once, with a name in the directory of each.

    directory of q0     part-…-0003-02.parquet ──┐
    directory of q1     part-…-0003-02.parquet ──┼──  the same bytes, once on the disk and once in memory
    directory of q2     part-…-0003-02.parquet ──┘

Every name is as good as the others (a hard link): a reader finds a whole file, and who removes one takes nothing from
the others.  A file of results never changes once it is there.  Its owner and rights are the file's and not a name's, so
directories share one only where what is made in them has the same.

In:  the directory of each query, and encoded row groups.  Out: a file, and for each query what a commit says of it.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.log.files import LocalFiles, open_files
from penstock.log.output_file import OutputFile, WrittenFile
from penstock.log.values import Move

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.log.row_groups import RowGroups


class CommonFile:
    """A Parquet file being written that has, once it is complete, a name in several directories."""

    def __init__(self, roots: Mapping[str, str], final: str) -> None:
        """Name the file, and the directory of each query that gets it; nothing is created yet."""
        self._first, *others = roots
        self._others = {query: roots[query] for query in others}
        self._file = OutputFile(roots[self._first], final)

    @property
    def queries(self) -> tuple[str, ...]:
        """Name the queries that get it."""
        return self._first, *self._others

    def append(self, groups: RowGroups) -> None:
        """Take rows that are encoded already."""
        self._file.append(groups)

    def close(self, about: Mapping[str, object]) -> list[WrittenFile]:
        """Complete the file with a note on what is in it, and give it its other names; say what each query has."""
        self._file.close(about)
        moves = {query: self._named_in(root) for query, root in self._others.items()}
        return [
            self._file.report(self._first),
            *(WrittenFile(query, move=move) for query, move in moves.items()),
        ]

    def _named_in(self, root: str) -> Move:
        """Give the file a name in another directory; a copy, where that has come to be of another filesystem."""
        own, other = open_files(self._file.root, sync=False), open_files(root, sync=False)
        staged = self._file.staged
        if own.link(staged, other, staged):
            return Move(root, staged, self._file.final)
        copied = OutputFile(root, self._file.final).staged
        with own.memory_map(staged) as file, other.writer(copied) as copy:
            copy.write(file.read_buffer())
        return Move(root, copied, self._file.final)


@lru_cache(maxsize=1 << 10)
def can_share(one: str, other: str) -> bool:
    """Say whether a file may have a name in both of two directories: tried out, since nothing else tells."""
    first, second = open_files(one, sync=False), open_files(other, sync=False)
    if not (isinstance(first, LocalFiles) and isinstance(second, LocalFiles)):
        return False
    names = [f"_staging/{uuid.uuid4().hex}" for _ in range(3)]
    try:
        first.put(names[0], b"")
        second.put(names[1], b"")
        return first.rights(names[0]) == second.rights(names[1]) and first.link(names[0], second, names[2])
    finally:
        first.delete(names[0])
        second.delete(names[1])
        second.delete(names[2])
