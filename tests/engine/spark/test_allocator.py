"""Memory that a worker has freed is used again, not given back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys
import numpy as np
from penstock.engine.spark.allocator import keep_memory
if sys.argv[1] == "kept":
    keep_memory()
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        several = [np.ones(100_000) for _ in range(8)]  # 800 kB each, freed together
        del several
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _pages_cleared(how: str) -> int:
    ran = subprocess.run([sys.executable, "-c", _FAULTS, how], capture_output=True, text=True, check=True)
    return int(ran.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the system's allocator is another one")
def test_arrays_are_made_in_memory_that_others_have_left() -> None:
    kept, given_back = _pages_cleared("kept"), _pages_cleared("given back")
    assert kept < given_back / 10, f"{kept} pages were cleared, {given_back} without"
