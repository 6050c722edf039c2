"""Times mean what they mean to Spark's own join, also in a session that is not on UTC: the judge is Spark itself."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import pytest
from pyspark.sql.functions import expr

from penstock.engine.engine import Engine
from penstock.errors import InputError
from penstock.plan.spark_settings import ANSI, ZONE
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

    def run(self, spark, ask):
        with Engine(self.root / "state", spark) as engine:
            engine.script(f"{self.declare()} CREATE QUERY q AS {ask};")
            engine.start(once=True)
            engine.wait()
            return bag(engine.results("q"))

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


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
@pytest.mark.parametrize("zone", ["UTC", OSLO, "+05:30"])
def test_windows_mean_the_same_as_to_spark_in_every_zone(spark, tmp_path, kind, zone):
    with session(spark, **{ZONE: zone}):
        streams = Streams(tmp_path, kind, kind)
        streams.write(spark, 0)
        condition = "A.k = B.k AND B.ts >= A.ts AND B.ts <= A.ts + INTERVAL 5 HOURS"
        got = streams.run(spark, f"SELECT A.id AS x, B.id AS y FROM A, B WHERE {condition}")
        assert got == streams.batch(spark, condition)
        assert got.total() > 20


@pytest.mark.parametrize(("name", "value"), [(ZONE, OSLO), (ANSI, "false")])
def test_a_state_goes_on_only_in_a_session_that_means_the_same(spark, tmp_path, name, value):
    streams = Streams(tmp_path, "timestamp", "timestamp")
    ask = "SELECT A.id AS x, B.id AS y FROM A, B WHERE A.k = B.k WINDOW 1 hour"
    streams.write(spark, 0)
    first = streams.run(spark, ask)
    streams.write(spark, 1)
    with session(spark, **{name: value}), pytest.raises(InputError, match=f"was made with {name}"):
        streams.run(spark, ask)
    again = streams.run(spark, ask)
    assert again > first
    condition = "A.k = B.k AND B.ts < A.ts + INTERVAL 1 HOUR AND A.ts < B.ts + INTERVAL 1 HOUR"
    assert again == streams.batch(spark, condition)
