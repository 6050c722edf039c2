"""A condition that may fail is never evaluated without the ones that guard it, nor before them."""

# ruff: noqa: E501 - lists of texts

from __future__ import annotations

import pytest

from penstock.plan.build import build_plan
from penstock.sql.bind.binder import bind_query
from penstock.sql.bind.safety import always_succeeds, guards_nothing
from penstock.sql.query import Column, Stream

COLUMNS = {
    "k": "bigint", "x": "int", "y": "int", "d": "double", "s": "string", "t": "string collate UTF8_LCASE", "flag": "boolean",
    "day": "date", "ts": "timestamp", "amount": "decimal(10,2)", "wide": "decimal(38,10)", "list": "array<int>",
}  # fmt: skip
STREAMS = {
    name: Stream(name, tuple(Column(*each) for each in COLUMNS.items()), "ts") for name in ("A", "B", "Kept")
}


def bound(where: str, key: str = "A.k = B.k"):
    return bind_query("q", f"SELECT A.k FROM A JOIN B ON {key} WHERE {where} WINDOW 1 min", STREAMS)


def predicates(where: str) -> tuple[str, ...]:
    return bound(where).left_predicates


def test_a_division_stands_behind_the_test_that_guards_it() -> None:
    assert predicates("10 / A.x > 1 AND A.x <> 0") == ("x <> 0", "(x <> 0) AND (10 / x > 1)")


def test_what_may_fail_stays_in_its_order() -> None:
    text = "A.s RLIKE '^[0-9]+$' AND A.x > 3 AND CAST(A.s AS INT) > 5"
    assert predicates(text) == ("x > 3", "(x > 3) AND (s RLIKE '^[0-9]+$') AND (CAST(s AS INT) > 5)")
    assert predicates("size(A.list) > 2 AND A.list[2] = 1") == ("(SIZE(list) > 2) AND (list[2] = 1)",)


def test_not_before_a_quantifier_is_part_of_each_test() -> None:
    for test in ("LIKE ALL", "LIKE ANY", "ILIKE SOME"):
        assert predicates(f"A.s NOT {test} ('2%', 'x%')") == (f"s NOT {test} ('2%', 'x%')",)
    assert predicates("NOT A.s LIKE ALL ('2%', 'x%')") == ("NOT s LIKE ALL ('2%', 'x%')",)


def test_times_guard_what_stands_behind_them_also_where_windows_count_rows() -> None:
    where = "B.ts >= A.ts + INTERVAL 1 SECOND AND 10 / (A.x - B.x) > 0"
    query = bind_query("q", f"SELECT A.k FROM A JOIN B ON A.k = B.k WHERE {where} WINDOW 9 ROWS", STREAMS)
    assert query.residual[-1] == "10 / (l.x - r.x) > 0"
    assert len(query.residual) == 2


def test_what_may_fail_is_not_turned_round() -> None:
    """Where its left side is null, Spark does not look at the right side of a comparison."""
    assert predicates("A.y > 10 / A.x") == ("y > 10 / x",)
    assert predicates("5 < 10 / A.x") == ("10 / x > 5",)
    assert predicates("(A.x = 0 OR 10 / A.x > 1)") == ("x = 0 OR 10 / x > 1",)
    assert predicates("10 / A.x BETWEEN 1 AND 2") == ("(10 / x >= 1) AND (10 / x <= 2)",)
    assert predicates("f(A.x) BETWEEN 1 AND 2") == ("F(x) BETWEEN 1 AND 2",)
    assert predicates("A.y BETWEEN 1 AND 10 / A.x") == ("y >= 1", "(y >= 1) AND (y <= 10 / x)")


def test_conditions_on_pairs_stay_in_their_order_behind_those_that_cannot_fail() -> None:
    query = bound("A.x <> B.x AND 10 / (A.x - B.x) > 1 AND A.d < B.d")
    assert query.residual == ("l.d < r.d", "l.x <> r.x", "10 / (l.x - r.x) > 1")


def test_plain_predicates_stay_apart_so_that_each_can_be_shared() -> None:
    assert predicates("A.x > 3 AND A.x < 9") == ("x < 9", "x > 3")


def test_a_risky_predicate_alone_is_one_predicate() -> None:
    assert predicates("10 / A.x > 1") == ("10 / x > 1",)


SURE = [
    "x > 3", "x = k", "x <> 2.5", "amount < 3", "d > x", "s = 'a'", "s < 'b'", "t = 'A'", "flag", "NOT flag", "x IS NULL",
    "x IN (1, 2, 3)", "s NOT IN ('a', 'b')", "s LIKE 'a%'", "s IS NOT DISTINCT FROM 'x'", "x BETWEEN 1 AND k",
    "flag OR x > 1 AND s = 'a'", "day > DATE '2020-01-01'", "day >= '2020-02-28'", "ts < '2024-01-01'", "lower(s) = 'x'",
    "length(s) > 3", "d * 2 > 1", "d + x < 3", "x % 3 = 0", "x / 2 > 1", "coalesce(x, x) = 1", "isnan(d)", "x <=> NULL",
    "CAST(x AS BIGINT) = k", "x::string = 'a'", "get_json_object(s, '$.a') = 'x'", "startswith(s, 'a')",
    "substring(s, 1, 2) = 'ab'", "year(day) = 2024", "hour(ts) < 6", "concat(s, '-', s) <> 'x'", "flag IS NOT TRUE", "list = list",
    "CASE WHEN flag THEN x ELSE 1 END = 1", "CASE x WHEN 3 THEN 'a' ELSE s END = s", "if(flag, d, d) > 1", "s || s = 'ab'",
    "abs(d) > 2", "greatest(x, k) > 3", "d * 2.5 > 1", "least(d, x, 0) < 1",
]  # fmt: skip
"""Conditions that cannot fail; `tests/spark/test_guards.py` tries."""


@pytest.mark.parametrize("text", SURE)
def test_what_cannot_fail_is_known(text: str) -> None:
    assert always_succeeds(text, STREAMS["A"])


@pytest.mark.parametrize(
    "text",
    [
        "x + 1 > 2", "x / 0e0 > 1", "x / 0.0e5 > 1", "x / 1e-400 > 1", "-x > 1", "k * 2 = 4", "amount + 1 > 2", "10 / x > 1", "x % k = 1", "x / 0 > 1", "d / 0.0 > 1", "s = 5",
        "s > x", "CAST(s AS INT) > 1", "s::date > day", "day > 'soon'", "day >= '2020-02-30'", "ts > day", "s LIKE 'a\\\\%'",
        "s LIKE s", "s RLIKE 'a'", "year(s) = 2024", "substring(s, k) = 'x'", "list[0] = 1", "element_at(list, 1) = 1", "f(x) = 1", "CAST(k AS INT) = 1", "x IN (1, '2')",
        "wide = 1.23456789012345678901234567890", "flag AND 1 / x > 1", "CASE WHEN flag THEN 10 / x ELSE 1 END = 1", "CASE x WHEN s THEN 1 END = 1", "abs(x) = 1", "d.length(s) = 1", "x = y + 1",
        "to_date(s) = day", "current_date > day", "exists(list, e -> e > 1)", "unknown > 1",
    ],
)  # fmt: skip
def test_what_may_fail_is_not_taken_for_sure(text: str) -> None:
    assert not always_succeeds(text, STREAMS["A"])


@pytest.mark.parametrize(
    ("text", "nothing"),
    [
        ("f(s) > 5", True), ("CAST(get_json_object(s, '$.a') AS INT) = 5", True), ("10 / x > 1", True), ("x / y > 1", True),
        ("NOT f(s)", True), ("CAST(s AS INT) > 5", True), ("x = 0 OR 10 / x > 1", False), ("y > 10 / x", False),
        ("(x <> 0) AND (10 / x > 1)", False), ("if(x = 0, 1, 10 / x) > 1", False), ("x IN (0, 10 / x)", False),
        ("coalesce(y, 10 / x) > 1", False), ("CASE WHEN x = 0 THEN 1 ELSE 10 / x END > 1", False), ("f(y, 10 / x) > 1", False),
    ],
)  # fmt: skip
def test_what_spark_evaluates_in_any_case_needs_no_case_of_its_own(text: str, nothing: bool) -> None:
    assert guards_nothing(text, STREAMS["A"]) is nothing


def wanted(*queries: tuple[str, str]) -> tuple[tuple[str, ...], ...]:
    """Give the rows of A for which a key is evaluated."""
    bound_queries = [
        bind_query(f"q{number}", f"SELECT B.k FROM A JOIN B ON {key} WHERE {where} WINDOW 1 min", STREAMS)
        for number, (key, where) in enumerate(queries)
    ]
    plan = build_plan(STREAMS, bound_queries)
    return plan.logs_of("A")[0].wanted


def test_a_key_that_may_fail_is_evaluated_for_rows_that_some_query_wants() -> None:
    key = "CAST(A.s AS INT) = B.x"
    assert wanted((key, "A.s RLIKE '^[0-9]+$'")) == (("s RLIKE '^[0-9]+$'",),)
    assert wanted((key, "A.x > 1 AND A.y > 1"), (key, "A.x > 1"), (key, "A.flag")) == (("flag",), ("x > 1",))


@pytest.mark.parametrize("key", ["A.k = B.k", "A.x = B.k", "lower(A.s) = B.s", "CAST(A.x AS BIGINT) = B.k"])
def test_a_key_that_cannot_fail_is_evaluated_for_all_rows(key: str) -> None:
    assert wanted((key, "A.flag")) == ()


def test_a_key_is_evaluated_for_all_rows_if_some_query_wants_them_all() -> None:
    assert wanted(("A.s = B.x", "A.flag"), ("A.s = B.x", "TRUE")) == ()
