"""Windows that count rows, the whole path without Spark: exact however the streams are cut, ordered and restarted."""

import random
from collections import Counter
from dataclasses import replace

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.engine.sinks import publication
from penstock.engine.views.needs import in_time
from penstock.errors import InputError
from penstock.kernels.reference import Event, difference_in_rows, nested_loop_join
from penstock.sql.options import STRATEGIES
from penstock.sql.query import FOREVER, SIDES, Range, Sink
from penstock.state.files import open_files
from penstock.state.row_times import LONG_AGO
from tests.engine.stages.test_simulation import (
    as_table,
    eager,
    feed,
    folders,
    in_folder,
    pairs,
    random_batches,
    run,
    some,
)
from tests.engine.world import DIGEST, NONE, WHOLE, Row, World, query
from tests.kernels.drawn import examples


def counts(name, ours, theirs=None, streams="AB", *, rows=(True, True), **options):
    """Make a query whose windows are so many rows, or so much time on a side that does not count them."""
    theirs = ours if theirs is None else theirs
    window = Range(-theirs if rows[1] else 1 - theirs, ours)
    return replace(query(name, window, streams, **options), rows=rows)


class CountWorld(World):
    """A world that knows what windows mean which count rows; others mean what they meant."""

    def finish(self):
        """End a run: what is there is all there is."""
        self.end()
        for group in self.plan.groups:
            for side in SIDES if group.signature.counted else ():
                rows = self.sources[group.log(side).stream].counted
                assert all(row.time < self.ledger.groups[group.id].watermarks[0] for row in rows)

    def _cursor(self, one, plan):
        """A group that counts rows is as far as its horizon."""
        if not one.signature.counted:
            return super()._cursor(one, plan)
        (horizon,) = self._horizons(one, plan)
        return (LONG_AGO if horizon is None else horizon,) * 2

    def _horizons(self, one, plan):
        return {self.ledger.groups[group.id].watermarks[0] for group, _, _ in plan.groups_of(one.name)}

    def _in_step(self, plan):
        lives = [life[-1].query for life in self.lives.values()]
        equally_far = all(len(self._horizons(one, self.plan)) == 1 for one in lives if one.signature.counted)
        return equally_far and super()._in_step(plan)

    def expected(self, one, cursor, floors=(None, None)):
        if not one.signature.counted:
            return super().expected(one, cursor, floors)
        lows = [LONG_AGO if floor is None else floor for floor in floors]
        sides = [
            [
                Event(row.key if one.keys else 0, row.time, row)
                for row in self.sources[stream].counted
                if (row.key is not None or not one.keys) and low <= row.time < cursor[0]
            ]
            for stream, low in zip((one.left, one.right), lows, strict=True)
        ]
        found = nested_loop_join(
            *sides,
            one.window,
            lambda row: set(one.left_predicates) <= row.name.holds,
            lambda row: set(one.right_predicates) <= row.name.holds,
            difference_in_rows(self.times(one.left), self.times(one.right), one.rows),
        )
        return Counter({(a.name.id, b.name.id): count for (a, b), count in found.items()})

    def times(self, stream):
        return [row.time for row in self.sources[stream].counted]

    def _needed(self, group, side):
        if not group.signature.counted:
            return super()._needed(group, side)
        stream = group.log(side).stream
        horizon = self._cursor(group.members[0].query, self.plan)[0]
        keyed = bool(group.signature.keys)
        rows = [row for row in self.sources[stream].counted if row.key is not None or not keyed]
        if self.ledger.version > 1 and FOREVER in in_time(group, side, self.ledger, group.reaches(side)):
            return rows  # a new window: how far it reaches is looked up by the next unit
        return [
            row
            for row in rows
            if any(self._is_needed(row, group, each, side, horizon) for each in group.members)
        ]

    def _is_needed(self, row, group, member, side, horizon):
        """Say whether a partner at the horizon, the oldest that may still come, would meet a row."""
        wanted = group.filter_last or set(member.predicates(side)) <= row.holds
        if not (wanted and group.part(side).takes(row.holds)):
            return False
        window, query = group.chain.held(member.query.window), member.query
        length = window.hi if side == "l" else -window.lo + (0 if query.rows[1] else 1)
        if not query.rows[SIDES.index(side)]:
            return max(horizon, row.time) - row.time < length
        return sum(row.time < t < horizon for t in self.times(group.log(side).stream)) < length

    def check_files(self):
        """Nothing is left lying about, and a roll is never in many pieces."""
        there = {
            f"log/{log}/{file}" for log in self.files.list("log") for file in self.files.list(f"log/{log}")
        }
        assert there == {name for name in self.ledger.files() if name.startswith("log/")}
        for one in self.ledger.rolls.values():
            for before, after in zip(one.pieces, one.pieces[1:], strict=False):
                assert before.last + 1 == after.first
                assert before.max_t < after.min_t


@st.composite
def count_workloads(draw):
    """A few queries over shared streams: both sides in rows, one of them in time, and now and then only time."""
    queries = []
    selective = draw(st.booleans())
    for number in range(draw(st.integers(1, 4))):
        left, right = (draw(some), draw(some)) if selective else ((), ())
        rows = draw(
            st.sampled_from(((True, True), (True, True), (True, False), (False, True), (False, False)))
        )
        queries.append(
            counts(
                f"q{number}",
                draw(st.integers(1, 9)),
                draw(st.integers(1, 9)) if rows[1] else draw(st.sampled_from((1, 5, 12, FOREVER))),
                draw(st.sampled_from(("AB", "AB", "AC", "AA"))),
                rows=rows,
                keys=draw(st.sampled_from((WHOLE, WHOLE, DIGEST, NONE))),
                left=left,
                right=right,
                sink=draw(st.sampled_from((Sink("table"), Sink("table"), Sink("parquet"), Sink("noop")))),
            )
        )
    return queries


@examples(35)
@given(
    queries=count_workloads(),
    lateness=st.sampled_from((0, 3, 12, 100)),
    policy=st.tuples(
        st.integers(2, 4),
        st.sampled_from((0.1, 0.5, 1.0)),
        st.sampled_from((0.01, 1, 8)),
        st.sampled_from((1, 8, 1 << 20)),
    ),
    tasks=st.fixed_dictionaries({"parts": st.integers(1, 3), "key_bits": st.sampled_from((1, 64))}),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((5, 10, 20, 40))),
)
def test_every_query_is_exact_and_the_state_is_the_least_however_the_streams_are_cut(
    queries, lateness, policy, tasks, happening
):
    with folders() as folder, eager(*policy[:3]), pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_ROWS_PER_PIECE", policy[3])
        world = CountWorld(folder / "state", in_folder(queries, folder), lateness=lateness, **tasks)
        run(world, *happening, lambda _source: world.finish())
        world.finish()
        world.check_state()
        world.check_results()
        world.check_files()


def changed(queries, spare, source):
    """Drop a query, bring one in, or give one another window."""
    chosen = source.choice(spare)
    if chosen.name not in {each.name for each in queries}:
        return [*queries, chosen]
    if len(queries) > 1 and source.random() < 0.5:
        return [each for each in queries if each.name != chosen.name]
    left, right = source.randrange(1, 12), source.randrange(1, 12)
    window = counts("any", left, right, rows=chosen.rows).window
    return [replace(each, window=window) if each.name == chosen.name else each for each in queries]


@examples(35)
@given(
    spare=count_workloads(),
    lateness=st.sampled_from((0, 3, 12, 100)),
    most=st.sampled_from((1, 8, 1 << 20)),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((5, 10, 20, 40))),
)
def test_every_query_is_exact_over_its_life(spare, lateness, most, happening):
    with folders() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_ROWS_PER_PIECE", most)
        spare = in_folder(spare, folder)
        world = CountWorld(folder / "state", spare[:1], lateness=lateness)
        queries = list(spare[:1])

        def change(source):
            if source.random() < 0.2:
                world.finish()
            if source.random() < 0.2:
                world.share(source.choice(STRATEGIES), source)
            for _ in range(source.choice((1, 1, 2, 3))):
                queries[:] = changed(queries, spare, source)
                world.change(queries)

        run(world, *happening, change)
        world.finish()
        world.check_results()


WORKLOAD = [
    counts("ten", 10),
    counts("hundred", 100, left=["p0"], right=["p1"], sink=Sink("parquet")),
    counts("sides", 60, 3, left=["p2"]),
    counts("named", 25, keys=DIGEST),
    counts("itself", 40, 7, "AA", left=["p0"]),
    counts("mixed", 30, 50, rows=(True, False)),
]


def test_the_results_are_those_of_duckdb_which_counts_rows_by_a_window_function():
    source = random.Random(7)
    with folders() as folder:
        world = CountWorld(folder / "state", in_folder(WORKLOAD, folder), lateness=1000)
        taken = feed(world, source, "AB", 12)
        world.finish()
        with duckdb.connect() as connection:
            for name, listed in taken.items():
                connection.register(f"{name}_all", as_table(listed))
                connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {name}_all WHERE t IS NOT NULL")
                connection.execute(  # the last of equal times: RANGE counts them all
                    f"CREATE TABLE n{name} AS SELECT DISTINCT t, count(*) OVER (ORDER BY t) AS n FROM {name}"
                )
            for one in world.plan.queries:
                expected = sorted(connection.execute(_duckdb(one)).fetchall())
                assert expected, "there is something to find"
                assert world.ledger.query(one.name).results == len(expected)
                assert sorted(world.results(one).elements()) == expected


def _duckdb(one):
    """Write the definition: how many rows there are up to each time, and how many more at the time of the other."""

    def upto(stream, time):
        return f"coalesce((SELECT max(n) FROM n{stream} WHERE t <= {time}), 0)"

    left, right = one.window.hi, -one.window.lo + (0 if one.rows[1] else 1)
    ages = {
        "l": f"{upto(one.left, 'r.t')} - {upto(one.left, 'l.t')}" if one.rows[0] else "r.t - l.t",
        "r": f"{upto(one.right, 'l.t')} - {upto(one.right, 'r.t')}" if one.rows[1] else "l.t - r.t",
    }
    conditions = [
        "l.k = r.k",
        f"(l.t <= r.t AND {ages['l']} < {left} OR r.t < l.t AND {ages['r']} < {right})",
        *(f"l.{each}" for each in one.left_predicates),
        *(f"r.{each}" for each in one.right_predicates),
    ]
    return f"SELECT l.id, r.id FROM {one.left} l, {one.right} r WHERE {' AND '.join(conditions)}"


def test_a_long_run_is_exact_and_what_it_keeps_stays_short():
    """Fifty batches a stream: segments are merged and let go, and so are the pieces of the rolls."""
    source = random.Random(1)
    with folders() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_ROWS_PER_PIECE", 40)
        world = CountWorld(folder / "state", in_folder(WORKLOAD, folder), lateness=30, parts=1, key_bits=2)
        for batches in zip(*(random_batches(source, 50, 8) for _ in "AB"), strict=True):
            for name, batch in zip("AB", batches, strict=True):
                world.ingest(name, batch, source.choice((1, 2)))
            if source.random() < 0.5:
                world.turn()
        world.turn()
        world.check_state()
        world.finish()
        world.check_state()
        world.check_results()
        world.check_files()
        assert max(each.generation for log in world.plan.logs for each in world.ledger.segments(log.id)) >= 1
        for one in world.ledger.rolls.values():
            assert one.pieces[0].first > 0, "the oldest times were let go"
            assert len(one.pieces) < 20


# --- scenarios: one edge each --------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(publication, "open_files", lambda url, **_: open_files(url, sync=False))
    return tmp_path / "state"


def row(number, time, key=7, holds=()):
    return Row(number, key, time, frozenset(holds))


def once(world, **streams):
    """Ingest one batch of each stream, and take it as all there is."""
    for stream, rows in streams.items():
        world.ingest(stream, rows)
    world.finish()
    return pairs(world)


def test_a_row_is_met_while_it_is_among_the_last_n_of_its_stream(state):
    """::

    A   1@10  2@20  3@30                ROWS 2 at 35: the last two are 2 and 3
    B                       9@35
    """
    world = CountWorld(state, [counts("q", 2)])
    assert once(world, A=[row(1, 10), row(2, 20), row(3, 30)], B=[row(9, 35)]) == [(2, 9), (3, 9)]


def test_rows_that_no_query_wants_and_rows_without_a_key_take_their_place_in_the_window(state):
    """The window is over the stream, before any selection: the last two rows of A at 35 are 2 and 3."""
    world = CountWorld(state, [counts("q", 2, left=["p0"])])
    rows = [row(1, 10, holds=["p0"]), row(2, 20, key=None, holds=["p0"]), row(3, 30, key=7)]
    assert once(world, A=rows, B=[row(9, 35)]) == []
    assert world.ledger.stream("A").unwanted == 1


def test_rows_of_one_time_go_in_and_out_together(state):
    """::

    A   1@10  2@20  3@20  4@30        at 25 the last row is 2, and 3: both or neither
    B                  9@25
    """
    world = CountWorld(state, [counts("q", 1)])
    assert once(world, A=[row(1, 10), row(2, 20), row(3, 20), row(4, 30)], B=[row(9, 25)]) == [
        (2, 9),
        (3, 9),
        (4, 9),
    ]


def test_each_stream_is_counted_by_its_own_rows(state):
    """::

    A [ROWS 2]   1@10        2@20            3@30      at 31 the last two rows of A are 2 and 3
    B [ROWS 1]         5@15        6@25                at 30 the last row of B is 6
    """
    world = CountWorld(state, [counts("q", 2, 1)])
    found = once(world, A=[row(1, 10), row(2, 20), row(3, 30)], B=[row(5, 15), row(6, 25), row(7, 31)])
    assert found == [(1, 5), (1, 6), (2, 5), (2, 6), (2, 7), (3, 6), (3, 7)]


def test_a_row_waits_until_both_watermarks_have_passed_it(state):
    """With a lateness of 10 nothing is certain before 10 more have passed, on the slower of the two streams."""
    world = CountWorld(state, [counts("q", 1)], lateness=10)
    world.ingest("A", [row(1, 100)])
    world.ingest("B", [row(2, 101)])
    world.turn()
    assert pairs(world) == []
    world.ingest("A", [row(3, 150)])
    world.ingest("A", [row(4, 140, key=8)])
    world.turn()
    assert pairs(world) == [], "B may still send a row before 101"
    world.ingest("B", [row(5, 112, key=9)])
    world.turn()
    assert pairs(world) == [(1, 2)]
    world.check_state()


def test_a_row_that_comes_in_between_pushes_another_out_of_the_window(state):
    """It came in time, so it counts, whenever it came."""
    world = CountWorld(state, [counts("q", 1)], lateness=10)
    world.ingest("A", [row(1, 100)])
    world.ingest("B", [row(2, 105)])
    world.turn()
    assert once(world, A=[row(3, 103, key=8)]) == []


def test_a_row_below_what_a_finished_run_has_joined_is_overtaken_and_counted_so(state):
    world = CountWorld(state, [counts("q", 2), query("time", Range.window(10, 10))], lateness=50)
    assert once(world, A=[row(1, 100)], B=[row(2, 101)]) == [(1, 2)]
    world.ingest("A", [row(3, 101), row(4, 102)])
    world.finish()
    assert pairs(world) == [(1, 2), (4, 2)]
    assert pairs(world, "time") == [(1, 2), (3, 2), (4, 2)], "windows of time take what is in time"
    assert world.ledger.stream("A").overtaken == world.sources["A"].overtaken == 1


def test_a_stream_that_sends_nothing_holds_up_the_others_until_the_end(state):
    world = CountWorld(state, [counts("q", 5)])
    world.ingest("A", [row(1, 1), row(2, 2)])
    world.turn()
    assert world.ledger.groups[world.plan.groups[0].id].watermarks == (None, None)
    world.finish()
    world.check_state()
    assert pairs(world) == []


def test_a_query_that_comes_later_counts_the_rows_that_are_held(state):
    wide, late = counts("wide", 3), counts("late", 2)
    world = CountWorld(state, [wide])
    world.ingest("A", [row(number, number) for number in range(6)])
    world.ingest("B", [row(10, 4), row(11, 5)])
    world.turn()
    world.change([wide, late])
    world.ingest("B", [row(12, 6)])
    world.ingest("A", [row(6, 6)])
    world.finish()
    world.check_results()
    assert (5, 12) in pairs(world, "late")
    assert world.ledger.query("late").complete_from is not None


def test_the_first_query_that_counts_begins_with_the_rows_to_come(state):
    """Nobody counted the rows before: what came at 5 or earlier cannot be told apart from what is missing."""
    time, late = query("time", Range.window(100, 100)), counts("late", 2)
    world = CountWorld(state, [time], lateness=3)
    world.ingest("A", [row(1, 4), row(2, 5)])
    world.ingest("B", [row(3, 5)])
    world.turn()
    world.change([time, late])
    world.ingest("A", [row(4, 5), row(5, 6)])
    world.ingest("B", [row(6, 7)])
    world.finish()
    assert pairs(world, "late") == [(5, 6)]
    assert world.ledger.query("late").complete_from == 6
    world.check_results()


def test_a_query_goes_over_to_counting_rows_unless_others_wait_for_rows_it_has_joined(state):
    time, other = query("q", Range.window(100, 100)), counts("other", 2)
    world = CountWorld(state, [time, other], lateness=50)
    world.ingest("A", [row(1, 4)])
    world.ingest("B", [row(2, 5)])
    world.turn()
    with pytest.raises(InputError, match="Drop it and create it again"):
        world.change([counts("q", 9), other])
    world.finish()
    world.change([counts("q", 9), other])
    world.ingest("B", [row(3, 6)])
    world.finish()
    assert pairs(world, "q") == [(1, 2), (1, 3)]


def test_a_time_that_is_let_go_is_never_counted_wrongly(state):
    """A longer window comes when the older times are gone: it is exact from where they are held."""
    short, long = counts("short", 2), counts("long", 1000)
    world = CountWorld(state, [short])
    for number in range(20):
        world.ingest("A", [row(number, number)])
        world.ingest("B", [row(100 + number, number)])
        world.turn()
    world.change([short, long])
    world.ingest("A", [row(50, 50)])
    world.ingest("B", [row(150, 50)])
    world.finish()
    world.check_results()
    world.check_files()
