"""What DuckDB is asked about joins of many streams is what their text says, by nested loops over the same rows."""

import datetime as dt
from collections import Counter
from dataclasses import replace
from itertools import product

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.plan.spark_settings import SparkSettings
from penstock.sql.bind.binder import bind_query
from penstock.sql.query import Column, Range, Stream
from penstock.testing.question import TIME, Question, table_of

S = 1_000_000
NAMES = ("Ash", "Birch", "Cedar")
COLUMNS = (Column("id", "int"), Column("k", "int"), Column("j", "int"), Column("ts", "timestamp"))
STREAMS = {name: Stream(name, COLUMNS, "ts") for name in NAMES}
CONNECTION = duckdb.connect()
CONNECTION.execute("SET TimeZone = 'UTC'")
CONNECTION.execute("SET threads = 1")

small = st.integers(0, 2) | st.none()
rows = st.lists(st.tuples(small, small, st.integers(0, 12)), max_size=6)


class Join:
    """A random join of many: the text of a query, and whether rows of its aliases are one of its results."""

    def __init__(self, draw):
        """Draw streams, a connected graph of equalities, further conditions, and windows."""
        self.draw = draw
        self.count = draw(st.integers(3, 4))
        self.streams = draw(st.lists(st.sampled_from(NAMES), min_size=self.count, max_size=self.count))
        self.rows = {name: [(n, *row) for n, row in enumerate(draw(rows))] for name in NAMES}
        self.conditions = []
        """Each as its text, the last alias it names, and a function of the rows and their times (seconds)."""
        for second in range(1, self.count):
            self._equal(draw(st.integers(0, second - 1)), second)
        for kind in draw(
            st.lists(st.sampled_from((self._equal, self._less, self._within, self._above)), max_size=2)
        ):
            first, second = sorted(
                draw(st.lists(st.integers(0, self.count - 1), min_size=2, max_size=2, unique=True))
            )
            kind(first, second)
        self.windows, self.tail = self._windows()

    def _add(self, text, last, holds):
        self.conditions.append((text, last, holds))

    def _equal(self, first, second):
        a, b = self.draw(st.sampled_from(("k", "j"))), self.draw(st.sampled_from(("k", "j")))
        x, y = ({"k": 1, "j": 2}[each] for each in (a, b))
        self._add(
            f"t{second}.{b} = t{first}.{a}",
            second,
            lambda r: r[first][x] is not None and r[first][x] == r[second][y],
        )

    def _less(self, first, second):
        self._add(
            f"t{first}.j < t{second}.k",
            second,
            lambda r: None not in {r[first][2], r[second][1]} and r[first][2] < r[second][1],
        )

    def _within(self, first, second):
        lo, length = self.draw(st.integers(-6, 3)), self.draw(st.integers(0, 6))
        ends = (f"t{first}.ts + INTERVAL {end} SECONDS" for end in (lo, lo + length))
        self._add(
            f"t{second}.ts BETWEEN {next(ends)} AND {next(ends)}",
            second,
            lambda r: lo <= r[second][3] - r[first][3] <= lo + length,
        )

    def _above(self, first, _):
        self._add(f"t{first}.k > 0", first, lambda r: r[first][1] is not None and r[first][1] > 0)

    def _windows(self):
        """Draw the window of each stream, as (kind, length), and what stands at the end."""
        window = st.tuples(st.sampled_from(("RANGE", "RANGE", "ROWS")), st.integers(1, 8))
        if self.draw(st.booleans()):
            kind, length = self.draw(window)
            return [(kind, length)] * self.count, f"WINDOW {length} {'s' if kind == 'RANGE' else 'ROWS'}"
        return self.draw(st.lists(window, min_size=self.count, max_size=self.count)), ""

    @property
    def slides(self):
        """Say whether all windows are lengths of time."""
        return all(kind == "RANGE" for kind, _ in self.windows)

    def text(self, select, tail=""):
        """Write the query, with commas and WHERE or with joins and ON."""
        tables = []
        for number, (stream, (kind, length)) in enumerate(zip(self.streams, self.windows, strict=True)):
            window = "" if self.tail else f"[{kind} {length}{' s' * (kind == 'RANGE')}]"
            tables.append(f"{stream} t{number} {window}")
        if self.draw(st.booleans()):
            where = " AND ".join(text for text, *_ in self.conditions)
            return f"SELECT {select} FROM {', '.join(tables)} WHERE {where} {tail} {self.tail}"
        joined = tables[0]
        for number, table in enumerate(tables[1:], 1):
            own = [text for text, last, _ in self.conditions if max(last, 1) == number]
            joined += f" JOIN {table} ON {' AND '.join(own)}"
        return f"SELECT {select} FROM {joined} {tail} {self.tail}"

    def results(self):
        """Give every result: a row of each alias."""
        every = product(*(self.rows[name] for name in self.streams))
        return [
            each
            for each in every
            if self._in_window(each) and all(holds(each) for *_, holds in self.conditions)
        ]

    def _in_window(self, result):
        newest = max(row[3] for row in result)
        return all(
            newest - row[3] < length if kind == "RANGE" else self._came(stream, row[3], newest) < length
            for row, stream, (kind, length) in zip(result, self.streams, self.windows, strict=True)
        )

    def _came(self, stream, after, until):
        return sum(after < row[3] <= until for row in self.rows[stream])

    def ask(self, text, question):
        """Let DuckDB answer the query with this text."""
        query = bind_query("q", text, STREAMS)
        asked = Question(query, tuple(STREAMS[name] for name in query.streams), SparkSettings())
        for side, stream in zip(query.sides, query.streams, strict=True):
            CONNECTION.register(table_of(side), self._table(stream))
        return CONNECTION.execute(question(asked)).fetchall()

    def _table(self, stream):
        columns = list(zip(*self.rows[stream], strict=True)) or [()] * len(COLUMNS)
        table = {
            each.name: pa.array(values, pa.int32())
            for each, values in zip(COLUMNS[:3], columns, strict=False)
        }
        times = pa.array([S * each for each in columns[3]], pa.int64())
        return pa.table({**table, "ts": times.cast(pa.timestamp("us")), TIME: times})


joins = st.composite(Join)()


@settings(max_examples=50)
@given(joins)
def test_results_are_those_of_nested_loops(join):
    select = ", ".join(f"t{number}.id AS c{number}" for number in range(join.count))
    got = join.ask(join.text(select), Question.results)
    expected = Counter(tuple(row[0] for row in result) for result in join.results())
    assert Counter(got) == expected


@settings(max_examples=20)
@given(joins.filter(lambda join: join.slides), st.integers(1, 3))
def test_sliding_answers_are_those_of_nested_loops(join, every):
    every = min(every, *(length for _, length in join.windows))
    text = join.text("t1.k, COUNT(*) AS n, SUM(t2.id) AS s", "GROUP BY t1.k")
    got = join.ask(f"{text} EVERY {every} s", Question.answers)
    answers = [(instant.replace(tzinfo=dt.UTC).timestamp(), *values) for _, _, instant, *values in got]
    last = max((row[3] for name in join.streams for row in join.rows[name]), default=-1)
    expected = {}
    for instant, result in product(range(0, last + 1, every), join.results()):
        reach = zip(result, join.windows, strict=True)
        if all(instant - length < row[3] <= instant for row, (_, length) in reach):
            count, total = expected.get((instant, result[1][1]), (0, 0))
            expected[instant, result[1][1]] = count + 1, total + result[2][0]
    assert Counter(answers) == Counter((*key, *values) for key, values in expected.items())


@settings(max_examples=20)
@given(joins)
def test_results_of_late_comers_are_those_of_rows_from_then_on(join):
    select = ", ".join(f"t{number}.id AS c{number}" for number in range(join.count))
    got = join.ask(join.text(select), lambda question: question.results(5 * S))
    expected = [result for result in join.results() if min(row[3] for row in result) >= 5]
    assert Counter(got) == Counter(tuple(row[0] for row in result) for result in expected)


CONDITIONS = {
    "b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS": lambda d: 0 <= d <= 5,
    "a.ts - INTERVAL '00:03' MINUTE TO SECOND <= b.ts AND NOT b.ts - a.ts > INTERVAL '2' SECOND": lambda d: (
        -3 <= d <= 2
    ),
    "abs(unix_seconds(a.ts) - unix_seconds(b.ts)) < 3": lambda d: abs(d) < 3,
    "timestampdiff(MICROSECOND, a.ts, b.ts) BETWEEN -1000000 AND 0": lambda d: -1 <= d <= 0,
    "b.ts >= a.ts WINDOW 4 s": lambda d: 0 <= d < 4,
    "datediff(MICROSECOND, a.ts, b.ts) = 2000000": lambda d: d == 2,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_on_times_are_asked_as_they_are_written(condition):
    """The plan's window is wrong here, and what is asked is right: a mistake of the plan is found."""
    times = range(12)
    query = bind_query(
        "q", f"SELECT a.id AS x, b.id AS y FROM Ash a, Birch b WHERE a.k = b.k AND {condition}", STREAMS
    )
    known = not condition.startswith("datediff")  # of what is not known, the plan's window is asked
    asked = Question(
        replace(query, window=Range(0, 1)) if known else query,
        (STREAMS["Ash"], STREAMS["Birch"]),
        SparkSettings(),
    )
    moments = pa.array([S * each for each in times], pa.int64())
    ones = pa.array([1] * 12, pa.int32())
    table = pa.table({"id": pa.array(times, pa.int32()), "k": ones, "j": ones})
    table = table.append_column("ts", moments.cast(pa.timestamp("us"))).append_column(TIME, moments)
    for side in query.sides:
        CONNECTION.register(table_of(side), table)
    expected = {(a, b) for a in times for b in times if CONDITIONS[condition](b - a)}
    assert set(CONNECTION.execute(asked.results()).fetchall()) == expected


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("b.d - a.d <= INTERVAL 2 DAYS AND b.d >= a.d", lambda d: 0 <= d <= 2),
        ("b.d BETWEEN a.d - INTERVAL 36 HOURS AND a.d + INTERVAL 1 DAY", lambda d: -1 <= d <= 1),
        ("INTERVAL '1' DAY >= (a.d) - b.d AND b.d <= a.d", lambda d: -1 <= d <= 0),
        ("NOT b.d - a.d > INTERVAL 2 DAYS AND b.d > a.d", lambda d: 0 < d <= 2),
    ],
)
def test_conditions_on_days_are_asked_as_they_are_written(condition, holds):
    """A difference of dates is an interval in Spark, and a number in DuckDB."""
    days = (Column("k", "int"), Column("d", "date"))
    streams = {name: Stream(name, days, "d") for name in ("Ash", "Birch")}
    text = f"SELECT a.d AS x, b.d AS y FROM Ash a, Birch b WHERE a.k = b.k AND {condition}"
    query = replace(bind_query("q", text, streams), window=Range(0, 1))
    dates = [dt.date(2026, 2, 25) + dt.timedelta(days=each) for each in range(8)]
    moments = pa.array([each * 86_400 * S for each in range(8)], pa.int64())
    for side in query.sides:
        CONNECTION.register(table_of(side), pa.table({"k": [1] * 8, "d": dates, TIME: moments}))
    got = CONNECTION.execute(Question(query, tuple(streams.values()), SparkSettings()).results()).fetchall()
    assert set(got) == {(a, b) for a in dates for b in dates if holds((b - a).days)}
