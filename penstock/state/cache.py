"""This machine's copies of a store's files: fetched once, mapped by all processes of one user, and let go.

The copies are in a directory of the user's own: ``penstock`` in the user's cache directory (``XDG_CACHE_HOME``, else
``~/.cache``), which nobody else can make, enter or replace by a link.  Where there is none, a process makes a private
temporary one.  What is in a copy is not trusted for that: it is checked like any other file
(`penstock.state.checksum`).

A file that is used has its time of access set now and then.  Whoever fetches next removes what nobody has used for an
hour, and when the disk is nearly full what nobody has used for a minute; who has mapped such a file keeps the map.

In:  the root of a store, a name, and how to fetch it.  Out: the path of the copy.
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
    """Give the path of the copy of a file, fetching it if it is not there."""
    copy = _copy_path(root, name)
    if not _touched(copy):
        _fetch(copy, fetch)
        _sweep()
    return copy


def drop_copy(root: str, name: str) -> bool:
    """Remove a copy, or all copies below a name, and say whether there was one."""
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
    """Say whether a copy is there, and note that it is used."""
    try:
        status = copy.stat()
        if time.time() - status.st_atime > limits.CACHE_TOUCH_SECONDS:
            os.utime(copy, ns=(time.time_ns(), status.st_mtime_ns))
    except FileNotFoundError:
        return False
    return True


def _fetch(copy: Path, fetch: Callable[[Path], None]) -> None:
    """Fetch a file under a temporary name and rename it, so that nobody sees half of it."""
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
    """Remove the copies that nobody has used for a while, at most once a minute."""
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


# --- whose directory it is --------------------------------------------------------------------------------------


@cache
def cache_folder() -> Path:
    """Find, or make, the directory of this user's copies."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    folder = Path(home) / "penstock"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_ours(folder):
            return folder
    return temporary_folder("penstock-cache-")


def temporary_folder(prefix: str, parent: str | None = None) -> Path:
    """Make a directory that only the user can enter, and that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, maker: int) -> None:
    """Remove a temporary directory at the end of the process that made it, not of those it forked."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def is_ours(folder: Path) -> bool:
    """Say whether this is a directory, the user's own, that lets nobody else in; others' rights are taken away."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return os.access(folder, os.W_OK | os.X_OK)


def _forget_folder() -> None:
    """Let a forked child find its own: a temporary directory is its parent's to remove."""
    cache_folder.cache_clear()


os.register_at_fork(after_in_child=_forget_folder)
