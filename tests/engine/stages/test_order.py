"""Results in the order of their times (S10): the sequence is that of the sorted result, and the same as alone (H2).

joined      (1,4) (2,3) (7,7)        time of a pair: the later of its rows'
watermarks  A 6, B 5                 H = 5: nothing below it is still to come
released    (2,3) (1,4)              held: (7,7)
"""

import random
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from penstock import limits
from penstock.engine.report.status import take_status
from penstock.engine.stages.release import release
from penstock.engine.store import Store
from penstock.engine.views.horizon import horizon
from penstock.sql.options import ORDERS, STRATEGIES
from penstock.sql.query import Range, Sink
from penstock.state.files import open_files
from penstock.state.hold import TIMES, Held, choose_merges, in_order, sort_by_time, write_hold
from tests.engine.change.test_changes import changed
from tests.engine.stages.test_counting import CountWorld, counts
from tests.engine.stages.test_simulation import folders, in_folder, random_row, run, workloads
from tests.engine.world import Row, World, query
from tests.kernels.drawn import examples, ranges

SHARING = tuple(each for each in STRATEGIES if each != "isolated")
"""Strategies that hand over to each other without losing what is held of the streams."""


@st.composite
def ordered(draw, name):
    """A query that wants its results in order, by any policy and in any sink that shows the order."""
    return query(
        name,
        draw(ranges(15)),
        draw(st.sampled_from(("AB", "AB", "AA"))),
        left=draw(st.sampled_from(((), (), ("p0",)))),
        right=draw(st.sampled_from(((), (), ("p1",)))),
        sink=Sink(draw(st.sampled_from(("parquet", "table", "callback")))),
        order=draw(st.sampled_from(ORDERS[1:])),
    )


def up_to(world, one, until):
    """Sort in plain Python the pairs that nested loops find, as far as nothing is still to come."""
    pairs = world.expected(one, world._cursor(one, world.plan)).elements()
    return sorted((pair for pair in pairs if world.place(pair)[0] < until), key=world.place)


def replay(world, taken):
    """Let batches come again, joined in threes."""
    for number, (stream, rows) in enumerate(taken):
        world.ingest(stream, rows)
        if number % 3 == 0:
            world.turn()


class CrashError(Exception):
    """What the tests break things with."""


class Frail(World):
    """A world in which now and then a commit does not come, or nothing comes after it; then it starts again."""

    trap = ("", "")

    def _commit(self, commit):
        when, kind = self.trap
        mine = kind == commit.KIND
        if mine:
            self.trap = ("", "")
        if mine and when == "before":
            raise CrashError
        super()._commit(commit)
        if mine and when == "after":
            raise CrashError

    def turn(self):
        self._until_done(super().turn)

    def advance(self, group):
        self._until_done(super().advance, group)

    def bring_up(self):
        self._until_done(super().bring_up)

    def change(self, queries):
        self._until_done(super().change, queries)

    def _until_done(self, step, *what):
        try:
            step(*what)
        except CrashError:
            event("crashed")
            self.restart()
            step(*what)


@examples(35)
@given(
    one=ordered("one"),
    others=workloads(),
    lateness=st.sampled_from((0, 3, 12)),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((20, 40, 60))),
    crashes=st.lists(
        st.tuples(st.sampled_from(("before", "after")), st.sampled_from(("unit", "release", "published"))),
        max_size=5,
    ),
)
def test_a_sequence_is_the_sorted_result_and_the_same_as_alone(one, others, lateness, happening, crashes):
    """Whatever the others do, whatever changes around it, wherever it crashes, however few hold files are allowed."""
    with folders() as folder, patch.multiple(limits, MERGE_FAN_IN=2, MAX_ROWS_PER_SORT=5):
        one, *spare = in_folder([one, *others], folder)
        world = Frail(folder / "state", [one, *spare], lateness=lateness)
        taken, ingest = [], world.ingest

        def note(stream, rows, tasks=1):
            taken.append((stream, rows))
            ingest(stream, rows, tasks)

        def change(source):
            if crashes and source.random() < 0.5:
                world.trap = crashes.pop()
            elif source.random() < 0.4:
                world.share(source.choice(SHARING), source)
            else:
                mine = [each for each in world.plan.queries if each.name != one.name]
                world.change([one, *(changed(mine, spare, source) if mine else spare[:1])])

        with patch.object(world, "ingest", note):
            run(world, *happening, change)

        one = next(each for each in world.plan.queries if each.name == one.name)
        until = horizon(world.plan, world.ledger, one.name)
        assert world.sequence(one) == (up_to(world, one, until) if until is not None else [])
        event("something released" if world.sequence(one) else "nothing released")

        alone = World(folder / "alone", in_folder([one], folder / "own"), lateness=lateness)
        replay(alone, taken)
        alone.turn()
        (same,) = alone.plan.queries
        assert alone.sequence(same) == world.sequence(one)
        for each in (world, alone):
            each.end()
        assert alone.sequence(same) == world.sequence(one) == up_to(world, one, 1 << 60)


@examples(35)
@given(
    spare=st.lists(st.integers(0, 3).flatmap(lambda n: ordered(f"q{n}")), min_size=1, max_size=4),
    lateness=st.sampled_from((0, 12)),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((10, 20, 40))),
)
def test_a_query_that_comes_goes_or_changes_is_in_order_in_each_of_its_lives(spare, lateness, happening):
    with folders() as folder:
        spare = in_folder(list({each.name: each for each in spare}.values()), folder)
        world = World(folder / "state", spare[:1], lateness=lateness)
        queries = list(spare[:1])

        def change(source):
            if source.random() < 0.2:
                world.end()
            elif source.random() < 0.3:
                world.share(source.choice(STRATEGIES), source)
            else:
                queries[:] = changed(queries, spare, source)
                world.change(queries)

        run(world, *happening, change)


@examples(50)
@given(
    one=ordered("one"),
    rows=st.lists(st.tuples(st.sampled_from("AB"), st.integers(0, 40), st.integers(0, 6)), max_size=30),
    seed=st.integers(0, 10**9),
)
def test_however_a_stream_is_cut_what_is_delivered_is_a_beginning_of_the_same_sequence(one, rows, seed):
    """Each row comes at most the lateness after its time, so none is late; twice, cut and joined in different ways."""
    arrived = sorted(enumerate(rows), key=lambda each: each[1][1] + each[1][2])
    source, sequences = random.Random(seed), []
    for _ in range(2):
        with folders() as folder, patch.object(limits, "MERGE_FAN_IN", source.choice((2, 3))):
            world = World(
                folder / "state", in_folder([one], folder), lateness=6, strategy=source.choice(STRATEGIES)
            )
            (mine,) = world.plan.queries
            seen = []
            for number, (stream, time, _) in arrived:
                world.ingest(stream, [Row(number, 1, time, frozenset(("p0", "p1", "p2")))])
                if source.random() < 0.3:
                    world.turn()
                    seen.append(world.sequence(mine))
            world.end()
            sequences.append(world.sequence(mine))
            assert all(each == sequences[-1][: len(each)] for each in seen)
            assert sequences[-1] == up_to(world, mine, 1 << 60)
    assert sequences[0] == sequences[1]


# --- scenarios: one edge each --------------------------------------------------------------------------------


def row(number, time):
    return Row(number, 1, time)


def one_query(**options):
    return query("q", Range.window(100, 100), **{"order": "filter-order", **options})


def test_a_pair_is_released_when_both_watermarks_have_passed_it(tmp_path):
    """
    A   a@10          a@21
    B          b@20          b@30
    H   -      10     20     21           (10, 20) waits until 21: before, another a@20 could come
    """
    world = World(tmp_path, [one_query()])
    steps = [("A", 1, 10, []), ("B", 2, 20, []), ("A", 3, 21, []), ("B", 4, 30, [(1, 2)])]
    (one,) = world.plan.queries
    for stream, number, time, delivered in steps:
        world.ingest(stream, [row(number, time)])
        world.turn()
        assert world.sequence(one) == delivered
    assert sorted(world.held(one)) == [(1, 4), (3, 2), (3, 4)]
    assert take_status(world.plan, world.ledger).queries[0].held == 3
    assert world.ledger.query("q").results == 1, "results are counted when they are released"


def test_a_stream_that_has_sent_nothing_holds_everything_back_and_the_end_lets_it_go(tmp_path):
    world = World(tmp_path, [replace(one_query(), left="A", right="A")])
    (one,) = world.plan.queries
    world.ingest("A", [])
    world.turn()
    assert world.sequence(one) == []
    world.ingest("A", [row(2, 7), row(1, 5)])
    world.turn()
    assert world.sequence(one) == [(1, 1)], "below the watermark, 7"
    world.end()
    assert world.sequence(one) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert not world.files.list("hold/q"), "nothing is held any more"


def test_rows_within_the_lateness_after_the_end_begin_a_new_sequence(tmp_path):
    world = World(tmp_path, [one_query()], lateness=50)
    (one,) = world.plan.queries
    world.ingest("A", [row(1, 100)])
    world.ingest("B", [row(2, 100)])
    world.end()
    world.ingest("A", [row(3, 60)])
    world.ingest("B", [row(4, 61)])
    world.end()
    assert world.sequence(one) == [(1, 2), (3, 4), (3, 2), (1, 4)]


def test_the_end_waits_for_batches_that_are_not_joined_yet(tmp_path):
    """The last batch may come in while the joiner is between its last unit and the release."""
    world = World(tmp_path, [one_query()], lateness=50)
    (one,) = world.plan.queries
    world.ingest("A", [row(1, 100), row(2, 60)])
    world.ingest("B", [row(3, 100)])
    world.advance(world.plan.groups[0])
    world.ingest("B", [row(4, 60)])
    world.context.input_ended = True
    release(world.context)
    assert world.ledger.query("q").results == 0
    world.end()
    assert world.sequence(one) == [(2, 4), (2, 3), (1, 4), (1, 3)]


@pytest.mark.parametrize("strategy", SHARING)
def test_windows_that_count_rows_are_ordered_by_time_just_the_same(tmp_path, strategy):
    """Such a pair is found when both watermarks have passed it, and released at once."""
    source = random.Random(4)
    options = {"order": "filter-order", "left": ["p0"], "sink": Sink("callback")}
    world = CountWorld(tmp_path, [counts("q", 5, **options), counts("z", 9)], lateness=7, strategy=strategy)
    one, _ = world.plan.queries
    for number in range(60):
        rows = [random_row(source, 4 * number + place, 3 * number, nulls=0) for place in range(4)]
        world.ingest("AB"[number % 2], rows)
        if number % 5 == 0:
            world.turn()
            assert not world.held(one)
    world.finish()
    found = world.expected(one, world._cursor(one, world.plan)).elements()
    assert world.sequence(one) == sorted(found, key=world.place)
    assert len(world.sequence(one)) > 50


def test_an_unordered_neighbour_waits_for_nothing_and_stores_no_times(tmp_path):
    """Also in the shared table, which both would otherwise read."""
    plain, choosy = query("plain", Range.window(100, 100)), one_query()
    world = World(tmp_path, [plain, choosy], lateness=1000)
    world.ingest("A", [row(1, 10)])
    world.ingest("B", [row(2, 20)])
    world.turn()
    assert world.results(plain).total() == 1
    assert world.results(choosy).total() == 0
    (stored,) = (tmp_path / "pairs").rglob("*.parquet")
    assert pq.read_schema(stored).names == ["l", "r", "level"]


def test_what_is_held_of_an_altered_query_is_released_with_the_change_and_of_a_dropped_one_let_go(tmp_path):
    stays = query("stays", Range.window(100, 100))
    altered, dropped = one_query(), replace(one_query(), name="dropped")
    world = World(tmp_path, [stays, altered, dropped], lateness=1000)
    world.ingest("A", [row(1, 30), row(2, 10)])
    world.ingest("B", [row(3, 20)])
    world.turn()
    assert world.ledger.hold("q").rows == world.ledger.hold("dropped").rows == 2
    altered = replace(altered, window=Range.window(5, 5))
    world.change([stays, altered])
    assert world.ledger.query("q").results == 2
    assert set(world.ledger.holds) == {"q"}
    world.ingest("B", [row(4, 11)])
    world.end()
    assert world.sequence(altered) == [(2, 3), (1, 3), (2, 4)]


@pytest.mark.parametrize("kind", ["table", "parquet"])
def test_a_query_may_come_to_want_order_and_give_it_up_again(tmp_path, kind):
    """What it got before stays where it is, and counts."""
    sink = Sink(kind, (("path", str(tmp_path / "out")),) if kind == "parquet" else ())
    one = query("q", Range.window(100, 100), sink=sink)
    world = World(tmp_path / "state", [one], lateness=1000)
    for number, order in enumerate(("none", "adaptive", "none", "sync-filter")):
        one = replace(one, options=(("order", order),))
        world.change([one])
        world.ingest("A", [row(2 * number, 20 - number)])
        world.ingest("B", [row(2 * number + 1, 20)])
        world.turn()
    assert world.ledger.query("q").results == 9, "what was held of it, or waited, came with the change"
    assert take_status(world.plan, world.ledger).queries[0].lag_rows == 2, "its input waits"
    world.end()
    assert world.results(one).total() == world.ledger.query("q").results == 16


def test_hold_files_of_many_small_units_stay_few_and_none_is_left_over(tmp_path):
    """B stands still while A goes on: everything waits.  Then B catches up."""
    world = World(tmp_path, [one_query()], parts=1)
    (one,) = world.plan.queries
    world.ingest("B", [row(1000, 0)])
    for number in range(300):
        world.ingest("A", [row(number, number % 90)] if number % 90 == number else [row(number, 90)])
        world.turn()
    files = world.ledger.hold("q").files
    assert sum(each.rows for each in files) == world.ledger.hold("q").rows > 0
    assert len(files) < 3 * limits.MERGE_FAN_IN
    assert len(world.files.list("hold/q")) == len(files)
    world.ingest("B", [row(1001, 500)])
    world.ingest("A", [row(999, 500)])
    world.turn()
    assert world.sequence(one) == up_to(world, one, 500)
    world.end()
    assert world.files.list("hold/q") == []


def test_a_release_reads_no_more_of_a_file_than_it_releases(tmp_path):
    """A file of which half is released is not written again: the ledger says from which time on it counts."""
    world = World(tmp_path, [one_query()], parts=1)
    world.ingest("A", [row(number, number) for number in range(50)])
    world.ingest("B", [row(1000, 25)])
    world.turn()
    (before,) = world.files.list("hold/q")
    (held,) = world.ledger.hold("q").files
    assert (held.min_t, held.max_t, held.rows) == (25, 49, 50)
    world.ingest("B", [row(1001, 30)])
    world.turn()
    first = min(world.ledger.hold("q").files, key=lambda each: each.name != f"hold/q/{before}")
    assert (first.name, first.min_t, first.rows) == (f"hold/q/{before}", 30, 20)


def test_files_that_no_commit_names_are_removed_at_the_next_start(tmp_path):
    files = open_files(str(tmp_path))
    files.put("hold/q/stray.arrow", b"written by a task whose commit never came")
    Store(str(tmp_path)).close()
    assert files.list("hold/q") == []


def test_more_than_fits_in_one_sort_comes_out_the_same(tmp_path):
    """Sorted in stretches, cut between two instants; ties go by the output columns, nulls last."""
    source = np.random.default_rng(3)
    files = open_files(str(tmp_path), sync=False)
    tables = [batch(source, size) for size in (1, 7, 300, 40)]
    holds = [write_hold(files, "hold/q", [sort_by_time(each.to_batches())]) for each in tables]
    with patch.object(limits, "MAX_ROWS_PER_SORT", 50):
        pieces = list(in_order(files, holds, -100, 100))
    assert len(pieces) > 3
    keys = [(name, "ascending") for name in (*TIMES, "x", "s")]
    whole = pa.concat_tables(tables).sort_by(keys)
    found = pa.concat_tables(pieces)
    assert found.drop_columns(["nested"]) == whole.drop_columns(["nested"])
    assert pa.concat_tables(in_order(files, holds, 3, 5)).num_rows == sum(
        3 <= t < 5 for t in whole[TIMES[0]].to_pylist()
    )


def batch(source, size):
    """Some results with few times, so that there are ties."""
    left, right = (source.integers(0, 9, size) for _ in range(2))
    strings = [None if each == 0 else "xyz"[each % 3] for each in source.integers(0, 9, size)]
    return pa.table(
        {
            **dict(zip(TIMES, (np.maximum(left, right), left, right), strict=True)),
            "x": pa.array(source.integers(0, 2, size).astype(float)),
            "s": pa.array(strings, pa.string()),
            "nested": pa.array([[each] for each in range(size)], pa.list_(pa.int64())),
        }
    )


def test_only_generations_with_enough_files_are_merged():
    young = [Held(f"y{number}", 1, 0, 1) for number in range(limits.MERGE_FAN_IN)]
    old = [Held(f"o{number}", 1, 0, 1, 1) for number in range(limits.MERGE_FAN_IN - 1)]
    assert choose_merges([*young, *old]) == [tuple(young)]


def test_ties_are_broken_by_the_rows_and_not_by_their_arrival(tmp_path):
    source, sequences = random.Random(2), []
    rows = [random_row(source, number, 0, keys=1, spread=2, nulls=0) for number in range(40)]
    for way in range(2):
        world = World(tmp_path / str(way), [one_query()], lateness=100)
        (one,) = world.plan.queries
        source.shuffle(rows)
        for each in rows:
            world.ingest("AB"[each.id % 2], [each])
            if way:
                world.turn()
        world.end()
        sequences.append(world.sequence(one))
    assert sequences[0] == sequences[1]
    assert len(sequences[0]) == 400
