"""What the engine measures of its streams and its own work, and where it cuts its chains because of it (S5, S7, S8)."""

import random
from dataclasses import replace

import pytest

from penstock import limits
from penstock.engine.change.recut_policy import RecutPolicy, starting_cuts
from penstock.engine.report.costs import costs
from penstock.engine.views.estimates import ASSUMED_RATE, ASSUMED_SHARE, measure, prices_of
from penstock.engine.views.plans import next_plan
from penstock.plan.prices import ArrivalPace, Prices, updated
from penstock.sql.query import FOREVER, SECOND, Range
from penstock.state.commits import Priced
from penstock.state.recent import BatchTraffic, Effort, Fit, Traffic
from tests.engine.world import Row, World, query

STEP = SECOND // 10


def seconds(number):
    return Range.window(number * SECOND, number * SECOND)


def steady(world, batches, *, keys=4, share=0.2, rows=10):
    """Let both streams send ten rows a second, a batch a second; `share` of them satisfy p0."""
    source = random.Random(3)
    start = world.ledger.stream("A").batches
    for batch in range(start, start + batches):
        for stream in "AB":
            times = [batch * SECOND + place * (SECOND // rows) for place in range(rows)]
            world.ingest(
                stream,
                [
                    Row(
                        batch * 2 * rows + 2 * place + (stream == "B"),
                        source.randrange(keys),
                        time,
                        frozenset({"p0"} if source.random() < share else ()),
                    )
                    for place, time in enumerate(times)
                ],
            )
        world.turn()


def test_rates_shares_and_join_selectivity_are_measured_from_what_flows(tmp_path):
    world = World(tmp_path, [query("short", seconds(2)), query("long", seconds(8), left=["p0"])])
    steady(world, 40, keys=5)
    known = measure(world.plan, world.ledger, world.plan.groups[0].signature)
    assert known.seen
    assert known.statistics.left_rate == pytest.approx(10, rel=0.05)
    assert known.statistics.right_rate == pytest.approx(10, rel=0.05)
    assert known.statistics.left.any_of({"p0"}) == pytest.approx(0.2, abs=0.08)
    assert known.statistics.join == pytest.approx(1 / 5, rel=0.3), "one pair in five has the same key"
    assert known.pace.rows_per_unit == pytest.approx(20, rel=0.05)
    assert known.pairs > 0
    assert known.seconds > 0


def test_before_anything_has_come_assumptions_stand_in_and_are_told_apart(tmp_path):
    world = World(tmp_path, [query("one", seconds(2), left=["p0"])])
    known = measure(world.plan, world.ledger, world.plan.groups[0].signature)
    assert not known.seen
    assert known.statistics.left_rate == ASSUMED_RATE
    assert known.statistics.left.any_of({"p0"}) == ASSUMED_SHARE


def test_a_condition_that_came_just_now_is_assumed_until_it_is_counted(tmp_path):
    world = World(tmp_path, [query("one", seconds(2), left=["p0"])])
    steady(world, 10)
    queries = [*world.plan.queries, query("two", seconds(4), left=["p1"])]
    world.change(queries)
    known = measure(world.plan, world.ledger, world.plan.groups[0].signature).statistics
    assert known.left.any_of({"p1"}) == ASSUMED_SHARE
    steady(world, 10)
    known = measure(world.plan, world.ledger, world.plan.groups[0].signature).statistics
    assert known.left.any_of({"p1"}) == 0.0
    assert known.left.any_of({"p0"}) == pytest.approx(0.2, abs=0.15)


def reconsidered(world, policy, looks):
    """Look some times at the plan, as the joiner does after each turn, and follow what is chosen."""
    for _ in range(looks):
        found = policy.look(world.plan, world.ledger)
        if found:
            world.cuts, why = found
            world.change(world.plan.queries)
            return why
    return None


def set_prices(world, **prices):
    world._commit(Priced(Prices(**prices)))


CHOOSY = [query("short", seconds(2)), query("long", seconds(8), left=["p0"], right=["p0"])]


def chosen(tmp_path, strategy, budget=None, **prices):
    """Run two queries until the streams are known, then let the engine think about its chain."""
    world = World(tmp_path / f"{strategy}{budget}", CHOOSY, strategy=strategy)
    set_prices(world, unit=1e-9, row=1e-9, **prices)
    steady(world, 30)
    set_prices(world, unit=1e-9, row=1e-9, **prices)  # forget how long the units of this machine took
    why = reconsidered(world, RecutPolicy(budget), 40)
    steady(world, 10)
    world.check_results()
    world.check_state()
    return world, why


def test_slices_are_merged_where_writing_rows_again_costs_more_than_holding_them(tmp_path):
    world, why = chosen(tmp_path, "cpu-opt", rewrite=1.0, pair=1e-9, filter=0.0, route=0.0)
    assert len(world.plan.groups[0].chain.readers) == 2, "one slice for either side"
    assert "2 slices in place of 4" in why
    assert "less work expected at 10 and 10 rows/s" in why
    assert world.ledger.changes[-1].reason == "at random", "the world gives its own reason"


def test_slices_stay_apart_where_pairs_cost_more_than_writing_rows_again(tmp_path):
    world, why = chosen(tmp_path, "cpu-opt", rewrite=1e-9, pair=1.0)
    assert why is None
    assert len(world.plan.groups[0].chain.readers) == 4


def test_mem_opt_never_thinks_again(tmp_path):
    _, why = chosen(tmp_path, "mem-opt", rewrite=1.0, pair=1e-9)
    assert why is None


def test_a_budget_keeps_auto_from_merging_what_would_not_fit(tmp_path):
    prices = {"rewrite": 1.0, "pair": 1e-9, "filter": 0.0, "route": 0.0}
    free, why = chosen(tmp_path, "auto", **prices)
    assert len(free.plan.groups[0].chain.readers) == 2
    assert why
    tight, why = chosen(tmp_path, "auto", budget=10.0, **prices)
    assert len(tight.plan.groups[0].chain.readers) == 4, "too little for any chain: the one that holds least"
    assert why is None


def test_a_chain_that_outgrows_its_budget_is_cut_again(tmp_path):
    world, _ = chosen(tmp_path, "auto", rewrite=1.0, pair=1e-9, filter=0.0, route=0.0)
    known = measure(world.plan, world.ledger, world.plan.groups[0].signature)
    merged = known.statistics.row_bytes * 20 * 8
    why = reconsidered(world, RecutPolicy(merged * 0.8), 40)
    assert "of state expected, and" in why
    assert len(world.plan.groups[0].chain.readers) > 2


def test_one_look_is_not_enough(tmp_path):
    """Hysteresis: the same other chain has to be better at several looks in a row."""
    world = World(tmp_path, CHOOSY, strategy="cpu-opt")
    steady(world, 10)
    set_prices(world, unit=1e-9, row=1e-9, rewrite=1.0, pair=1e-9, filter=0.0, route=0.0)
    policy = RecutPolicy()
    looks = next(turn for turn in range(1, 100) if policy.look(world.plan, world.ledger))
    assert looks > limits.RECUT_LOOKS
    dear = world.ledger
    set_prices(world, unit=1e-9, row=1e-9, rewrite=1e-9, pair=1.0)
    again = RecutPolicy()
    for turn in range(1, 100):
        swinging = dear if turn // 2 % limits.RECUT_LOOKS else world.ledger
        assert again.look(world.plan, swinging) is None


def test_a_chain_whose_windows_stay_keeps_its_cuts_and_a_new_one_is_cut_by_what_is_known(tmp_path):
    world, _ = chosen(tmp_path, "cpu-opt", rewrite=1.0, pair=1e-9, filter=0.0, route=0.0)
    everywhere = next_plan(world.streams, world.plan.queries, world.ledger, strategy="cpu-opt")
    assert len(everywhere.groups[0].chain.readers) == 4
    kept = starting_cuts(everywhere, world.ledger, None)
    assert kept == {world.plan.groups[0].id: world.plan.groups[0].chain.cuts}
    more = next_plan(
        world.streams,
        [*world.plan.queries, query("mid", seconds(4), left=["p0"], right=["p0"])],
        world.ledger,
        strategy="cpu-opt",
    )
    (cuts,) = starting_cuts(more, world.ledger, None).values()
    assert set(cuts) == {0, 8 * SECOND, 1 - 8 * SECOND}
    assert starting_cuts(next_plan(world.streams, CHOOSY, world.ledger), world.ledger, None) == {}


# --- sums that fade, and prices fitted to them --------------------------------------------------------


def test_the_past_fades():
    batch = BatchTraffic(0, rows=100, micros=SECOND, patterns=((1, 40), (0, 60)), holds=(40,))
    calm = Traffic(0)
    for _ in range(200):
        calm = calm.then(batch)
    assert calm.rows == pytest.approx(100 / (1 - limits.FADE_FACTOR), rel=1e-6)
    burst = calm
    for _ in range(20):
        burst = burst.then(replace(batch, rows=1000, patterns=((1, 1000),), holds=(1000,)))
    assert burst.rows / burst.micros * SECOND == pytest.approx(1000, rel=0.15)
    assert dict(burst.patterns)[1] / burst.rows == pytest.approx(1, rel=0.15)
    anew = burst.then(replace(batch, layout=1))
    assert anew == Traffic(1).then(replace(batch, layout=1)), "bits of another layout mean something else"


@pytest.mark.parametrize(("unit", "row", "pair"), [(0.1, 3e-7, 4e-8), (0.5, 1e-8, 1e-6), (0.001, 1e-6, 1e-9)])
def test_prices_follow_what_units_take(unit, row, pair):
    source = random.Random(7)
    fit, before = Fit(), Prices(unit=unit * 3, row=row / 3, pair=pair * 3)
    for _ in range(40):
        rows, pairs = source.randrange(1, 10**6), source.randrange(10**7)
        fit = fit.then((1, rows, pairs), unit + rows * row + pairs * pair)
    after = updated(before, fit, Fit())
    for rows, pairs in ((5 * 10**5, 10**6), (10**6, 10**7)):
        true = unit + rows * row + pairs * pair
        assert after.unit + rows * after.row + pairs * after.pair == pytest.approx(true, rel=0.25)
    assert min(after.unit, after.row, after.pair) > 0


def test_calibrated_prices_are_what_the_ledger_says_until_units_say_otherwise(tmp_path):
    world = World(tmp_path, CHOOSY)
    set_prices(world, unit=5.0, rewrite=3.0)
    assert prices_of(world.ledger) == Prices(unit=5.0, rewrite=3.0)
    steady(world, 12)
    assert prices_of(world.ledger).unit < 5.0, "units took less than five seconds here"


def test_without_an_observation_prices_stay_what_they_are():
    assert updated(Prices(), Fit(), Fit()) == Prices()


def test_units_and_pace():
    assert ArrivalPace(1000, 500).units == 2
    assert Effort().then(7, 10, 5, 2.0).then(7, 10, 5, 2.0) == Effort(
        1 + limits.FADE_FACTOR,
        7 + 7 * limits.FADE_FACTOR,
        10 + 10 * limits.FADE_FACTOR,
        5 + 5 * limits.FADE_FACTOR,
        2 + 2 * limits.FADE_FACTOR,
    )


# --- what is measured, whoever joins --------------------------------------------------------------------


def test_rows_that_nobody_wants_do_not_spoil_what_is_measured(tmp_path):
    world = World(tmp_path, [query("one", seconds(4), left=["p0"], right=["p0"])])
    steady(world, 40, keys=5)
    known = measure(world.plan, world.ledger, world.plan.groups[0].signature)
    assert known.statistics.join == pytest.approx(1 / 5, rel=0.4)
    assert known.pairs == pytest.approx(world.ledger.groups[world.plan.groups[0].id].pairs / 40, rel=0.4)


@pytest.mark.parametrize("strategy", ["mem-opt", "push-down", "isolated", "pull-up"])
def test_every_strategy_measures_the_same_streams(tmp_path, strategy):
    queries = [query(f"q{number}", seconds(4), left=["p0"] if number else []) for number in range(4)]
    world = World(tmp_path, queries, strategy=strategy)
    steady(world, 40, keys=5, share=0.5)
    known = measure(world.plan, world.ledger, world.plan.groups[0].signature)
    found = sum(world.ledger.groups[group.id].pairs for group in world.plan.groups) / 40
    assert known.pairs == pytest.approx(found, rel=0.3)
    assert known.statistics.join == pytest.approx(1 / 5, rel=0.3)


def test_pairs_that_no_single_query_wants_are_not_counted_as_compared(tmp_path):
    queries = [
        query(f"q{number}", seconds(4), left=[f"c{number}"], right=[f"c{number}"]) for number in range(8)
    ]
    world = World(tmp_path, queries)
    source = random.Random(1)
    for batch in range(30):
        for stream in "AB":
            rows = [
                Row(
                    batch * 100 + 2 * place + (stream == "B"),
                    source.randrange(4),
                    batch * SECOND + place * STEP,
                    frozenset({f"c{source.randrange(8)}"}),
                )
                for place in range(10)
            ]
            world.ingest(stream, rows)
        world.turn()
    known = measure(world.plan, world.ledger, world.plan.groups[0].signature)
    assert known.statistics.join == pytest.approx(1 / 4, rel=0.4)


def test_more_patterns_than_are_told_apart_leave_the_shares_of_predicates_exact(tmp_path):
    names = [f"c{number:02d}" for number in range(16)]
    world = World(tmp_path, [query(name, seconds(4), left=[name]) for name in names])
    source = random.Random(2)
    for batch in range(10):
        rows = [
            Row(
                batch * 1000 + place,
                1,
                batch * SECOND + place,
                frozenset(each for each in names if source.random() < 0.3),
            )
            for place in range(400)
        ]
        world.ingest("A", rows)
    known = measure(world.plan, world.ledger, world.plan.groups[0].signature).statistics
    for name in names:
        assert known.left.any_of({name}) == pytest.approx(0.3, abs=0.05)


def test_a_steady_stream_does_not_lead_prices_astray():
    source = random.Random(5)
    true, fit = Prices(unit=0.12, row=3e-7, pair=4e-8), Fit()
    for _ in range(3000):
        rows = 100_000 + source.randrange(-500, 500)
        pairs = 10 * rows + source.randrange(-3000, 3000)
        took = (true.unit + rows * true.row + pairs * true.pair) * (1 + source.gauss(0, 0.2))
        fit = fit.then((1, rows, pairs), max(took, 0.01))
    said = updated(true, fit, Fit())
    assert said.unit + 1e5 * said.row + 1e6 * said.pair == pytest.approx(0.19, rel=0.3)
    assert said.pair == pytest.approx(true.pair, rel=0.5)


def test_a_merged_chain_is_cut_apart_when_no_chain_fits_the_budget(tmp_path):
    world, _ = chosen(tmp_path, "auto", rewrite=1.0, pair=1e-9, filter=0.0, route=0.0)
    assert len(world.plan.groups[0].chain.readers) == 2
    why = reconsidered(world, RecutPolicy(10.0), 60)
    assert "is too small" in why
    assert len(world.plan.groups[0].chain.readers) == 4


def test_a_window_without_an_end_promises_no_gain_by_itself(tmp_path):
    world = World(
        tmp_path,
        [query("short", seconds(2)), query("ever", Range(-FOREVER + 1, FOREVER), left=["p0"])],
        strategy="cpu-opt",
    )
    steady(world, 20)
    set_prices(world, rewrite=1e-9, pair=1.0)
    assert reconsidered(world, RecutPolicy(), 40) is None


def test_costs_of_a_query_that_is_registered_and_not_yet_started_are_predicted(tmp_path):
    one, other = query("one", seconds(2)), query("other", seconds(2), "AC")
    world = World(tmp_path, [one])
    steady(world, 10)
    found = costs(next_plan(world.streams, [one, other], world.ledger), world.ledger, runs=True)
    assert [each.measured is not None for each in found] == [True, False]
