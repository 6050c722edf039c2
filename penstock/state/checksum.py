"""Files that are as they were written: a checksum is kept with a file's name, and checked before anything is read.

Disks, networks and people damage files, and Arrow believes what it maps: a changed byte becomes a changed result, or
ends the process.  So the journal keeps a CRC-32 of every file of rows, times or held results that it names.  A process
checks a file when it maps it for the first time, by reading it once from end to end, and remembers that it did::

    write    bytes ──▶ file, checksum ──▶ journal
    read     journal ──▶ name, checksum ──▶ map, sum once a process ──▶ Arrow

What was checked is remembered by size and time of change, so a file that is written to since is checked again.  CRC-32
is what the standard library sums fastest (2.3 GB a second; see docs/performance.md).

In:  files, and what the journal knows of one.  Out: a map of it, or `DamagedError`, `MissingError`.
"""

from __future__ import annotations

import io
import os
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock import limits
from penstock.errors import DamagedError, MissingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from penstock.state.files import Files


class Kept(Protocol):
    """What the journal knows of a file; those of earlier versions have no checksum, and are not checked."""

    @property
    def name(self) -> str:
        """Where it is, in the state."""

    @property
    def checksum(self) -> int | None:
        """The CRC-32 of all its bytes."""


class SummedFile(io.RawIOBase):
    """A file being written, and the checksum of what was written so far."""

    def __init__(self, file: BinaryIO) -> None:
        """Write to an open file, which stays open when this is closed."""
        super().__init__()
        self._file = file
        self._size = 0
        self.checksum = 0

    def writable(self) -> bool:
        """Say yes, for whoever asks before writing."""
        return True

    def write(self, data: Any, /) -> int:
        """Write some bytes and sum them up."""
        self.checksum = zlib.crc32(data, self.checksum)
        self._size += memoryview(data).nbytes
        return self._file.write(data)

    def tell(self) -> int:
        """Count the bytes that were written."""
        return self._size


@contextmanager
def summed_writer(files: Files, name: str) -> Iterator[SummedFile]:
    """Stream a new file; when the block ends it is complete, and so is its checksum."""
    with files.writer(name) as file:
        yield SummedFile(file)


def map_whole(files: Files, kept: Kept) -> pa.NativeFile:
    """Map a file that is as it was written, or say that it is not."""
    try:
        if _is_whole(files, kept) or (files.drop_copy(kept.name) and _is_whole(files, kept)):
            return files.memory_map(kept.name)
    except FileNotFoundError as error:
        raise MissingError(complaint(files, kept.name, "is missing")) from error
    raise DamagedError(complaint(files, kept.name, "is damaged: its bytes are not those that were written"))


def complaint(files: Files, name: str, what: str) -> str:
    """Say what is wrong with a file, and what to do."""
    return (
        f"{files.path(name)} {what}; restore it from a copy, or run `penstock repair --state {files.root}`, which goes "
        "back to before it was written"
    )


_checked: dict[str, tuple[int, int, int]] = {}
"""For each file that this process has checked: inode, size, and when it was last changed."""


def _is_whole(files: Files, kept: Kept) -> bool:
    """Say whether a file has the bytes that were written, by reading it if this process has not yet."""
    path = files.local_copy(kept.name)
    if path is None:
        return kept.checksum in {None, zlib.crc32(files.read(kept.name))}
    status = os.stat(path)  # noqa: PTH116 - a plain path, for a system call
    stamp = status.st_ino, status.st_size, status.st_mtime_ns
    if kept.checksum is None or _checked.get(path) == stamp:
        return True
    if not status.st_size or zlib.crc32(pa.memory_map(path, "r").read_buffer()) != kept.checksum:
        return False
    if len(_checked) >= limits.MAX_REMEMBERED_CHECKSUMS:
        _checked.clear()
    _checked[path] = stamp
    return True
