"""Files below a root on any filesystem with an fsspec driver: object stores, HDFS, memory.

On object stores `put_if_absent` is the store's own conditional put.  Other drivers (``hdfs://``) offer none: there a
temporary file is renamed after a check that the name is free.  So a file is always complete, but two engines that
start in the same instant may not detect each other.

Reads go through this machine's copies (`penstock.state.cache`).

In:  a url and options for the driver.  Out: `FsspecFiles`.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from fsspec.core import url_to_fs

from penstock.state import cache
from penstock.state.files import Files, checked_name, is_temporary, temporary_name
from penstock.state.lock import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

_CREATE_IS_EXCLUSIVE = frozenset({"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Stores without directories, whose `pipe_file` is one atomic request that can be "only if absent".

Never ``open(…, "xb")``: s3fs up to mid-2025 lets it overwrite small files (its issue 973), and the memory driver shows
an empty file between open and write.  Drivers older than fsspec 2025.2 may silently ignore ``mode="create"``, so
pyproject requires that version.
"""

_MEMORY_LOCK = threading.Lock()
"""The memory driver checks and then acts without a lock of its own."""


@dataclass(frozen=True, slots=True)
class FsspecFiles(Files):
    """A directory of any filesystem with an fsspec driver."""

    root: str
    options: tuple[tuple[str, object], ...] = field(default=(), repr=False)  # may hold credentials

    def put_if_absent(self, name: str, data: bytes) -> None:
        """Use the store's conditional put; without one, check and rename."""
        fs, path = self._locate(name)
        if not self._exclusive:
            if self.exists(name):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._put_by_rename(name, data)
            return
        try:
            with self._guard():
                fs.pipe_file(path, data, mode="create")
        except FileExistsError:
            raise
        except OSError as error:  # some versions of s3fs call the refusal "invalid argument"
            if self.exists(name):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
            raise

    def put(self, name: str, data: bytes) -> None:
        """Write by one request, or by a rename where a write is not atomic."""
        fs, path = self._locate(name)
        if self._exclusive:
            fs.pipe_file(path, data)
        else:
            self.delete(name)
            self._put_by_rename(name, data)

    @contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        """Stream through the driver's buffer; after an error remove the uploaded part."""
        fs, path = self._locate(name)
        self.make_dirs(name.rpartition("/")[0])
        try:
            with fs.open(path, "wb") as file:
                yield cast("BinaryIO", file)
        except BaseException:
            self.delete(name)
            raise

    def read(self, name: str) -> bytes:
        """Fetch the file."""
        fs, path = self._locate(name)
        return cast("bytes", fs.cat_file(path))

    def local_copy(self, name: str) -> str | None:
        """Return this machine's copy, fetched if missing; None for ``memory://``."""
        if self._scheme == "memory":
            return None
        fs, path = self._locate(name)
        return str(cache.copy_of(self.root, name, lambda target: fs.get_file(path, str(target))))

    def drop_copy(self, name: str) -> bool:
        """Remove this machine's copy; the store keeps the file."""
        return self._scheme != "memory" and cache.drop_copy(self.root, checked_name(name))

    def exists(self, name: str) -> bool:
        """Ask the store, not the driver's cache of listings."""
        fs, path = self._locate(name, fresh=True)
        return bool(fs.exists(path))

    def find(self, name: str) -> list[str]:
        """List all files below the prefix, except temporary ones."""
        fs, path = self._locate(name, fresh=True)
        with self._guard():
            below = [found.removeprefix(path).strip("/") for found in fs.find(path)]
        return sorted(
            f"{name}/{found}".strip("/") for found in below if not is_temporary(found.rpartition("/")[2])
        )

    def list(self, name: str) -> list[str]:
        """List one level below the prefix, except the directory's own marker object and temporary files."""
        fs, path = self._locate(name, fresh=True)
        try:
            with self._guard():
                entries = [entry.rstrip("/") for entry in fs.ls(path, detail=False)]
        except FileNotFoundError:
            return []
        names = (entry.rpartition("/")[2] for entry in entries if entry != path.rstrip("/"))
        return sorted(base for base in names if not is_temporary(base))

    def make_dirs(self, name: str) -> None:
        """Make the directories; an object store has none."""
        if not self._exclusive:
            fs, path = self._locate(name)
            fs.makedirs(path, exist_ok=True)

    def move(self, source: str, target: str) -> None:
        """Move file by file; a second call completes an interrupted move."""
        fs, origin = self._locate(source, fresh=True)
        _, goal = self._locate(target)
        sources = fs.find(origin)
        if not sources and not fs.exists(goal):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), origin)
        for file in sources:
            moved = goal + file.removeprefix(origin)
            if not self._exclusive:
                fs.makedirs(moved.rpartition("/")[0], exist_ok=True)
            fs.mv(file, moved)
        self.delete_tree(source)

    def copy(self, name: str, other: Files, other_name: str) -> None:
        """Copy inside an object store where possible; else read and write."""
        fs, path = self._locate(name)
        if isinstance(other, FsspecFiles) and self._exclusive:
            target_fs, goal = other._locate(other_name)  # noqa: SLF001 - of this class
            if target_fs is fs:  # fsspec has one for each store and its options
                with self._guard():
                    fs.cp_file(path, goal)
                return
        with fs.open(path, "rb") as source, other.writer(other_name) as target:
            shutil.copyfileobj(source, target)

    def settle(self, directories: Iterable[str]) -> None:
        """Do nothing: a store acknowledges durable writes only."""

    def delete(self, name: str) -> None:
        """Remove the file, and this machine's copy of it."""
        fs, path = self._locate(name)
        with suppress(FileNotFoundError), self._guard():
            fs.rm_file(path)
        self.drop_copy(name)

    def delete_tree(self, name: str) -> None:
        """Remove all files below the prefix, and this machine's copies."""
        fs, path = self._locate(name, fresh=True)
        with suppress(FileNotFoundError), self._guard():
            fs.rm(path, recursive=True)
        self.drop_copy(name)

    def lock(self, name: str) -> Lock:
        """Return a lock that excludes no other engine: the first commit of a second engine fails instead."""
        checked_name(name)
        return Lock(None)

    @property
    def _scheme(self) -> str:
        return self.root.partition("://")[0]

    @property
    def _exclusive(self) -> bool:
        return self._scheme in _CREATE_IS_EXCLUSIVE

    def _guard(self) -> AbstractContextManager[object]:
        """Serialise calls to a driver that is not thread-safe."""
        return _MEMORY_LOCK if self._scheme == "memory" else nullcontext()

    def _locate(self, name: str, *, fresh: bool = False) -> tuple[Any, str]:
        """Return the driver (fsspec keeps one per process and options) and its path of `name`."""
        fs, base = url_to_fs(self.root, **dict(self.options))
        if fresh:
            fs.invalidate_cache()
        return fs, f"{base.rstrip('/')}/{checked_name(name)}" if name else base

    def _put_by_rename(self, name: str, data: bytes) -> None:
        fs, path = self._locate(name)
        directory, _, base = path.rpartition("/")
        temporary = f"{directory}/{temporary_name(base)}"
        fs.makedirs(directory, exist_ok=True)
        try:
            fs.pipe_file(temporary, data)
            fs.mv(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                fs.rm_file(temporary)
            raise
