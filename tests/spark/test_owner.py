"""A state has one owner, and its streams stay what they were."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from penstock.engine.api import Engine
from penstock.errors import InputError, StateBusyError
from tests.oracle import Feed, Spec, Window
from tests.spark.runner import Run

pytestmark = pytest.mark.spark

COLUMNS = {"k": "bigint", "v": "int", "ts": "timestamp"}
SECOND = 1_000_000


@pytest.fixture
def spec(tmp_path):
    a, b = (Feed(name, tmp_path / name, COLUMNS) for name in "ab")
    return Spec("q", a, b, ("a.k = b.k",), Window("both", SECOND), ("a.v > 1",))


def test_a_second_engine_on_the_same_state_is_refused_and_told_who_has_it(spark, tmp_path, spec):
    run = Run(spark, tmp_path, [spec])
    with run.engine() as engine:
        engine.start()
        with pytest.raises(StateBusyError, match=rf"owned by this very process, {os.getpid()},"):
            Engine(run.state, spark)
        other = f"from penstock.engine.api import Engine\nEngine({str(run.state)!r})"
        answer = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=False)
        assert f"owned by process {os.getpid()} on" in answer.stderr
    run.once()  # and is free again


def test_a_state_refuses_a_stream_that_is_declared_differently(spark, tmp_path, spec):
    """Its rows were judged late, or not, by the lateness it had."""
    Run(spark, tmp_path, [spec]).once()
    other = replace(spec, a=replace(spec.a, lateness=SECOND))
    with Run(spark, tmp_path, [other]).engine() as engine, pytest.raises(InputError) as error:
        engine.start()
    assert "stream a is not declared as it was" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_same_query_written_differently_is_the_same_query(spark, tmp_path, spec):
    """What counts is the meaning: order of streams and conditions, case, and the way a window is written."""
    Run(spark, tmp_path, [spec]).once()
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(f"{spec.b.declare()} {spec.a.declare()}")
        select = "select A.*, B.K as b_k, B.V as b_v, B.TS as b_ts"
        engine.query("q", f"{select} from B join A on 1 < A.V and B.K = A.K window 1000 ms")
        engine.start(once=True)
        engine.wait()
