"""Expressions mean in Penstock what they mean in Spark: what comes out of the binder, and what went in.

Both are evaluated by Spark side by side, over a relation in which ``A.v`` and ``l.v`` name the same values.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.errors import SqlError
from penstock.sql.bind.binder import bind_query
from penstock.sql.text.keywords import AGGREGATES, GENERATORS
from penstock.sql.text.tree import quoted
from tests.sql.expressions import KINDS, ROWS, STREAMS, TYPES, expressions

pytestmark = pytest.mark.spark

JOIN = "FROM A, B WHERE A.k = B.j"


def relation() -> str:
    """Give all columns of A and B: as structs under both names, and those that only one stream has by themselves."""
    names = [f"c{place}" for place in range(sum(map(len, TYPES.values())))]
    places = iter(names)
    sides = []
    singles = []
    for alias, side in (("A", "l"), ("B", "r")):
        mine = dict(zip(TYPES[alias], places, strict=False))
        fields = ", ".join(
            f"CAST({place} AS {TYPES[alias][name]}) AS {quoted(name)}" for name, place in mine.items()
        )
        sides += [f"struct({fields}) AS {alias}", f"struct({fields}) AS {side}"]
        singles += [
            f"CAST({place} AS {TYPES[alias][name]}) AS {quoted(name)}" for name, place in mine.items()
        ]
    rows = ", ".join(f"({row})" for row in ROWS)
    return f"(SELECT {', '.join([*sides, *singles])} FROM VALUES {rows} AS t({', '.join(names)}))"


def evaluate(spark, texts: list[str]) -> list[list[tuple[str, str | None]]] | str:
    """Give type and value of each expression for each row; or, if Spark will not, the name of its error."""
    columns = ", ".join(
        f"typeof({text}\n) AS t{place}, CAST(({text}\n) AS STRING) AS v{place}"
        for place, text in enumerate(texts)
    )
    try:
        rows = spark.sql(f"SELECT {columns} FROM {relation()}").collect()
    except Exception as error:  # noqa: BLE001 - whatever Spark says
        return error.getCondition() if hasattr(error, "getCondition") else type(error).__name__
    return [[(row[f"t{place}"], row[f"v{place}"]) for row in rows] for place in range(len(texts))]


def differences(spark, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """List the pairs of texts of which Spark makes different things; those that it refuses, it must refuse both."""
    if not pairs:
        return []
    found = evaluate(spark, [text for pair in pairs for text in pair])
    if not isinstance(found, str):
        return [pair for place, pair in enumerate(pairs) if found[2 * place] != found[2 * place + 1]]
    if len(pairs) > 1:
        half = len(pairs) // 2
        return differences(spark, pairs[:half]) + differences(spark, pairs[half:])
    ((before, after),) = pairs
    return [] if evaluate(spark, [before]) == evaluate(spark, [after]) else pairs


def bound_output(text: str) -> str:
    """Give what the binder makes of an expression in the SELECT list."""
    (output,) = bind_query("q", f"SELECT {text}\n AS x {JOIN} WINDOW 1 s", STREAMS).outputs
    return output.expression


def bound_condition(text: str) -> str:
    """Give what the binder makes of a condition in WHERE: its predicates and residual, whether they all hold."""
    query = bind_query("q", f"SELECT 1 AS x {JOIN} AND ({text}\n) WINDOW 99999 days", STREAMS)
    keys = [f"({key.left}) = ({key.right})" for key in query.keys if (key.left, key.right) != ("k", "j")]
    apart = "unix_micros(at) - unix_micros(ts)"
    window = [f"{apart} >= {query.window.lo}L", f"{apart} < {query.window.hi}L"]
    every = (*keys, *window, *query.left_predicates, *query.right_predicates, *query.residual)
    return "CASE WHEN " + " AND ".join(f"({each})" for each in (*every, "TRUE")) + " THEN 1 ELSE 0 END"


SOME = settings(
    max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


@SOME
@given(st.lists(st.sampled_from(KINDS).flatmap(expressions), min_size=30, max_size=30))
def test_a_random_output_is_what_spark_computes_from_the_users_text(spark, texts):
    same_or_refused(spark, [(text, bound(bound_output, text)) for text in texts])


@SOME
@given(st.lists(expressions("truth"), min_size=30, max_size=30))
def test_a_random_condition_holds_for_the_rows_for_which_the_users_text_does(spark, texts):
    holds = "CASE WHEN ({}\n) THEN 1 ELSE 0 END".format
    same_or_refused(spark, [(holds(text), bound(bound_condition, text)) for text in texts])


def bound(binder, text: str) -> str:
    """Bind a text; empty if it is refused."""
    try:
        return binder(text)
    except SqlError:
        return ""


def same_or_refused(spark, pairs: list[tuple[str, str]]) -> None:
    """Check that Spark makes the same of both texts; what is refused, Spark must refuse too."""
    understood = [pair for pair in pairs if pair[1]]
    assert len(understood) > 0.9 * len(pairs)
    for start in range(0, len(understood), 10):
        assert not differences(spark, understood[start : start + 10])
    for text, _ in (pair for pair in pairs if not pair[1]):
        assert isinstance(evaluate(spark, [text]), str), f"Spark accepts {text}"


@pytest.fixture(scope="module")
def functions(spark) -> dict[str, str]:
    """Describe every function Spark has."""

    def describe(name: str) -> str:
        return "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect())

    names = [row[0] for row in spark.sql("SHOW FUNCTIONS").collect()]
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(names, pool.map(describe, names), strict=True))


def test_every_aggregate_and_generator_of_spark_is_known(functions):
    aggregates = {name for name, text in functions.items() if ".expressions.aggregate." in text}
    assert len(aggregates) > 50
    assert aggregates <= AGGREGATES
    generators = "Explode|PosExplode|Inline|Stack|JsonTuple"
    makers = {
        name for name, text in functions.items() if re.search(rf"Class: \S+\.(?:{generators})\w*\n", text)
    }
    assert makers
    assert makers <= GENERATORS


def test_the_example_of_every_function_means_the_same(spark, functions):
    """All functions of one row, with whatever syntax of their own: what Spark's documentation shows of each."""
    pairs = [
        pair for text in functions.values() for example in examples(text) for pair in bound_example(example)
    ]
    assert len(pairs) > 500
    different = []
    for start in range(0, len(pairs), 24):
        different += differences(spark, pairs[start : start + 24])
    assert not different


def examples(text: str) -> list[str]:
    """Find the SELECT lists in the description of a function, at most two; those that are to fail are left out."""
    shown = re.findall(r"> SELECT (.*?);[ ]*\n\s*(.*?)\n", text, re.DOTALL | re.IGNORECASE)
    return [
        select
        for select, answer in shown
        if not re.search(r"\bFROM\s+(VALUES|\(|\w+\()|Exception", select + answer, re.IGNORECASE)
    ][:2]


def bound_example(select: str) -> list[tuple[str, str]]:
    """Bind an example; those of several rows are refused, and those that differ every time cannot be compared."""
    try:
        query = bind_query("q", f"SELECT {select}\n FROM A, B WHERE A.k = B.j WINDOW 1 s", STREAMS)
    except SqlError as error:
        expected = re.search("aggregate|several rows|OVER|two columns|GROUP BY", error.message)
        return [] if expected else [(select, "NULL")]
    if len(query.outputs) > 1 or re.search(
        r"rand|uuid|shuffle|monotonic|uniform|now\(|current_|local|\bAS \w+$", select
    ):
        return []
    return [(select, query.outputs[0].expression)]
