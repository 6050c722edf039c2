"""Which promises matter to a plan: who shares an index, and of which promises there is none."""

from __future__ import annotations

import pytest

from penstock import testing
from penstock.plan.promises import all_indexes, carried_by, finishing_of, index_for, indexes_about

COLUMNS = "k INT, big BIGINT, t STRING, d DATE, x DOUBLE, kind STRING, lo INT, hi INT, ts TIMESTAMP"
PUNCTUATES = "punctuation = 'kind = ''p''', punctuates = "


def planned(a="", b="", *queries, more=""):
    """Plan queries over A and B, with some options."""
    streams = "".join(
        f"CREATE STREAM {name} ({COLUMNS}) WITH (format = 'parquet', path = '{name}', time = 'ts'{options});"
        for name, options in (("A", f", {a}" if a else ""), ("B", f", {b}" if b else ""))
    )
    named = "".join(
        each
        if each.startswith("CREATE")
        else f"CREATE QUERY q{n} AS SELECT A.k FROM A, B WHERE {each} WINDOW 9 s;"
        for n, each in enumerate(queries)
    )
    with testing.Session(streams + more + named) as session:
        return session.plan


def keys(plan, stream):
    return [tuple(part.column for part in each.key) for each in indexes_about(plan, stream)]


def test_a_stream_without_promises_has_no_index():
    plan = planned("", "", "A.k = B.k")
    assert all_indexes(plan) == []
    assert carried_by(plan, plan.stream("A")) == []


def test_the_promised_column_and_the_key_of_a_log_are_mostly_one_index():
    plan = planned("", PUNCTUATES + "'k'", "A.k = B.k", "A.k = B.k AND A.lo > 1")
    assert keys(plan, "B") == [("k",)]
    assert keys(plan, "A") == []
    (log,) = plan.logs_of("B")
    assert index_for(plan, log) == indexes_about(plan, "B")[0]


def test_a_key_without_a_promised_column_has_no_index_and_one_with_some_has_its_own():
    plan = planned("", PUNCTUATES + "'k, t'", "A.k = B.k", "A.big = B.big", "A.t = B.t AND A.big = B.big")
    assert sorted(keys(plan, "B")) == [("big", "t"), ("k",), ("k", "t")]


def test_of_a_promise_about_more_columns_only_wildcards_are_of_use():
    plan = planned("", PUNCTUATES + "'k, t'", "A.k = B.k")
    found = {
        tuple(part.column for part in each.index.key): [one.column for one in each.others]
        for each in carried_by(plan, plan.stream("B"))
    }
    assert found == {("k", "t"): [], ("k",): ["t"]}


@pytest.mark.parametrize(
    ("condition", "is_of_use"),
    [
        ("A.k = B.k", True),
        ("A.big = B.k", True),  # an INT becomes a BIGINT, and no two become one
        ("A.x = B.k", True),  # or a DOUBLE, which has all of them
        ("A.k = B.k + 1", False),  # an expression
        ("A.k = abs(B.k)", False),
    ],
)
def test_a_key_must_tell_the_promised_values_apart(condition, is_of_use):
    plan = planned("", PUNCTUATES + "'k'", condition)
    (log,) = plan.logs_of("B")
    assert (index_for(plan, log) is not None) == is_of_use


@pytest.mark.parametrize(
    ("promised", "condition"), [("big", "A.x = B.big"), ("t", "A.k = B.t"), ("d", "A.ts = B.d")]
)
def test_a_cast_that_makes_two_values_one_is_of_no_use(promised, condition):
    plan = planned("", PUNCTUATES + f"'{promised}'", condition)
    (log,) = plan.logs_of("B")
    assert index_for(plan, log) is None


def test_a_carrier_is_read_for_the_stream_it_is_about():
    carrier = (
        "CREATE STREAM P (item INT, ts TIMESTAMP) WITH (format = 'parquet', path = 'p', time = 'ts', "
        "punctuation_of = 'B', punctuates = 'k = item');"
    )
    plan = planned("", "", "A.k = B.k", more=carrier)
    assert keys(plan, "B") == [("k",)]
    (made,) = carried_by(plan, plan.stream("P"))
    assert made.index == indexes_about(plan, "B")[0]
    assert [one.low for one in made.parts] == ["item"]


@pytest.mark.parametrize(
    ("grouped", "condition", "is_finished"),
    [
        ("A.k", "A.k = B.k", True),
        ("B.k, A.t", "A.k = B.k", True),
        ("A.t", "A.k = B.k", False),
        ("A.k", "A.k = B.k AND A.t = B.t", False),
        ("A.k, B.t", "A.k = B.k AND A.t = B.t", True),
        ("A.big", "A.big = B.k", True),
        ("A.t", "A.t = B.k", False),  # ' 7' and '7' are one number
        ("A.d", "A.d = B.ts", False),
    ],
)
def test_a_group_can_end_by_promise_if_it_has_all_of_the_key(grouped, condition, is_finished):
    query = (
        "CREATE QUERY q WITH (emit = 'final') AS "
        f"SELECT {grouped}, COUNT(*) AS n FROM A, B WHERE {condition} GROUP BY {grouped} WINDOW 9 s;"
    )
    promised = "ts BETWEEN ts AND ts" if "ts" in condition else "k"
    plan = planned("", PUNCTUATES + f"'{promised}'", query)
    assert (finishing_of(plan, plan.query("q")) is not None) == is_finished
