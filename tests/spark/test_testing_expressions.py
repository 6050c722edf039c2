"""What `penstock.testing.expression.evaluate` makes of an expression is what Spark makes of it: type, values, and failure.

Random expressions over random rows, from a seed that Hypothesis draws and a failure names.  An expression that is
refused is no error, as long as most are not.  Spark evaluates as written here: its optimizer may leave out a part that
fails, or evaluate it earlier, and its elimination of common subexpressions evaluates a part that stands twice first.
"""

# ruff: noqa: E501 - lists of texts

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from penstock.errors import RunError
from penstock.sql.spark_types import parse_type
from penstock.testing.expression.evaluate import arrow_type, evaluate
from penstock.testing.expression.translate import NeedsSparkError, type_of

pytestmark = pytest.mark.spark

OPTIMIZER_RULES = (
    "BooleanSimplification", "CombineConcats", "ConstantFolding", "ConstantPropagation", "EliminateSorts",
    "LikeSimplification", "NullDownPropagation", "NullPropagation", "OptimizeIn", "PushFoldableIntoBranches",
    "ReorderAssociativeOperator", "ReplaceNullWithFalseInPredicate", "SimplifyBinaryComparison", "SimplifyCasts",
    "SimplifyConditionals", "UnwrapCastInBinaryComparison",
)  # fmt: skip
TYPES = {
    "flag": "boolean", "ok": "boolean", "tiny": "tinyint", "small": "smallint", "n": "int", "m": "int", "k": "bigint",
    "f": "float", "v": "double", "w": "double", "price": "decimal(10,2)", "rate": "decimal(5,4)", "huge": "decimal(38,10)",
    "s": "string", "odd name": "string", "day": "date", "d2": "date", "ts": "timestamp", "t2": "timestamp",
    "wall": "timestamp_ntz", "raw": "binary",
}  # fmt: skip
_FLOATS = [0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 1e10, math.nan, math.inf, -math.inf, 3.0]
_DAY = 86_400_000_000
_MICROS = [
    0,
    -1,
    1,
    1_700_000_000_123_456,
    1_709_164_800_000_000,
    -62_135_596_800_000_000,
    253_402_300_799_999_999,
]


def _whole(bits):
    return [0, 1, -1, 2, 7, 100, (1 << bits - 1) - 1, -(1 << bits - 1)]


POOLS = {
    "boolean": [True, False],
    **{name: _whole(bits) for name, bits in (("tinyint", 8), ("smallint", 16), ("int", 32), ("bigint", 64))},
    "float": [*_FLOATS, 16777216.0, 2147483648.0],
    "double": [*_FLOATS, 1e300, 5e-324, 2147483647.5, 9.3e18, 0.1, 2.675, -2147483648.9],
    "decimal(10,2)": [Decimal(each) for each in ("0.00", "1.50", "-1.25", "99999999.99", "-99999999.99", "0.01")],
    "decimal(5,4)": [Decimal(each) for each in ("0.0000", "1.5000", "-9.9999", "0.3333")],
    "decimal(38,10)": [Decimal(each) for each in ("0", "1.5", "-3.0000000001", "9" * 28, "-" + "9" * 28 + ".9999999999")],
    "string": ["", " ", "a", "B", "abc", "a%c", "_", "\\", "12", " -7 ", "1.5", "1e2", "NaN", "true", "no", "äÖß", "ΑΣ", "𝄞x",
               "2147483648", "99999999999999999999", "+3", "0x1", "1d", "inf", "x y"],
    "date": [0, -1, 1, 19_782, 19_783, -719_162, 2_932_896, -719_529, 2_932_897],
    "timestamp": _MICROS,
    "timestamp_ntz": _MICROS,
    "binary": [b"", b"a", b"\xff\x00", b"abc"],
}  # fmt: skip


def drawn_rows(chance: random.Random, count: int) -> pa.Table:
    """Draw rows, a sixth of whose values are NULL."""
    columns = {}
    for name, kind in TYPES.items():
        values = [None if chance.random() < 1 / 6 else chance.choice(POOLS[kind]) for _ in range(count)]
        columns[name] = pa.array(values, arrow_type(parse_type(kind), "UTC"))
    return pa.table({"id": pa.array(range(count)), **columns})


LEAVES = {
    "truth": ["flag", "ok", "TRUE", "NULL"],
    "number": ["tiny", "small", "n", "m", "k", "n", "1", "0", "-3", "2147483647", "9223372036854775807", "5L", "3S", "7Y"],
    "real": ["f", "v", "w", "v", "1.5D", "2e3", "0.5F", "0D"],
    "decimal": ["price", "rate", "huge", "price", "1.5", "0.05", "100", "12BD", "n"],
    "text": ["s", "`odd name`", "s", "'abc'", "''", "'12'", "'a%'", "' x '"],
    "day": ["date_add({day}, n)", "date_sub({day}, {number})", "day", "d2", "DATE '2024-02-29'"],
    "time": ["ts", "t2", "TIMESTAMP '2024-03-01 12:34:56.789'"],
    "clock": ["wall", "TIMESTAMP_NTZ '2024-03-01 00:00:00'"],
    "bytes": ["raw", "X'FF00'"],
    "span": ["INTERVAL 1 HOUR", "INTERVAL '90' SECOND", "INTERVAL 2 DAYS", "INTERVAL '1 day 2 hours'", "INTERVAL -5 MINUTES",
             "INTERVAL '01:30' MINUTE TO SECOND", "INTERVAL 1 DAY 2 HOURS", "ts - t2", "INTERVAL 1 WEEK", "INTERVAL 7 MILLISECONDS"],
}  # fmt: skip
ANY = ("truth", "number", "real", "decimal", "text", "day", "time", "clock", "bytes")
FORMS = {
    "truth": [
        *(f"{{{kind}}} {test} {{{kind}}}" for kind in ANY for test in ("=", "<", "<=>", ">=", "<>")),
        "{number} < {real}", "{number} = {decimal}", "{decimal} > {real}", "{decimal} <= {decimal}", "{real} <> f",
        "{any} IS NULL", "{any} IS NOT NULL", "{truth} IS TRUE", "{truth} IS NOT FALSE", "{truth} IS UNKNOWN",
        *(f"{{truth}} {word} {{truth}}" for word in ("AND", "OR", "AND", "OR", "AND", "OR")), "NOT {truth}", "NOT {truth}",
        "{truth} AND {truth} AND {truth}", "n <> 0 AND {number} / n > 1", "n = 0 OR {number} % n = 1",
        "{number} BETWEEN {number} AND {number}", "{text} NOT BETWEEN {text} AND {text}", "{time} BETWEEN {time} AND {time}",
        "{number} IN (1, {number}, NULL)", "{real} IN ({real}, {real}, 0D)", "{text} NOT IN ('a', {text})", "{day} IN ({day}, {day})",
        "{decimal} IN ({decimal}, 1.5)", "{number} IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100)", "{number} IN (1.5, {number})",
        "{text} LIKE 'a%'", "{text} LIKE '%b_'", "{text} LIKE {text}", "{text} LIKE 'a!%c' ESCAPE '!'", "{text} NOT LIKE '_'",
        "{day} < {time}", "{time} >= {day}", "{day} = '2024-02-29'", "{time} > '2024-03-01'", "{time} < '2024-03-01 10:00:00'",
        "{number} = {text}", "{real} < {text}", "{time} - {time} < {span}", "{time} + {span} >= {time}", "{clock} < {clock} + {span}",
        "{time} = {clock}", "isnan({real})", "startswith({text}, {text})", "contains({text}, 'a')", "{text} = {truth}",
        "{number} IS DISTINCT FROM {number}", "{day} IN ('2024-02-29', {day})", "{text} > 1.5", "{day} - {day} >= {span}", "CAST({text} AS BOOLEAN)", "CAST({number} AS BOOLEAN)", "{time} IS DISTINCT FROM {time}",
    ],
    "number": [
        "{number} + {number}", "{number} - {number}", "{number} * {number}", "{number} % {number}", "-{number}", "abs({number})",
        "{number} - 1 + 1", "+{number}", "{number} DIV {number}", "datediff({day}, {day})", "{number} + {number} + 1",
        "length({text})", "length({bytes})", "floor({real})", "ceil({real})", "floor({number})", "round({number})", "round({number}, 2)",
        *(f"CAST({{{kind}}} AS {name})" for kind in ("number", "real", "decimal", "truth", "time", "text")
          for name in ("INT", "BIGINT", "TINYINT", "SMALLINT")),
        *(f"{part}({{{kind}}})" for part in ("year", "month", "day") for kind in ("day", "time", "clock")),
        *(f"{part}({{{kind}}})" for part in ("hour", "minute", "second") for kind in ("time", "clock")),
        *(f"timestampdiff({unit}, {{time}}, {{time}})" for unit in ("SECOND", "HOUR", "DAY", "WEEK", "MICROSECOND")),
        "unix_micros({time})", "unix_millis({time})", "unix_seconds({time})",
    ],
    "real": [
        "{real} + {real}", "{real} - {number}", "{real} * {real}", "{real} / {real}", "{real} % {real}", "{number} / {number}", "-{real}",
        "abs({real})", "f + f", "f * {number}", "f / f", "f % f", "-f", "{real} + {decimal}", "{decimal} * {real}", "round(v, 2)", "round(w)",
        "round(v * w, 1)", "CAST({number} AS DOUBLE)", "CAST({text} AS DOUBLE)", "CAST({decimal} AS DOUBLE)", "CAST({real} AS FLOAT)",
        "CAST({number} AS FLOAT)", "CAST({time} AS DOUBLE)", "{truth}::double",
    ],
    "decimal": [
        *(f"{{decimal}} {operator} {{decimal}}" for operator in "+-*/%"), *(f"price {operator} {{number}}" for operator in "+-*/%"),
        *(f"{{number}} {operator} rate" for operator in "+-*/%"), *(f"huge {operator} huge" for operator in "+-*/%"),
        "-{decimal}", "abs({decimal})", "round({decimal}, 1)", "round({decimal})", "floor({decimal})", "ceil({decimal})",
        "CAST({number} AS DECIMAL(12,2))", "CAST({decimal} AS DECIMAL(6,1))", "CAST({text} AS DECIMAL(10,3))", "CAST({truth} AS DECIMAL(1,1))",
    ],
    "text": [
        "{text} || {text}", "concat({text}, {text}, {text})", "concat({text}, {number})", "lower({text})", "upper({text})", "trim({text})",
        "ltrim({text})", "rtrim({text})", "substring({text}, 2)", "left({text}, n)", "substring({text}, {small}, 2)", "substring({text}, -2, {small})",
        "substring({text}, 0, 1)", "CAST({number} AS STRING)", "CAST({truth} AS STRING)", "CAST({decimal} AS STRING)",
        "CAST({day} AS STRING)", "CAST({time} AS STRING)", "CAST({clock} AS STRING)", "CASE {number} WHEN 1 THEN {text} WHEN 2 THEN 'b' END",
    ],
    "day": ["date_add({day}, n)", "date_sub({day}, {number})", "{day} + 1", "{day} - n", "{day} + INTERVAL 1 DAY", "{day} - INTERVAL 2 DAYS", "CAST({time} AS DATE)", "CAST({clock} AS DATE)"],
    "time": ["CAST({number} AS TIMESTAMP)", "{time} + {span}", "{time} - {span}", "CAST({day} AS TIMESTAMP)", "CAST({clock} AS TIMESTAMP)", "{day} + INTERVAL 1 HOUR",
             "{span} + {time}",
             *(f"date_trunc('{unit}', {{time}})" for unit in ("HOUR", "day", "WEEK", "month", "QUARTER", "YEAR", "minute", "SECOND"))],
    "clock": ["{clock} + {span}", "{clock} - {span}", "CAST({time} AS TIMESTAMP_NTZ)", "CAST({day} AS TIMESTAMP_NTZ)"],
    "bytes": ["CAST({text} AS BINARY)"],
    "span": ["{time} - {time}", "{clock} - {clock}", "{day} - {day}"],
}  # fmt: skip
CHOICES = [
    "coalesce({0}, {0})", "if({truth}, {0}, {0})", "CASE WHEN {truth} THEN {0} WHEN {truth} THEN {0} ELSE {0} END", "nullif({0}, {0})",
    "CASE WHEN {truth} THEN {0} END", "greatest({0}, {0}, {0})", "least({0}, {0})", "({0})", "coalesce(NULL, {0})",
]  # fmt: skip


def drawn(chance: random.Random, kind: str, depth: int) -> str:
    """Draw an expression of a kind."""
    kind = {"any": chance.choice(ANY), "small": "number"}.get(kind, kind)
    if depth == 0 or chance.random() < 0.15:
        return chance.choice(LEAVES[kind])
    choices = [form.replace("{0}", f"{{{kind}}}") for form in CHOICES]
    form = chance.choice(choices if chance.random() < 0.2 else FORMS[kind])
    return re.sub(r"\{(\w+)\}", lambda match: f"({drawn(chance, match[1], depth - 1)})", form)


@dataclass
class Judged:
    """An expression, what it is here, and the rows for which it has a value."""

    text: str
    type: str
    values: dict[int, pa.Array]

    def fails(self, rows: int) -> list[int]:
        return [row for row in range(rows) if row not in self.values]


def judged(text: str, rows: pa.Table) -> Judged | None:
    """Evaluate an expression row by row; None if it is refused."""
    values = {}
    for row in range(rows.num_rows):
        try:
            values[row] = evaluate(text, rows.slice(row, 1), TYPES)
        except NeedsSparkError:
            return None
        except RunError:
            continue
    return Judged(text, type_of(text, TYPES), values)


def said(value: pa.Scalar) -> object:
    """Give what tells a value from another, the sign of zero too."""
    plain = (
        value.cast(pa.int64()).as_py()
        if pa.types.is_temporal(value.type) and not pa.types.is_date(value.type)
        else value
    )
    plain = plain.cast(pa.int32()).as_py() if pa.types.is_date(value.type) else plain
    return repr(plain.as_py() if isinstance(plain, pa.Scalar) else plain)


def differences(spark, frame, several: list[Judged]) -> list[str]:
    """Say of which expressions Spark makes something else, for rows of which they have a value here."""
    columns = []
    for number, each in enumerate(several):
        rows = ", ".join(map(str, each.values)) or "-1"
        columns += [
            f"typeof({each.text}) AS t{number}",
            f"CASE WHEN id IN ({rows}) THEN {each.text} END AS v{number}",
        ]
    try:
        table = frame.selectExpr("id", *columns).toArrow().sort_by("id")
    except Exception as error:  # noqa: BLE001 - whatever Spark says
        if len(several) == 1:
            return [f"{several[0].text}: Spark says {str(error).splitlines()[0][:300]}"]
        half = len(several) // 2
        return differences(spark, frame, several[:half]) + differences(spark, frame, several[half:])
    return [found for number, each in enumerate(several) if (found := _difference(number, each, table))]


def _difference(number: int, each: Judged, table: pa.Table) -> str:
    kind, column = table.column(f"t{number}")[0].as_py(), table.column(f"v{number}")
    if kind != each.type:
        return f"{each.text} is {kind}, not {each.type}"
    for row, value in each.values.items():
        if value.type != column.type or said(value[0]) != said(column[row]):
            return f"{each.text} is {column[row]!r} in row {row}, not {value[0]!r}"
    return ""


def is_refused(frame, text: str, row: int) -> bool:
    """Say whether Spark fails to evaluate an expression for a row."""
    try:
        frame.where(f"id = {row}").selectExpr(f"{text} AS x").collect()
    except Exception:  # noqa: BLE001 - whatever Spark says
        return True
    return False


def judge(spark, seed: int, expressions: int, failures: int) -> tuple[list[str], int]:
    """List what differs, and count the expressions that were evaluated."""
    chance = random.Random(seed)
    rows = drawn_rows(chance, 12)
    schema = ", ".join(f"`{name}` {kind}" for name, kind in {"id": "bigint", **TYPES}.items())
    frame = spark.createDataFrame(rows, schema).repartition(1).cache()
    texts = [
        drawn(chance, chance.choice([*ANY, "truth", "span"]), chance.randint(1, 3))
        for _ in range(expressions)
    ]
    evaluated = [each for text in texts if (each := judged(text, rows))]
    found = []
    for start in range(0, len(evaluated), 25):
        found += differences(spark, frame, evaluated[start : start + 25])
    failing = [(each, chance.choice(each.fails(12))) for each in evaluated if each.fails(12)]
    for each, row in failing[:failures]:
        if not is_refused(frame, each.text, row):
            found.append(f"{each.text} fails in row {row}, not in Spark")
    frame.unpersist()
    return found, len(evaluated)


@pytest.fixture
def literal_spark(spark):
    """Have Spark evaluate an expression as it is written."""
    settings = {
        "spark.sql.subexpressionElimination.enabled": "false",
        "spark.sql.optimizer.excludedRules": ",".join(
            f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in OPTIMIZER_RULES
        ),
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name in settings:
        spark.conf.unset(name)


@settings(max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1))
def test_an_expression_is_what_spark_makes_of_it(literal_spark, seed):
    note(f"seed {seed}")
    found, evaluated = judge(literal_spark, seed, 60, 8)
    assert not found, "\n".join(found)
    assert evaluated > 30
