"""Paper 5's streams as files for the engine, and what is claimed of runs on them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.oracle import joined_rows
from papers import paper5_sweep as p5
from papers.paper5_on_spark import (
    BUDGET,
    SENSORS,
    STEP,
    Look,
    Measured,
    arrivals,
    exist_after,
    shown,
    write,
)
from penstock.plan.buffers import DBF, HYBRID, MSF, PLAIN, STRATEGIES

SWEEP = p5.Sweep(seed=2, samples=1)


def test_streams_arrive_whole_in_steps_of_their_time():
    streams = p5.streams_of_query_1(SWEEP, 0)
    steps = arrivals(streams, SWEEP.seconds)
    assert len(steps) == SWEEP.seconds / STEP
    for number, stream in enumerate(streams):
        come = np.concatenate([step[number] for step in steps])
        assert come.tolist() == stream.value[: come.size].tolist()
        assert stream.at[come.size - 1] <= SWEEP.seconds < stream.at[come.size]


def test_duckdb_counts_what_exists_after_the_last_step(tmp_path):
    steps = arrivals(p5.streams_of_query_1(SWEEP, 0), 24.0)
    write(tmp_path, steps)
    exist = exist_after(steps)
    assert exist[-1] == joined_rows(tmp_path, SENSORS, "k") > 0
    assert exist == sorted(exist)


def made(kept, results, *, most=1000, budget=None, truth=1000, steps=12):
    """Make up a run that keeps so many rows and gives so many results, evenly over its steps."""
    looks = tuple(Look(kept, 0, most, results * (n + 1) // steps, 1.0, PLAIN) for n in range(steps))
    return Measured(looks, truth, most, budget)


def world(**changes):
    runs = {
        PLAIN: made(900, 1000),
        DBF: made(100, 1000),
        MSF: made(950, 700),
        HYBRID: made(90, 700),
        BUDGET: made(300, 1000, most=490, budget=500),
    }
    exist = [1000 * (n + 1) // 12 for n in range(12)]
    return shown(runs | changes, exist, 1000)


def test_claims_hold_where_runs_are_as_the_paper_says():
    out = world()
    assert [each for each in out.claims if not each.held] == []
    assert len(out.tables) == 4
    assert len(out.pictures) == 1


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({DBF: made(600, 1000)}, "DBF keeps less than half"),
        ({DBF: made(100, 500)}, "DBF has delivered as much as plain"),
        ({MSF: made(950, 1000)}, "MSF and Hybrid deliver later"),
        ({HYBRID: made(110, 700)}, "Hybrid no more than DBF"),
        ({HYBRID: made(90, 700, truth=900)}, "at least 99.2 %"),
        ({PLAIN: made(900, 1000, truth=1001)}, "no run finds more than there is"),
        ({BUDGET: made(300, 1000, most=510, budget=500)}, "three quarters of what plain maps suffice"),
        ({BUDGET: made(300, 1000, most=490, budget=500, truth=900)}, "no more than 1 %"),
    ],
)
def test_a_claim_does_not_hold_where_they_are_not(changes, text):
    assert any(text in each.text for each in world(**changes).claims if not each.held)


def test_every_strategy_has_a_name_in_the_figure():
    assert set(p5.NAMES) == set(STRATEGIES)
