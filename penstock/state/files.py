"""The one module through which bytes reach a filesystem.

Everything the engine keeps (segments, journal, output) lies below one root, and every name is
relative to it.  Two kinds of root, one set of promises::

    /data/state, file:///data/state      LocalFiles    flock; link(2) for "only if absent"
    s3://bucket/state, hdfs://..., ...   FsspecFiles   whatever fsspec can open

* `Files.put_if_absent` and `Files.put` are atomic: a reader sees the whole file or none of it.
* `Files.put_if_absent` has one winner.  Commits rest on this (`penstock.state.journal`).
* A name that was written is never written again with other bytes (snapshots and commits carry
  their number, segments a unique name), so a copy of a file is right for ever.

Nothing here holds a connection or an open file, so a `Files` is a few strings, pickled by value
into every Spark task.

In:  a path or url (`open_files`).
Out: bytes, and memory maps for `penstock.state.segment`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import socket
import stat
import threading
import uuid
from abc import ABC, abstractmethod
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

import fsspec
import pyarrow as pa
from fsspec.core import url_to_fs

from penstock import limits
from penstock.errors import InputError, StateBusyError
from penstock.state import cache
from penstock.state.locations import absolute, is_local, literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager


_COPIED_BYTES = 1 << 20
"""Bytes that are copied at a time."""


def open_files(
    url: str, *, sync: bool = True, private: bool = False, options: Mapping[str, object] | None = None
) -> Files:
    """Return the files below `url`: a local directory, or anything fsspec has a driver for.

    `sync` (local only) is whether a power cut is survived too; a killed process needs no sync.
    `private` (local only) is whether what is made is for its owner alone, whatever the umask.
    `options` go to the fsspec driver (credentials, endpoint).

    >>> open_files("/data/state").path("journal/000000000001.json")
    'file:///data/state/journal/000000000001.json'
    >>> open_files("memory://lab/").root
    'memory://lab'
    """
    location = absolute(url)
    if is_local(location):
        return LocalFiles(f"file://{location.rstrip('/')}", sync, private)
    try:
        fsspec.get_filesystem_class(location.partition("://")[0])
    except (ImportError, ValueError) as error:
        message = f"{url} cannot be opened: {error}; give a directory, or a url of a driver you have"
        raise InputError(message) from error
    return FsspecFiles(location, tuple(sorted((options or {}).items())))


class Files(ABC):
    """The files below one root.  Every `name` is relative, with ``/`` between its parts."""

    root: str
    """The absolute url of the directory."""

    def path(self, name: str) -> str:
        """Where `name` lies, as a url that Spark can read (never percent-encoded: Hadoop does not decode)."""
        return f"{self.root}/{_checked(name)}" if name else self.root

    def to_read(self, name: str) -> str:
        """Where `name` lies, as a pattern that matches nothing else: Spark takes what it reads for patterns."""
        return literal(self.path(name))

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> None:
        """Create the file whole, or raise FileExistsError; of two that try at once, one wins."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Create or replace the file, whole."""

    @abstractmethod
    def writer(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Stream a new file: complete when the block ends, gone when the block raises.

        Readers may see it half written before that, so write to a name nobody was told yet.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the whole file, or raise FileNotFoundError."""

    @abstractmethod
    def local_copy(self, name: str) -> str | None:
        """Return where this machine has the file, fetched if need be; None where it is in memory only."""

    def drop_copy(self, name: str) -> bool:  # noqa: ARG002 - there is none here
        """Remove this machine's copy of the file, if it is no more than that, and say whether there was one."""
        return False

    def memory_map(self, name: str) -> pa.NativeFile:
        """Open the file for reads without copying: bytes are loaded when they are touched."""
        path = self.local_copy(name)
        return pa.BufferReader(self.read(name)) if path is None else pa.memory_map(path, "r")

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Tell whether there is a file or directory of that name."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the file's size in bytes, or raise FileNotFoundError."""

    @abstractmethod
    def find(self, name: str) -> list[str]:
        """Return the names of all files below the directory, however deep, sorted."""

    @abstractmethod
    def list(self, name: str) -> list[str]:
        """Return the names directly in the directory, sorted; none when there is no such directory."""

    @abstractmethod
    def make_dirs(self, name: str) -> None:
        """Make the directory and its parents, where the filesystem has directories."""

    def make_private(self, name: str) -> None:
        """Make the directory, or take it, for its owner alone; a store has its own ways to say who may read."""
        self.make_dirs(name)

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Publish a file or directory under its final name; done already when only `target` is there."""

    def link(self, name: str, other: Files, other_name: str) -> bool:  # noqa: ARG002 - there are none here
        """Give a file one more name, in another directory; say whether it could be had."""
        return False

    @abstractmethod
    def copy(self, name: str, other: Files, other_name: str) -> None:
        """Copy a file into another directory, a piece at a time."""

    @abstractmethod
    def settle(self, directories: Iterable[str]) -> None:
        """Make what was moved into directories last, where a move alone does not (`sync` is off)."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove the file if it is there."""

    @abstractmethod
    def delete_tree(self, name: str) -> None:
        """Remove the directory and all below it, if it is there."""

    @abstractmethod
    def lock(self, name: str) -> Lock:
        """Own the state until `Lock.release` or the end of this process, however it ends.

        Raises `StateBusyError` when another engine, here or in another process, owns it.
        """


@dataclass(frozen=True, slots=True)
class LocalFiles(Files):
    """A directory on this machine, or one mounted here."""

    root: str
    sync: bool = True
    private: bool = False

    def __post_init__(self) -> None:
        """Refuse a root that a task in another working directory would read differently."""
        if not self.root.startswith("file:///"):
            message = f"root {self.root} is not absolute: write file:///…, or use open_files"
            raise InputError(message)

    def put_if_absent(self, name: str, data: bytes) -> None:
        """Link a finished temporary file to its name: link(2) refuses a name that is taken."""
        with self._finished(name, data) as temporary:
            os.link(temporary, self._at(name))
        self._sync(os.path.dirname(self._at(name)))

    def put(self, name: str, data: bytes) -> None:
        """Rename a finished temporary file over its name."""
        with self._finished(name, data) as temporary:
            os.replace(temporary, self._at(name))
        self._sync(os.path.dirname(self._at(name)))

    @contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        """Write under the final name; on an error remove the half-written file."""
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
        """Read the file, if it is a regular one: to open a pipe is to wait for whoever writes to it."""
        with open(self._at(name), "rb", opener=_open_regular) as file:
            return file.read()

    def local_copy(self, name: str) -> str:
        """Give the file itself."""
        return self._at(name)

    def exists(self, name: str) -> bool:
        """Ask the directory."""
        return os.path.exists(self._at(name))

    def size(self, name: str) -> int:
        """Ask the inode."""
        return os.stat(self._at(name)).st_size

    def find(self, name: str) -> list[str]:
        """Walk the tree, passing over temporary files."""
        top = self._at(name)
        return sorted(
            "/".join(part for part in (name, os.path.relpath(folder, top), each) if part not in {"", "."})
            for folder, _, names in os.walk(top)
            for each in names
            if not _is_temporary(each)
        )

    def list(self, name: str) -> list[str]:
        """List the directory, without the temporary files that a killed process left behind."""
        try:
            return sorted(each for each in os.listdir(self._at(name)) if not _is_temporary(each))
        except FileNotFoundError:
            return []
        except (NotADirectoryError, PermissionError) as error:
            message = (
                f"{self.path(name)} cannot be read: {error.strerror}. Give a directory that you may read"
            )
            raise InputError(message) from error

    def make_dirs(self, name: str) -> None:
        """Make the directories."""
        self._make_dirs(self._at(name))

    def make_private(self, name: str) -> None:
        """Make the directory, or take its group's and others' rights away if it is ours."""
        path = self._at(name)
        self._make_dirs(path)
        status = os.stat(path)
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            os.chmod(path, 0o700)

    def move(self, source: str, target: str) -> None:
        """Rename; a directory already published and not empty is an error, never merged into."""
        origin, goal = self._at(source), self._at(target)
        if os.path.lexists(origin):  # else nothing is made for it
            self._make_dirs(os.path.dirname(goal))
        try:
            os.replace(origin, goal)
        except FileNotFoundError:
            if not os.path.exists(goal):
                raise
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                message = f"{self.path(source)} cannot be published: {self.path(target)} already holds files"
                raise FileExistsError(message) from error
            raise
        self._sync(os.path.dirname(goal))

    def link(self, name: str, other: Files, other_name: str) -> bool:
        """Make a hard link, which not every filesystem has, and none to another one."""
        if not isinstance(other, LocalFiles):
            return False
        other.make_dirs(os.path.dirname(other_name))
        try:
            os.link(self._at(name), other.local_copy(other_name))
        except FileExistsError:  # by a server, perhaps, that had done it already and is asked again
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
            shutil.copyfileobj(source, target, _COPIED_BYTES)

    def rights(self, name: str) -> tuple[object, ...]:
        """Return the owner, the group and the rights of a directory, with the access list that its files get."""
        status, access = os.stat(self._at(name)), b""
        with suppress(OSError, AttributeError):
            access = os.getxattr(self._at(name), "system.posix_acl_default")
        return status.st_uid, status.st_gid, status.st_mode, access

    def settle(self, directories: Iterable[str]) -> None:
        """Sync each of them."""
        for each in directories:
            self._sync(self._at(each))

    def delete(self, name: str) -> None:
        """Unlink the file."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(name))

    def delete_tree(self, name: str) -> None:
        """Remove the tree."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._at(name))

    def lock(self, name: str) -> Lock:
        """Take flock(2) on a file that stays: the kernel lets go of it when the owner dies."""
        path = self._at(name)
        self._make_dirs(os.path.dirname(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(os.pread(descriptor, 4096, 0))
            os.close(descriptor)
            message = (
                f"state {self.root} is owned by {owner} (lock file {path}): "
                "stop that engine, or give this one another state directory"
            )
            raise StateBusyError(message) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _signature(), 0)
        return Lock(descriptor)

    def _at(self, name: str) -> str:
        """Return the plain path of `name`, for system calls."""
        return self.path(name).removeprefix("file://")

    @contextmanager
    def _finished(self, name: str, data: bytes) -> Iterator[str]:
        """Write `data` to a temporary file beside `name`; whatever is left of it goes at the end."""
        directory, base = os.path.split(self._at(name))
        self._make_dirs(directory)
        temporary = os.path.join(directory, _temporary(base))
        try:
            with open(temporary, "xb", opener=self._opener) as file:
                file.write(data)
            self._sync(temporary)
            yield temporary
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)

    def _opener(self, path: str, flags: int) -> int:
        """Open a file as `open` does, for its owner alone if that is wanted."""
        return os.open(path, flags, 0o600 if self.private else 0o666)

    def _make_dirs(self, directory: str) -> None:
        """Make the directory and its parents, each entered durably in its own parent."""
        if not os.path.isdir(directory):
            self._make_dirs(os.path.dirname(directory))
            try:
                os.mkdir(directory, 0o700 if self.private else 0o777)
            except FileExistsError:  # made by another process just now, or a file
                if not os.path.isdir(directory):
                    raise InputError(f"{directory} is not a directory: give another path") from None
            self._sync(os.path.dirname(directory))

    def _sync(self, path: str) -> None:
        """Wait until the file, or the entries of the directory, are on the disk."""
        if self.sync:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


_CREATE_IS_EXCLUSIVE = frozenset({"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Stores with no directories, whose `pipe_file` is one atomic request and can be "only if absent".

Never ``open(…, "xb")``: s3fs up to mid-2025 let it overwrite small files (its issue 973), and the
memory driver shows an empty file between open and write.  Drivers older than fsspec 2025.2 may
ignore ``mode="create"`` without a word, which is why pyproject asks for that.
"""

_MEMORY_LOCK = threading.Lock()
"""The memory driver looks, then acts, and trips over files that come or go in between."""


@dataclass(frozen=True, slots=True)
class FsspecFiles(Files):
    """A directory of any filesystem with an fsspec driver.

    On object stores `put_if_absent` is the store's own conditional put.  Elsewhere (``hdfs://``) no
    driver offers one: a temporary file is renamed after a look that the name is free, so a file is
    whole, but two engines *started in the same instant* may not notice each other.
    """

    root: str
    options: tuple[tuple[str, object], ...] = field(default=(), repr=False)  # may hold credentials

    def put_if_absent(self, name: str, data: bytes) -> None:
        """Let the store decide who was first; without such a store, look and rename."""
        fs, path = self._locate(name)
        if not self._exclusive:
            if self.exists(name):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._rename_finished(name, data)
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
            self._rename_finished(name, data)

    @contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        """Stream through the driver's buffer; on an error remove what it had sent."""
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
        """Give this machine's copy, fetched once by its user (``memory://`` is in memory already)."""
        if self._scheme == "memory":
            return None
        fs, path = self._locate(name)
        return str(cache.copy_of(self.root, name, lambda target: fs.get_file(path, str(target))))

    def drop_copy(self, name: str) -> bool:
        """Remove the copy; the store has the file."""
        return self._scheme != "memory" and cache.drop_copy(self.root, _checked(name))

    def exists(self, name: str) -> bool:
        """Ask the store, not the driver's cache of listings."""
        fs, path = self._locate(name, fresh=True)
        return bool(fs.exists(path))

    def size(self, name: str) -> int:
        """Ask the store."""
        fs, path = self._locate(name, fresh=True)
        return int(fs.info(path)["size"])

    def find(self, name: str) -> list[str]:
        """List all below the prefix, passing over temporary files."""
        fs, path = self._locate(name, fresh=True)
        with self._guard():
            below = [each.removeprefix(path).strip("/") for each in fs.find(path)]
        return sorted(
            f"{name}/{each}".strip("/") for each in below if not _is_temporary(each.rpartition("/")[2])
        )

    def list(self, name: str) -> list[str]:
        """List below the prefix, without a directory's own marker object and without temporary files."""
        fs, path = self._locate(name, fresh=True)
        try:
            with self._guard():
                entries = [each.rstrip("/") for each in fs.ls(path, detail=False)]
        except FileNotFoundError:
            return []
        names = (each.rpartition("/")[2] for each in entries if each != path.rstrip("/"))
        return sorted(each for each in names if not _is_temporary(each))

    def make_dirs(self, name: str) -> None:
        """Make the directories; an object store has none."""
        if not self._exclusive:
            fs, path = self._locate(name)
            fs.makedirs(path, exist_ok=True)

    def move(self, source: str, target: str) -> None:
        """Move file by file, so that a move cut short is finished by moving again."""
        fs, origin = self._locate(source, fresh=True)
        _, goal = self._locate(target)
        sources = fs.find(origin)
        if not sources and not fs.exists(goal):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), origin)
        for each in sources:
            moved = goal + each.removeprefix(origin)
            if not self._exclusive:
                fs.makedirs(moved.rpartition("/")[0], exist_ok=True)
            fs.mv(each, moved)
        self.delete_tree(source)

    def copy(self, name: str, other: Files, other_name: str) -> None:
        """Let an object store copy within itself; else read and write."""
        fs, path = self._locate(name)
        if isinstance(other, FsspecFiles) and self._exclusive:
            target_fs, goal = other._locate(other_name)  # noqa: SLF001 - of this class
            if target_fs is fs:  # fsspec has one for each store and its options
                with self._guard():
                    fs.cp_file(path, goal)
                return
        with fs.open(path, "rb") as source, other.writer(other_name) as target:
            shutil.copyfileobj(source, target, _COPIED_BYTES)

    def settle(self, directories: Iterable[str]) -> None:
        """Do nothing: what a store has answered for is there."""

    def delete(self, name: str) -> None:
        """Remove the file, and this machine's copy of it."""
        fs, path = self._locate(name)
        with suppress(FileNotFoundError), self._guard():
            fs.rm_file(path)
        self.drop_copy(name)

    def delete_tree(self, name: str) -> None:
        """Remove all below the prefix, and this machine's copies."""
        fs, path = self._locate(name, fresh=True)
        with suppress(FileNotFoundError), self._guard():
            fs.rm(path, recursive=True)
        self.drop_copy(name)

    def lock(self, name: str) -> Lock:
        """Return a lock that excludes nobody: the journal finds a second owner at its first commit."""
        _checked(name)
        return Lock(None)

    @property
    def _scheme(self) -> str:
        return self.root.partition("://")[0]

    @property
    def _exclusive(self) -> bool:
        return self._scheme in _CREATE_IS_EXCLUSIVE

    def _guard(self) -> AbstractContextManager[object]:
        """Take turns where the driver itself cannot be used by two threads at once."""
        return _MEMORY_LOCK if self._scheme == "memory" else nullcontext()

    def _locate(self, name: str, *, fresh: bool = False) -> tuple[Any, str]:
        """Return the driver (fsspec keeps one per process and options) and its path of `name`."""
        fs, base = url_to_fs(self.root, **dict(self.options))
        if fresh:
            fs.invalidate_cache()
        return fs, f"{base.rstrip('/')}/{_checked(name)}" if name else base

    def _rename_finished(self, name: str, data: bytes) -> None:
        """Write a temporary file beside `name` and rename it."""
        fs, path = self._locate(name)
        directory, _, base = path.rpartition("/")
        temporary = f"{directory}/{_temporary(base)}"
        fs.makedirs(directory, exist_ok=True)
        try:
            fs.pipe_file(temporary, data)
            fs.mv(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                fs.rm_file(temporary)
            raise


class Lock:
    """Ownership of a state, from `Files.lock` until `release`; also a context manager."""

    def __init__(self, descriptor: int | None) -> None:
        """Hold the open, locked file; None where the filesystem cannot lock."""
        self._descriptor = descriptor
        _HELD_LOCKS.add(self)

    @property
    def excludes(self) -> bool:
        """Say whether nobody else can hold it: not where the filesystem cannot lock."""
        return self._descriptor is not None

    def release(self) -> None:
        """Let the next engine in.  Releasing twice is harmless."""
        _HELD_LOCKS.discard(self)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        """Give the lock itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release."""
        self.release()


_HELD_LOCKS: set[Lock] = set()


def _forget_locks() -> None:
    """Close a forked child's copies: the lock is the parent's, and must not outlive it in a child."""
    for lock in tuple(_HELD_LOCKS):
        lock.release()


os.register_at_fork(after_in_child=_forget_locks)


def _signature() -> bytes:
    """Say who owns the lock, for the message that turns the next one away."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}).encode()


def _owner(signature: bytes) -> str:
    """Read a signature; it may be missing in the instant between locking and signing.

    >>> _owner(b'{"pid": 7, "host": "db1", "since": "2026-01-01T00:00:00+00:00"}')
    'process 7 on db1 since 2026-01-01T00:00:00+00:00'
    >>> _owner(b"")
    'another process that has only just started'
    """
    try:
        owner = json.loads(signature)
    except ValueError:
        return "another process that has only just started"
    here = (owner["pid"], owner["host"]) == (os.getpid(), socket.gethostname())
    who = f"this very process, {owner['pid']}," if here else f"process {owner['pid']}"
    return f"{who} on {owner['host']} since {owner['since']}"


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file; refuse all else without waiting."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", path)
    return descriptor


def _checked(name: str) -> str:
    """Refuse a name that would leave the root.

    >>> _checked("journal/../../etc")
    Traceback (most recent call last):
    ValueError: name 'journal/../../etc' leaves the root: names are relative, without '..'
    """
    if name.startswith("/") or ".." in name.split("/"):
        message = f"name {name!r} leaves the root: names are relative, without '..'"
        raise ValueError(message)
    return name


def _temporary(base: str) -> str:
    """Return a name that no listing shows and no other writer takes."""
    return f".{base}.{uuid.uuid4().hex}.tmp"


def _is_temporary(base: str) -> bool:
    """Recognise `_temporary` names."""
    return base.startswith(".") and base.endswith(".tmp")


_PLAIN_NAME = re.compile(rf"[a-z0-9_]{{1,{limits.MAX_FOLDER_NAME_CHARACTERS}}}")
_READABLE_CHARACTERS = 40


def safe_name(name: str) -> str:
    """Give the name of the directory for a query or stream.

    >>> safe_name("Fast_2"), safe_name("a/b"), safe_name("..")
    ('fast_2', 'a_b-0debd2558bca8fa0', '-34f0828231260469')
    """
    lowered = name.lower()
    if _PLAIN_NAME.fullmatch(lowered):
        return lowered
    readable = re.sub(r"[^a-z0-9]+", "_", lowered).strip("_")[:_READABLE_CHARACTERS]
    return f"{readable}-{blake2b(lowered.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"


def folder_of(kind: str, name: str) -> str:
    """Return the directory where a state keeps what belongs to a query or stream."""
    return f"{kind}/{safe_name(name)}"
