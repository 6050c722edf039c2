"""CPU time divided by kind of work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks import breakdown
from benchmarks.breakdown import DRIVER, ENDED, REST, WORKERS, kind_of, measure_breakdown
from benchmarks.workloads import QUERY_SETS
from penstock.errors import RunError

TREE = """
import json, os, subprocess, sys
from benchmarks.breakdown import used_by_kind
busy = "x = 0\\nfor i in range(3_000_000): x += i\\nprint('did', flush=True)\\ninput()"
looks = [used_by_kind(os.getpid())]
with subprocess.Popen([sys.executable, "-c", busy], stdin=-1, stdout=-1, text=True) as child:
    child.stdout.readline()
    looks.append(used_by_kind(os.getpid()))
    child.communicate("\\n")
print(json.dumps([*looks, used_by_kind(os.getpid())]))
"""


def test_a_process_and_its_children_are_told_apart():
    """In a process of its own: this one may have a JVM among its children, and that one may end in between."""
    done = subprocess.run([sys.executable, "-c", TREE], capture_output=True, text=True, check=True)
    before, during, after = map(Counter, json.loads(done.stdout))
    assert during[WORKERS] > before[WORKERS], "the child's work is not the driver's"
    assert after[ENDED] > before[ENDED], "and is not lost when it ends"
    assert after[DRIVER] >= before[DRIVER] > 0


def pretended(monkeypatch, *marks):
    monkeypatch.setattr(
        breakdown, "run_to_end", lambda _script, watch, _settings: [watch(*each) for each in marks]
    )


def test_only_the_second_half_counts(monkeypatch, tmp_path):
    ticks = iter(({"a": 100}, {"a": 150, "b": 5}, {"a": 250, "b": 5}))
    monkeypatch.setattr(breakdown, "used_by_kind", lambda _root: breakdown.Counter(next(ticks)))
    monkeypatch.setattr("os.sysconf", lambda _name: 100)
    pretended(monkeypatch, (1.0, 200_000), (2.0, 500_000), (4.0, 900_000))
    spent, rate = measure_breakdown(tmp_path, QUERY_SETS["N1"], 900_000)
    assert (spent, rate) == ({"a": pytest.approx(500), "b": 0}, 200_000)


def test_a_run_without_a_second_half_says_so(monkeypatch, tmp_path):
    pretended(monkeypatch, (1.0, 80_000))
    with pytest.raises(RunError, match=r"after the first half of 80,000 rows.*--rows"):
        measure_breakdown(tmp_path, QUERY_SETS["N1"], 80_000)


def test_threads_of_a_jvm_are_told_apart_by_their_names():
    assert kind_of("Executor task l") == "JVM tasks: read the source, evaluate, hand to Python"
    assert kind_of("dag-scheduler-e") == REST
