"""Aggregate queries: what is needed of each pair, and what is made of it once per group."""

# ruff: noqa: E501 - one case a line

import pytest

from penstock.sql.bind import bind_query
from penstock.sql.query import Answer, Measure, Output
from tests.sql.streams import STREAMS

S = 1_000_000
MIN, HOUR = 60 * S, 3600 * S
JOIN = "FROM A, B WHERE A.k = B.k"


def grouped(select, rest="GROUP BY A.k", window="WINDOW 1 hour EVERY 1 min", **options):
    """Bind an aggregate query over a join of A and B."""
    return bind_query("q3", f"SELECT {select} {JOIN} {rest} {window}", STREAMS, options=options)


def expressions(query):
    return [each.expression for each in query.outputs]


def answers(query):
    return {each.name: each.expression for each in query.aggregation.answers}


def test_keys_and_arguments_are_of_pairs_and_the_rest_is_of_groups():
    query = grouped(
        "A.k, MAX(A.v - B.w) + 1 AS m, count(*), A.k * 2 AS twice",
        "GROUP BY A.k HAVING MAX(A.v - B.w) > 5 AND COUNT(B.w) > 1",
    )
    assert query.outputs == (
        Output("g0", "l.k", ("l", "k")),
        Output("x0", "l.v - r.w"),
        Output("x1", "r.w", ("r", "w")),
    )
    found = query.aggregation
    assert (found.emit, found.groups, found.every, found.reach) == ("sliding", 1, MIN, (HOUR, HOUR))
    assert found.measures == (Measure("max", (1,)), Measure("count"), Measure("count", (2,)))
    assert found.answers == (
        Answer("k", "g0", "g0"),
        Answer("m", "a0 + 1"),
        Answer("count(*)", "a1", "a1"),
        Answer("twice", "g0 * 2"),
    )
    assert found.having == "a0 > 5 AND a2 > 1"
    assert (query.left_columns, query.right_columns) == ({"k", "v"}, {"w"})


@pytest.mark.parametrize(
    ("written", "function", "arguments", "distinct"),
    [
        ("COUNT(*)", "count", [], False),
        ("count(1)", "count", [], False),
        ("COUNT('x')", "count", [], False),
        ("COUNT(ALL A.v)", "count", ["l.v"], False),
        ("COUNT(A.v, B.w)", "count", ["CASE WHEN l.v IS NOT NULL AND r.w IS NOT NULL THEN 1 END"], False),
        ("COUNT(DISTINCT A.v)", "count", ["l.v"], True),
        ("COUNT(DISTINCT A.v, B.w, A.v)", "count", ["l.v", "r.w"], True),
        ("SUM(A.v + 1)", "sum", ["l.v + 1"], False),
        ("sum(DISTINCT A.v)", "sum", ["l.v"], True),
        ("AVG(A.v)", "avg", ["l.v"], False),
        ("mean(DISTINCT A.v)", "avg", ["l.v"], True),
        ("MIN(DISTINCT A.v)", "min", ["l.v"], False),
        ("`max`(A.v)", "max", ["l.v"], False),
        ("STDDEV(A.v)", "stddev_samp", ["l.v"], False),
        ("std(A.v)", "stddev_samp", ["l.v"], False),
        ("stddev_samp(A.v)", "stddev_samp", ["l.v"], False),
        ("STDDEV_POP(A.v)", "stddev_pop", ["l.v"], False),
        ("variance(A.v)", "var_samp", ["l.v"], False),
        ("VAR_SAMP(A.v)", "var_samp", ["l.v"], False),
        ("VAR_POP(A.v)", "var_pop", ["l.v"], False),
        ("count_if(A.v > 3)", "count", ["CASE WHEN l.v > 3 THEN 1 END"], False),
        ("BOOL_AND(A.flag)", "min", ["l.flag"], False),
        ("every(A.v > 3)", "min", ["l.v > 3"], False),
        ("BOOL_OR(A.flag)", "max", ["l.flag"], False),
        ("any(A.flag)", "max", ["l.flag"], False),
        ("SOME(A.flag)", "max", ["l.flag"], False),
        ("MAX(A.v) FILTER (WHERE B.w > 1)", "max", ["CASE WHEN r.w > 1 THEN l.v END"], False),
        ("COUNT(*) FILTER (WHERE B.w > 1)", "count", ["CASE WHEN r.w > 1 THEN 1 END"], False),
        ("COUNT(DISTINCT A.v, A.n) FILTER (WHERE A.flag)", "count", ["CASE WHEN l.flag THEN l.v END", "CASE WHEN l.flag THEN l.n END"], True),
    ],
)  # fmt: skip
def test_every_way_to_write_an_aggregate_is_one_of_nine_functions(written, function, arguments, distinct):
    query = grouped(f"{written} AS x", "")
    (measure,) = query.aggregation.measures
    assert (measure.function, measure.distinct) == (function, distinct)
    assert [query.outputs[each].expression for each in measure.arguments] == arguments


def test_what_is_equal_is_computed_once():
    query = grouped("sum(a.V), SUM((A.v)) / count(a.k) AS x, max(B.w), COUNT(b.W)", "GROUP BY A.k, A.K")
    assert expressions(query) == ["l.k", "l.v", "r.w"]
    assert query.aggregation.groups == 1
    assert query.aggregation.measures == (
        Measure("sum", (1,)),
        Measure("count", (0,)),
        Measure("max", (2,)),
        Measure("count", (2,)),
    )


@pytest.mark.parametrize(
    ("select", "group", "keys"),
    [
        ("A.k, A.n + 1 AS m, COUNT(*)", "1, 2", ["l.k", "l.n + 1"]),
        ("A.k AS spot, A.n + 1 AS m, COUNT(*)", "Spot, M", ["l.k", "l.n + 1"]),
        ("A.n AS v, MAX(B.w)", "A.n, v", ["l.n", "l.v"]),
        ("A.k, COUNT(*), A.n + 1 AS m", "ALL", ["l.k", "l.n + 1"]),
        ("COUNT(*)", "ALL", []),
        ("date_trunc('hour', a.ts) + INTERVAL 1 HOUR AS h", "DATE_TRUNC('hour', A.ts)", ["DATE_TRUNC('hour', l.ts)"]),
        ("A.place.City, B.w + A.n", "A.place, A.n, w", ["l.place", "l.n", "r.w"]),
        ("CASE WHEN A.v <> 3 THEN 1 ELSE 0 END", "A.v != 3", ["l.v <> 3"]),
        ("1, round(avg(A.v), 1)", "1", ["1"]),
    ],
)  # fmt: skip
def test_a_group_key_is_an_expression_an_ordinal_or_a_name_of_the_select_list(select, group, keys):
    query = grouped(select, f"GROUP BY {group}")
    assert [each.replace("!=", "<>") for each in expressions(query)[: query.aggregation.groups]] == keys


def test_an_expression_of_keys_is_written_over_them():
    query = grouped(
        "A.n + 1 + MAX(B.w) AS x, A.place.City, transform(A.tags, g0 -> g0 + A.n + 1) AS y, round(avg(A.v), 1)",
        "GROUP BY A.n + 1, A.place, A.tags, A.n",
    )
    assert answers(query) == {
        "x": "g0 + a0",
        "City": "g1.City",
        "y": "TRANSFORM(g2, g0_1 -> g0_1 + g3 + 1)",
        "round(avg(A.v), 1)": "ROUND(a1, 1)",
    }


def test_having_sees_the_select_list_and_columns_that_are_grouped_go_before_it():
    query = grouped(
        "A.n AS m, MAX(A.v) AS v, MAX(B.w) AS n", "GROUP BY A.n HAVING v > 1 AND m > 2 AND A.n < 3"
    )
    assert query.aggregation.having == "a0 > 1 AND g0 > 2 AND g0 < 3"
    assert grouped("MAX(A.v) AS v", "HAVING sum(v) > 1").aggregation.having == "a1 > 1"
    assert (
        grouped("MAX(A.v) AS top", "HAVING top > 1 OR count(*) > 9").aggregation.having == "a0 > 1 OR a1 > 9"
    )


def test_groups_without_aggregates_and_aggregates_without_groups():
    distinct = grouped("A.k").aggregation
    assert (distinct.groups, distinct.measures) == (1, ())
    one = grouped("COUNT(*)", "").aggregation
    assert (one.groups, one.measures) == (0, (Measure("count"),))


def test_each_stream_may_have_its_own_window_and_every_stands_at_the_end():
    text = "SELECT COUNT(*) FROM B y [RANGE 5 min], A [RANGE 1 hour] WHERE A.k = y.k {}"
    found = bind_query("q3", text.format("EVERY 30 s"), STREAMS).aggregation
    assert (found.every, found.reach) == (30 * S, (HOUR, 5 * MIN))
    assert bind_query("q3", text.format(""), STREAMS).aggregation.every == MIN
    grouped_by = bind_query(
        "q3", text.format("GROUP BY A.tags[0], y.w HAVING every(A.flag) EVERY 1 s"), STREAMS
    )
    assert (grouped_by.aggregation.every, grouped_by.aggregation.groups) == (S, 2)


def test_the_reach_is_that_of_the_clauses_and_conditions_narrow_the_window_only():
    query = grouped("COUNT(*)", "AND A.ts <= B.ts AND B.ts <= A.ts + INTERVAL 1 MINUTE")
    assert query.aggregation.reach == (HOUR, HOUR)
    assert (query.window.lo, query.window.hi) == (0, MIN + 1)


@pytest.mark.parametrize(
    ("window", "every"),
    [("1 hour", MIN), ("1 min", S), ("10 s", 156_250), ("7 us", 1), ("61 us", 1), ("1 day", 24 * MIN)],
)
def test_the_default_of_every_is_a_sixtieth_of_the_window(window, every):
    assert grouped("COUNT(*)", "", f"WINDOW {window}").aggregation.every == every
