"""The lock of a state: flock(2) on a file, so that two engines cannot own one state.

The kernel releases the lock when its owner dies.  The file stays; it names the owner for the error message.

In:  the path of the lock file.  Out: a `Lock`, or `StateBusyError`.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from penstock.errors import StateBusyError


class Lock:
    """Ownership of a state, until `release`; also a context manager."""

    def __init__(self, descriptor: int | None) -> None:
        """Keep the open, locked file; None where the filesystem cannot lock."""
        self._descriptor = descriptor
        _HELD_LOCKS.add(self)

    @property
    def excludes(self) -> bool:
        """Return whether the filesystem can lock, so that no other engine owns the state."""
        return self._descriptor is not None

    def release(self) -> None:
        """Unlock; a second call does nothing."""
        _HELD_LOCKS.discard(self)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        """Return the lock."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.release()


_HELD_LOCKS: set[Lock] = set()


def take_lock(path: Path, state: str) -> Lock:
    """Lock a file for this process, or raise `StateBusyError` with the owner of the state."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _owner(os.pread(descriptor, 4096, 0))
        os.close(descriptor)
        raise StateBusyError(
            f"state {state} is owned by {owner} (lock file {path}). "
            "Stop that engine, or give this one another state directory"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, _signature(), 0)
    return Lock(descriptor)


def _forget_locks() -> None:
    """Close the descriptors that a forked child inherited, so that the lock ends with the parent."""
    for lock in tuple(_HELD_LOCKS):
        lock.release()


os.register_at_fork(after_in_child=_forget_locks)


def _signature() -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}).encode()


def _owner(signature: bytes) -> str:
    """Describe the owner of a lock; between lock and signature there is none.

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
