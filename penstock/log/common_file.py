"""A file of results that several queries get: written once, with a name in the directory of each.

    directory of q0     part-…-0003.parquet ──┐
    directory of q1     part-…-0003.parquet ──┼──  the same bytes, once on the disk and once in memory
    directory of q2     part-…-0003.parquet ──┘

Every name is as good as the others (a hard link): a reader finds a whole file, and who removes one takes nothing from
the others.  A file of results never changes once it is there, so nobody sees that others have it too.

In:  the directory of each query, and encoded row groups.  Out: a file, and for each query what a commit says of it.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.log.files import open_files
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
        own, staged = open_files(self._file.root, sync=False), self._file.staged
        other = open_files(root, sync=False)
        if not own.link(staged, other, staged):
            with other.writer(staged) as copy:
                copy.write(own.read(staged))
        return Move(root, staged, self._file.final)


@lru_cache(maxsize=1 << 10)
def can_share(roots: frozenset[str]) -> bool:
    """Say whether a file can have a name in each of some directories: tried out, since nothing else tells."""
    first, *others = sorted(roots)
    name = f"_staging/{uuid.uuid4().hex}"
    directory, tried = open_files(first, sync=False), list[str]()
    try:
        directory.put(name, b"")
        for root in others:
            tried.append(root)
            if not directory.link(name, open_files(root, sync=False), name):
                return False
        return True
    finally:
        for root in (first, *tried):
            open_files(root, sync=False).delete(name)
