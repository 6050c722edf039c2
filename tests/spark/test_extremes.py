"""Event times at the ends of what Spark can hold, and days as event times of queries with an order: Spark judges."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.engine.api import Engine
from penstock.engine.tasks.ingest_columns import FARTHEST
from tests.oracle import put_file

pytestmark = pytest.mark.spark

_MOST = (1 << 63) - 1
_DAY = 86_400_000_000
MICROS = [
    -_MOST, -FARTHEST - 1, -FARTHEST, -FARTHEST + 5, -62135596800000000, 0, 1, 253402300799999999, FARTHEST,
    FARTHEST + 1, _MOST - 1, _MOST,
]  # fmt: skip
DAYS = [
    -(1 << 31),
    -FARTHEST // _DAY - 1,
    -FARTHEST // _DAY + 1,
    -1,
    0,
    1,
    FARTHEST // _DAY,
    FARTHEST // _DAY + 1,
    _MOST >> 32,
]
TIMES = {
    "timestamp": ("timestamp_micros(id)", MICROS),
    "timestamp_ntz": ("to_timestamp_ntz(timestamp_micros(id))", MICROS),
    "date": ("date_from_unix_date(cast(id AS INT))", DAYS),
}


def write(spark, folder, kind, ids):
    """Write a file with a row for each time, two of the stream's rows with the same one."""
    folder.mkdir(exist_ok=True)
    rows = spark.createDataFrame([(each,) for each in ids], "id BIGINT")
    rows = rows.selectExpr("id", "1L AS k", f"{TIMES[kind][0]} AS ts")
    put_file(rows.toArrow(), folder / "0.parquet", 0)


def declared(root, kind):
    return "".join(
        f"CREATE STREAM {name} (id BIGINT, k BIGINT, ts {kind}) "
        f"WITH (format = 'parquet', path = '{root}/{name}', time = 'ts', lateness = '7000000 days');"
        for name in "AB"
    )


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_times_too_far_away_are_set_aside_and_all_others_join(spark, tmp_path, kind):
    ids = TIMES[kind][1]
    unit = _DAY if kind == "date" else 1
    for name in "AB":
        write(spark, tmp_path / name, kind, ids)
    windows = {"all": "13000000 days", "wide": "30000 days", "near": "3 days"}
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(
            declared(tmp_path, kind)
            + "".join(
                f"CREATE QUERY {name} AS SELECT A.id AS x, B.id AS y, A.ts FROM A, B WHERE A.k = B.k WINDOW {each};"
                for name, each in windows.items()
            )
        )
        engine.start(once=True)
        engine.wait()
        near = [each for each in ids if -FARTHEST <= each * unit <= FARTHEST]
        assert [each.no_time for each in engine.status().streams] == [len(ids) - len(near)] * 2
        assert sorted(row.id for row in engine.late("A").select("id").collect()) == sorted(
            set(ids) - set(near)
        )
        for name, length in (("all", 13000000 * _DAY), ("wide", 30000 * _DAY), ("near", 3 * _DAY)):
            right = Counter((x, y) for x in near for y in near if abs(x - y) * unit < length)
            found = engine.results(name).select("x", "y").collect()
            assert Counter((row.x, row.y) for row in found) == right, name


@pytest.mark.parametrize("sink", ["table", "parquet"])
def test_queries_by_day_are_in_order(spark, tmp_path, sink):
    for name, ids in (("A", [9, 3, 5, 3, 700000, -40]), ("B", [4, 3, -41, 8, 700002, 10])):
        write(spark, tmp_path / name, "date", ids)
    where = f", path = '{tmp_path}/out'" if sink == "parquet" else ""
    query = "SELECT A.ts AS a, B.ts AS b FROM A, B WHERE A.k = B.k WINDOW 5 days"
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(
            declared(tmp_path, "date")
            + f"CREATE QUERY q WITH (sink = '{sink}'{where}, order = 'filter-order') AS {query};"
        )
        engine.start(once=True)
        engine.wait()
        found = [tuple(row) for row in engine.results("q").collect()]
    for name in "AB":
        spark.read.parquet(f"{tmp_path}/{name}").createOrReplaceTempView(name)
    right = spark.sql(
        "SELECT A.ts, B.ts FROM A, B WHERE A.k = B.k AND abs(datediff(A.ts, B.ts)) < 5 "
        "ORDER BY greatest(A.ts, B.ts), A.ts, B.ts"
    )
    assert found == [tuple(row) for row in right.collect()]
    assert len(found) > 8
