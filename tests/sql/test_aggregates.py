"""Aggregate queries: what is needed of each pair, and what is made of it once per group."""

# ruff: noqa: E501 - one case a line

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.sql.bind.binder import bind_query
from penstock.sql.bind.safety import Constancy, constancy_of
from penstock.sql.query import Answer, Bucket, Measure, OutputColumn, Remainder
from penstock.sql.script import altered, parse_script
from tests.sql.streams import STREAMS, bind, stream
from tests.sql.test_errors import check

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
        OutputColumn("g0", "l.k", ("l", "k")),
        OutputColumn("x0", "l.v - r.w"),
        OutputColumn("x1", "r.w", ("r", "w")),
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
    ("written", "taken"),
    [
        ("A.k % 64", Remainder("l", "k", 64)),
        ("(mod(B.k, 7))", Remainder("r", "k", 7)),
        ("A.k % 64L", Remainder("l", "k", 64, wide=True)),
        ("pmod(A.k, 3000000000)", Remainder("l", "k", 3000000000, wide=True, floored=True)),
        ("A.k % 0", None), ("A.k % -3", None), ("A.k % 2.5", None), ("A.k % 3S", None), ("A.v % 3", None),
        ("A.k % B.k", None), ("64 % A.k", None), ("A.k % 99999999999999999999", None), ("A.k + 64", None),
    ],
)  # fmt: skip
def test_a_remainder_of_whole_numbers_by_a_constant_is_taken_without_spark_sql(written, taken):
    assert grouped(f"{written} AS g, COUNT(*)", f"GROUP BY {written}").outputs[0].remainder == taken


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
        ("MAX_BY(A.v, B.w)", "max_by", ["l.v", "r.w"], False),
        ("max_by(DISTINCT A.v, A.v)", "max_by", ["l.v", "l.v"], False),
        ("MIN_BY(A.tags, A.v + 1) FILTER (WHERE A.flag)", "min_by", ["CASE WHEN l.flag THEN l.tags END", "CASE WHEN l.flag THEN l.v + 1 END"], False),
        ("MAX(A.v) FILTER (WHERE B.w > 1)", "max", ["CASE WHEN r.w > 1 THEN l.v END"], False),
        ("COUNT(*) FILTER (WHERE B.w > 1)", "count", ["CASE WHEN r.w > 1 THEN 1 END"], False),
        ("COUNT(DISTINCT A.v, A.n) FILTER (WHERE A.flag)", "count", ["CASE WHEN l.flag THEN l.v END", "CASE WHEN l.flag THEN l.n END"], True),
    ],
)  # fmt: skip
def test_every_way_to_write_an_aggregate_is_one_of_eleven_functions(written, function, arguments, distinct):
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


# when it answers


def test_an_option_says_when_answers_come():
    final = grouped("A.k, COUNT(*)", window="WINDOW 5 ROWS", emit="FINAL").aggregation
    assert (final.emit, final.every, final.reach, final.bucket) == ("final", 0, (0, 0), None)
    changes = grouped("A.k, COUNT(*)", "AND A.ts < B.ts GROUP BY A.k", "", emit="changes").aggregation
    assert (changes.emit, changes.every, changes.reach) == ("changes", 0, (0, 0))
    assert grouped("COUNT(*)", "", emit="sliding").aggregation == grouped("COUNT(*)", "").aggregation


BUCKETS = [
    ("A.ts", "UNIX_MICROS(l.ts) + 1L"),
    ("date_trunc('second', A.ts)", "UNIX_MICROS(DATE_TRUNC('second', l.ts)) + 1000000L"),
    ("DATE_TRUNC('Hour', a.TS)", "UNIX_MICROS(DATE_TRUNC('Hour', l.ts)) + 3600000000L"),
    ("date_trunc('DD', A.ts)", "UNIX_MICROS(CAST(DATE_ADD(CAST(DATE_TRUNC('DD', l.ts) AS DATE), 1) AS TIMESTAMP))"),
    ("date_trunc('week', A.ts)", "UNIX_MICROS(CAST(DATE_ADD(CAST(DATE_TRUNC('week', l.ts) AS DATE), 7) AS TIMESTAMP))"),
    ("date_trunc('quarter', A.ts)", "UNIX_MICROS(CAST(ADD_MONTHS(CAST(DATE_TRUNC('quarter', l.ts) AS DATE), 3) AS TIMESTAMP))"),
    ("trunc(A.ts, 'YY')", "UNIX_MICROS(CAST(ADD_MONTHS(TRUNC(l.ts, 'YY'), 12) AS TIMESTAMP))"),
    ("to_date(A.ts)", "UNIX_MICROS(CAST(DATE_ADD(TO_DATE(l.ts), 1) AS TIMESTAMP))"),
    ("CAST(A.ts AS date)", "UNIX_MICROS(CAST(DATE_ADD(CAST(l.ts AS DATE), 1) AS TIMESTAMP))"),
    ("A.ts::date", "UNIX_MICROS(CAST(DATE_ADD(l.ts::DATE, 1) AS TIMESTAMP))"),
    ("window(A.ts, '10 minutes')", "UNIX_MICROS(l.ts) - PMOD(UNIX_MICROS(l.ts) - 0L, 600000000L) + 600000000L"),
    ("window(A.ts, '1 hour', '60 minutes', '-5 min').start", "UNIX_MICROS(l.ts) - PMOD(UNIX_MICROS(l.ts) - 3300000000L, 3600000000L) + 3600000000L"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "end"), BUCKETS)
def test_a_bucket_of_an_event_time_says_when_it_ends(key, end):
    query = grouped("COUNT(B.w)", f"GROUP BY A.k, {key}, B.ts", "WINDOW 1 min", emit="final")
    assert query.aggregation.bucket == Bucket("l", 4)
    assert [each.name for each in query.outputs] == ["g0", "g1", "g2", "x0", "e0"]
    assert query.outputs[-1].expression == end
    assert "ts" in query.left_columns
    assert grouped("COUNT(*)", f"GROUP BY {key}").aggregation.bucket is None


@pytest.mark.parametrize(
    "key",
    ["A.k", "date_trunc('hour', B.seen)", "hour(A.ts)", "date_trunc('hours', A.ts)", "trunc(A.ts, 'hour')",
     "date_trunc(A.name, A.ts)", "date_trunc('hour', A.ts) + INTERVAL 1 HOUR", "window(B.seen, '1 hour')"],
)  # fmt: skip
def test_any_other_key_is_no_bucket(key):
    query = grouped("COUNT(*)", f"GROUP BY {key}", "WINDOW 1 min", emit="final")
    assert (query.aggregation.bucket, len(query.outputs)) == (None, 1)


def test_where_the_clock_moves_the_later_end_of_an_hour_is_taken():
    text = f"SELECT COUNT(*) {JOIN} GROUP BY date_trunc('hour', B.ts) WINDOW 1 min"
    query = bind_query("q3", text, STREAMS, options={"emit": "final"}, zone="Australia/Lord_Howe")
    assert query.outputs[-1].expression.startswith(
        "GREATEST(UNIX_MICROS(DATE_TRUNC('hour', r.ts)) + 3600000000L, UNIX_MICROS(CAST(CAST("
    )


NTZ = {name: stream(name, "k bigint, ts timestamp_ntz") for name in "AB"}
EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"


@pytest.mark.parametrize(
    ("key", "end"),
    [
        ("A.ts", f"TIMESTAMPDIFF(MICROSECOND, {EPOCH}, l.ts) + 1L"),
        ("date_trunc('hour', A.ts)", f"TIMESTAMPDIFF(MICROSECOND, {EPOCH}, CAST(DATE_TRUNC('hour', l.ts) AS TIMESTAMP_NTZ)) + 3600000000L"),
        ("A.ts::date", f"TIMESTAMPDIFF(MICROSECOND, {EPOCH}, CAST(DATE_ADD(l.ts::DATE, 1) AS TIMESTAMP_NTZ))"),
    ],
)  # fmt: skip
def test_the_end_of_a_bucket_is_on_the_scale_of_its_event_times(key, end):
    text = f"SELECT COUNT(*) {JOIN} GROUP BY {key} WINDOW 1 min"
    query = bind_query("q3", text, NTZ, options={"emit": "final"}, zone="Europe/Oslo")
    assert query.outputs[-1].expression == end


@pytest.mark.parametrize(
    ("key", "end"),
    [
        ("a.d", "UNIX_DATE(l.d) * 86400000000L + 1L"),
        ("date_trunc('hour', a.d)", "UNIX_DATE(l.d) * 86400000000L + 86400000000L"),
        ("trunc(a.d, 'month')", "UNIX_DATE(ADD_MONTHS(TRUNC(l.d, 'month'), 1)) * 86400000000L"),
    ],
)
def test_event_times_that_are_dates_have_buckets_too(key, end):
    text = f"SELECT COUNT(*) FROM Days a, Nights b WHERE a.k = b.k GROUP BY {key} WINDOW 1 day"
    query = bind_query("q3", text, STREAMS, options={"emit": "final"})
    assert query.outputs[-1].expression == end


def test_a_time_window_is_a_struct_and_its_fields_can_be_selected():
    query = grouped(
        "window.start, window(A.ts, '10 minutes').end AS e, window AS w, window_time(window) AS t",
        "GROUP BY window(A.ts, '10 minutes') HAVING window.start > A_TIME".replace(
            "A_TIME", "DATE'2024-01-01'"
        ),
    )
    assert answers(query) == {
        "start": "g0.start",
        "e": "g0.`end`",
        "w": "g0",
        "t": "g0.`end` - INTERVAL 1 MICROSECOND",
    }
    begin = "UNIX_MICROS(l.ts) - PMOD(UNIX_MICROS(l.ts) - 0L, 600000000L)"
    assert expressions(query) == [
        f"NAMED_STRUCT('start', TIMESTAMP_MICROS({begin}), 'end', TIMESTAMP_MICROS({begin} + 600000000L))"
    ]
    assert query.aggregation.having == "g0.start > DATE '2024-01-01'"


def test_a_column_called_window_or_every_goes_before_the_function():
    known = {**STREAMS, "C": stream("C", "k bigint, window int, every int, ts timestamp")}
    text = "SELECT window, every, COUNT(*) FROM A every, C WHERE every.k = C.k GROUP BY window, C.every HAVING every > 1"
    query = bind_query("q", f"{text} WINDOW 1 min EVERY 1 s", known)
    assert expressions(query) == ["r.window", "r.every"]
    assert (query.aggregation.having, query.aggregation.every) == ("g1 > 1", S)


# a change of the window


def altered_query(text, change):
    (query,) = parse_script(f"CREATE QUERY q AS {text}; ALTER QUERY q {change}", STREAMS).queries
    return query


@pytest.mark.parametrize(
    ("window", "change", "every", "reach"),
    [
        ("WINDOW 1 hour EVERY 1 min", "5 min", MIN, 5 * MIN),
        ("WINDOW 1 hour EVERY 1 min", "5 min EVERY 10 s", 10 * S, 5 * MIN),
        ("WINDOW 1 hour", "5 min", 5 * S, 5 * MIN),
        ("WINDOW 1 hour", "5 min EVERY 7 s", 7 * S, 5 * MIN),
    ],
)
def test_a_new_window_keeps_an_every_that_was_written(window, change, every, reach):
    query = altered_query(f"SELECT COUNT(*) {JOIN} {window}", f"SET WINDOW {change}")
    assert (query.aggregation.every, query.aggregation.reach) == (every, (reach, reach))
    again = bind_query("q", query.text, STREAMS)
    assert again.aggregation == query.aggregation


def test_a_new_window_takes_the_place_of_those_of_streams_and_every_stays_behind_it():
    text = "SELECT COUNT(*) FROM A [RANGE 1 hour], B [NOW] WHERE A.k = B.k GROUP BY A.k EVERY 3 s"
    query = altered_query(text, "SET WINDOW 1 min")
    assert query.text.endswith("GROUP BY A.k\nWINDOW 1 min EVERY 3 s")
    assert query.aggregation.reach == (MIN, MIN)


def test_a_query_can_become_an_aggregate_and_keeps_its_options():
    text = f"CREATE QUERY q WITH (emit = 'final') AS SELECT COUNT(*) {JOIN} WINDOW 1 s; "
    script = parse_script(f"{text} ALTER QUERY q AS SELECT MAX(A.v) {JOIN} WINDOW 2 s", STREAMS)
    (query,) = script.queries
    assert (query.aggregation.emit, query.aggregation.measures) == ("final", (Measure("max", (0,)),))
    elsewhere = parse_script("ALTER QUERY q SET WINDOW 5 s EVERY 2 s").statements[0]
    changed = altered(grouped("COUNT(*)", ""), elsewhere, STREAMS)
    assert (changed.aggregation.every, changed.aggregation.reach) == (2 * S, (5 * S, 5 * S))


# what is the same however it is written


@given(
    st.permutations(["A.k", "B.w", "A.n + 1"]),
    st.sampled_from(["A, B", "B, A"]),
    st.booleans(),
    st.sampled_from(["GROUP BY {}", "GROUP BY ALL", "GROUP BY 1, 2, 3"]),
)
def test_keys_of_one_meaning_are_the_same_query(keys, tables, swapped, grouping):
    """The order of FROM, upper and lower case, and the way to name a key change nothing."""
    select = f"SELECT {', '.join(keys)}, sum(A.v) AS s FROM {tables} WHERE A.k = B.k {grouping.format(', '.join(keys))}"
    query = bind_query("q", f"{select.swapcase() if swapped else select} WINDOW 1 min", STREAMS)
    plain = bind_query(
        "q",
        f"SELECT {', '.join(keys)}, sum(A.v) AS s {JOIN} GROUP BY {', '.join(keys)} WINDOW 1 min",
        STREAMS,
    )
    assert (query.outputs, query.signature, query.window) == (plain.outputs, plain.signature, plain.window)
    found, expected = query.aggregation, plain.aggregation
    assert (found.measures, found.every, found.reach) == (expected.measures, expected.every, expected.reach)
    assert [each.expression for each in found.answers] == [each.expression for each in expected.answers]


rows = st.lists(st.tuples(*[st.one_of(st.none(), st.integers(-2, 2))] * 3), min_size=1, max_size=8)
pieces = st.sampled_from(["k", "k + 1", "count(*)", "sum(v)", "max(n)", "count(DISTINCT v)", "avg(v)", "min(k)",
                          "sum(v) FILTER (WHERE n > 0)", "count(*) FILTER (WHERE v > n)", "count_if(n IS NULL)",
                          "bool_and(n > 0)", "bool_or(v > 0)", "var_pop(v)", "count(v) + count(n)"])  # fmt: skip
answer_texts = st.lists(
    st.one_of(
        pieces,
        st.tuples(pieces.filter(lambda each: "bool" not in each), st.sampled_from("+-*"), st.sampled_from(["k", "2", "count(n)"])).map(" ".join),
    ),
    min_size=1,
    max_size=4,
)  # fmt: skip
conditions = st.sampled_from(
    ["count(*) > 1", "max(n) > 0", "k = 1", "sum(v) IS NULL", "TRUE", "x0 IS NOT NULL"]
)


@settings(max_examples=150, deadline=None)
@given(rows, answer_texts, conditions)
def test_what_is_bound_answers_what_was_asked(table, texts, having):
    """DuckDB is asked both: the query as written over a table, and step by step as the engine goes."""
    values = ", ".join(f"({', '.join('NULL' if v is None else str(v) for v in row)})" for row in table)
    source = f"(VALUES {values}) AS t(k, v, n)"
    items = ", ".join(f"{text} AS x{number}" for number, text in enumerate(texts))
    written = f"SELECT {items} FROM {source} GROUP BY k HAVING {having} ORDER BY ALL"
    known = {"A": stream("A", "k int, v int, n int, ts timestamp"), "B": stream("B", "j int, ts timestamp")}
    query = bind_query(
        "q", f"SELECT {items} FROM A, B WHERE A.k = B.j GROUP BY k HAVING {having} WINDOW 1 min", known
    )
    assert duckdb.sql(stepwise(query, source)).fetchall() == duckdb.sql(written).fetchall()


def stepwise(query, source):
    """Write a bound query as three steps: of each pair, of each group, and the answers."""
    found = query.aggregation
    outputs = ", ".join(f"{each.expression.replace('l.', '')} AS {each.name}" for each in query.outputs)
    names = [each.name for each in query.outputs]
    measures = [
        f"{each.function}({'DISTINCT ' * each.distinct}{', '.join(names[i] for i in each.arguments) or '*'}) AS a{number}"
        for number, each in enumerate(found.measures)
    ]
    keys = names[: found.groups]
    groups = f"SELECT {', '.join([*keys, *measures])} FROM (SELECT {outputs} FROM {source}) GROUP BY {', '.join(keys)}"
    final = ", ".join(f"{each.expression} AS {each.name}" for each in found.answers)
    return f"SELECT {final} FROM ({groups}) WHERE {found.having or 'TRUE'} ORDER BY ALL"


def test_the_pairs_of_an_aggregate_query_are_graded_and_not_its_answers():
    left, right = STREAMS["A"], STREAMS["B"]
    assert constancy_of(grouped("A.k, max(A.v) / 0 AS x"), (left, right)) == Constancy.ALWAYS
    assert constancy_of(grouped("A.k, rand() AS x"), (left, right)) == Constancy.ALWAYS
    assert constancy_of(grouped("A.k, sum(rand()) AS x"), (left, right)) == Constancy.ONCE
    hourly = grouped("COUNT(*)", "GROUP BY date_trunc('hour', A.ts)", "WINDOW 1 s", emit="final")
    assert constancy_of(hourly, (left, right)) == Constancy.SESSION


# what is wrong


NEVER = [
    ">>COUNT(*) = 0", ">>COUNT(*) < 1", ">>COUNT(*) <= 0", ">>0 = COUNT(*)", ">>1 > COUNT(*)", ">>0 >= COUNT(*)", ">>n = 0",
    "MAX(A.v) > 1 AND (>>COUNT(*) == 0)", ">>COUNT(1) <=> 0", ">>COUNT(*) !> 0", ">>(COUNT(*)) = -5",
    ">>NOT COUNT(*) > 0", ">>NOT (COUNT(*) > 0)", ">>NOT COUNT(*) >= 1", ">>NOT COUNT(*) <> 0", ">>NOT 0 < COUNT(*)",
    ">>NOT NOT COUNT(*) = 0", ">>COUNT(*) BETWEEN 0 AND 0", ">>COUNT(*) BETWEEN -1 AND 0.5", ">>COUNT(*) IN (0)",
    ">>COUNT(*) IN (0, -1)", ">>COUNT(*) = 0L", ">>COUNT(*) = 0.0", ">>COUNT(*) < 0.5", ">>COUNT(*) < 1.0", "n != 1 AND >>n < 1",
]  # fmt: skip


@pytest.mark.parametrize(
    "having",
    ["COUNT(*) = 1", "COUNT(*) < 2", "COUNT(*) <= 1", "1 >= COUNT(*)", "COUNT(*) >= 0", "0 < COUNT(*)", "COUNT(A.v) = 0",
     "COUNT(*) FILTER (WHERE A.v > 1) = 0", "COUNT(*) = 0 OR MAX(A.v) > 1", "SUM(A.n) = 0", "COUNT(*) <> 0", "0 = 0",
     "NOT COUNT(*) = 0", "NOT COUNT(*) > 1", "NOT COUNT(*) <= 0", "COUNT(*) NOT IN (0)", "COUNT(*) IN (0, 1)", "COUNT(*) IN (0, MAX(A.n))",
     "COUNT(*) BETWEEN 0 AND 1", "COUNT(*) NOT BETWEEN 0 AND 0", "COUNT(*) < 1.5", "COUNT(*) = 1L", "NOT NOT COUNT(*) > 0",
     "COUNT(*) FILTER (WHERE A.v > 1) IN (0)", "NOT COUNT(A.v) > 0", "NOT (COUNT(*) > 0 AND MAX(A.v) > 1)", "0 = COUNT(A.v)",
     "COUNT(*) = NULL"],
)  # fmt: skip
def test_a_condition_on_the_number_of_pairs_that_may_hold_is_accepted(having):
    assert grouped("COUNT(*)", f"HAVING {having}").aggregation.having


WRONG = [
    (f"SELECT A.k, >>A.v, COUNT(*) {JOIN} GROUP BY A.k WINDOW 1 s", "A.v is neither grouped nor in an aggregate, so it has several values in a group: add it to GROUP BY, or wrap it, as in MAX(A.v)"),
    (f"SELECT >>A.v, COUNT(*) {JOIN} WINDOW 1 s", "add GROUP BY A.v, or wrap it"),
    (f"SELECT >>B.k, COUNT(*) {JOIN} GROUP BY A.k WINDOW 1 s", "B.k is neither grouped"),
    (f"SELECT date_trunc('day', >>A.ts) {JOIN} GROUP BY date_trunc('hour', A.ts) WINDOW 1 s", "A.ts is neither grouped"),
    (f"SELECT >>*, COUNT(*) {JOIN} GROUP BY A.k WINDOW 1 s", "A.n is neither grouped"),
    (f"SELECT A.k {JOIN} GROUP BY A.k HAVING >>B.w > 1 WINDOW 1 s", "B.w is neither grouped"),
    (f"SELECT >>A.k {JOIN} HAVING COUNT(*) > 1 WINDOW 1 s", "A.k is neither grouped"),
    *((f"SELECT COUNT(*) AS n {JOIN} HAVING {never} WINDOW 1 s", "no group has COUNT(*) = 0, as rows without a partner") for never in NEVER),
    (f"SELECT COUNT(*) {JOIN} AND >>sum(A.v) > 1 WINDOW 1 s", "an aggregate cannot stand in WHERE: put it in HAVING"),
    ("SELECT COUNT(*) FROM A JOIN B ON A.k = B.k AND >>sum(A.v) > 1 WINDOW 1 s", "an aggregate cannot stand in ON: put it in HAVING"),
    (f"SELECT sum(>>COUNT(*)) {JOIN} WINDOW 1 s", "an aggregate cannot stand in an aggregate"),
    (f"SELECT MAX(A.v) FILTER (WHERE >>COUNT(*) > 1) {JOIN} WINDOW 1 s", "an aggregate cannot stand in an aggregate"),
    (f"SELECT transform(A.tags, x -> >>sum(x)) {JOIN} GROUP BY A.tags WINDOW 1 s", "an aggregate cannot stand in a lambda"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY >>sum(A.v) WINDOW 1 s", "an aggregate cannot stand in GROUP BY"),
    (f"SELECT COUNT(*) AS c {JOIN} GROUP BY >>c WINDOW 1 s", "an aggregate cannot stand in GROUP BY"),
    (f"SELECT COUNT(*) AS c {JOIN} GROUP BY >>1 WINDOW 1 s", "GROUP BY 1 is an aggregate, c"),
    (f"SELECT A.k, COUNT(*) {JOIN} GROUP BY >>3 WINDOW 1 s", "GROUP BY 3 is no item of the SELECT list: it has items 1 to 2"),
    (f"SELECT A.k, COUNT(*) {JOIN} GROUP BY ->>1 WINDOW 1 s", "GROUP BY -1 is no item"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY >>ROLLUP (A.k) WINDOW 1 s", "ROLLUP is not supported: write a query for each set of columns"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY >>cube(A.k) WINDOW 1 s", "CUBE is not supported"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY A.k >>WITH ROLLUP WINDOW 1 s", "WITH ROLLUP is not supported"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY >>GROUPING SETS ((A.k), ()) WINDOW 1 s", "GROUPING SETS is not supported"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY A.k >>grouping sets ((A.k)) WINDOW 1 s", "GROUPING SETS is not supported"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY >>A.attrs WINDOW 1 s", "GROUP BY compares values of map<string,int>"),
    (f"SELECT COUNT(DISTINCT >>A.attrs) {JOIN} WINDOW 1 s", "DISTINCT compares values of map<string,int>"),
    (f"SELECT MAX(>>A.attrs) {JOIN} WINDOW 1 s", "MAX compares values of map<string,int>"),
    (f"SELECT >>sum(A.v, A.n) {JOIN} WINDOW 1 s", "SUM takes one argument, and this call has 2"),
    (f"SELECT >>COUNT() {JOIN} WINDOW 1 s", "COUNT counts nothing: write COUNT(*)"),
    (f"SELECT every(>>A.v) {JOIN} WINDOW 1 s", "EVERY is for conditions, and this is double"),
    (f"SELECT >>max_by(A.v) {JOIN} WINDOW 1 s", "MAX_BY takes two arguments, and this call has 1: write MAX_BY(x, y) for the x of the pair with the greatest y"),
    (f"SELECT >>min_by(A.v, A.n, 2) {JOIN} WINDOW 1 s", "MIN_BY takes two arguments, and this call has 3"),
    (f"SELECT max_by(A.v, >>A.attrs) {JOIN} WINDOW 1 s", "MAX_BY compares values of map<string,int>"),
    (f"SELECT >>stddev(DISTINCT A.v) {JOIN} WINDOW 1 s", "STDDEV takes no DISTINCT"),
    (f"SELECT >>collect_list(A.v) {JOIN} WINDOW 1 s", "the aggregate COLLECT_LIST is not supported: choose from COUNT, SUM, AVG"),
    (f"SELECT >>lower(A.name) FILTER (WHERE TRUE) {JOIN} WINDOW 1 s", "FILTER (WHERE ...) is for aggregates"),
    (f"SELECT COUNT(*) >>OVER (PARTITION BY A.k) {JOIN} WINDOW 1 s", "a window function (OVER) is not supported"),
    (f"SELECT COUNT(*) {JOIN} WINDOW 1 min >>EVERY 2 min", "EVERY of q3 is 2 min and its window 1 min"),
    (f"SELECT COUNT(*) {JOIN} WINDOW 1 min >>EVERY 1.5 microseconds", "EVERY of q3 is 1.5 microseconds, which is not a whole number of microseconds"),
    (f"SELECT COUNT(*) {JOIN} WINDOW 1 min >>EVERY 0 s", "EVERY of q3 is 0 s: it must be positive"),
    (f"SELECT COUNT(*) {JOIN} WINDOW 1 min >>EVERY -5 s", "EVERY of q3 is -5 s: it must be positive"),
    (f"SELECT COUNT(*) {JOIN} WINDOW 1 min >>EVERY", "EVERY of q3 has no length: write EVERY 10 seconds"),
    (f"SELECT COUNT(*) {JOIN} WINDOW 1 min >>EVERY 5 ROWS", "has an unknown unit ROWS"),
    (f"SELECT A.v {JOIN} WINDOW 1 min >>EVERY 1 s", "EVERY is for aggregates, and q3 has none"),
    (f">>SELECT COUNT(*) {JOIN} AND A.ts < B.ts AND B.ts < A.ts + INTERVAL 1 HOUR EVERY 1 s", "has no WINDOW that slides: add WINDOW 1 min EVERY 10 s"),
    (f"SELECT COUNT(*) {JOIN} >>WINDOW 5 ROWS", "a window that counts rows (5 ROWS)"),
    ("SELECT COUNT(*) FROM A [RANGE 1 s], B >>[UNBOUNDED] WHERE A.k = B.k", "a window that is unbounded"),
    (f"SELECT >>COUNT(*) AS Window_End {JOIN} WINDOW 1 min", "called Window_End, like one that emit = 'sliding' adds"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY >>window(A.ts, '10 minutes', '5 minutes') WINDOW 1 s", "write WINDOW 10 min EVERY 5 min at the end"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY window(A.ts, >>A.k) WINDOW 1 s", "this is not a length of time: write window(A.ts, '10 minutes')"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY window(A.ts, >>'1 month') WINDOW 1 s", "no fixed length"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY >>window(A.ts) WINDOW 1 s", "cannot read this window"),
    (f"SELECT COUNT(*) {JOIN} GROUP BY >>session_window(A.ts, '5 min') WINDOW 1 s", "session_window is not supported"),
]  # fmt: skip
WRONG_OPTIONS = [
    ("final", f">>SELECT A.v {JOIN} WINDOW 1 s", "emit = 'final' is for aggregates, and q3 has none"),
    ("final", f"SELECT COUNT(*) {JOIN} WINDOW 1 min >>EVERY 1 s", "EVERY is for sliding answers, and emit of q3 is final"),
    ("changes", f"SELECT COUNT(*) {JOIN} WINDOW 1 min >>EVERY 1 s", "emit of q3 is changes"),
    ("changes", f"SELECT COUNT(*) {JOIN} GROUP BY >>A.k WINDOW 1 s", "this group key is not in its SELECT list"),
    ("changes", f"SELECT A.k + 1 {JOIN} GROUP BY >>A.k WINDOW 1 s", "this group key is not in its SELECT list"),
    ("changes", f"SELECT >>COUNT(*) AS _op {JOIN} WINDOW 1 s", "called _op, like one that emit = 'changes' adds"),
    ("changes", f"SELECT >>COUNT(*) AS _SEQ {JOIN} WINDOW 1 s", "called _SEQ"),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "message"), WRONG)
def test_a_wrong_aggregate_is_refused_where_it_is_wrong(marked, message):
    check(bind, marked, message)


@pytest.mark.parametrize(("emit", "marked", "message"), WRONG_OPTIONS)
def test_what_does_not_fit_the_way_to_answer_is_refused_where_it_stands(emit, marked, message):
    check(lambda text: bind_query("q3", text, STREAMS, options={"emit": emit}), marked, message)


def test_an_unknown_way_to_answer_is_refused_with_the_choices():
    text = f"CREATE QUERY q WITH (>>emit = 'soon') AS SELECT COUNT(*) {JOIN} WINDOW 1 s"
    message = "emit cannot be soon: choose one of: sliding, final, changes"
    check(lambda script: parse_script(script, STREAMS), text, message)
    with pytest.raises(InputError, match=message):
        grouped("COUNT(*)", "", emit="soon")


def test_an_alter_that_does_not_fit_is_refused_where_it_stands():
    text = f"CREATE QUERY q AS SELECT COUNT(*) {JOIN} WINDOW 1 hour EVERY 2 min; ALTER QUERY q SET >>WINDOW 1 min"
    check(lambda script: parse_script(script, STREAMS), text, "EVERY of q is 2 min and its window 1 min")
