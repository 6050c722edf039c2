"""Paper 3's streams as files for the engine, and what is claimed of runs on them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.oracle import true_counts
from benchmarks.punctuated import IS_ROW
from benchmarks.workloads import EPOCH, WindowQuery
from papers import paper3_on_spark as p3s
from papers.on_spark import Feed
from papers.paper3_joins import Join
from papers.paper3_on_spark import (
    CASES,
    HOUR,
    SECONDS,
    STEP,
    Case,
    HeldRows,
    Measured,
    arrivals,
    given,
    held,
)
from papers.paper3_streams import merged
from papers.paper3_sweep import PWJOIN, WJOIN, WRITTEN

FEW = Case(HOUR, values=6, seconds=16)


def test_streams_arrive_whole_in_steps_of_their_time():
    case = CASES[0]
    steps = arrivals(case, 1)
    assert len(steps) == SECONDS // STEP
    for number, stream in enumerate(case.streams(1)):
        name = "ab"[number]
        whole = pa.concat_tables([each[name] for each in steps])
        kinds = np.array(whole["kind"].to_pylist())
        assert whole["k"].to_numpy()[kinds == "row"].tolist() == stream.value.tolist()
        assert whole["k"].to_numpy()[kinds == "end"].tolist() == stream.punctuated.tolist()
        for step, each in enumerate(steps):
            seconds = (each[name]["ts"].cast("int64").to_numpy() - EPOCH) / 1_000_000
            assert ((seconds >= STEP * step) & (seconds < STEP * (step + 1))).all()


def test_of_150_values_all_are_punctuated_before_the_streams_end():
    for stream in CASES[-1].streams(1):
        assert stream.punctuated.tolist() == list(range(150))
        assert stream.ts[-1] < 1000 * SECONDS


@pytest.mark.parametrize("case", [FEW, Case(1, values=40, seconds=16)])
def test_duckdb_counts_what_the_paper_s_join_gives(tmp_path, case):
    feed = Feed(tmp_path, arrivals(case, 3))
    truth = true_counts(feed.folder, [WindowQuery(case.window)], IS_ROW)
    items = merged(*case.streams(3))
    # the paper's windows have their last millisecond, the engine's do not
    made = Join((1000 * case.window - 1,) * 2, WRITTEN, heeds=True).process(items)
    assert truth.results == (made.results,)
    assert truth.rows == sum(each.number >= 0 for each in items)


def measured(ours, theirs, *, window=15, seconds=(1.0, 1.1), results=7, broken=0):
    runs = {
        name: [HeldRows(rows, took, results, broken)] * 2
        for name, rows, took in zip((PWJOIN, WJOIN), (ours, theirs), seconds, strict=True)
    }
    return {Case(window, 150): Measured(7, runs)}


def claims(outcome):
    return [claim.held for claim in outcome.claims]


def test_claims_are_about_exactness_less_state_and_a_bound():
    small = measured((9, 9), (10, 10), window=5)
    large = measured((9, 1, 8, 1), (10, 20, 30, 40), window=HOUR)
    fine = {**{key: small[key]._replace(runs=_twice(small[key])) for key in small}, **large}
    assert claims(held(fine)) == [True, True, True, True, True, True, True]
    worse = measured((9, 30, 8, 21), (10, 20, 30, 40), window=HOUR, results=8, broken=1)
    assert claims(held(worse)) == [False, False, False, True, True, False, True]


def _twice(made):
    """Make a run of two steps one of four."""
    return {
        name: [each._replace(rows=each.rows * 2) for each in rounds] for name, rounds in made.runs.items()
    }


def test_the_output_rate_is_by_the_fastest_round():
    both = {**measured((1,), (1,), window=5, seconds=(1.02, 1.0)), **measured((1,), (1,))}
    assert claims(given(both)) == [True, True, True, True]
    slow = {**measured((1,), (1,), window=5), **measured((1,), (1,), seconds=(1.0, 1.0))}
    assert claims(given(slow)) == [True, True, False, False]


@pytest.mark.spark
def test_promises_change_the_state_and_no_result(monkeypatch):
    monkeypatch.setattr(p3s, "turns", lambda names: [(0, name) for name in names])
    told = []
    made = p3s.measure(3, told.append, (FEW,))[FEW]
    (ours,), (theirs,) = (made.runs[name] for name in (PWJOIN, WJOIN))
    assert ours.results == theirs.results == made.truth > 0
    assert ours.broken == theirs.broken == 0
    assert all(one <= other for one, other in zip(ours.rows, theirs.rows, strict=True))
    assert ours.rows[-1] < theirs.rows[-1]
    assert len(told) == 2
