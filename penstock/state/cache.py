"""This machine's copies of a store's files: fetched once, mapped by all processes of one user, removed when idle.

The copies are in ``penstock`` in the user's cache directory (``XDG_CACHE_HOME``, else ``~/.cache``), with access for
the user only.  If that directory cannot be used, a process makes a private temporary one.  Every copy is checked like
any other file before it is read (`penstock.state.checksum`).

A process that uses a copy updates its access time now and then.  After a fetch, copies that are unused for an hour are
removed, or for a minute if the disk is nearly full.  A process that has mapped a removed file keeps its map.

In:  the root of a store, a name, and a function that fetches it.  Out: the path of the copy.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
import time
import uuid
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import limits

if TYPE_CHECKING:
    from collections.abc import Callable


def copy_of(root: str, name: str, fetch: Callable[[Path], None]) -> Path:
    """Return the path of the copy of a file; fetch it if there is none."""
    copy = _copy_path(root, name)
    if not _touched(copy):
        _fetch(copy, fetch)
        _sweep()
    return copy


def drop_copy(root: str, name: str) -> bool:
    """Remove a copy, or all copies below a name; return whether there was one."""
    copy = _copy_path(root, name)
    if copy.is_dir():
        shutil.rmtree(copy, ignore_errors=True)
        return True
    with suppress(FileNotFoundError):
        copy.unlink()
        return True
    return False


def _copy_path(root: str, name: str) -> Path:
    return cache_folder() / sha256(root.encode()).hexdigest()[:16] / name


def _touched(copy: Path) -> bool:
    """Return whether there is a copy, and update its access time."""
    try:
        status = copy.stat()
        if time.time() - status.st_atime > limits.CACHE_TOUCH_SECONDS:
            os.utime(copy, ns=(time.time_ns(), status.st_mtime_ns))
    except FileNotFoundError:
        return False
    return True


def _fetch(copy: Path, fetch: Callable[[Path], None]) -> None:
    """Fetch a file under a temporary name and rename it, so that a copy is always complete."""
    copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    half = copy.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        fetch(half)
        os.utime(half)
        half.replace(copy)
    finally:
        half.unlink(missing_ok=True)


_swept = {"at": float("-inf")}


def _sweep() -> None:
    """Remove unused copies, at most once a minute."""
    if time.monotonic() - _swept["at"] < limits.CACHE_SWEEP_SECONDS:
        return
    _swept["at"] = time.monotonic()
    folder = cache_folder()
    disk = shutil.disk_usage(folder)
    full = disk.free < limits.CACHE_FREE_DISK_SHARE * disk.total
    oldest = time.time() - (limits.CACHE_IDLE_SECONDS_WHEN_FULL if full else limits.CACHE_IDLE_SECONDS)
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
            if not file.is_dir() and file.stat().st_atime < oldest:
                file.unlink()


# --- the directory ----------------------------------------------------------------------------------------------


@cache
def cache_folder() -> Path:
    """Return the directory of this user's copies; make it if there is none."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    folder = Path(home) / "penstock"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_ours(folder):
            return folder
    return temporary_folder("penstock-cache-")


def temporary_folder(prefix: str, parent: str | None = None) -> Path:
    """Make a directory for this user only, removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, maker: int) -> None:
    """Remove a temporary directory at the end of the process that made it, not of a forked child."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def is_ours(folder: Path) -> bool:
    """Return whether this is a writable directory of the user; remove the rights of group and others."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return os.access(folder, os.W_OK | os.X_OK)


# a forked child makes its own temporary directory, because its parent removes this one
os.register_at_fork(after_in_child=cache_folder.cache_clear)
