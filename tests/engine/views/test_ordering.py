"""What waits (O1, O2): by whatever policy, under whatever scheduler, a query's sequence is the one it gets alone.

A   a@10 ------------------ a@40         watermarks A 10, B 30: the trigger is 10
B          b@20   b@30                   sync-filter: b@20 and b@30 wait in the log; filter-order: their pairs are held
"""

import json
import random
import time
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from penstock import limits
from penstock.engine.change.transition import Transition
from penstock.engine.report.status import take_status
from penstock.engine.views import waiting
from penstock.engine.views.horizon import IdleClock, horizon
from penstock.engine.views.plans import next_plan
from penstock.engine.views.waiting import load_of, mode_of
from penstock.plan.order_policy import HOLD, SYNC, Load
from penstock.schedulers import SCHEDULERS
from penstock.sql.options import ORDERS
from penstock.sql.query import Range, Sink
from penstock.state.codec import decode_ledger, encode_ledger
from tests.engine.stages.test_order import SHARING, Frail, replay, up_to
from tests.engine.stages.test_schedule import ringed, split
from tests.engine.stages.test_simulation import folders, in_folder, send_batch
from tests.engine.world import Row, World, query
from tests.kernels.drawn import examples

WAITING = ("sync-filter", "adaptive")


@st.composite
def families(draw):
    """A few queries over the same streams: all let input wait, or not all of them do."""
    orders = draw(st.sampled_from((WAITING, WAITING, ("sync-filter",), ORDERS)))
    return [
        query(
            f"q{number}",
            Range.window(draw(st.integers(1, 30)), draw(st.integers(1, 30))),
            left=draw(st.sampled_from(((), (), ("p0",)))),
            right=draw(st.sampled_from(((), (), ("p1",)))),
            sink=Sink(draw(st.sampled_from(("parquet", "table", "callback")))),
            order=draw(st.sampled_from(orders)),
        )
        for number in range(draw(st.integers(1, 3)))
    ]


@contextmanager
def moody(seed):
    """Let what joining takes jump up and down, so that adaptive queries change their mind now and then."""
    source = random.Random(seed)
    with patch.object(waiting, "load_of", lambda *_: Load(source.choice((0.0001, 0.1)), 10, (1, 1))):
        yield


def wander(world, seed, steps, crashes, taken):
    """Let batches come, slices advance, queries be shared in other ways, and commits fail."""
    source, number = random.Random(seed), 0
    clock = dict.fromkeys(world.sources, 0)
    ingest = world.ingest

    def note(stream, rows, tasks=1):
        taken.append((stream, rows))
        ingest(stream, rows, tasks)

    with patch.object(world, "ingest", note):
        for _ in range(steps):
            what = source.choices(
                ("batch", "step", "turn", "restart", "share", "crash"), (12, 8, 2, 1, 0.5, 1)
            )[0]
            if what == "batch":
                number = send_batch(world, source, clock, number)
            elif what == "step":
                world._until_done(world.step)
            elif what == "turn":
                world.turn()
                check(world)
            elif what == "restart":
                world.restart()
            elif what == "share":
                world.share(source.choice(SHARING), source)
            elif crashes:
                world.trap = crashes.pop()
        world.turn()
        check(world)


def check(world):
    """Every result is there that can be, in order; where input waits and always has, nothing else does."""
    world.check_state()
    world.check_results()
    world.check_order()
    for group in world.plan.groups:
        waits = mode_of(world.plan, world.ledger, group)
        event(f"{waits} in the end")
        if waits == SYNC and not world.ledger.switches and world.ledger.version == 1:
            names = [member.query.name for member in group.members]
            assert not any(world.ledger.hold(name).rows for name in names), "nothing is held"


@examples(60)
@given(
    queries=families(),
    lateness=st.sampled_from((0, 3, 12)),
    way=st.tuples(st.sampled_from(tuple(SCHEDULERS)), st.sampled_from((0.0, 20.0)), st.integers(0, 99)),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((20, 40, 60))),
    crashes=st.lists(
        st.tuples(
            st.sampled_from(("before", "after")), st.sampled_from(("unit", "release", "order", "published"))
        ),
        max_size=4,
    ),
)
def test_under_every_scheduler_and_policy_a_sequence_is_the_one_the_query_gets_alone(
    queries, lateness, way, happening, crashes
):
    """H2, O1: over bursts, lags, crashes, restarts and switches; each also against the sorted nested-loop join."""
    scheduler, quantum, mood = way
    with (
        folders() as folder,
        split(quantum),
        moody(mood),
        patch.multiple(limits, MERGE_FAN_IN=2, MAX_ROWS_PER_SORT=5),
    ):
        queries = in_folder(queries, folder)
        world, taken = ringed(Frail(folder / "state", queries, lateness=lateness), scheduler), []
        wander(world, *happening, crashes, taken)
        event(f"{min(3, len(world.ledger.switches))} switches")
        ordered = [each for each in world.plan.queries if each.ordered]
        for one in ordered:
            until = horizon(world.plan, world.ledger, one.name)
            assert world.sequence(one) == (up_to(world, one, until) if until is not None else [])
        world.end()
        for one in ordered:
            alone = World(folder / f"alone-{one.name}", in_folder([one], folder / "own"), lateness=lateness)
            replay(alone, taken)
            alone.end()
            (same,) = alone.plan.queries
            assert alone.sequence(same) == world.sequence(one) == up_to(world, one, 1 << 60)


# --- scenarios: one edge each --------------------------------------------------------------------------------


def one_query(order="sync-filter", **options):
    one = query("q", Range.window(100, 100), order=order)
    return replace(one, options=(("order", order), *options.items()))


def row(number, at):
    return Row(number, 1, at)


def out_of_step(world):
    """Let B run ahead of A: all of B from 10 on waits for A."""
    world.ingest("A", [row(1, 5), row(2, 10)])
    for number in range(4):
        world.ingest("B", [row(10 + number, 4 + 5 * number)])
        world.turn()


def status(world):
    return take_status(world.plan, world.ledger).queries[0]


def test_input_waits_for_the_slower_stream_and_nothing_is_held(tmp_path):
    """B has sent rows at 4, 9, 14 and 19, A is at 10: the pairs (5, 4) and (5, 9) are there, b@14 and b@19 wait."""
    world = World(tmp_path, [one_query()])
    (one,) = world.plan.queries
    out_of_step(world)
    assert world.sequence(one) == [(1, 10), (1, 11)]
    assert world.ledger.hold("q").rows == 0
    assert status(world).lag_rows == 3, "b@14, b@19, and a@10, which is at the trigger"
    world.ingest("A", [row(3, 30)])
    world.turn()
    assert world.sequence(one) == up_to(world, one, 19)
    assert status(world).lag_rows == 2


def test_filter_order_joins_the_same_input_at_once_and_holds_the_results(tmp_path):
    world = World(tmp_path, [one_query("filter-order")])
    (one,) = world.plan.queries
    out_of_step(world)
    assert world.sequence(one) == [(1, 10), (1, 11)]
    assert world.ledger.hold("q").rows == 6
    assert status(world).lag_rows == 0


def test_a_neighbour_that_wants_its_pairs_at_once_gets_them_and_the_results_wait_instead(tmp_path):
    plain = query("plain", Range.window(3, 3))
    world = World(tmp_path, [one_query(), plain])
    one, plain = world.plan.queries
    out_of_step(world)
    assert mode_of(world.plan, world.ledger, world.plan.groups[0]) == HOLD
    assert status(world).lag_rows == 0
    assert world.results(plain).total() == 2
    assert world.sequence(one) == [(1, 10), (1, 11)]
    world.change([one])
    assert mode_of(world.plan, world.ledger, world.plan.groups[0]) == SYNC, (
        "and when it has gone, the input waits"
    )


def test_adaptive_switches_at_alpha_both_ways_and_drains_what_is_held_first(tmp_path):
    world = World(tmp_path, [one_query("adaptive", alpha="0.5")])
    (one,) = world.plan.queries
    share = 0.4
    with patch.object(waiting, "load_of", lambda *_: Load(share, 1, (1, 1))):
        out_of_step(world)
        assert world.ledger.switches == ()
        share = 0.5
        world.turn()
        (switch,) = world.ledger.switches
        assert switch.mode == HOLD
        assert "c·w·λ = 0.5 s · 1 s · 1/s · 1/s = 0.5, at least alpha = 0.5" in switch.reason
        world.turn()
        assert world.ledger.hold("q").rows == 6, "what waited is joined, and held"
        assert status(world).order == "adaptive: filter-order"
        share = 0.46
        world.turn()
        assert len(world.ledger.switches) == 1, "not yet: it would go to and fro"
        share = 0.44
        world.turn()
        assert world.ledger.switches[-1].mode == SYNC
        assert (
            "less than 0.9 of alpha = 0.5; 6 results that are held leave first"
            in world.ledger.switches[-1].reason
        )
        world.ingest("B", [row(20, 25)])
        world.turn()
        assert status(world).order == "adaptive: sync-filter, draining"
        assert (status(world).held, status(world).lag_rows) == (6, 1), "new input waits while the hold drains"
        world.ingest("A", [row(3, 40)])
        world.ingest("B", [row(21, 50)])
        world.turn()
        assert world.ledger.hold("q").rows == 0
        assert status(world).order == "adaptive: sync-filter"
        assert world.sequence(one) == up_to(world, one, 40)
        again = decode_ledger(json.loads(json.dumps(encode_ledger(world.ledger))))
        assert again.switches == world.ledger.switches, "they survive a restart"
        assert again.groups == world.ledger.groups


def test_the_load_is_what_units_took_of_the_streams_own_time(tmp_path):
    """100 rows a second each and a window of 2 s to both sides: 40,000 steps a second, of which units took 0.7 s."""
    world = World(tmp_path, [query("q", Range.window(2_000_000, 2_000_000), order="adaptive")])
    (group,) = world.plan.groups
    clock = iter(i * 0.7 for i in range(10_000))
    with patch.object(time, "monotonic", lambda: next(clock)):
        for second in range(8):
            for place, name in enumerate("AB"):
                rows = [
                    Row(1000 * second + 2 * n + place, n, second * 10**6 + n * 10_000) for n in range(100)
                ]
                world.ingest(name, rows)
            world.turn()
    load = load_of(world.plan, world.ledger, group)
    effort = world.ledger.groups[group.id].effort
    assert load.window == pytest.approx(2, rel=1e-4)
    assert load.rates == pytest.approx((100, 100), rel=0.02)
    assert load.share == pytest.approx(effort.seconds / effort.micros * 1e6 / 2)
    assert world.ledger.switches, "so much is more than 0.3"


@pytest.mark.parametrize("order", ["sync-filter", "filter-order"])
def test_a_stream_that_is_idle_is_left_out_and_when_it_comes_back_nothing_is_lost(tmp_path, order):
    """A has been silent for a minute: B's pairs are released up to B's watermark.  Then A sends a row from before."""
    world = World(tmp_path, [one_query(order, idle_after="1 min")])
    (one,) = world.plan.queries
    with patch.object(time, "time") as now:
        world.context.idle = IdleClock(1000.0)
        now.return_value = world.now = 1000.0
        out_of_step(world)
        assert world.sequence(one) == [(1, 10), (1, 11)]
        now.return_value = world.now = 1050.0
        world.ingest("B", [row(20, 25)])
        world.turn()
        assert world.sequence(one) == [(1, 10), (1, 11)], "ten seconds are missing"
        assert 9.9 < world.context.idle.until_idle(world.plan, world.ledger) < 10.1
        now.return_value = 1060.0
        world.turn()
        assert world.sequence(one) == up_to(world, one, 25)
        now.return_value = world.now = 1070.0
        before = world.sequence(one)
        world.ingest("A", [row(3, 12)])
        world.turn()
        assert world.sequence(one) == before, "its pairs wait for A's watermark again"
        world.ingest("A", [row(4, 60)])
        world.ingest("B", [row(21, 60)])
        world.turn()
        assert sorted(world.sequence(one)) == sorted(up_to(world, one, 60))
        assert status(world).disordered == 3, "a@12 with b@4, b@9 and b@14 came after b@19 had been met"


def test_when_all_streams_are_idle_nothing_is_waited_for(tmp_path):
    world = World(tmp_path, [one_query("sync-filter", idle_after="1 min")], lateness=1000)
    (one,) = world.plan.queries
    with patch.object(time, "time") as now:
        world.context.idle = IdleClock(1000.0)
        now.return_value = world.now = 1000.0
        out_of_step(world)
        assert world.sequence(one) == []
        now.return_value = 1061.0
        world.turn()
        assert world.sequence(one) == up_to(world, one, 1 << 60)
        now.return_value = world.now = 1062.0
        world.ingest("A", [row(3, 30)])
        world.ingest("B", [row(20, 2000)])
        world.ingest("A", [row(4, 2000)])
        world.turn()
        assert status(world).disordered == 0, "what came later is younger"


def test_a_query_that_comes_while_input_waits_gets_all_of_it(tmp_path):
    world = World(tmp_path, [one_query()])
    out_of_step(world)
    (one,) = world.plan.queries
    late = replace(query("late", Range.window(50, 50)), options=(("order", "none"),))
    world.change([one, late])
    world.turn()
    world.check_results()
    assert world.results(world.plan.queries[1]).total() == 8
    world.end()
    world.check_order()


@pytest.mark.parametrize("order", ["none", "sync-filter"])
@pytest.mark.parametrize("strategy", ["pull-up", "cpu-opt", "push-down"])
def test_queries_that_come_together_get_their_past_also_from_a_chain_of_fewer_slices(
    tmp_path, strategy, order
):
    """Their own windows would cut the chain more often than it is cut."""
    queries = [query(f"q{far}", Range.window(far, far), order=order) for far in (100, 5, 15)]
    world = World(tmp_path, queries[:1], strategy=strategy)
    out_of_step(world)
    world.cuts = {group.id: () for group in world.plan.groups} if strategy == "cpu-opt" else {}
    world.change(queries)
    world.turn()
    world.end()
    world.check_results()
    assert world.results(world.plan.queries[1]).total() == 4


def steady(world, second, ahead):
    """Let both streams send a second of rows, A so many seconds ahead of B."""
    for place, (name, shift) in enumerate((("A", ahead), ("B", 0))):
        rows = [
            Row(20 * second + 10 * place + n, n, (second + shift) * 10**6 + 250_000 * n) for n in range(4)
        ]
        world.ingest(name, rows)


@pytest.mark.parametrize("ahead", [0, 30])
def test_at_a_steady_load_adaptive_stays_as_it_is_however_far_apart_the_streams_are(tmp_path, ahead):
    """Units take a second each at first, then 0.48: shares of 0.5 and 0.24 of a second, and alpha is 0.3."""
    world = World(
        tmp_path, [query("q", Range.window(2 * 10**6, 2 * 10**6), order="adaptive", sink=Sink("noop"))]
    )
    now, price, run = 0.0, 1.0, world.backend.runner.map

    def dear(tasks, job):
        nonlocal now
        now += price if job.stage == "join" else 0.0
        return run(tasks, job)

    with patch.object(time, "monotonic", lambda: now), patch.object(world.backend.runner, "map", dear):
        for second in range(120):
            price = 1.0 if second < 30 else 0.48
            steady(world, second, ahead)
            world.turn()
    assert [each.mode for each in world.ledger.switches] == [HOLD, SYNC]
    assert load_of(world.plan, world.ledger, world.plan.groups[0]).share == pytest.approx(0.24, rel=0.05)


def test_the_mode_goes_over_to_the_groups_that_a_change_makes_of_one(tmp_path):
    world = World(tmp_path, [one_query("adaptive")], strategy="push-down")
    with patch.object(waiting, "load_of", lambda *_: Load(0.4, 1, (1, 1))):
        out_of_step(world)
    before = {group.id for group in world.plan.groups}
    (one,) = world.plan.queries
    world.change([one, query("choosy", Range.window(9, 9), left=["p0"], order="sync-filter")])
    assert {group.id for group in world.plan.groups} - before
    assert {mode_of(world.plan, world.ledger, group) for group in world.plan.groups} == {HOLD}


@pytest.mark.parametrize("order", ["sync-filter", "filter-order"])
def test_a_result_has_waited_since_the_later_of_its_rows_arrived_whichever_was_joined_later(tmp_path, order):
    """a@20 arrives at 110 and waits for B; b@12 and b@15 arrive at 150 and 151; all is released at 153."""
    world = World(tmp_path, [one_query(order)])
    with patch.object(time, "time") as now:
        for at, stream, rows in (
            (100, "A", [row(1, 10)]),
            (110, "A", [row(2, 20)]),
            (150, "B", [row(10, 12)]),
            (151, "B", [row(11, 15)]),
        ):
            now.return_value = world.now = float(at)
            world.ingest(stream, rows)
            world.turn()
        now.return_value = world.now = 153.0
        world.ingest("A", [row(3, 30)])
        world.ingest("B", [row(12, 40)])
        world.turn()
        assert world.ledger.query("q").delays.longest <= 3.0


def test_a_stream_with_rows_on_their_way_is_not_idle(tmp_path):
    """However long Spark takes for a batch, it is not silence."""
    world = World(tmp_path, [one_query("sync-filter", idle_after="5 s")])
    (one,) = world.plan.queries
    coming = {"A"}
    with patch.object(time, "time") as now:
        world.context.idle = IdleClock(1000.0, lambda: coming)
        now.return_value = world.now = 1000.0
        out_of_step(world)
        before = world.sequence(one)
        now.return_value = 1007.0
        world.turn()
        assert world.sequence(one) == before
        assert world.context.idle.until_idle(world.plan, world.ledger) == limits.BUSY_STREAM_POLL_SECONDS
        coming.clear()
        world.turn()
        assert len(world.sequence(one)) > len(before)


def test_nobody_sleeps_longer_than_a_clock_can_say(tmp_path):
    world = World(tmp_path, [one_query("sync-filter", idle_after="200000 days")])
    assert world.context.idle.until_idle(world.plan, world.ledger) == limits.MAX_IDLE_WAIT_SECONDS


def test_a_file_in_order_says_how_many_rows_were_waiting(tmp_path):
    folder = tmp_path / "out"
    one = replace(one_query(), sink=Sink("parquet", (("path", str(folder)),)))
    world = World(tmp_path / "state", [one])
    out_of_step(world)
    notes = [
        json.loads(pq.read_metadata(file).metadata[b"penstock"]) for file in sorted(folder.glob("released-*"))
    ]
    assert notes[0]["waiting"] > 0
    assert sum(note["results"] for note in notes) == 2


def test_a_unit_counts_the_rows_that_take_part_not_those_that_wait(tmp_path):
    """Of a batch that reaches far ahead, each unit joins a little: as many rows as its time is of the batch's."""
    world = World(tmp_path, [one_query()])
    world.ingest("B", [Row(1000 + n, n, n) for n in range(1000)])
    for number in range(1, 11):
        world.ingest("A", [row(number, 10 * number)])
        world.turn()
    effort = world.ledger.groups[world.plan.groups[0].id].effort
    assert effort.rows / effort.units < 30


def test_a_start_without_a_query_whose_input_waits_would_lose_results(tmp_path):
    world = World(tmp_path, [one_query(), query("stays", Range.window(5, 5), "AC")])
    out_of_step(world)
    other = next_plan(world.streams, world.plan.queries[1:], world.ledger)
    lost = Transition.to(other, world.ledger).losses
    assert any("3 rows that wait for their order would never be joined for it" in each for each in lost)


def test_who_only_wants_another_order_has_missed_nothing(tmp_path):
    """Another window is another query; another order is the same one."""
    world = World(tmp_path, [one_query("filter-order")])
    out_of_step(world)
    (one,) = world.plan.queries
    world.change([replace(one, options=(("order", "sync-filter"),))])
    assert world.ledger.query("q").complete_from is None
    world.change([replace(one, window=Range.window(9, 9))])
    assert world.ledger.query("q").complete_from == 20
