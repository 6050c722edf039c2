"""All access to filesystems: segments, journal and results lie below one root, under relative names.

There are two kinds of root::

    /data/state, file:///data/state      LocalFiles                           lock: flock; "only if absent": link(2)
    s3://bucket/state, hdfs://..., ...   FsspecFiles (`remote_files`)         any filesystem with an fsspec driver

* `Files.put_if_absent` and `Files.put` are atomic: a reader sees the complete file or none.
* `Files.put_if_absent` has one winner.  Commits rest on this (`penstock.state.journal`).
* A name is never written again with other bytes: snapshots and commits have a number in their names, segments a random
  part.  So a cached copy of a file never expires.

A `Files` has no connection and no open file.  It is a few strings, and is pickled by value into every Spark task.

In:  a path or url (`open_files`).
Out: bytes, and memory maps for `penstock.state.segment`.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import uuid
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import fsspec
import pyarrow as pa

from penstock import limits
from penstock.errors import InputError
from penstock.state.locations import absolute, is_local, literal
from penstock.state.lock import Lock, take_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager


def open_files(
    url: str, *, sync: bool = True, private: bool = False, options: Mapping[str, object] | None = None
) -> Files:
    """Return the files below `url`: a local directory, or any url that fsspec has a driver for.

    `sync` (local only): writes survive a power cut; a killed process needs no sync.
    `private` (local only): new files are readable by their owner only, whatever the umask.
    `options` go to the fsspec driver (credentials, endpoint).

    >>> open_files("/data/state").path("journal/000000000001.json")
    'file:///data/state/journal/000000000001.json'
    >>> open_files("memory://lab/").root
    'memory://lab'
    """
    from penstock.state.remote_files import FsspecFiles  # noqa: PLC0415 - a subclass of this module's

    location = absolute(url)
    if is_local(location):
        return LocalFiles(f"file://{location.rstrip('/')}", sync, private)
    try:
        fsspec.get_filesystem_class(location.partition("://")[0])
    except (ImportError, ValueError) as error:
        raise InputError(
            f"{url} cannot be opened: {error}. Give a directory, or the url of an installed fsspec driver"
        ) from error
    return FsspecFiles(location, tuple(sorted((options or {}).items())))


class Files(ABC):
    """The files below one root.  Every `name` is relative, with ``/`` between its parts."""

    root: str
    """The absolute url of the directory."""

    def path(self, name: str) -> str:
        """Return the url of `name` for Spark; it is never percent-encoded, because Hadoop does not decode it."""
        return f"{self.root}/{checked_name(name)}" if name else self.root

    def to_read(self, name: str) -> str:
        """Return the url as a pattern that matches nothing else: Spark's readers take patterns."""
        return literal(self.path(name))

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> None:
        """Create the file atomically; raise FileExistsError if there is one."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Create or replace the file atomically."""

    @abstractmethod
    def writer(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Stream a new file: complete when the block ends, removed if the block raises.

        Readers may see the incomplete file meanwhile, so use a name that is not known to them yet.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the whole file, or raise FileNotFoundError."""

    @abstractmethod
    def local_copy(self, name: str) -> str | None:
        """Return the path of the file on this machine, fetched if missing; None if the store is in memory."""

    def drop_copy(self, name: str) -> bool:  # noqa: ARG002 - a local file is no copy
        """Remove this machine's copy of a remote file; return whether there was one."""
        return False

    def memory_map(self, name: str) -> pa.NativeFile:
        """Open the file for reads without copying: the system loads pages on access."""
        path = self.local_copy(name)
        return pa.BufferReader(self.read(name)) if path is None else pa.memory_map(path, "r")

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Return whether there is a file or directory of that name."""

    @abstractmethod
    def find(self, name: str) -> list[str]:
        """Return the names of all files below the directory, at any depth, sorted."""

    @abstractmethod
    def list(self, name: str) -> list[str]:
        """Return the names in the directory, sorted; none if there is no such directory."""

    @abstractmethod
    def make_dirs(self, name: str) -> None:
        """Make the directory and its parents, where the filesystem has directories."""

    def make_private(self, name: str) -> None:
        """Make the directory accessible for its owner only; a store has its own access rules."""
        self.make_dirs(name)

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Publish a file or directory under its final name; do nothing if only `target` exists."""

    def link(self, name: str, other: Files, other_name: str) -> bool:  # noqa: ARG002 - stores have no links
        """Link the file into another directory; return False if the filesystem cannot."""
        return False

    @abstractmethod
    def copy(self, name: str, other: Files, other_name: str) -> None:
        """Copy a file into another directory, in bounded memory."""

    @abstractmethod
    def settle(self, directories: Iterable[str]) -> None:
        """Make moves into these directories durable; for writers without `sync`."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove the file if there is one."""

    @abstractmethod
    def delete_tree(self, name: str) -> None:
        """Remove the directory and all files below it, if there is one."""

    @abstractmethod
    def lock(self, name: str) -> Lock:
        """Own the state until `Lock.release` or the end of this process.

        Raises `StateBusyError` if another engine, here or in another process, owns it.
        """


@dataclass(frozen=True, slots=True)
class LocalFiles(Files):
    """A directory on this machine, or one mounted here."""

    root: str
    sync: bool = True
    private: bool = False

    def __post_init__(self) -> None:
        """Refuse a relative root, which depends on the working directory of a task."""
        if not self.root.startswith("file:///"):
            raise InputError(f"root {self.root} is not absolute. Write file:///…, or use open_files")

    def put_if_absent(self, name: str, data: bytes) -> None:
        """Link a complete temporary file to its name: link(2) refuses a name that exists."""
        with self._finished(name, data) as temporary:
            os.link(temporary, self._at(name))
        self._sync(os.path.dirname(self._at(name)))

    def put(self, name: str, data: bytes) -> None:
        """Rename a complete temporary file to its name."""
        with self._finished(name, data) as temporary:
            os.replace(temporary, self._at(name))
        self._sync(os.path.dirname(self._at(name)))

    @contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        """Write under the final name; after an error remove the incomplete file."""
        target = self._at(name)
        self._make_dirs(os.path.dirname(target))
        try:
            with open(target, "wb", opener=self._opener) as file:
                yield file
            self._sync(target)
        except BaseException:
            self.delete(name)
            raise
        self._sync(os.path.dirname(target))

    def read(self, name: str) -> bytes:
        """Read a regular file; refuse a pipe, which would block until there is a writer."""
        with open(self._at(name), "rb", opener=_open_regular) as file:
            return file.read()

    def local_copy(self, name: str) -> str:
        """Return the path of the file itself."""
        return self._at(name)

    def exists(self, name: str) -> bool:
        """Look in the directory."""
        return os.path.exists(self._at(name))

    def find(self, name: str) -> list[str]:
        """Walk the tree; skip temporary files."""
        top = self._at(name)
        return sorted(
            "/".join(part for part in (name, os.path.relpath(folder, top), base) if part not in {"", "."})
            for folder, _, names in os.walk(top)
            for base in names
            if not is_temporary(base)
        )

    def list(self, name: str) -> list[str]:
        """List the directory; skip temporary files of killed processes."""
        try:
            return sorted(entry for entry in os.listdir(self._at(name)) if not is_temporary(entry))
        except FileNotFoundError:
            return []
        except (NotADirectoryError, PermissionError) as error:
            raise InputError(
                f"{self.path(name)} cannot be read: {error.strerror}. Give a directory that you may read"
            ) from error

    def make_dirs(self, name: str) -> None:
        """Make the directories."""
        self._make_dirs(self._at(name))

    def make_private(self, name: str) -> None:
        """Make the directory; if the user owns it, remove the rights of group and others."""
        path = self._at(name)
        self._make_dirs(path)
        status = os.stat(path)
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            os.chmod(path, 0o700)

    def move(self, source: str, target: str) -> None:
        """Rename; refuse a target directory that holds files."""
        origin, goal = self._at(source), self._at(target)
        if os.path.lexists(origin):  # else no directory is made for it
            self._make_dirs(os.path.dirname(goal))
        try:
            os.replace(origin, goal)
        except FileNotFoundError:
            if not os.path.exists(goal):
                raise
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise FileExistsError(
                    f"{self.path(source)} cannot be published: {self.path(target)} already has files"
                ) from error
            raise
        self._sync(os.path.dirname(goal))

    def link(self, name: str, other: Files, other_name: str) -> bool:
        """Make a hard link; False on filesystems without links, and between two filesystems."""
        if not isinstance(other, LocalFiles):
            return False
        other.make_dirs(os.path.dirname(other_name))
        try:
            os.link(self._at(name), other.local_copy(other_name))
        except FileExistsError:  # an NFS server may have made it at a first request
            if not os.path.samefile(self._at(name), other.local_copy(other_name)):
                raise
        except FileNotFoundError:
            raise
        except OSError:
            return False
        return True

    def copy(self, name: str, other: Files, other_name: str) -> None:
        """Read it and write it."""
        with open(self._at(name), "rb") as source, other.writer(other_name) as target:
            shutil.copyfileobj(source, target)

    def rights(self, name: str) -> tuple[object, ...]:
        """Return a directory's owner, group, mode, and the default access list of its files."""
        status, access = os.stat(self._at(name)), b""
        with suppress(OSError, AttributeError):
            access = os.getxattr(self._at(name), "system.posix_acl_default")
        return status.st_uid, status.st_gid, status.st_mode, access

    def settle(self, directories: Iterable[str]) -> None:
        """Sync each of them."""
        for directory in directories:
            self._sync(self._at(directory))

    def delete(self, name: str) -> None:
        """Unlink the file."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(name))

    def delete_tree(self, name: str) -> None:
        """Remove the tree."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._at(name))

    def lock(self, name: str) -> Lock:
        """Take flock(2) on a file that stays."""
        path = self._at(name)
        self._make_dirs(os.path.dirname(path))
        return take_lock(Path(path), self.root)

    def _at(self, name: str) -> str:
        """Return the plain path of `name`, for system calls."""
        return self.path(name).removeprefix("file://")

    @contextmanager
    def _finished(self, name: str, data: bytes) -> Iterator[str]:
        """Write `data` to a temporary file in the directory of `name`; remove it at the end if it is still there."""
        directory, base = os.path.split(self._at(name))
        self._make_dirs(directory)
        temporary = os.path.join(directory, temporary_name(base))
        try:
            with open(temporary, "xb", opener=self._opener) as file:
                file.write(data)
            self._sync(temporary)
            yield temporary
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)

    def _opener(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o600 if self.private else 0o666)

    def _make_dirs(self, directory: str) -> None:
        """Make the directory and its parents, and sync the parent of each."""
        if not os.path.isdir(directory):
            self._make_dirs(os.path.dirname(directory))
            try:
                os.mkdir(directory, 0o700 if self.private else 0o777)
            except FileExistsError:  # another process made it meanwhile, or it is a file
                if not os.path.isdir(directory):
                    raise InputError(f"{directory} is not a directory. Give another path") from None
            self._sync(os.path.dirname(directory))

    def _sync(self, path: str) -> None:
        """Flush a file, or the entries of a directory, to the disk."""
        if self.sync:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file; refuse any other kind without blocking."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", path)
    return descriptor


# --- names ------------------------------------------------------------------------------------------------------


def checked_name(name: str) -> str:
    """Refuse a name that leaves the root.

    >>> checked_name("journal/../../etc")
    Traceback (most recent call last):
    ValueError: name 'journal/../../etc' leaves the root: names are relative, without '..'
    """
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"name {name!r} leaves the root: names are relative, without '..'")
    return name


def temporary_name(base: str) -> str:
    """Return a unique name that listings skip."""
    return f".{base}.{uuid.uuid4().hex}.tmp"


def is_temporary(base: str) -> bool:
    """Return whether `temporary_name` made a name."""
    return base.startswith(".") and base.endswith(".tmp")


_PLAIN_NAME = re.compile(rf"[a-z0-9_]{{1,{limits.MAX_FOLDER_NAME_CHARACTERS}}}")
_READABLE_CHARACTERS = 40


def safe_name(name: str) -> str:
    """Return the directory name of a query or stream, which is safe on every filesystem.

    SQL can quote any name, and some filesystems ignore case.  A plain name stays as it is, in lower case, since names
    are unique whatever their case.  Any other name becomes its readable part, a hyphen, and a digest of the whole.  A
    plain name has no hyphen, so no two names share a directory.

    >>> safe_name("Fast_2"), safe_name("a/b"), safe_name("..")
    ('fast_2', 'a_b-0debd2558bca8fa0', '-34f0828231260469')
    """
    lowered = name.lower()
    if _PLAIN_NAME.fullmatch(lowered):
        return lowered
    readable = re.sub(r"[^a-z0-9]+", "_", lowered).strip("_")[:_READABLE_CHARACTERS]
    return f"{readable}-{blake2b(lowered.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"


def folder_of(kind: str, name: str) -> str:
    """Return the directory of a query or stream inside the state."""
    return f"{kind}/{safe_name(name)}"
