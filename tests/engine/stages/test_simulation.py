"""The whole path of a row without Spark, cut up at random: every query exact, the state never more than needed."""

import random
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from penstock import limits
from penstock.engine.sinks import publication
from penstock.sql.options import STRATEGIES
from penstock.sql.query import Range, Sink
from penstock.state import retention as keep
from penstock.state.files import open_files
from tests.engine.world import DIGEST, NONE, WHOLE, Row, World, query
from tests.kernels.drawn import examples, ranges

PREDICATES = ("p0", "p1", "p2")
MANY = tuple(f"w{number:02d}" for number in range(70))
"""More predicates than a word has bits; every row satisfies them."""


@contextmanager
def folders():
    """A folder per example, without the fsync that only a power cut would miss."""

    def unsynced(url, **_):
        return open_files(url, sync=False)

    with tempfile.TemporaryDirectory() as folder, patch.object(publication, "open_files", unsynced):
        yield Path(folder)


@contextmanager
def eager(fan, thin, shares):
    """Rewrite far more often than one would: a few batches go through several generations."""
    with (
        patch.multiple(limits, MERGE_FAN_IN=fan, RETENTION_TIME_PARTS=shares),
        patch.object(keep, "THIN_SHARE", thin),
    ):
        yield


some = st.lists(st.sampled_from(PREDICATES), max_size=2, unique=True)


@st.composite
def workloads(draw):
    """A few queries in up to three groups that share logs: windows of any kind, predicates on either side or none."""
    queries = []
    selective = draw(st.booleans())
    for number in range(draw(st.integers(1, 4))):
        left, right = (draw(some), draw(some)) if selective else ((), ())
        queries.append(
            query(
                f"q{number}",
                draw(ranges(15)),
                draw(st.sampled_from(("AB", "AB", "AC", "AA"))),
                keys=draw(st.sampled_from((WHOLE, WHOLE, DIGEST, NONE))),
                left=[*left, *(MANY if left and draw(st.booleans()) else ())],
                right=right,
                sink=draw(st.sampled_from((Sink("table"), Sink("table"), Sink("parquet"), Sink("noop")))),
                order=draw(st.sampled_from(("none", "none", "filter-order"))),
            )
        )
    return queries


def in_folder(queries, folder):
    """Give each parquet sink a directory."""
    return [
        replace(each, sink=Sink("parquet", (("path", str(folder / each.name)),)))
        if each.sink.kind == "parquet"
        else each
        for each in queries
    ]


def run(world, seed, steps, change=None):
    """Let things happen at random, looking at the state after each unit and at the results at the end.

    A run of fewer steps is the beginning of a longer one with the same seed, so a failure shrinks.
    """
    source, number = random.Random(seed), 0
    clock = dict.fromkeys(world.sources, 0)
    for _ in range(steps):
        weights = (12, 3, 3, 1, 4 if change else 0)
        what = source.choices(("batch", "turn", "advance", "restart", "change"), weights)[0]
        if what == "batch":
            number = send_batch(world, source, clock, number)
        elif what == "turn":
            world.turn()
        elif what == "advance":
            world.advance(source.choice(world.plan.groups))
        elif what == "restart":
            world.restart()
        else:
            change(source)
        if what != "batch":
            world.check_state()
    world.turn()
    world.check_state()
    world.check_results()
    world.check_order()
    event("some pairs" if any(each.results for each in world.ledger.queries.values()) else "no pair")
    event("rewritten" if world.rewritten else "never rewritten")
    event("late rows" if any(each.late for each in world.sources.values()) else "no late row")


def send_batch(world, source, clock, number):
    """Let a stream send a few rows, its clock having moved on a little; give the number of the next row."""
    stream = source.choice(list(clock))
    clock[stream] += source.choice((0, 2, 9))
    batch = [random_row(source, number + place, clock[stream]) for place in range(source.randrange(6))]
    world.ingest(stream, batch, source.choice((1, 2)))
    return number + len(batch)


def random_row(source, number, now, *, keys=3, spread=7, nulls=0.05):
    """Make a row about now: one key of few, any predicates, now and then no key or no time."""
    return Row(
        number,
        None if source.random() < nulls else source.randrange(keys),
        None if source.random() < nulls else now + source.randrange(-spread, spread),
        frozenset((*(each for each in PREDICATES if source.random() < 0.5), *MANY)),
    )


@examples(35)
@given(
    queries=workloads(),
    lateness=st.sampled_from((0, 3, 12, 100)),
    policy=st.tuples(st.integers(2, 4), st.sampled_from((0.1, 0.5, 1.0)), st.sampled_from((0.01, 1, 8))),
    tasks=st.fixed_dictionaries(
        {
            "parts": st.integers(1, 3),
            "key_bits": st.sampled_from((1, 64)),
            "strategy": st.sampled_from(STRATEGIES),
        }
    ),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((5, 10, 20, 40))),
)
def test_every_query_is_exact_and_the_state_is_the_least_however_the_streams_are_cut(
    queries, lateness, policy, tasks, happening
):
    with folders() as folder, eager(*policy):
        run(World(folder / "state", in_folder(queries, folder), lateness=lateness, **tasks), *happening)


def random_batches(source, batches, rows_each, *, keys=6, step=10, spread=25):
    """Make a stream's batches: time moves on, rows come in any order within a spread."""
    number = 0
    for batch in range(batches):
        size = source.randrange(2 * rows_each)
        yield [
            random_row(source, number + place, step * batch, keys=keys, spread=spread)
            for place in range(size)
        ]
        number += size


WORKLOAD = [
    query("narrow", Range.window(20, 20)),
    query("wide", Range.window(300, 90), left=["p0"], right=["p1"], sink=Sink("parquet")),
    query("before", Range(-400, -100), left=["p0", "p1"]),
    query("after", Range(250, 400), right=["p2"], sink=Sink("noop")),
    query("named", Range.window(50, 50), keys=DIGEST),
    query("third", Range.window(100, 1), streams="AC", left=["p2"]),
    query("itself", Range(1, 60), streams="AA", left=["p0"]),
    query("everyone", Range.window(15, 15), keys=NONE, right=["p1"]),
    query("anyone", Range(-30, 5), keys=NONE, sink=Sink("parquet")),
]


def test_a_long_run_is_exact_and_its_logs_stay_short():
    """The policy as it is: with fifty batches a stream, segments are merged, thinned and let go."""
    source = random.Random(1)
    with folders() as folder:
        world = World(folder / "state", in_folder(WORKLOAD, folder), lateness=30, parts=1, key_bits=2)
        streams = {name: random_batches(source, 50, 5) for name in "ABC"}
        while streams:
            name = source.choice(sorted(streams))
            batch = next(streams[name], None)
            if batch is None:
                del streams[name]
                continue
            world.ingest(name, batch, source.choice((1, 2)))
            if source.random() < 0.15:
                world.turn()
        world.turn()
        world.check_state()
        world.check_results()
        generations = {each.generation for log in world.plan.logs for each in world.ledger.segments(log.id)}
        assert max(generations) >= 1, "something was merged"
        assert all(len(world.ledger.segments(log.id)) < 60 for log in world.plan.logs)
        files = {
            f"log/{log.id}/{file}" for log in world.plan.logs for file in world.files.list(f"log/{log.id}")
        }
        assert files == {each.name for log in world.plan.logs for each in world.ledger.segments(log.id)}
        assert sum(source.late for source in world.sources.values()) == sum(
            world.ledger.stream(name).late for name in "ABC"
        )
        assert world.ledger.stream("A").late > 0, "some rows were late, and were counted"


def feed(world, source, names, rows):
    """Let every stream send twelve batches in step, joined one after the other; give what each has sent."""
    taken = {name: [] for name in names}
    for batches in zip(*(random_batches(source, 12, rows, step=40) for _ in names), strict=True):
        for name, batch in zip(names, batches, strict=True):
            taken[name] += batch
            world.ingest(name, batch)
        world.turn()
    return taken


def as_table(rows):
    """Lay out what a stream has sent for DuckDB: number, key, time, and a column for each predicate."""
    return pa.table(
        {
            "id": [row.id for row in rows],
            "k": pa.array([row.key for row in rows], pa.int64()),
            "t": pa.array([row.time for row in rows], pa.int64()),
            **{each: [each in row.holds for row in rows] for each in PREDICATES},
        }
    )


def test_the_results_are_those_of_duckdb():
    """An engine that shares no code with ours, on the same rows and the conditions as SQL."""
    source = random.Random(7)
    with folders() as folder:
        world = World(folder / "state", in_folder(WORKLOAD, folder), lateness=1000)
        taken = feed(world, source, "ABC", 8)
        with duckdb.connect() as connection:
            for name, listed in taken.items():
                connection.register(name, as_table(listed))
            for one in world.plan.queries:
                conditions = [f"r.t - l.t >= {one.window.lo}", f"r.t - l.t < {one.window.hi}"]
                conditions += ["l.k = r.k"] if one.keys else []
                conditions += [f"l.{each}" for each in one.left_predicates]
                conditions += [f"r.{each}" for each in one.right_predicates]
                sql = f"SELECT l.id, r.id FROM {one.left} l, {one.right} r WHERE {' AND '.join(conditions)}"
                expected = sorted(connection.execute(sql).fetchall())
                assert expected, "there is something to find"
                assert world.ledger.query(one.name).results == len(expected)
                if one.sink.kind != "noop":
                    assert sorted(world.results(one).elements()) == expected


def test_a_hundred_queries_get_their_own_results_from_one_chain():
    """More queries than a word has bits, with windows and predicates of their own."""
    source = random.Random(3)
    queries = [
        query(
            f"q{n}",
            Range.window(1 + 3 * (n % 40), 1 + n),
            left=PREDICATES[: n % 3],
            right=PREDICATES[n % 4 :][:1],
        )
        for n in range(100)
    ]
    with folders() as folder:
        world = World(folder / "state", queries, lateness=30)
        for name, batch in zip("ABABABAB", random_batches(source, 8, 12, step=4, keys=3), strict=True):
            world.ingest(name, batch)
            world.turn()
            world.check_state()
        world.check_results()
        assert len({world.ledger.query(each.name).results for each in queries}) > 30


# --- scenarios: one edge each --------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(publication, "open_files", lambda url, **_: open_files(url, sync=False))
    return tmp_path / "state"


def row(number, time, key=7, holds=()):
    return Row(number, key, time, frozenset(holds))


def pairs(world, name="q"):
    return sorted(world.results(next(each for each in world.plan.queries if each.name == name)).elements())


@pytest.mark.parametrize(("apart", "found"), [(0, True), (9, True), (10, False)])
@pytest.mark.parametrize("first", ["A", "B"])
def test_rows_meet_up_to_the_last_instant_of_the_window_whichever_comes_first(state, apart, found, first):
    """::

    T      100        109 110        WINDOW 10: the last partner is at 109
           |-----------|  x
    """
    world = World(state, [query("q", Range.window(10, 10))])
    second = "B" if first == "A" else "A"
    world.ingest(first, [row(1, 100)])
    world.turn()
    world.ingest(second, [row(2, 100 + apart)])
    world.turn()
    assert bool(pairs(world)) == found


def test_a_partner_on_the_cut_survives_the_purge_of_its_own_batch(state):
    """::

        A   a@0
        B              b@9 (same batch as b@50, which moves B's watermark to 50)
            |- WINDOW 10 -|

    The watermark of a batch must not purge what rows of that very batch still need.
    """
    world = World(state, [query("q", Range.window(10, 10))])
    world.ingest("A", [row(1, 0)])
    world.turn()
    world.ingest("B", [row(2, 9), row(3, 50)])
    world.turn()
    assert pairs(world) == [(1, 2)]
    assert world.ledger.segments(world.plan.logs[0].id) == (), "and then the row is gone"


def test_rows_wait_for_a_batch_that_is_ingested_and_not_joined(state):
    """The log's claims go by what was joined: B's newer batch may not purge the partner of B's older one."""
    world = World(state, [query("q", Range.window(10, 10)), query("z", Range.window(1, 1), streams="AC")])
    world.ingest("A", [row(1, 0)])
    world.turn()
    world.ingest("B", [row(2, 5)])
    world.ingest("C", [row(9, 1000)])
    world.advance(world.plan.groups[1])
    world.ingest("B", [row(3, 1000)])
    world.advance(world.plan.groups[1])
    world.turn()
    assert pairs(world) == [(1, 2)]


def test_a_late_row_is_counted_and_joins_nothing_and_one_just_in_time_does(state):
    """::

    A    watermark 100 - 20 = 80:   a@79 is late     a@80 is not
    B    b@79 b@80, and B's rows are kept while an a@80 may come
    """
    world = World(state, [query("q", Range.window(1, 1))], lateness=20)
    world.ingest("A", [row(1, 100)])
    world.ingest("B", [row(10, 79), row(11, 80)])
    world.turn()
    world.ingest("A", [row(2, 79), row(3, 80)])
    world.turn()
    assert pairs(world) == [(3, 11)]
    assert world.ledger.stream("A").late == 1


def test_rows_without_key_or_time_join_nothing_and_are_counted(state):
    world = World(state, [query("q", Range.window(10, 10))])
    world.ingest("A", [row(1, None), row(2, 5, key=None), row(3, None, key=None), row(4, 5)])
    world.ingest("B", [row(5, 5), row(6, 5, key=None)])
    world.turn()
    assert pairs(world) == [(4, 5)]
    counted = world.ledger.stream("A")
    assert (counted.rows, counted.no_time, counted.no_key, counted.late) == (4, 2, 1, 0)


def test_a_batch_without_rows_is_a_batch(state):
    world = World(state, [query("q", Range.window(10, 10))])
    world.ingest("A", [])
    world.turn()
    world.ingest("A", [row(1, 0)])
    world.ingest("B", [row(2, 0)])
    world.turn()
    assert pairs(world) == [(1, 2)]
    assert world.ledger.stream("A").batches == 2


def test_a_row_meets_itself_in_a_self_join_only_where_the_window_has_zero(state):
    queries = [query("q", Range(0, 10), streams="AA"), query("later", Range(1, 10), streams="AA")]
    world = World(state, queries)
    world.ingest("A", [row(1, 0), row(2, 4)])
    world.turn()
    assert pairs(world) == [(1, 1), (1, 2), (2, 2)]
    assert pairs(world, "later") == [(1, 2)]


def test_keys_never_seen_again_are_let_go_with_the_rest(state):
    """A thousand keys seen once; then one other key, a window later: nothing is left of the thousand."""
    world = World(state, [query("q", Range.window(10, 10))])
    for name in "AB":
        world.ingest(name, [row(number, 0, key=number) for number in range(1000)])
    world.turn()
    world.ingest("A", [row(5000, 100, key=-1)])
    world.ingest("B", [row(5001, 100, key=-1)])
    world.turn()
    assert sum(each.rows for log in world.plan.logs for each in world.ledger.segments(log.id)) == 2
    assert world.ledger.query("q").results == 1001


def test_a_row_no_query_wants_is_never_stored(state):
    world = World(state, [query("q", Range.window(10, 10), left=["p0"])])
    world.ingest("A", [row(1, 0), row(2, 0, holds=["p0"])])
    (segment,) = world.ledger.segments(world.plan.groups[0].logs[0].id)
    assert segment.rows == 1
    assert world.ledger.stream("A").unwanted == 1


def test_a_row_only_the_short_query_wants_goes_before_the_others(state):
    """Selection pushed into the chain: a@0 satisfies q1 only, a@1 satisfies q2 too.

    ::

        q1 WINDOW 10            |==========|
        q2 WINDOW 100, p0       |===========================================|
        a@0                     |----------x  gone at 10
        a@1 (p0)                |------------------------------------------ x
    """
    world = World(
        state, [query("q1", Range.window(10, 10)), query("q2", Range.window(100, 100), left=["p0"])]
    )
    world.ingest("A", [row(1, 0), row(2, 1, holds=["p0"])])
    world.ingest("B", [row(3, 50, key=1)])
    world.turn()
    (segment,) = world.ledger.segments(world.plan.groups[0].logs[0].id)
    assert segment.rows == 1
    world.check_state()


def test_a_querys_own_files_hold_its_window_and_not_its_neighbours(tmp_path, state):
    """Without predicates it is the level alone that says whose a pair is; three windows, nested and overlapping.

    ::

        d        -20        -5    0    5      10         20
        narrow               |=========|
        early     |====================|
        late                      |=============|
    """
    windows = {"narrow": Range(-5, 5), "early": Range(-20, 5), "late": Range(0, 10)}
    queries = [
        query(name, each, sink=Sink("parquet", (("path", str(tmp_path / name)),)))
        for name, each in windows.items()
    ]
    world = World(state, queries)
    world.ingest("A", [row(0, 0)])
    world.ingest("B", [row(100 + apart, apart) for apart in range(-25, 25)])
    world.turn()
    for name, window in windows.items():
        assert pairs(world, name) == [(0, 100 + apart) for apart in range(window.lo, window.hi)]
    world.check_results()
