"""Times mean what they mean to Spark's own join, also in a session that is not on UTC: the judge is Spark itself."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import pytest
from pyspark.sql.functions import expr

from penstock.engine.api import Engine
from penstock.errors import InputError
from penstock.plan.spark_settings import ANSI
from penstock.sql.zones import ZONE
from tests.oracle import put_file

pytestmark = pytest.mark.spark

OSLO = "Europe/Oslo"


@contextmanager
def session(spark, **settings):
    """Set up the session for a while; names have underscores for dots."""
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


class Streams:
    """Two streams whose event times have a type each, around the night in which Oslo's clocks are put back."""

    def __init__(self, root, left, right):
        self.root, self.kinds = root, {"A": left, "B": right}
        for name in "AB":
            (root / name).mkdir()

    def write(self, spark, number, hours=range(-30, 30, 3)):
        """Write a file of rows some hours and minutes around the change of the clocks."""
        for name, kind in self.kinds.items():
            shift = 7 if name == "B" else 0
            rows = [(hour, f"{hour * 60 + shift + 100 * number}") for hour in hours]
            made = spark.createDataFrame(rows, "id int, minute string").selectExpr(
                "id",
                "1L AS k",
                f"cast(timestampadd(MINUTE, cast(minute AS INT), TIMESTAMP'2024-10-27 02:30:00') AS {kind}) AS ts",
            )
            put_file(made.toArrow(), self.root / name / f"{number}.parquet", number)

    def declare(self):
        return "".join(
            f"CREATE STREAM {name} (id INT, k BIGINT, ts {kind}) "
            f"WITH (format = 'parquet', path = '{self.root}/{name}', time = 'ts', lateness = '9 days');"
            for name, kind in self.kinds.items()
        )

    def run(self, spark, *asked):
        """Run some queries and give the results of each."""
        with Engine(self.root / "state", spark) as engine:
            queries = "".join(f"CREATE QUERY q{number} AS {ask};" for number, ask in enumerate(asked))
            engine.script(self.declare() + queries)
            engine.start(once=True)
            engine.wait()
            return [bag(engine.results(f"q{number}")) for number in range(len(asked))]

    def batch(self, spark, condition):
        """Let Spark join the same files."""
        a, b = (
            spark.read.schema(f"id INT, k BIGINT, ts {self.kinds[name]}")
            .parquet(f"{self.root}/{name}")
            .alias(name)
            for name in "AB"
        )
        return bag(a.join(b, on=expr(condition)).selectExpr("A.id AS x", "B.id AS y"))


def bag(rows):
    return Counter(tuple(row) for row in rows.collect())


WINDOWS = [
    "B.ts >= A.ts AND B.ts <= A.ts + INTERVAL 5 HOURS",
    "B.ts > A.ts AND B.ts <= A.ts + INTERVAL 1 DAY",
    "B.ts BETWEEN A.ts - INTERVAL 24 HOURS AND A.ts + INTERVAL '1 12:00:00' DAY TO SECOND",
    "B.ts - A.ts BETWEEN INTERVAL '0' SECOND AND INTERVAL 6 HOURS",
    "B.ts < A.ts + (INTERVAL 12 HOURS + INTERVAL 12 HOURS) AND A.ts - INTERVAL 3 DAYS < B.ts",
    "B.ts + INTERVAL 23 HOURS + INTERVAL 30 MINUTES >= A.ts AND B.ts <= A.ts",
    "A.ts - B.ts < INTERVAL 90 MINUTES AND B.ts < A.ts + INTERVAL 26 HOURS",
    "timestampdiff(MINUTE, A.ts, B.ts) BETWEEN -70 AND 187",
    "timestampdiff(DAY, A.ts, B.ts) = 1",
    "datediff(HOUR, B.ts, A.ts) >= 0 AND datediff(HOUR, B.ts, A.ts) < 7",
    "NOT B.ts < A.ts AND NOT B.ts > A.ts + INTERVAL 1 DAY",
]
"""What Spark goes by the clock for, and what not."""
NUMBERS = [
    "CAST(B.ts AS LONG) - CAST(A.ts AS LONG) BETWEEN 0 AND 18000",
    "unix_timestamp(B.ts) - unix_timestamp(A.ts) <= 60 * 60 AND unix_millis(B.ts) >= unix_millis(A.ts) - 10800000",
    "abs((unix_seconds(A.ts) - unix_seconds(B.ts)) / 3600) <= 1.5",
]
"""What counts from 1970, and takes a TIMESTAMP."""
KINDS = [("timestamp",) * 2, ("timestamp_ntz",) * 2, ("date",) * 2, ("date", "timestamp_ntz")]
IN_UTC = [("timestamp", "timestamp_ntz"), ("date", "timestamp")]


@pytest.mark.parametrize(
    ("zone", "kinds"),
    [
        *((OSLO, kinds) for kinds in KINDS),
        *(("Australia/Lord_Howe", kinds) for kinds in (KINDS[0], KINDS[3])),
        *(("UTC", kinds) for kinds in IN_UTC),
        ("+05:30", KINDS[0]),
    ],
)
def test_windows_mean_the_same_as_to_spark_in_every_zone(spark, tmp_path, zone, kinds):
    with session(spark, **{ZONE: zone}):
        streams = Streams(tmp_path, *kinds)
        streams.write(spark, 0)
        windows = [*WINDOWS, *(NUMBERS if set(kinds) == {"timestamp"} else ())]
        conditions = [f"A.k = B.k AND {window}" for window in windows]
        asked = [f"SELECT A.id AS x, B.id AS y FROM A, B WHERE {condition}" for condition in conditions]
        for condition, got in zip(conditions, streams.run(spark, *asked), strict=True):
            assert got == streams.batch(spark, condition), condition
            assert got.total() > 5, condition


@pytest.mark.parametrize("kinds", IN_UTC)
@pytest.mark.parametrize("zone", [OSLO, "+05:30"])
def test_points_in_time_against_a_clock_that_is_not_utc_are_refused_with_line_and_caret(
    spark, tmp_path, zone, kinds
):
    with session(spark, **{ZONE: zone}), pytest.raises(InputError) as error:
        Streams(tmp_path, *kinds).run(spark, "SELECT A.id FROM A, B WHERE A.k = B.k WINDOW 1 hour")
    assert "'UTC'" in str(error.value)
    assert "^" in str(error.value)
    assert not list((tmp_path / "state" / "checkpoint").rglob("*"))


def test_queries_that_were_read_for_one_zone_do_not_run_in_another(spark, tmp_path):
    streams = Streams(tmp_path, "timestamp", "timestamp")
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(
            streams.declare() + "CREATE QUERY q AS SELECT A.id FROM A, B WHERE A.k = B.k WINDOW 1 s;"
        )
        with session(spark, **{ZONE: OSLO}), pytest.raises(InputError, match="before the first query"):
            engine.start(once=True)


@pytest.mark.parametrize(("name", "value"), [(ZONE, OSLO), (ANSI, "false")])
def test_a_state_goes_on_only_in_a_session_that_means_the_same(spark, tmp_path, name, value):
    streams = Streams(tmp_path, "timestamp", "timestamp")
    ask = "SELECT A.id AS x, B.id AS y FROM A, B WHERE A.k = B.k WINDOW 1 hour"
    streams.write(spark, 0)
    (first,) = streams.run(spark, ask)
    streams.write(spark, 1)
    with session(spark, **{name: value}), pytest.raises(InputError, match=f"was made with {name}"):
        streams.run(spark, ask)
    (again,) = streams.run(spark, ask)
    assert again > first
    condition = "A.k = B.k AND B.ts < A.ts + INTERVAL 1 HOUR AND A.ts < B.ts + INTERVAL 1 HOUR"
    assert again == streams.batch(spark, condition)
