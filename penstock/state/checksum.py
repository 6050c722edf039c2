"""Checksums of data files: stored in the journal beside the file's name, and checked before a file is read.

Arrow does not validate the files it maps: a changed byte becomes a wrong result, or crashes the process.  So the
journal has a CRC-32 of every data file that it names.  A process reads a file completely when it maps it for the first
time, and remembers that it was intact::

    write    bytes ──▶ file, checksum ──▶ journal
    read     journal ──▶ name, checksum ──▶ map, check once per process ──▶ Arrow

A checked file is remembered by its size and modification time, so a file that changes is checked again.  CRC-32 is the
fastest checksum of the standard library (2.3 GB/s; see docs/performance.md).

In:  files, and the journal's entry for one.  Out: a map of it, or `DamagedError`, `MissingError`.
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


class JournaledFile(Protocol):
    """The journal's entry for a file."""

    @property
    def name(self) -> str:
        """Its name in the state."""

    @property
    def checksum(self) -> int | None:
        """The CRC-32 of all its bytes."""


class SummedFile(io.RawIOBase):
    """A file being written, and the checksum of the bytes written so far."""

    def __init__(self, file: BinaryIO) -> None:
        """Write to an open file; closing this object leaves it open."""
        super().__init__()
        self._file = file
        self._size = 0
        self.checksum = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:
        """Write bytes and add them to the checksum."""
        self.checksum = zlib.crc32(data, self.checksum)
        self._size += memoryview(data).nbytes
        return self._file.write(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size


@contextmanager
def summed_writer(files: Files, name: str) -> Iterator[SummedFile]:
    """Stream a new file; file and checksum are complete when the block ends."""
    with files.writer(name) as file:
        yield SummedFile(file)


def map_whole(files: Files, kept: JournaledFile) -> pa.NativeFile:
    """Map an intact file; raise `DamagedError` or `MissingError` for any other."""
    try:
        if _is_whole(files, kept) or (files.drop_copy(kept.name) and _is_whole(files, kept)):
            return files.memory_map(kept.name)
    except FileNotFoundError as error:
        raise MissingError(damage_message(files, kept.name, "is missing")) from error
    raise DamagedError(
        damage_message(files, kept.name, "is damaged: its bytes are not those that were written")
    )


def damage_message(files: Files, name: str, what: str) -> str:
    """Return the error message for a damaged or missing file."""
    return (
        f"{files.path(name)} {what}; restore it from a copy, or run `penstock repair --state {files.root}`, which goes "
        "back to a commit before it"
    )


_checked: dict[str, tuple[int, int, int]] = {}
"""By path of the files that this process has checked: inode, size and modification time."""


def _is_whole(files: Files, kept: JournaledFile) -> bool:
    """Return whether a file has the bytes that were written; read it if this process has not yet checked it."""
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
