"""CPU time divided by kind of work."""

from __future__ import annotations

import os
import subprocess
import sys

from penstock.lab.bench.breakdown import DRIVER, ENDED, WORKERS, used_by_kind


def test_a_process_and_its_children_are_told_apart():
    busy = "x = 0\nfor i in range(3_000_000): x += i\nprint('did', flush=True)\ninput()"
    before = used_by_kind(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        child.stdout.readline()
        during = used_by_kind(os.getpid())
        child.communicate("\n")
    after = used_by_kind(os.getpid())
    assert during[WORKERS] > before[WORKERS], "the child's work is not the driver's"
    assert after[ENDED] > before[ENDED], "and is not lost when it ends"
    assert after[DRIVER] >= before[DRIVER] > 0
