"""Joins without an equality, without Spark: what their logs hold, and how their units are divided among tasks."""

from dataclasses import replace

import pytest

from penstock import limits
from penstock.engine.sinks import publication
from penstock.sql.query import Range
from penstock.state.files import open_files
from penstock.state.segment import read_segment
from tests.engine.world import NONE, WHOLE, Row, World, WorldRunner, query


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(publication, "open_files", lambda url, **_: open_files(url, sync=False))
    return tmp_path / "state"


@pytest.fixture
def units(monkeypatch):
    """What each task of each unit reported."""
    reports, original = [], WorldRunner.map

    def noted(runner, tasks, job):
        made = original(runner, tasks, job)
        if job.stage == "join":
            reports.append(made)
        return made

    monkeypatch.setattr(WorldRunner, "map", noted)
    return reports


def row(number, time, key=7, holds=()):
    return Row(number, key, time, frozenset(holds))


def pairs(world, name):
    return sorted(world.results(next(each for each in world.plan.queries if each.name == name)).elements())


def test_the_pairs_of_a_unit_are_divided_among_all_tasks(state, units, monkeypatch):
    """A hundred rows of A meet a hundred of B: first all new, then new rows on either side beside old ones."""
    monkeypatch.setattr(limits, "UNIT_ROWS_PER_TASK", 1)
    world = World(state, [query("q", Range.window(1000, 1000), keys=NONE)], parts=4, lateness=1000)
    for go in range(2):
        for name in "AB":
            world.ingest(name, [row(100 * go + place, place) for place in range(100)])
        world.turn()
    first, second = ([report.pairs for report in unit] for unit in units)
    assert first == [2500] * 4
    assert second == [7500] * 4
    world.check_results()


def test_batches_of_a_few_rows_are_dealt_out_too(state, units):
    world = World(state, [query("q", Range.window(1000, 1000), keys=NONE)], parts=4, lateness=1000)
    for place in range(8):
        world.ingest("A", [row(place, place)])
    world.ingest("B", [row(100 + place, place) for place in range(10)])
    world.turn()
    assert [report.pairs for report in units[0]] == [20] * 4


def test_rows_without_a_key_join_where_no_key_is_asked_for(state):
    world = World(
        state, [query("all", Range.window(10, 10), keys=NONE), query("keyed", Range.window(10, 10))]
    )
    world.ingest("A", [row(1, 5, key=None), row(2, 5), row(3, None)])
    world.ingest("B", [row(4, 5), row(5, 5, key=None)])
    world.turn()
    assert pairs(world, "all") == [(1, 4), (1, 5), (2, 4), (2, 5)]
    assert pairs(world, "keyed") == [(2, 4)]


def test_a_log_without_a_key_is_sorted_by_time_alone_also_when_merged(state):
    world = World(state, [query("q", Range.window(1000, 1000), keys=NONE)])
    for batch in range(9):
        world.ingest("A", [row(10 * batch + place, 50 - 7 * place, key=place) for place in range(5)])
        world.ingest("B", [row(500 + batch, 0)])
        world.turn()
    segments = world.ledger.segments(world.plan.groups[0].logs[0].id)
    assert max(each.generation for each in segments) >= 1
    for segment in segments:
        t = read_segment(world.files, segment).rows.t
        assert (t[:-1] <= t[1:]).all()
    world.check_results()


def test_a_query_that_comes_later_gets_the_past_that_is_held(state):
    """A chain of its own that begins with backfill, another that is cut anew, and one that goes."""
    first = query("first", Range.window(20, 20), keys=NONE)
    world = World(state, [first, query("keyed", Range.window(5, 5), keys=WHOLE)], retain="1 hour")
    world.ingest("A", [row(1, 0), row(2, 30, holds=["p0"])])
    world.ingest("B", [row(3, 10), row(4, 35)])
    world.turn()
    wide, itself = (
        replace(first, name="wide", window=Range.window(50, 50)),
        query("itself", Range(1, 90), "AA", keys=NONE),
    )
    world.change([wide, first, itself])
    world.turn()
    assert pairs(world, "wide") == [(1, 3), (1, 4), (2, 3), (2, 4)]
    world.change([itself, wide])
    world.ingest("A", [row(5, 60)])
    world.turn()
    assert pairs(world, "itself") == [(1, 2), (1, 5), (2, 5)]
    world.check_results()
