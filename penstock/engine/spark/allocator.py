"""How a Python worker's memory is got from the system: kept for the next array, where glibc would give it back.

By itself glibc maps every large array anew and gives it back when it is freed, so that each of its pages is cleared by
the system when it is first written to.  Loops that fill arrays of a megabyte for a few milliseconds, and answers are
made by such loops, then spend half of their time on that.

In:  nothing.  Out: nothing; what the process allocates from here on.
"""

from __future__ import annotations

import ctypes
from functools import cache

LARGEST = 32 << 20
"""Bytes up to which arrays come from memory that is kept: the most that glibc allows."""
KEPT = 64 << 20
"""Bytes that may be free at the end of a worker's memory before they are given back."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


@cache
def keep_memory() -> bool:
    """Let freed memory be used again; say whether the system's allocator can be told so (glibc's can)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGEST)) and bool(mallopt(_M_TRIM_THRESHOLD, KEPT))
