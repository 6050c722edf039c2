"""Conditions that guard each other are evaluated as Spark does: where its batch join succeeds on dirty data, so does a
run, with the same rows, however many queries share the work.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest

from penstock.engine.api import Engine
from tests.oracle import ARROW, Feed, bag, same_bag
from tests.spark.world import START, at
from tests.sql.test_guards import COLUMNS as TYPES
from tests.sql.test_guards import SURE

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = {"k": "bigint", "x": "int", "s": "string", "list": "array<int>", "ts": "timestamp"}
ON_ONE = (
    "{0}.s RLIKE '^[0-9]+$' AND CAST({0}.s AS INT) > {1}",
    "{0}.x <> 0 AND 10 / {0}.x > {1}",
    "({0}.x = 0 OR 10 / {0}.x > {1})",
    "size({0}.list) > 2 AND element_at({0}.list, 3) > {1}",
    "CASE WHEN {0}.x = 0 THEN TRUE ELSE 10 / {0}.x > {1} END",
    "{0}.s RLIKE '^[0-9]+$' AND {0}.s > {1}",
    "{0}.k IS NOT NULL AND ({0}.x <> 0 AND 10 DIV {0}.x > {1})",
    "coalesce({0}.x, 0) <> 0 AND {0}.s IN ('1', '2', 'a') AND 7 % {0}.x >= {1}",
)
ON_BOTH = (
    "a.x <> b.x AND 10 / (a.x - b.x) > {1}",
    "a.x <> 0 AND b.x / a.x > {1}",
    "(a.x = b.x OR 10 / (a.x - b.x) > {1})",
    "a.s RLIKE '^[0-9]+$' AND b.s RLIKE '^[0-9]+$' AND CAST(a.s AS INT) > CAST(b.s AS INT) + {1}",
    "size(a.list) > b.x AND b.x > 0 AND element_at(a.list, b.x) >= {1}",
)
KEYS = (
    "a.k = b.k",
    "a.s RLIKE '^[0-9]+$' AND CAST(a.s AS INT) = b.k",
    "a.s RLIKE '^[0-9]+$' AND a.s = b.k",
    "a.x <> 0 AND 12 / a.x = b.k",
    "size(b.list) > 0 AND a.k = b.list[0] AND a.x = b.x",
)
OUTPUTS = ("a.k, b.x", "a.s, b.s, if(a.x = 0, 0, 10 / a.x) AS q", "a.list, b.list")


def dirty(random, count):
    """Make rows with texts that are no numbers, zeros, short lists and nulls."""
    return [
        {
            "k": random.choice((1, 2, 3, None)),
            "x": random.choice((0, 0, 1, 2, 3, -4, None)),
            "s": random.choice(("1", "2", "3", "12", "a", "", "9x", None)),
            "list": random.choice(([], [1], [1, 2, 3], [2, 0, 5, 7], None)),
            "ts": at(START + random.randrange(60) * SECOND) if random.random() < 0.95 else None,
        }
        for _ in range(count)
    ]


def query(random):
    """Choose conditions of all kinds, in any order that keeps each behind its guard."""
    conditions = [random.choice(KEYS)]
    conditions += [
        random.choice(ON_ONE).format(random.choice("ab"), random.randrange(4))
        for _ in range(random.randrange(3))
    ]
    conditions += [random.choice(ON_BOTH).format("", random.randrange(4))] * random.randrange(2)
    random.shuffle(conditions)
    near = "a.ts BETWEEN b.ts - INTERVAL 20 SECONDS AND b.ts + INTERVAL 20 SECONDS"
    return f"SELECT {random.choice(OUTPUTS)} FROM a, b WHERE {' AND '.join([*conditions, near])}"


@pytest.mark.parametrize("strategy", ["mem-opt", "pull-up", "push-down"])
def test_where_spark_succeeds_on_dirty_data_so_does_a_run(spark, tmp_path, strategy, monkeypatch):
    monkeypatch.setitem(ARROW, "array<int>", pa.list_(pa.int32()))
    random = Random(strategy)
    feeds = [Feed(name, tmp_path / name, COLUMNS, 90 * SECOND) for name in "ab"]
    for feed in feeds:
        for _ in range(2):
            feed.append(dirty(random, 40))
        spark.read.parquet(str(feed.folder)).createOrReplaceTempView(feed.name)
    right = {}
    for number in range(16 if strategy == "mem-opt" else 7):
        text = query(random)
        with suppress(Exception):  # Spark itself may fail
            right[f"q{number}"] = text, bag(spark.sql(text).toArrow())
    assert len(right) >= 5
    assert sum(found.total() > 0 for _, found in right.values()) >= 3
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(f"SET strategy = '{strategy}'; {feeds[0].declare()} {feeds[1].declare()}")
        for name, (text, _) in right.items():
            engine.query(name, text)
        engine.start(once=True)
        engine.wait()
        for name, (text, found) in right.items():
            same_bag(bag(engine.results(name).toArrow()), found, text)


EXTREMES = {
    "bigint": ["9223372036854775807L", "-9223372036854775807L - 1L", "0L"],
    "int": ["2147483647", "-2147483647 - 1", "0"],
    "double": [
        "CAST('NaN' AS DOUBLE)",
        "CAST('Infinity' AS DOUBLE)",
        "1.7976931348623157E308D",
        "-0.0D",
        "4.9E-324D",
    ],
    "string": ["''", "'9x'", "'{\"a\":'", "repeat('é', 3000)", "char(0)", "unhex('ff')::string"],
    "boolean": ["true", "false"],
    "date": [
        "DATE'0001-01-01'",
        "DATE'9999-12-31'",
        "date_from_unix_date(2147483647)",
        "date_from_unix_date(-2147483647)",
    ],
    "timestamp": ["timestamp_micros(9223372036854775807L)", "timestamp_micros(-9223372036854775807L)"],
    "decimal(10,2)": ["99999999.99BD", "-99999999.99BD"],
    "decimal(38,10)": ["9999999999999999999999999999.9999999999BD"],
    "array<int>": ["array()", "array(2147483647)", "array(CAST(NULL AS INT))"],
}


def test_what_cannot_fail_does_not_fail_on_the_most_extreme_values(spark):
    values = {name: EXTREMES[kind.removesuffix(" collate UTF8_LCASE")] for name, kind in TYPES.items()}
    rows = [
        ", ".join(
            f"CAST({(each[row] if row < len(each) else 'NULL')} AS {TYPES[name]}) AS {name}"
            for name, each in values.items()
        )
        for row in range(7)
    ]
    spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows)).createOrReplaceTempView("extremes")
    assert (
        spark.table("extremes")
        .selectExpr(*(f"({text}) AS c{number}" for number, text in enumerate(SURE)))
        .collect()
    )


TWICE = [
    "a.k <> b.k AND 10 / (a.k - b.k) BETWEEN -99 AND 99",
    "a.k <> b.k AND 10 / (a.k - b.k) > 1 AND 10 / (a.k - b.k) < 9",
    "a.k <> b.k AND 10 / (a.k - b.k) > 2",
    "a.k > b.k AND 10 / (a.k - b.k) > 0 OR a.k < b.k",
]


def test_conditions_on_both_rows_that_share_what_may_fail_are_guarded_in_every_sink(spark, tmp_path):
    """What several of them compute, Spark would compute first and for all pairs, if it could."""
    feeds = [Feed(name, tmp_path / name, {"k": "bigint", "ts": "timestamp"}, 60_000_000) for name in "ab"]
    for feed in feeds:
        feed.append([{"k": key, "ts": at(START + key)} for key in range(5)])
        spark.read.parquet(str(feed.folder)).createOrReplaceTempView(feed.name)
    with Engine(tmp_path / "state", spark) as engine:
        engine.script("".join(feed.declare() for feed in feeds))
        for number, where in enumerate(TWICE):
            text = f"SELECT a.k AS x, b.k AS y FROM a, b WHERE {where} WINDOW 1 min"
            engine.query(f"table{number}", text)
            engine.query(f"order{number}", text, order="filter-order")
        engine.start(once=True)
        engine.wait()
        assert engine.failures == {}
        for number, where in enumerate(TWICE):
            right = bag(spark.sql(f"SELECT a.k AS x, b.k AS y FROM a, b WHERE {where}").toArrow())
            for sink in ("table", "order"):
                same_bag(bag(engine.results(f"{sink}{number}").toArrow()), right, f"{sink} {where}")
