"""Memory that a worker has freed is used again, not given back to the system."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from penstock.engine.spark.session import _DEFAULTS

_FAULTS = """
import resource
import numpy as np
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        several = [np.ones(100_000) for _ in range(8)]  # 800 kB each, freed together
        del several
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _pages_cleared(more: dict[str, str]) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | more
    ran = subprocess.run(
        [sys.executable, "-c", _FAULTS], env=environment, capture_output=True, text=True, check=True
    )
    return int(ran.stdout)


def _of_workers() -> dict[str, str]:
    """Return the environment variables that the embedded session gives to Python workers."""
    prefix = "spark.executorEnv."
    return {name.removeprefix(prefix): value for name, value in _DEFAULTS.items() if name.startswith(prefix)}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the system's allocator is another one")
def test_arrays_are_made_in_memory_that_others_have_left() -> None:
    kept, given_back = _pages_cleared(_of_workers()), _pages_cleared({})
    assert kept < given_back / 10, f"{kept} pages were cleared, {given_back} without"
