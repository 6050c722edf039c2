"""Every strategy gives every query the same results; what differs is what is held, and which join gives them (S9)."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.change.diff import find_change, losses
from penstock.engine.change.plan_commit import is_in_step
from penstock.engine.report.status import take_status
from penstock.engine.views.plans import next_plan
from penstock.errors import InputError
from penstock.plan.share import MOST_SHARES, RIVAL_STRATEGIES, divide
from penstock.sql.options import STRATEGIES
from penstock.sql.query import Comparison, Range, Sink
from tests.engine.stages.test_simulation import PREDICATES, folders, in_folder, random_row, run
from tests.engine.world import NONE, WHOLE, Row, World, query
from tests.kernels.drawn import examples, ranges

conditions = st.lists(st.sampled_from(PREDICATES), max_size=2, unique=True)


@st.composite
def choosy(draw):
    """A few queries of one signature, most of them with conditions, so that rows are divided in many ways."""
    keys = draw(st.sampled_from((WHOLE, WHOLE, NONE)))
    return [
        query(
            f"q{number}",
            draw(ranges(15)),
            keys=keys,
            left=draw(conditions),
            right=draw(conditions),
            sink=draw(st.sampled_from((Sink("table"), Sink("parquet")))),
        )
        for number in range(draw(st.integers(2, 4)))
    ]


@examples(30)
@given(
    queries=choosy(),
    strategy=st.sampled_from(RIVAL_STRATEGIES),
    lateness=st.sampled_from((0, 12)),
    seed=st.integers(0, 10**9),
)
def test_a_rival_is_exact_too(queries, strategy, lateness, seed):
    with folders() as folder:
        run(
            World(folder / "state", in_folder(queries, folder), lateness=lateness, strategy=strategy),
            seed,
            25,
        )


@examples(30)
@given(queries=choosy(), seed=st.integers(0, 10**9))
def test_whoever_goes_over_to_another_strategy_loses_and_doubles_nothing(queries, seed):
    """Strategies that share logs hand over to each other without a gap: not one pair is missing."""
    with folders() as folder:
        world = World(folder / "state", in_folder(queries, folder), lateness=12)

        def change(source):
            world.share(source.choice([each for each in STRATEGIES if each != "isolated"]), source)

        run(world, seed, 30, change)
        assert all(world.ledger.query(each.name).complete_from is None for each in queries)


@given(st.lists(conditions, min_size=1, max_size=4), st.sets(st.sampled_from(PREDICATES)))
def test_push_down_puts_each_row_in_one_part_and_each_part_serves_whom_its_rows_satisfy(wanted, holds):
    queries = [query(f"q{number}", Range(0, 5), left=each) for number, each in enumerate(wanted)]
    taken = [share for share in divide(queries, "push-down") if share.left.takes(holds)]
    served = [each for each in queries if set(each.left_predicates) <= holds]
    assert len(taken) == (1 if served else len(taken))
    assert [each for share in taken for each in share.queries] == served


def test_push_down_refuses_more_joins_than_anyone_would_start():
    queries = [query(f"q{number}", Range(0, 5), left=[f"p{number}"]) for number in range(7)]
    with pytest.raises(
        InputError, match=f"7 conditions: that makes 2.7 joins, and {MOST_SHARES} is the most"
    ):
        divide(queries, "push-down")


def held(tmp_path, strategy, cuts=None):
    """Count the rows that each strategy's joins hold of a steady stream: a short window, and a long choosy one."""
    queries = [query("short", Range.window(10, 10)), query("long", Range.window(40, 40), left=["p0"])]
    world = World(tmp_path / strategy, queries, strategy=strategy)
    if cuts is not None:
        world.cuts = {world.plan.groups[0].id: cuts}
        world.change(queries)
    source = random.Random(1)
    for now in range(0, 200, 2):
        for stream in "AB":
            world.ingest(stream, [random_row(source, 2 * now + (stream == "B"), now, spread=1, nulls=0)])
    world.turn()
    world.check_state()
    world.check_results()
    status = take_status(world.plan, world.ledger)
    return sum(group.state_rows for group in status.groups), status


def test_state_slice_holds_least_and_each_rival_what_the_paper_says(tmp_path):
    """
    age       0        10                  40
    A         all      p0 (half of them)            push-down holds B twice: once for either part of A
    B         all      all                          pull-up holds all of A for the long window
    """
    rows = {each: held(tmp_path, each)[0] for each in ("mem-opt", "pull-up", "push-down", "isolated")}
    assert rows["mem-opt"] == min(rows.values())
    assert rows["mem-opt"] < rows["pull-up"] <= rows["isolated"]
    assert rows["mem-opt"] < rows["push-down"] <= rows["isolated"]


def test_a_merged_slice_holds_what_its_first_part_wants_to_its_far_end(tmp_path):
    least, _ = held(tmp_path, "mem-opt")
    merged, status = held(tmp_path, "cpu-opt", cuts=[])
    assert [len(group.slices) for group in status.groups] == [2]
    assert merged > least


def test_isolated_queries_share_no_row(tmp_path):
    world = World(
        tmp_path, [query("one", Range.window(5, 5)), query("two", Range.window(9, 9))], strategy="isolated"
    )
    world.ingest("A", [Row(1, 1, 10)])
    world.ingest("B", [Row(2, 1, 11)])
    world.turn()
    assert len(world.plan.logs) == 4
    assert all(sum(each.rows for each in world.ledger.segments(log.id)) == 1 for log in world.plan.logs)
    assert {each.query.name for group in world.plan.groups for each in group.members} == {"one", "two"}


# --- changes while joins are not equally far --------------------------------------------------------------


def test_joins_that_divide_a_log_get_in_step_before_the_plan_changes(tmp_path):
    """One join is ahead, and has let go of rows that the other still holds: a new query is promised neither."""
    first, choosy = query("first", Range.window(10, 10)), query("choosy", Range.window(10, 10), left=["p0"])
    world = World(tmp_path, [first, choosy], strategy="push-down")
    world.ingest("A", [Row(0, 1, 100, frozenset({"p0"})), Row(1, 1, 100)])
    world.ingest("B", [Row(10, 1, 100)])
    world.turn()
    world.ingest("B", [Row(11, 1, 120)])  # it arrives while the turn is between its two joins
    world.advance(next(each for each in world.plan.groups if each.part("l").all_of))
    wide = query("wide", Range.window(1000, 1000))
    assert not is_in_step(world.plan, world.plan, world.ledger)
    world.change([first, choosy, wide])
    world.turn()
    world.check_results()
    assert len({world.ledger.groups[each.id].cursors for each in world.plan.groups}) == 1


def test_a_query_that_gets_other_state_has_joined_all_that_came_before(tmp_path):
    one = query("one", Range.window(10, 10))
    world = World(tmp_path, [one], strategy="isolated")
    world.ingest("A", [Row(0, 1, 0)])
    world.ingest("B", [Row(1, 1, 0)])
    world.share("mem-opt", random.Random(1))
    world.turn()
    assert world.results(one) == {(0, 1): 1}


def test_leaving_the_states_table_is_a_loss_and_a_condition_worked_out_again_is_no_change(tmp_path):
    one = query("one", Range.window(10, 10))
    world = World(tmp_path, [one])
    world.ingest("A", [Row(0, 1, 0)])
    world.ingest("B", [Row(1, 1, 0)])
    world.turn()
    filed = next_plan(world.streams, [replace(one, sink=Sink("noop"))], world.ledger)
    (said,) = losses(find_change(world.plan, filed), world.plan, filed, world.ledger)
    assert "one would leave the state's table, and its 1 results" in said
    derived = replace(one, comparisons=(Comparison("id", "id", 0, None, (None, None)),))
    assert not find_change(world.plan, next_plan(world.streams, [derived], world.ledger))


def test_what_nobody_can_read_any_more_is_forgotten(tmp_path):
    queries = [query(f"q{number}", Range.window(5 + number, 5 + number)) for number in range(6)]
    world = World(tmp_path, queries[:1], strategy="cpu-opt")
    for number in range(2, 7):
        world.change(queries[:number])
    for number in range(5, 0, -1):
        world.change(queries[:number])
    many = sum(map(len, world.ledger.tables.values()))
    for seed in range(10):
        world.share("cpu-opt", random.Random(seed))
    assert sum(map(len, world.ledger.tables.values())) == many, (
        "where a chain is cut is no matter to its readers"
    )
    world.change([query("new", Range.window(3, 3))])
    assert sum(map(len, world.ledger.tables.values())) == 1


def test_push_down_counts_the_parts_of_both_streams():
    queries = [
        query(f"q{number}", Range(0, 5), left=[f"p{number}"], right=[f"r{number}"]) for number in range(4)
    ]
    with pytest.raises(InputError, match="into 16 and 16 parts: that makes 256 joins"):
        divide(queries, "push-down")
