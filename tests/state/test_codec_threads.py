"""Threads that read the first values of a class at the same moment: in a process of its own, which would be lost."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys, threading
from dataclasses import make_dataclass
from penstock.state.codec import from_json

sys.setswitchinterval(1e-6)
for turn in range(100):
    inner = [make_dataclass(f"Inner{turn}_{n}", [(f"f{i}", int) for i in range(10)]) for n in range(5)]
    outer = make_dataclass("Outer", [(f"g{n}", each) for n, each in enumerate(inner)])
    data = {f"g{n}": {f"f{i}": i for i in range(10)} for n in range(5)}
    together = threading.Barrier(4)

    def read():
        together.wait()
        assert from_json(data, outer).g4.f9 == 9

    threads = [threading.Thread(target=read) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print("all read")
"""


def test_a_class_that_several_threads_meet_at_once_is_read_by_all():
    """Two streams whose first batches were reported together brought the process down."""
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "all read", "")
