"""Aggregates on Spark: through every sink, in Spark's own types, over restarts, and online."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from random import Random

import pytest

from penstock.cli.look import State
from penstock.cli.main import main
from penstock.engine.api import Engine
from penstock.engine.sinks.callback import callback
from penstock.engine.sinks.noop import noop
from penstock.engine.sinks.parquet import parquet
from penstock.engine.stages.unit_planner import passes_spark
from penstock.errors import InputError
from tests.answers import SECOND, Asked, applied, bag, chosen, judged, micros, same
from tests.oracle import ARROW, Feed, ask, parquet_rows

pytestmark = pytest.mark.spark

START = 1_767_261_600 * SECOND
COLUMNS = {
    "k": "bigint", "g": "string", "v": "int", "d": "double", "amount": "decimal(10,2)", "day": "date",
    "ts": "timestamp",
}  # fmt: skip
LATENESS = SECOND


def random_rows(random, first, count=40):
    """Make rows of about ten seconds, a little out of order."""
    return [
        {
            "k": random.choice((1, 2, 3, None)),
            "g": random.choice(("x", "y", None)),
            "v": random.choice((1, 2, 5, -7, None)),
            "d": random.choice((1.5, -2.25, 0.0, None)),
            "amount": random.choice((Decimal("1.25"), Decimal("-0.01"), Decimal("99999999.99"), None)),
            "day": random.choice((dt.date(2026, 1, 1), None)),
            "ts": dt.datetime.fromtimestamp((START + first) / 1e6, dt.UTC)
            + dt.timedelta(milliseconds=250 * (place - random.choice((0, 0, 2, 4)))),
        }
        for place in range(count)
    ]


class Streams:
    """Two feeds that grow by a batch at a time."""

    def __init__(self, folder, seed=1):
        one = {"maxFilesPerTrigger": "1"}
        self.feeds = [Feed(name, folder / name, COLUMNS, LATENESS, options=one) for name in "AB"]
        self.random, self.batch, self.state = Random(seed), 0, folder / "state"

    def grow(self, times=1):
        for _ in range(times):
            for feed in self.feeds:
                feed.append(random_rows(self.random, 10 * self.batch * SECOND))
            self.batch += 1

    def declared(self):
        return "\n".join(feed.declare() for feed in self.feeds)

    def tables(self):
        return {feed.name: ask(f"SELECT * FROM {feed.relation()}") for feed in self.feeds}


@pytest.fixture
def streams(tmp_path):
    made = Streams(tmp_path)
    made.grow(3)
    return made


def _named(name, measure):
    text, asked = measure
    return text, name, asked


def _tied(function, x, y):
    """Write MIN_BY or MAX_BY, and how Spark is made to choose among equal y as Penstock does."""
    is_last = "IS NULL" if function == "MIN_BY" else "IS NOT NULL"
    return (
        f"{function}({x}, {y})",
        f"{function}({x}, struct({y}, {x} {is_last}, {x})) FILTER (WHERE {y} IS NOT NULL)",
    )


WINDOW = (5 * SECOND,) * 2
GROUP = (("A.g", "g"),)
MEASURES = (
    ("COUNT(*)", "n"), ("SUM(B.v)", "s"), ("MAX(A.d)", "m"), ("COUNT(DISTINCT B.v)", "c"), ("SUM(A.amount)", "total"),
    _named("b", chosen("MAX_BY", "B.g", "A.d")),
)  # fmt: skip
SLIDING = Asked("slides", GROUP, MEASURES, WINDOW)
WIDER = Asked("wider", GROUP, MEASURES, (9 * SECOND,) * 2, 2 * SECOND, where=("B.v > 0",))
COMPUTED = Asked(
    "computed",
    (("upper(A.g)", "g"), ("A.v % 2", "odd")),
    (("SUM(A.v + B.v) * 2", "s"), ("concat(MAX(B.g), '!')", "t", "MAX(B.g) || '!'"), ("COUNT(*)", "n")),
    WINDOW,
    having="COUNT(*) > 2 AND upper(MAX(B.g)) <> 'Z'",
)
FINAL = Asked("ends", (("date_trunc('second', A.ts)", "t"), *GROUP), MEASURES, WINDOW, emit="final")
CHANGES = Asked("moves", GROUP, MEASURES, WINDOW, having="COUNT(*) < 400", emit="changes")
CALLED = replace(SLIDING, name="called")
COUNTED = replace(WIDER, name="counted")
ALL = (SLIDING, WIDER, COMPUTED, FINAL, CHANGES, CALLED, COUNTED)


def opened(spark, streams, called, queries=ALL):
    engine = Engine(streams.state, spark)
    engine.script(streams.declared())

    def take(rows, unit):
        called[unit] = rows.toArrow().to_pylist()

    sinks = {"wider": parquet(streams.state.parent / "wider"), "called": callback(take), "counted": noop(),
             "moves": parquet(streams.state.parent / "moves")}  # fmt: skip
    for each in queries:
        emit = {} if each.emit == "sliding" else {"emit": each.emit}
        engine.query(each.name, each.select(), sink=sinks.get(each.name), **emit)
    return engine


def once(engine):
    engine.start(once=True)
    engine.wait()


def test_answers_that_wait_for_the_end_come_when_somebody_asks_for_what_is_there(spark, streams):
    """All is read and joined, and the joiner sleeps; nobody has called `wait`."""
    with opened(spark, streams, {}, (SLIDING,)) as engine:
        engine.start(once=True)
        for each in engine._running.ingesters:
            each.query.awaitTermination()
        engine._running.joiner.drain()
        asking = threading.Thread(target=engine.process_available, daemon=True)
        asking.start()
        asking.join(60)
        assert not asking.is_alive()
        before = bag(engine.results("slides").toArrow().to_pylist())
        assert before
        engine.wait()
        judge = judged(SLIDING, streams.tables())
        assert before <= judge
        same(bag(engine.results("slides").toArrow().to_pylist()), judge, "end")


def test_every_way_to_answer_through_every_sink_over_a_restart_and_with_pairs(spark, streams, tmp_path):
    """Two thirds of the input to its end, then the rest: instants are answered over all rows, and once each."""
    called = {}
    with opened(spark, streams, called) as engine:
        engine.query("pairs", "SELECT A.v, B.v AS w FROM A, B WHERE A.k = B.k WINDOW 2 seconds")
        engine.start()
        engine.process_available()
        rows = {each.name: bag(engine.results(each.name).toArrow().to_pylist()) for each in (SLIDING, FINAL)}
        assert rows["slides"], "answers come before the input ends"
    streams.grow(1)
    with opened(spark, streams, called) as engine:
        engine.query("pairs", "SELECT A.v, B.v AS w FROM A, B WHERE A.k = B.k WINDOW 2 seconds")
        once(engine)
        tables = streams.tables()
        for each in (SLIDING, WIDER, COMPUTED, FINAL):
            same(bag(engine.results(each.name).toArrow().to_pylist()), judged(each, tables), each.name)
        assert rows["slides"] <= judged(SLIDING, tables)
        assert rows["ends"] <= judged(FINAL, tables)
        state = bag(engine.results("moves").toArrow().to_pylist())
        same(state, judged(CHANGES, tables), "the latest state")
        counts = {each.name: each.results for each in engine.status().queries}
    moved = parquet_rows(tmp_path / "moves").to_pylist()
    assert Counter(applied(moved, 1).values()) == state
    same(bag(parquet_rows(tmp_path / "wider").to_pylist()), judged(WIDER, tables), "the sink of wider")
    same(sum((bag(each) for each in called.values()), Counter()), judged(CALLED, tables), "the callback")
    assert counts["counted"] == judged(COUNTED, tables).total()
    assert counts["moves"] == len(moved)
    groups, look = state.total(), State.open(str(streams.state))
    assert 0 < look.count("MOVES") == groups < len(moved), "rows of the latest state, and not changes"
    for limit, shown in ((0, 0), (groups, groups), (None, groups)):
        found = look.results("moves", limit)
        assert (found.rows.num_rows, found.total) == (shown, groups)


ONE_ROW = (
    ("COUNT(*)", "n"), ("SUM(B.v)", "s"), ("MAX(A.d)", "m"), ("SUM(A.amount)", "total"), ("AVG(B.v)", "middle"),
    ("MIN(B.g)", "t"), ("MAX(A.day)", "day"), _named("f", chosen("MIN_BY", "A.g", "A.amount")),
)  # fmt: skip
BY_KEY = Asked("slides", (("A.k", "k"),), ONE_ROW, WINDOW)
BY_TEXT = replace(BY_KEY, name="wider", keys=(("B.g", "g"),), join=("A.g = B.g",), where=("B.v > 0",))
BY_BOTH = replace(
    BY_KEY,
    name="computed",
    keys=(("A.k", "k"), ("B.day", "d")),
    measures=(
        ("SUM(A.v) * 2", "s"),
        ("concat(MAX(B.g), '!')", "t", "MAX(B.g) || '!'"),
        _named("v", chosen("MAX_BY", "A.v", "A.d")),
    ),
    join=("A.k = B.k", "A.day = B.day"),
    having="COUNT(*) > 2",
)
KEY_CALLED, KEY_COUNTED = (replace(BY_KEY, name=name, where=("A.v > 0",)) for name in ("called", "counted"))


@pytest.mark.parametrize("is_by_key", [True, False])
def test_rows_are_folded_in_tasks_and_answers_are_duckdbs(spark, streams, tmp_path, is_by_key):
    """By keys or by a column, through every sink, over a restart, beside a query that wants the pairs."""
    called, queries = {}, (BY_KEY, BY_TEXT, BY_BOTH, KEY_CALLED, KEY_COUNTED)
    if not is_by_key:
        queries = [replace(each, keys=(("B.day", "of"),)) for each in queries]
    slides, wider, computed, handed, counted = queries
    pairs = "SELECT A.v, B.v AS w FROM A, B WHERE A.k = B.k WINDOW 2 seconds"
    with opened(spark, streams, called, queries) as engine:
        engine.query("pairs", pairs)
        assert engine.explain().count("of the rows of either side") == 3
        assert engine.explain().count("folded by the join's key first") == (0 if is_by_key else 3)
        engine.start()
        engine.process_available()
        assert engine.results("slides").count(), "answers come before the input ends"
    streams.grow(1)
    with opened(spark, streams, called, queries) as engine:
        engine.query("pairs", pairs)
        once(engine)
        tables = streams.tables()
        for each in (slides, computed):
            same(bag(engine.results(each.name).toArrow().to_pylist()), judged(each, tables), each.name)
        counts = {each.name: each.results for each in engine.status().queries}
    same(bag(parquet_rows(tmp_path / "wider").to_pylist()), judged(wider, tables), "the sink of wider")
    same(sum((bag(each) for each in called.values()), Counter()), judged(handed, tables), "the callback")
    assert counts["counted"] == judged(counted, tables).total()
    assert counts["pairs"]


@pytest.mark.parametrize("emit", ["sliding", "changes"])
def test_types_and_values_are_those_of_sparks_own_aggregates(spark, streams, emit):
    """One window over all rows: what a batch query of Spark's gives, to the type of every column."""
    length = 3600 * SECOND
    measures = (
        ("AVG(A.amount)", "avg_decimal"), ("SUM(A.amount)", "sum_decimal"), ("SUM(DISTINCT A.amount)", "sum_distinct"),
        ("AVG(A.v)", "avg_int"), ("SUM(A.v)", "sum_int"), ("SUM(A.d)", "sum_double"), ("AVG(A.d)", "avg_double"),
        ("STDDEV(A.v)", "sd"), ("VAR_POP(A.d)", "vp"), ("MIN(A.day)", "min_date"), ("MAX(A.ts)", "max_ts"),
        ("MIN(B.g)", "min_text"), ("MAX(A.amount)", "max_decimal"), ("COUNT(DISTINCT A.v, B.g)", "cd"),
        ("AVG(A.amount * B.amount)", "avg_product"), ("MAX(named_struct('a', A.v).a)", "field"),
        ("AVG(A.ts - B.ts)", "avg_interval"), ("SUM(A.ts - B.ts)", "sum_interval"), ("BOOL_OR(A.v > 2)", "any_of"),
        ("MAX(CAST(A.d AS FLOAT))", "max_float"), ("SUM(CAST(A.v AS TINYINT))", "sum_tiny"),
        _named("last_text", _tied("MAX_BY", "A.g", "A.ts")), _named("by_int", _tied("MIN_BY", "B.amount", "B.v")),
        _named("by_double", _tied("MAX_BY", "A.v + B.v", "A.d")),
        _named("nested", (f"to_json({each})" for each in _tied("MAX_BY", "array(A.v)", "A.day"))),
    )  # fmt: skip
    asked = Asked("q", GROUP, measures, (2 * length,) * 2, length, emit=emit)  # from before the first row on
    with opened(spark, streams, {}, [asked]) as engine:
        if emit == "sliding":  # one row beyond the instant, so that it is answered
            for feed in streams.feeds:
                feed.append([dict.fromkeys(COLUMNS) | {"ts": dt.datetime(2026, 1, 1, 12, 30, tzinfo=dt.UTC)}])
        once(engine)
        got = engine.results("q")
        if emit == "sliding":
            got = got.where("window_end = timestamp'2026-01-01 11:00:00Z'").drop("window_end")
        for feed in streams.feeds:
            spark.read.parquet(str(feed.folder)).createOrReplaceTempView(feed.name)
        texts = ", ".join(
            f"{text[-1] if text else said} AS {name}" for said, name, *text in (*GROUP, *measures)
        )
        right = spark.sql(f"SELECT {texts} FROM A JOIN B ON A.k = B.k GROUP BY A.g")
        assert [(f.name, f.dataType) for f in got.schema] == [(f.name, f.dataType) for f in right.schema]
        same(bag(map(_row, got.collect())), bag(map(_row, right.collect())), emit)


def test_remainders_are_those_of_spark_and_no_pair_passes_it(spark, streams):
    """Whole numbers of every type, of both signs and missing, grouped by what is left of them."""
    keys = (("A.v % 3", "a"), ("pmod(B.v, 4)", "b"), ("mod(A.k, 2L)", "c"))
    measures = (("COUNT(*)", "n"), ("SUM(B.k % 2)", "s"))
    length = 3600 * SECOND
    asked = Asked("q", keys, measures, (2 * length,) * 2, length, emit="changes")
    with opened(spark, streams, {}, [asked]) as engine:
        once(engine)
        assert not passes_spark(engine.plan.groups[0])
        got = engine.results("q")
        for feed in streams.feeds:
            spark.read.parquet(str(feed.folder)).createOrReplaceTempView(feed.name)
        chosen = ", ".join(f"{text} AS {name}" for text, name in (*keys, *measures))
        groups = ", ".join(text for text, _ in keys)
        right = spark.sql(f"SELECT {chosen} FROM A JOIN B ON A.k = B.k GROUP BY {groups}")
        assert [(f.name, f.dataType) for f in got.schema] == [(f.name, f.dataType) for f in right.schema]
        same(bag(map(_row, got.collect())), bag(map(_row, right.collect())), "remainders")


def _row(row):
    return row.asDict()


def test_buckets_of_windows_and_expressions_that_only_spark_knows(spark, streams):
    bucket = "window(A.ts, '10 seconds')"
    text = (
        f"SELECT {bucket} AS w, {bucket}.end AS e, sha2(max(B.g), 256) AS h, COUNT(*) AS n, "
        f"round(stddev(A.d), 2) AS r FROM A, B WHERE A.k = B.k GROUP BY {bucket} "
        "HAVING length(sha2(max(B.g), 256)) > 3 WINDOW 5 seconds"
    )
    with opened(spark, streams, {}, []) as engine:
        engine.query("q", text, emit="final")
        once(engine)
        got = engine.results("q")
        for feed in streams.feeds:
            spark.read.parquet(str(feed.folder)).createOrReplaceTempView(feed.name)
        near = "abs(unix_micros(A.ts) - unix_micros(B.ts)) < 5000000"
        right = spark.sql(
            f"SELECT {bucket} AS w, {bucket}.end AS e, sha2(max(B.g), 256) AS h, COUNT(*) AS n, "
            f"round(stddev(A.d), 2) AS r FROM A JOIN B ON A.k = B.k AND {near} GROUP BY {bucket}"
        )
        assert [(f.name, f.dataType) for f in got.schema] == [(f.name, f.dataType) for f in right.schema]
        assert sorted(map(str, got.collect())) == sorted(map(str, right.collect()))


def test_a_query_that_comes_while_others_run_answers_from_what_is_held(spark, streams):
    late = replace(SLIDING, name="late", windows=(3 * SECOND,) * 2)
    with opened(spark, streams, {}, [SLIDING]) as engine:
        engine.start()
        engine.process_available()
        added = engine.query(late.name, late.select())
        streams.grow(2)
        engine.process_available()
        since = added.complete_from
        assert since is not None
        first = micros(since) + max(late.windows) - 1 if isinstance(since, dt.datetime) else since
        engine.stop()
    with opened(spark, streams, {}, [SLIDING, late]) as engine:
        once(engine)
        got = engine.results("late").toArrow().to_pylist()
        mine = [row for row in got if micros(row["window_end"]) >= first]
        same(bag(mine), judged(late, streams.tables(), since=first), "late")
        assert mine
        same(bag(engine.results("slides").toArrow().to_pylist()), judged(SLIDING, streams.tables()), "slides")


# --- bad input --------------------------------------------------------------------------------------------------------


def test_groups_that_could_never_be_complete_are_refused_while_the_input_goes_on(spark, streams):
    asked = replace(FINAL, keys=GROUP)
    with (
        opened(spark, streams, {}, [asked]) as engine,
        pytest.raises(InputError, match=r"never be complete.*--once"),
    ):
        engine.start()
    with opened(spark, streams, {}, [asked]) as engine:
        once(engine)
        same(bag(engine.results("ends").toArrow().to_pylist()), judged(asked, streams.tables()), "at the end")


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("map('a', A.v) AS m, COUNT(*)", "map"),
        ("array(A.v) AS m, COUNT(*)", "array<int>, which cannot be compared"),
        ("MAX(array(A.v)) AS s", "array<int>, which cannot be put in order"),
        ("MAX_BY(A.v, array(A.v)) AS s", "array<int>, which cannot be put in order"),
        ("COUNT(DISTINCT array(A.v)) AS s", "array<int>, which cannot be compared"),
        ("COUNT(*), A.v", "(?i)group"),
        ("SUM(A.day) AS s", "(?i)sum"),
    ],
)
def test_what_cannot_be_grouped_or_summed_is_refused_at_once(spark, streams, select, said):
    group = "GROUP BY 1" if " AS m, " in select else ""
    text = f"SELECT {select} FROM A, B WHERE A.k = B.k {group} WINDOW 5 seconds"
    with opened(spark, streams, {}, []) as engine, pytest.raises(InputError, match=said):
        _start(engine, text)


def _start(engine, text):
    engine.query("q", text)
    engine.start()


# --- the command line -------------------------------------------------------------------------------------------------

SURFACE = """
CREATE QUERY peaks WITH (sink = 'parquet', path = '{out}/peaks') AS
SELECT A.LocationId, MAX(A.Value) AS t, MAX(B.Value) AS h, COUNT(*) AS pairs
FROM Temperature A, Humidity B WHERE A.LocationId = B.LocationId
GROUP BY A.LocationId HAVING COUNT(*) > 3
WINDOW 1 hour EVERY 1 min;
CREATE QUERY hot WITH (sink = 'parquet', path = '{out}/hot') AS
SELECT COUNT(DISTINCT A.LocationId) AS places FROM Temperature A, Humidity B
WHERE A.LocationId = B.LocationId AND A.Value > 30 WINDOW 1 min EVERY 10 seconds;
CREATE QUERY hourly WITH (emit = 'final', sink = 'parquet', path = '{out}/hourly') AS
SELECT A.LocationId, date_trunc('hour', A.ts) AS hour, AVG(B.Value) AS h
FROM Temperature A, Humidity B WHERE A.LocationId = B.LocationId
GROUP BY A.LocationId, date_trunc('hour', A.ts) WINDOW 5 min;
CREATE QUERY latest WITH (emit = 'changes') AS
SELECT A.LocationId, COUNT(*) AS n FROM Temperature A, Humidity B WHERE A.LocationId = B.LocationId
GROUP BY A.LocationId WINDOW 5 min;
"""
KEYS = (("A.LocationId", "LocationId"),)
JOIN = ("A.LocationId = B.LocationId",)
MINUTE = 60 * SECOND
SURFACE_ASKED = {
    "peaks": Asked("peaks", KEYS, (("MAX(A.Value)", "t"), ("MAX(B.Value)", "h"), ("COUNT(*)", "pairs")),
                   (60 * MINUTE,) * 2, MINUTE, having="COUNT(*) > 3", join=JOIN),
    "hot": Asked("hot", (), (("COUNT(DISTINCT A.LocationId)", "places"),), (MINUTE,) * 2, 10 * SECOND,
                 ("A.Value > 30",), join=JOIN),
    "hourly": Asked("hourly", (*KEYS, ("date_trunc('hour', A.ts)", "hour")), (("AVG(B.Value)", "h"),),
                    (5 * MINUTE,) * 2, emit="final", join=JOIN),
}  # fmt: skip


def test_the_examples_of_the_surface_run_to_their_end(tmp_path, monkeypatch, capsys):
    random, columns = Random(7), {"LocationId": "bigint", "Value": "double", "ts": "timestamp"}
    feeds = [
        Feed(name, tmp_path / name, columns, 5 * SECOND, options={"maxFilesPerTrigger": "2"})
        for name in ("Temperature", "Humidity")
    ]
    for feed in feeds:
        rows = [
            {
                "LocationId": random.randrange(4),
                "Value": float(random.randrange(10, 40)),
                "ts": dt.datetime.fromtimestamp(START / 1e6 + 40 * place - random.choice((0, 0, 3)), dt.UTC),
            }
            for place in range(120)
        ]
        feed.append_cut(rows, [30, 60, 90])
    script = tmp_path / "surface.sql"
    script.write_text(
        "".join(feed.declare() for feed in feeds) + SURFACE.format(out=tmp_path / "out"), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["run", "surface.sql", "--state", "state", "--once"]) == 0
    tables = {alias: ask(f"SELECT * FROM {feed.relation()}") for alias, feed in zip("AB", feeds, strict=True)}
    for name, asked in SURFACE_ASKED.items():
        right = judged(asked, tables)
        assert right
        same(bag(parquet_rows(tmp_path / "out" / name).to_pylist()), right, name)
    assert parquet_rows(tmp_path / "out" / "peaks").column_names[0] == "window_end"
    assert parquet_rows(tmp_path / "out" / "hourly").schema.field("hour").type == ARROW["timestamp"]
    capsys.readouterr()
    assert main(["results", "latest", "--state", "state", "--format", "csv"]) == 0
    shown = capsys.readouterr().out.strip().splitlines()
    counts = judged(
        Asked("latest", KEYS, (("COUNT(*)", "n"),), (5 * MINUTE,) * 2, emit="changes", join=JOIN), tables
    )
    assert shown[0] == '"LocationId","n"'
    assert sorted(shown[1:]) == sorted(",".join(map(str, row)) for row in counts)
