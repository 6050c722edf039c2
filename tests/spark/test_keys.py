"""Spark's equality is the only one: two keys meet exactly when Spark's ``=`` says so, whatever their type."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from pyspark.sql.functions import expr

from penstock.engine.api import Engine
from penstock.engine.tasks.ingest_columns import as_bigint, as_bytes
from penstock.errors import InputError
from penstock.plan.spark_settings import ANSI
from penstock.plan.stored import WHOLE_TYPES
from penstock.sql.spark_types import common_type
from penstock.sql.zones import ZONE
from tests.oracle import put_file

pytestmark = pytest.mark.spark

LEAVES = {
    "boolean": ["true", "false"],
    "int": ["0", "1", "-1", "2147483647"],
    "bigint": ["0L", "1L", "-9223372036854775808L"],
    "float": ["0.0f", "-0.0f", "1.5f", "float('NaN')", "-float('NaN')", "float('Infinity')"],
    "double": ["0.0D", "-0.0D", "0.1D", "0.1D + 0.2D", "0.3D", "double('NaN')", "-double('-Infinity')"],
    "decimal(10,2)": ["1.50BD", "1.5BD", "-1.50BD", "0BD", "99999999.99BD"],
    "string": ["''", "'a'", "'A'", "'a '", "'é'", "'e\\u0301'", "'\"'", "'\\\\'", "'null'", "'[1]'"],
    "binary": ["X''", "X'00'", "X'0000'", "X'FF'"],
    "date": ["DATE'2024-10-27'", "DATE'2024-10-28'", "DATE'0001-01-01'"],
    "timestamp": [
        "TIMESTAMP'2024-10-27 00:30:00.000001Z'", "TIMESTAMP'2024-10-27 00:30:00.000002Z'",
        "TIMESTAMP'2024-10-27 01:30:00.000001Z'", "TIMESTAMP'2024-10-27 00:30:00.001Z'",
    ],
    "timestamp_ntz": [
        "TIMESTAMP_NTZ'2024-10-27 02:30:00.000001'", "TIMESTAMP_NTZ'2024-10-27 02:30:00.000002'",
        "TIMESTAMP_NTZ'2024-10-27 02:30:00'",
    ],
    "interval day to second": ["INTERVAL '1 00:00:00' DAY TO SECOND", "INTERVAL '1 00:00:00.000001' DAY TO SECOND"],
    "interval year to month": ["INTERVAL '1-0' YEAR TO MONTH", "INTERVAL '0-11' YEAR TO MONTH"],
}  # fmt: skip
"""Values of each type that are equal, or nearly so, to others of it."""


def nested(random: Random, depth: int) -> tuple[str, list[str]]:
    """Make a type that is nested so deep, and some values of it."""
    if depth == 0:
        kind = random.choice(sorted(LEAVES))
        return kind, [f"cast(({each}) AS {kind})" for each in LEAVES[kind]]
    inner, values = nested(random, depth - 1)
    values = [*values, f"cast(null AS {inner})"]
    if random.random() < 0.5:
        made = [f"array({', '.join(random.choices(values, k=random.randint(0, 3)))})" for _ in range(12)]
        return f"array<{inner}>", [f"cast({each} AS array<{inner}>)" for each in made]
    other, theirs = nested(random, depth - 1)
    made = [f"named_struct('a b', {random.choice(values)}, 'c', {random.choice(theirs)})" for _ in range(12)]
    return f"struct<`a b`:{inner},c:{other}>", made


@pytest.mark.parametrize(("zone", "seeds"), [("UTC", range(10)), ("Europe/Oslo", range(10, 20))])
def test_keys_are_written_alike_exactly_when_spark_takes_them_as_equal(spark, zone, seeds):
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, zone)
    try:
        for seed in seeds:
            kind, values = nested(Random(seed), seed % 4)
            write = as_bigint if kind in WHOLE_TYPES else as_bytes
            rows = " UNION ALL ".join(
                f"SELECT {place} AS n, {value} AS v" for place, value in enumerate(values)
            )
            pairs = spark.sql(
                f"WITH v AS ({rows}) SELECT x.n, y.n AS m, x.v = y.v AS alike, "
                f"{write('x.v', kind)} = {write('y.v', kind)} AS written FROM v AS x CROSS JOIN v AS y"
            ).collect()
            wrong = [(values[each.n], values[each.m]) for each in pairs if each.alike != each.written]
            assert not wrong, (seed, kind, wrong[0])
    finally:
        spark.conf.set(ZONE, before)


KEYS = {
    "t": ("array<timestamp>", "array(timestamp_micros(id DIV 2), null)"),
    "x": (
        "struct<x:double,t:timestamp>",
        "named_struct('x', if(id % 2 = 0, 0.0D, -0.0D), 't', timestamp_micros(id DIV 3))",
    ),
    "f": ("array<array<float>>", "array(array(if(id % 3 = 0, -0.0f, float(id % 2))), array(float('NaN')))"),
    "b": ("binary", "cast(cast(id DIV 2 AS STRING) AS BINARY)"),
    "s": ("string", "if(id % 2 = 0, 'a', 'A') || id DIV 4"),
    "c": ("string collate UTF8_LCASE", "collate(if(id % 2 = 0, 'a', 'A') || id DIV 4, 'UTF8_LCASE')"),
    "d": ("decimal(38,0)", "cast(id DIV 2 AS decimal(38,0))"),
    "e": ("decimal(38,18)", "cast(id / 4 AS decimal(38,18))"),
    "n": (
        "array<string collate UNICODE_CI>",
        "array(collate(if(id % 2 = 0, 'é', 'É') || id DIV 4, 'UNICODE_CI'))",
    ),
}
CONDITIONS = [
    *(f"A.{name} = B.{name}" for name in KEYS),
    "A.s COLLATE UTF8_LCASE = B.s", "A.c COLLATE UTF8_BINARY = B.c COLLATE UTF8_BINARY", "A.c = 'a' || B.id",
    "A.c = B.c AND A.b = B.b", "A.n[0] = B.n[0]", "A.d = B.e",
    "CAST(A.id AS DECIMAL(38,0)) = CAST(B.e AS DECIMAL(38,30))",
]  # fmt: skip


@pytest.fixture
def tables(spark, tmp_path):
    for name in "AB":
        (tmp_path / name).mkdir()
        rows = spark.range(0, 24).selectExpr(
            "id",
            "timestamp_seconds(id) AS ts",
            *(f"{value} AS {column}" for column, (_, value) in KEYS.items()),
        )
        put_file(rows.toArrow(), tmp_path / name / "0.parquet", 0)
        rows.createOrReplaceTempView(name)
    columns = ", ".join(f"{column} {kind}" for column, (kind, _) in KEYS.items())
    return "".join(
        f"CREATE STREAM {name} (id BIGINT, ts TIMESTAMP, {columns}) "
        f"WITH (format = 'parquet', path = '{tmp_path}/{name}', time = 'ts');"
        for name in "AB"
    )


def test_joins_on_keys_of_every_kind_are_sparks(spark, tmp_path, tables):
    selects = {
        f"q{number}": f"SELECT A.id AS x, B.id AS y FROM A, B WHERE {each}"
        for number, each in enumerate(CONDITIONS)
    }
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(
            tables
            + "".join(f"CREATE QUERY {name} AS {text} WINDOW 1 hour;" for name, text in selects.items())
        )
        engine.start(once=True)
        engine.wait()
        for name, text in selects.items():
            right = Counter(tuple(row) for row in spark.sql(text).collect())
            assert Counter(tuple(row) for row in engine.results(name).collect()) == right, text
            assert right, text


def test_decimals_are_compared_as_spark_compares_them(spark):
    random = Random(5)
    sizes = [(precision, random.randint(0, precision)) for precision in random.choices(range(1, 39), k=40)]
    pairs = [(random.choice(sizes), random.choice(sizes)) for _ in range(150)]
    kinds = [tuple(f"decimal({p},{s})" for p, s in pair) for pair in pairs]
    texts = [f"coalesce(cast(null AS {one}), cast(null AS {other}))" for one, other in kinds]
    found = spark.range(1).select(*(expr(text).alias(f"c{n}") for n, text in enumerate(texts))).schema.fields
    for (one, other), field in zip(kinds, found, strict=True):
        assert common_type(one, other) == field.dataType.simpleString(), (one, other)


def test_without_ansi_keys_are_compared_as_spark_does_then(spark, tmp_path):
    for name, value in (("A", "16777217L"), ("B", "float(16777216)")):
        (tmp_path / name).mkdir()
        rows = spark.range(1).selectExpr("id", f"{value} AS k", "timestamp_seconds(id) AS ts")
        put_file(rows.toArrow(), tmp_path / name / "0.parquet", 0)
    script = "".join(
        f"CREATE STREAM {name} (id BIGINT, k {kind}, ts TIMESTAMP) "
        f"WITH (format = 'parquet', path = '{tmp_path}/{name}', time = 'ts');"
        for name, kind in (("A", "BIGINT"), ("B", "FLOAT"))
    )
    query = "CREATE QUERY q AS SELECT A.id FROM A, B WHERE A.k = B.k WINDOW 1 hour;"
    for ansi, results in (("true", 0), ("false", 1)):
        spark.conf.set(ANSI, ansi)
        try:
            with Engine(tmp_path / f"state-{ansi}", spark) as engine:
                engine.script(script + query)
                engine.start(once=True)
                engine.wait()
                assert engine.results("q").count() == results
        finally:
            spark.conf.set(ANSI, "true")


def test_a_key_of_which_only_spark_knows_the_collation_is_refused_before_anything_starts(
    spark, tmp_path, tables
):
    both = "collate(A.s, 'UNICODE') = collate(B.s, 'UNICODE')"
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(tables)
        with pytest.raises(InputError, match="COLLATE UTF8_BINARY"):
            engine.script(f"CREATE QUERY q AS SELECT A.id FROM A, B WHERE {both} WINDOW 1 hour;")
