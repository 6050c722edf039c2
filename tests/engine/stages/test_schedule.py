"""Slices that advance one by one (H1, H2): whatever the scheduler, every query is exact, and in order where it asks.

A unit's price is set to nothing here, or every chain of these few rows would be joined in one go.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from penstock import limits
from penstock.engine.change.plan_commit import is_in_step
from penstock.engine.stages import next_unit
from penstock.engine.stages.next_unit import next_advance, rings_of
from penstock.engine.views.plans import next_plan
from penstock.engine.views.waiting import goal_of
from penstock.plan.prices import Prices
from penstock.schedulers import SCHEDULERS, Rings, ScanStep, make_scheduler
from penstock.sql.options import STRATEGIES
from penstock.sql.query import Range, Sink
from penstock.state.codec import decode_ledger, encode_ledger
from tests.engine.stages.test_simulation import eager, folders, in_folder, send_batch, some, workloads
from tests.engine.world import Row, World, query
from tests.kernels.drawn import examples


@contextmanager
def split(quantum=0.0, unit=0.0):
    """Let every ring be worth a unit, and a unit worth one station."""
    with (
        patch.object(next_unit, "prices_of", lambda _: Prices(unit=unit, row=1.0, pair=1.0)),
        patch.object(limits, "OUTER_UNIT_SECONDS", quantum),
    ):
        yield


def ringed(world, policy):
    world.context.scheduler = policy
    return world


def check_monotone(world):
    """No slice is ahead of one farther in, and everyone's watermarks are those of a station."""
    for group in world.plan.groups:
        state = world.ledger.groups[group.id]
        rings = [{state.cursors[place] for place in ring} for ring in rings_of(group.chain)]
        assert all(len(ring) == 1 for ring in rings), "a ring advances as a whole"
        inner_first = [ring.pop() for ring in rings]
        assert inner_first == sorted(inner_first, reverse=True), inner_first
        stations = [cursor for cursor, _ in state.all_stations]
        assert set(state.cursors) <= set(stations)
        assert stations == sorted(stations)
        assert {stations[0], stations[-1]} <= set(state.cursors)


def wander(world, seed, steps):
    """Let batches come and slices advance at random, with restarts and changes of plan on the way."""
    source, number = random.Random(seed), 0
    clock = dict.fromkeys(world.sources, 0)
    most = 1
    for _ in range(steps):
        what = source.choices(("batch", "step", "turn", "restart", "cut"), (12, 8, 1, 1, 0.5))[0]
        if what == "batch":
            number = send_batch(world, source, clock, number)
        elif what == "step":
            world.step()
            check_monotone(world)
        elif what == "turn":
            world.turn()
            world.check_state()
        elif what == "restart":
            world.restart()
        else:
            world.share(source.choice(STRATEGIES), source)
        most = max(most, *(len(world.ledger.groups[group.id].all_stations) for group in world.plan.groups))
    world.turn()
    world.check_state()
    world.check_results()
    world.check_order()
    event(f"{min(most, 4)} stations at most")


@st.composite
def nested(draw):
    """A few queries on one chain, with windows within windows."""
    selective = draw(st.booleans())
    return [
        query(
            f"q{number}",
            Range.window(draw(st.integers(1, 30)), draw(st.integers(1, 30))),
            left=draw(some) if selective else (),
            right=draw(some) if selective else (),
            sink=draw(st.sampled_from((Sink("table"), Sink("parquet"), Sink("noop")))),
            order=draw(st.sampled_from(("none", "none", "filter-order"))),
        )
        for number in range(draw(st.integers(2, 4)))
    ]


@examples(60)
@given(
    queries=st.one_of(nested(), nested(), workloads()),
    way=st.tuples(st.sampled_from(("swf", *SCHEDULERS)), st.sampled_from((0, 3, 12, 100))),
    eagerness=st.tuples(st.integers(2, 4), st.sampled_from((0.1, 0.5, 1.0)), st.sampled_from((0.01, 1, 8))),
    quantum=st.sampled_from((0.0, 20.0)),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((10, 20, 40, 60))),
)
def test_whatever_the_scheduler_every_query_gets_what_it_would_get_alone(
    queries, way, eagerness, quantum, happening
):
    policy, lateness = way
    with folders() as folder, eager(*eagerness), split(quantum):
        wander(
            ringed(World(folder / "state", in_folder(queries, folder), lateness=lateness), policy), *happening
        )


TWO = [query("alert", Range.window(2, 2)), query("report", Range.window(50, 50), sink=Sink("noop"))]


def burst(world, batches):
    """Let both streams send some batches: a pair for the alert in each, and one for the report with each before."""
    for number in range(batches):
        for place, name in enumerate("AB"):
            world.ingest(name, [Row(2 * number + place, 1, 10 * number)])


def test_under_a_burst_the_small_window_overtakes():
    """SWF and MQT serve the alert at once; LWO makes it wait for the report."""
    for policy, alert, report in (("swf", 4, 4), ("mqt", 4, 4), ("lwo", 4, 16)):
        with folders() as folder, split():
            world = ringed(World(folder / "state", in_folder(TWO, folder)), policy)
            burst(world, 4)
            world.step()
            found = {name: world.ledger.query(name).results for name in ("alert", "report")}
            assert found == {"alert": alert, "report": report}, policy
            world.turn()
            assert world.ledger.query("report").results == 16, policy


def test_slices_that_are_behind_go_station_by_station():
    with folders() as folder, split():
        world = ringed(World(folder / "state", in_folder(TWO, folder)), "swf")
        for _ in range(3):
            burst(world, 1)
            world.step()
        (group,) = world.plan.groups
        state = world.ledger.groups[group.id]
        assert [cursor.batches for cursor, _ in state.all_stations] == [(0, 0), (1, 1), (2, 2), (3, 3)]
        reached = []
        while world.ledger.groups[group.id].slices_apart:
            world.step()
            reached.append(world.ledger.groups[group.id].cursors[0].batches)
        assert reached == [(1, 1), (2, 2), (3, 3)]


def test_under_load_mqt_lets_the_small_window_overtake_also_where_units_have_a_price():
    rings = Rings((1, 1), (5e-7, 6e-4), overhead=0.12)
    assert make_scheduler("mqt", rings).choose([100_000, 0]) == ScanStep(0, 1), (
        "the outer ring takes a minute"
    )
    assert make_scheduler("mqt", rings).choose([10, 0]) == ScanStep(0, 2), (
        "and here no longer than a job by itself"
    )


def test_the_joiner_does_not_sleep_while_slices_are_behind_what_has_come():
    """The outer slices catch up with the inner ones, and more has come meanwhile: that is no end."""
    with folders() as folder, split():
        world = ringed(World(folder / "state", in_folder(TWO, folder)), "swf")
        burst(world, 2)
        world.step()
        burst(world, 2)
        world.context.scheduler = "lwo"
        world.step()
        state = world.ledger.groups[world.plan.groups[0].id]
        while state.slices_apart:
            world.step()
            state = world.ledger.groups[world.plan.groups[0].id]
        assert state.cursors[0].batches != (4, 4), "or this would show nothing"
        assert world.context.any_behind(), "so the joiner tells itself to go on"


def test_rings_are_divided_by_the_rows_that_wait_not_by_those_that_usually_do():
    """A unit costs as much as a hundred rows: batches of two are joined in one go, a burst among them is not."""
    with folders() as folder, split(unit=100.0):
        world = ringed(World(folder / "state", in_folder(TWO, folder)), "swf")

        def goes_ring_by_ring(moment, rows):
            world.ingest("A", [Row(1000 * moment + number, 1, 10 * moment) for number in range(rows)])
            world.ingest("B", [Row(1000 * moment + 999, 1, 10 * moment)])
            world.step()
            apart = world.ledger.groups[world.plan.groups[0].id].slices_apart
            world.turn()
            return apart

        assert not any(goes_ring_by_ring(moment, rows=1) for moment in range(8))
        assert goes_ring_by_ring(8, rows=200), "the alert does not wait for the report"
        assert not goes_ring_by_ring(9, rows=1)
        world.check_results()


def test_dear_units_join_rings_by_themselves():
    """Where a unit costs more than all rings together, MQT takes them in one go, and nobody waits."""
    with folders() as folder, split(unit=1e6):
        world = ringed(World(folder / "state", in_folder(TWO, folder)), "mqt")
        burst(world, 4)
        world.step()
        assert world.ledger.query("report").results == 16


def test_results_in_order_wait_for_the_slices_of_their_query_only():
    ordered = [
        query("alert", Range.window(2, 2), order="filter-order"),
        query("report", Range.window(50, 50), order="filter-order", sink=Sink("noop")),
    ]
    with folders() as folder, split():
        world = ringed(World(folder / "state", in_folder(ordered, folder)), "swf")
        burst(world, 4)
        world.step()
        assert world.ledger.query("alert").results == 3, "all below the watermark, 30"
        assert world.ledger.query("report").results == 0, "its outer slice has joined nothing yet"
        world.turn()
        assert world.ledger.query("report").results == 9


@pytest.mark.parametrize("order", ["none", "filter-order"])
def test_response_times_tell_who_waited(order):
    """Rows arrive at 100, the alert is served at 101, the report at 110; what is held counts when it is released."""
    queries = [
        query("alert", Range.window(2, 2), order=order),
        query("report", Range.window(50, 50), order=order, sink=Sink("noop")),
    ]
    with folders() as folder, split(), patch.object(time, "time", return_value=100.0) as now:
        world = ringed(World(folder / "state", in_folder(queries, folder)), "swf")
        world.now = 100.0
        burst(world, 4)
        now.return_value = 101.0
        world.step()
        now.return_value = 110.0
        world.turn()
        alert, report = (world.ledger.query(each.name).delays for each in queries)
        assert alert.longest == 1.0
        assert alert.average == pytest.approx(1.0)
        if order == "none":
            assert report.average == pytest.approx((4 * 1 + 12 * 10) / 16, rel=0.05), (
                "four came with the alert's"
            )
            assert report.within(0.5) == pytest.approx(10.0, rel=0.2)
        assert report.longest == 10.0
        again = decode_ledger(json.loads(json.dumps(encode_ledger(world.ledger))))
        assert again.query("alert").delays == alert, "they survive a restart"


def test_a_query_that_may_not_lag_is_served_first():
    options = (("max_lag", "15 microseconds"), ("order", "none"))
    lagging = [TWO[0], replace(TWO[1], options=options)]
    with folders() as folder, split():
        world = ringed(World(folder / "state", in_folder(lagging, folder)), "swf")
        burst(world, 1)
        world.turn()
        for number in range(1, 5):
            for place, name in enumerate("AB"):
                world.ingest(name, [Row(2 * number + place, 1, 10 * number)])
        (group,) = world.plan.groups
        advance = next_advance(group, world.ledger, "swf", goal_of(world.plan, world.ledger, group))
        assert advance.overdue == "report", "it is 40 microseconds behind"
        assert len(advance.slices) == len(group.chain.readers), "and goes along at once"


def test_a_query_that_has_got_nothing_yet_lags_too():
    options = (("max_lag", "15 microseconds"), ("order", "none"))
    with folders() as folder, split():
        queries = [TWO[0], replace(TWO[1], options=options)]
        world = ringed(World(folder / "state", in_folder(queries, folder)), "swf")
        (group,) = world.plan.groups
        burst(world, 1)
        assert (
            next_advance(group, world.ledger, "swf", goal_of(world.plan, world.ledger, group)).overdue == ""
        ), "it has just begun"
        burst(world, 4)
        assert (
            next_advance(group, world.ledger, "swf", goal_of(world.plan, world.ledger, group)).overdue
            == "report"
        )


def test_the_plan_changes_only_when_all_slices_are_together():
    with folders() as folder, split():
        world = ringed(World(folder / "state", in_folder(TWO, folder)), "swf")
        burst(world, 2)
        world.step()
        other = next_plan(world.streams, world.plan.queries[:1], world.ledger, strategy="mem-opt")
        assert is_in_step(world.plan, world.plan, world.ledger), "the same plan may go on as it is"
        assert not is_in_step(other, world.plan, world.ledger)
        world.turn()
        assert is_in_step(other, world.plan, world.ledger)


@pytest.mark.parametrize("policy", SCHEDULERS)
def test_without_anything_new_there_is_nothing_to_do(policy):
    with folders() as folder, split():
        world = ringed(World(folder / "state", in_folder(TWO, folder)), policy)
        burst(world, 1)
        world.turn()
        (group,) = world.plan.groups
        assert next_advance(group, world.ledger, policy, goal_of(world.plan, world.ledger, group)) is None
