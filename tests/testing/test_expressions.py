"""Expressions without Spark: what they are worth, what fails, and what is refused before a row is looked at."""

# ruff: noqa: E501 - lists of texts

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import InputError, RunError, SqlError
from penstock.sql.bind.binder import bind_query
from penstock.testing.expression.evaluate import evaluate
from penstock.testing.expression.translate import NeedsSparkError, type_of
from tests.sql.expressions import KINDS, STREAMS, expressions
from tests.sql.expressions import TYPES as STREAM_TYPES

TYPES = {
    "n": "int", "k": "bigint", "v": "double", "f": "float", "price": "decimal(10,2)", "s": "string", "Odd Name": "string",
    "flag": "boolean", "day": "date", "ts": "timestamp", "wall": "timestamp_ntz", "raw": "binary",
    "tags": "array<int>", "attrs": "map<string,int>", "loose": "string collate UTF8_LCASE", "any": "variant",
}  # fmt: skip
_AT = datetime(2024, 2, 29, 12, 34, 56, 789000, tzinfo=UTC)
ROW = {
    "n": pa.array([7], pa.int32()),
    "k": pa.array([None], pa.int64()),
    "v": pa.array([math.nan]),
    "f": pa.array([0.1], pa.float32()),
    "price": pa.array([Decimal("1.25")], pa.decimal128(10, 2)),
    "s": pa.array(["Straße"]),
    "Odd Name": pa.array([" x "]),
    "flag": pa.array([True]),
    "day": pa.array([date(2024, 2, 29)]),
    "ts": pa.array([_AT], pa.timestamp("us", tz="UTC")),
    "wall": pa.array([_AT.replace(tzinfo=None)], pa.timestamp("us")),
    "raw": pa.array([b"ab"]),
    **{name: pa.nulls(1) for name in ("tags", "attrs", "loose", "any")},
}


def value(expression: str, **options) -> object:
    """Evaluate an expression for the one row there is."""
    (result,) = evaluate(expression, pa.table(ROW), TYPES, **options).to_pylist()
    return result


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n + 1", 8),
        ("N / 2", 3.5),
        ("-n % 4", -3),
        ("-n DIV 2", -3),
        ("k + 1", None),
        ("k <=> NULL", True),
        ("k = 1 OR n = 7", True),
        ("k = 1 AND n = 7", None),
        ("k = 1 AND n = 8", False),
        ("v = v", True),
        ("v > 1e308", True),
        ("-0.0D = 0.0D", True),
        ("f = 0.1D", False),
        ("n IN (1, 7, NULL)", True),
        ("n IN (1, NULL)", None),
        ("n NOT BETWEEN 1 AND 6", True),
        ("s LIKE 'Stra_e'", True),
        ("s LIKE 'S!%' ESCAPE '!'", False),
        ("upper(s) || trim(`odd name`)", "STRASSEx"),
        ("length(s) + length(raw)", 8),
        ("substring(s, -2, 1)", "ß"),
        ("CASE n WHEN 7 THEN 'seven' ELSE 'other' END", "seven"),
        ("if(k > 1, 1, 2)", 2),
        ("coalesce(k, n)", 7),
        ("nullif(n, 7)", None),
        ("isnan(greatest(1D, v))", True),
        ("price * 2", Decimal("2.50")),
        ("price / 3", Decimal("0.416667")),
        ("round(price, 1)", Decimal("1.3")),
        ("floor(-0.5D)", -1),
        ("CAST('  12 ' AS INT)", 12),
        ("CAST(flag AS STRING)", "true"),
        ("CAST(ts AS DATE)", date(2024, 2, 29)),
        ("CAST(ts AS STRING)", "2024-02-29 12:34:56.789"),
        ("day + 1", date(2024, 3, 1)),
        ("ts + INTERVAL 1 DAY > TIMESTAMP '2024-03-01 12:34:56'", True),
        ("ts >= '2024-02-29'", True),
        ("date_trunc('MONTH', ts)", datetime(2024, 2, 1, tzinfo=UTC)),
        ("hour(wall) * 100 + minute(ts)", 1234),
        ("timestampdiff(HOUR, ts, TIMESTAMP '2024-02-28 12:00:00')", -24),
        ("raw = X'6162'", True),
    ],
)
def test_an_expression_has_the_value_that_spark_gives_it(expression, expected):
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n", "int"),
        ("n + k", "bigint"),
        ("n / n", "double"),
        ("f + f", "float"),
        ("f + n", "double"),
        ("price + 1", "decimal(11,2)"),
        ("price * price", "decimal(21,4)"),
        ("price / n", "decimal(21,13)"),
        ("1.50", "decimal(3,2)"),
        ("NULL", "void"),
        ("day - day", "interval day"),
        ("ts - ts", "interval day to second"),
        ("day + INTERVAL 1 HOUR", "timestamp"),
        ("wall + INTERVAL 1 HOUR", "timestamp_ntz"),
        ("floor(v)", "bigint"),
        ("s IS NULL", "boolean"),
    ],
)
def test_the_type_is_the_one_spark_gives(expression, expected):
    assert type_of(expression, TYPES) == expected


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("n * 2147483647", "Overflow in multiplication of INT32"),
        ("n / (n - 7)", "Division by zero"),
        ("n % (n - 7)", "Remainder by zero"),
        ("CAST(s AS INT)", "'Straße' of the type STRING cannot be cast to INT"),
        ("CAST(n * 100 AS TINYINT)", "Type INT32 with value 700 can't be cast"),
        ("CAST(price AS DECIMAL(2,2))", "type DECIMAL(2,2) failed: value is out of range"),
        ("CAST(v AS BIGINT)", "Type DOUBLE with value nan can't be cast"),
    ],
)
def test_what_spark_fails_to_compute_fails_and_names_the_expression(expression, said):
    with pytest.raises(RunError) as error:
        value(expression)
    assert said in str(error.value)
    assert expression in str(error.value)


@pytest.mark.parametrize(
    "expression",
    [
        "n = 7 OR n / (n - 7) > 1",
        "n <> 7 AND n / (n - 7) > 1",
        "CASE WHEN n = 7 THEN 1D ELSE n / (n - 7) END > 0",
        "coalesce(n, CAST(s AS INT)) = 7",
        "k + CAST(s AS INT) = 1",
        "n IN (7, CAST(s AS INT))",
    ],
)
def test_what_need_not_be_evaluated_does_not_fail(expression):
    value(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "sha2(s, 256) = 'x'", "n & 1", "tags[0] = 1", "attrs IS NULL", "loose = 'x'", "any IS NULL", "s RLIKE 'x'",
        "s ILIKE 'x'", "CAST(v AS STRING)", "CAST(s AS DATE)", "CAST(s AS TIMESTAMP) > ts", "CAST(v AS DECIMAL(10,2))",
        "ts + INTERVAL 1 MONTH", "1 / 0 = n", "CAST('x' AS INT)", "trim(BOTH 'x' FROM s)", "mine.length(s)",
        "named_struct('a', n).a", "a.b.c", "round(n, -1)", "TIMESTAMP '2024-01-01 00:00:00 Europe/Oslo' < ts", "current_date()",
        "exists(tags, e -> e > 1)", "try_cast(s AS INT)", "coalesce(n, s)", "DATE '2024-02-30' = day",
    ],
)  # fmt: skip
def test_what_only_spark_knows_is_refused_before_a_row_is_looked_at(expression):
    nothing = pa.table({name: column.slice(0, 0) for name, column in ROW.items()})
    with pytest.raises(NeedsSparkError) as error:
        evaluate(expression, nothing, TYPES)
    assert expression in str(error.value)
    assert "penstock.Engine" in str(error.value)


def test_the_part_that_needs_spark_is_named():
    with pytest.raises(NeedsSparkError) as error:
        type_of("n > 1 AND sha2(s, 256) = 'x'", TYPES)
    assert str(error.value) == (
        "SHA2(s, 256) (in n > 1 AND sha2(s, 256) = 'x') needs Spark: the function SHA2 is known to Spark only; "
        "run it with the engine on Spark: penstock.Engine"
    )


@pytest.mark.parametrize(
    "expression",
    [
        "hour(ts)",
        "CAST(ts AS DATE)",
        "ts + INTERVAL 1 DAY",
        "ts > TIMESTAMP '2024-01-01 00:00:00'",
        "ts - ts",
        "ts > wall",
    ],
)
def test_what_depends_on_the_clock_of_a_zone_is_refused_in_a_zone_that_is_not_utc(expression):
    value(expression, zone="Etc/UTC")
    with pytest.raises(NeedsSparkError):
        value(expression, zone="Europe/Oslo")


def test_what_does_not_depend_on_a_zone_is_evaluated_in_any():
    assert value("ts + INTERVAL 1 HOUR > ts", zone="Europe/Oslo") is True
    assert value("hour(wall)", zone="Europe/Oslo") == 12
    result = evaluate("ts", pa.table(ROW), TYPES, zone="Europe/Oslo")
    assert result.type == pa.timestamp("us", tz="Europe/Oslo")


def test_without_ansi_only_what_cannot_fail_is_evaluated():
    assert value("v * 2 > 1 AND lower(s) <> 'x'", ansi=False) is True
    for expression in ("n + 1", "n / n", "CAST(s AS INT)", "f + n"):
        with pytest.raises(NeedsSparkError):
            value(expression, ansi=False)


def test_the_columns_of_a_pair_are_named_by_their_side():
    types = {"l.v": "int", "r.v": "int", "r.a.b": "string"}
    rows = pa.table(
        {"l.v": pa.array([1, 2], pa.int32()), "r.v": pa.array([1, 3], pa.int32()), "r.a.b": ["x", "y"]}
    )
    assert evaluate("L.V = r.v", rows, types).to_pylist() == [True, False]
    assert evaluate("r.`a.b`", rows, types).to_pylist() == ["x", "y"]


def test_a_column_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(InputError, match="no column prise in prise > 1: did you mean price"):
        type_of("prise > 1", TYPES)


def test_an_expression_without_columns_has_a_value_for_each_row():
    assert evaluate("1 + 1", pa.table({"n": [1, 2, 3]}), {"n": "bigint"}).to_pylist() == [2, 2, 2]


def test_deep_brackets_are_evaluated_or_refused_but_exhaust_no_stack():
    assert type_of("(" * 300 + "n" + ")" * 300, TYPES) == "int"
    with pytest.raises(NeedsSparkError):
        type_of("n" + " + 1" * 5000, TYPES)


PAIR = {
    f"{side}.{name}": kind
    for side, stream in zip("lr", "AB", strict=True)
    for name, kind in STREAM_TYPES[stream].items()
}


@settings(suppress_health_check=list(HealthCheck))
@given(st.sampled_from(KINDS).flatmap(expressions))
def test_whatever_the_binder_makes_is_evaluated_or_refused_and_nothing_else(text):
    rows = pa.table({name: pa.nulls(1) for name in PAIR})
    with suppress(SqlError, RunError, NeedsSparkError):
        (output,) = bind_query(
            "q", f"SELECT {text}\n AS x FROM A, B WHERE A.k = B.j WINDOW 1 s", STREAMS
        ).outputs
        assert len(evaluate(output.expression, rows, PAIR)) == 1
