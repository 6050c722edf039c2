"""Queries without a window: which are read, and which are refused with the ways out."""

from dataclasses import replace

import pytest

from penstock.errors import SqlError
from penstock.sql.bind.arrival import known_multiplicity, known_scrambling, ordered_column
from penstock.sql.bind.binder import bind_query
from penstock.sql.query import FOREVER, Range
from penstock.sql.script import parse_script
from tests.sql.streams import stream
from tests.sql.test_errors import check

COLUMNS = "epoch bigint, i int, v double, name string, d date, t timestamp, m decimal(20,2), ts timestamp"
STREAMS = {
    each: replace(stream(each, COLUMNS), options=(("scrambling", "4"),)) for each in ("S1", "S2", "S3", "S4")
}
FOUR = """SELECT S1.epoch, S1.v AS v1, S2.v AS v2, S3.v AS v3, S4.v AS v4 FROM S1, S2, S3, S4
    WHERE S1.epoch = S2.epoch AND S2.epoch = S3.epoch AND S3.epoch = S4.epoch"""
DECLARED = "CREATE STREAM S (epoch BIGINT, ts TIMESTAMP) WITH (format = 'rate'"


def bind(text, options=None):
    """Bind a SELECT over four sensors."""
    return bind_query("q", text, STREAMS, None, options)


def test_four_sensors_are_joined_without_a_window():
    query = bind(FOUR)
    assert query.oblivious
    assert query.signature.oblivious
    assert {limit for row in query.graph.limits for limit in row} == {1, FOREVER}


def test_a_window_is_another_signature():
    pair = "SELECT S1.v FROM S1, S2 WHERE S1.epoch = S2.epoch"
    without, unbounded = bind(pair), bind(pair.replace("S1, S2", "S1 [UNBOUNDED], S2 [UNBOUNDED]"))
    assert without.window == unbounded.window == Range.window(FOREVER, FOREVER)
    assert without.signature != unbounded.signature


@pytest.mark.parametrize(
    "condition",
    [
        "a.i = b.i",
        "a.i = b.epoch",
        "a.v = b.v",
        "a.d = b.d",
        "a.t = b.t",
        "a.m = b.m",
        "a.epoch + 1 = b.epoch",
    ],
)
def test_every_type_with_an_order_decides_how_long_to_remember(condition):
    assert bind(f"SELECT a.v FROM S1 a, S2 b WHERE {condition}").oblivious


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ("a.name = b.name", "name, which is string, has no order that streams follow"),
        ("a.epoch = b.epoch AND a.i = b.i", "S1 is joined on several: epoch, i"),
        ("a.v > b.v", "not all streams are joined on one attribute"),
    ],
)
def test_what_has_no_order_needs_a_window(conditions, why):
    with pytest.raises(SqlError) as caught:
        bind(f"SELECT a.v FROM S1 a, S2 b WHERE {conditions}")
    assert f"q has no window, and {why}. To have one, write" in caught.value.message
    for way_out in ("WINDOW 1 min", "[UNBOUNDED]", "punctuations"):
        assert way_out in caught.value.message


SENSORS = {name: stream(name, COLUMNS) for name in ("S1", "S2", "S3")}


def over(text, **ordered):
    """Bind a SELECT over sensors that declare these ordered columns."""
    options = {name: (("ordered", column),) for name, column in ordered.items()}
    known = {name: replace(each, options=options.get(name, ())) for name, each in SENSORS.items()}
    return bind_query("q", text, known)


ORDERED = [
    ("a.epoch = b.epoch", "epoch"),
    ("a.EPOCH = b.epoch", "epoch"),
    ("a.epoch + 1 = b.epoch - 2", "epoch"),
    ("CAST(a.epoch AS INT) = b.epoch", "epoch"),
    ("a.t = b.t", "t"),
]


@pytest.mark.parametrize(("condition", "column"), ORDERED)
def test_a_window_may_be_left_out_only_where_every_stream_declares_the_order(condition, column):
    text = f"SELECT a.v FROM S1 a, S2 b WHERE {condition}"
    assert over(text, S1=column, S2=column).oblivious
    for declared, missing in (({}, "S1 and S2"), ({"S1": column}, "S2"), ({"S2": column}, "S1")):
        with pytest.raises(SqlError) as caught:
            over(text, **declared)
        ways_out = "WINDOW 1 min", "[UNBOUNDED]", f"declare ordered = '{column}' on {missing}"
        assert all(each in caught.value.message for each in ways_out)
        assert caught.value.message.endswith(missing)
        assert (caught.value.place.line, caught.value.place.column) == (1, 1)


def test_streams_may_be_ordered_by_columns_of_different_names():
    text = "SELECT a.v FROM S1 a, S2 b, S3 c WHERE a.epoch = b.i AND b.i = c.epoch"
    assert over(text, S1="epoch", S2="i", S3="epoch").oblivious
    with pytest.raises(SqlError, match=r"declare ordered = 'epoch' on S1 and S3 and ordered = 'i' on S2 \("):
        over(text)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("a.i = b.i", "S1 is joined on i and declared as ordered by epoch"),
        ("a.epoch % 10 = b.epoch", "S1 is joined on epoch % 10 and declared as ordered by epoch"),
        ("- a.epoch = b.epoch", "S1 is joined on -epoch and declared as ordered by epoch"),
        (
            "CAST(a.name AS INT) = b.epoch",
            "S1 is joined on CAST(name AS INT) and declared as ordered by epoch",
        ),
    ],
)
def test_a_join_on_another_column_than_the_ordered_one_is_refused(condition, why):
    with pytest.raises(SqlError) as caught:
        over(f"SELECT a.v FROM S1 a, S2 b WHERE {condition}", S1="epoch", S2="epoch")
    assert f"q has no window, and {why}" in caught.value.message
    for way_out in ("Join on S1.epoch", "WINDOW 1 min", "[UNBOUNDED]"):
        assert way_out in caught.value.message


def test_a_scrambling_is_about_whatever_the_stream_is_joined_on_unless_it_is_ordered_by_a_column():
    text = "SELECT a.v FROM S1 a, S2 b WHERE a.i % 10 = b.i"
    assert bind(text).oblivious
    known = STREAMS | {"S1": replace(STREAMS["S1"], options=(("scrambling", "4"), ("ordered", "epoch")))}
    with pytest.raises(SqlError, match="S1 is joined on i % 10 and declared as ordered by epoch"):
        bind_query("q", text, known)
    with pytest.raises(SqlError, match="declare scrambling = '<rows>' on S1 and ordered = 'i' on S2"):
        over(text)


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ("a.epoch = b.epoch AND b.i = c.i", "S2 is joined on several: epoch, i"),
        ("a.i = b.i AND CAST(b.i AS DOUBLE) = c.v", "S2 is joined on several"),
        ("a.i = b.i AND b.i = c.v", "values are compared as floating-point numbers and as whole numbers"),
        (
            "a.m = b.m AND b.m = c.v",
            "values are compared as decimal(20,2) and as floating-point numbers: CAST",
        ),
        ("a.epoch = b.epoch AND b.v > c.v", "not all streams are joined on one attribute"),
    ],
)
def test_many_streams_need_one_attribute(conditions, why):
    with pytest.raises(SqlError) as caught:
        bind(f"SELECT a.v FROM S1 a, S2 b, S3 c WHERE {conditions}")
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "SELECT COUNT(*) AS n FROM S1, S2 WHERE S1.epoch = S2.epoch",
            {},
            "aggregates answer when time has passed",
        ),
        (FOUR, {"order": "filter-order"}, "order = 'filter-order' needs event time"),
        (FOUR, {"idle_after": "1 min"}, "idle_after = '1 min' needs event time"),
    ],
)
def test_what_goes_by_time_is_refused(text, options, message):
    with pytest.raises(SqlError) as caught:
        bind(text, options)
    assert message in caught.value.message


def test_a_stream_needs_no_time_but_a_window_needs_one():
    sensors = (
        "CREATE STREAM A (k BIGINT) WITH (format='rate', scrambling='500', multiplicity='1');"
        "CREATE STREAM B (k BIGINT) WITH (format='rate', Ordered='K');"
    )
    script = parse_script(f"{sensors} CREATE QUERY q AS SELECT A.k FROM A, B WHERE A.k = B.k")
    first = script.statements[0].stream
    assert first.timeless
    assert (known_scrambling(first), known_multiplicity(first)) == (500, 1)
    assert ordered_column(script.streams["B"]) == "k"
    with pytest.raises(SqlError, match="q has a window, and stream A has no event time"):
        parse_script(f"{sensors} CREATE QUERY q AS SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 1 s")


def test_streams_without_a_time_are_asked_for_one_or_for_an_order_and_for_nothing_else():
    """A window alone is no way out: it is refused for want of a time."""
    sensors = {name: replace(stream(name, COLUMNS), time="") for name in ("S1", "S2")}
    pair = "SELECT a.v FROM S1 a, S2 b WHERE a.epoch = b.epoch"
    way = "To have one, declare time = 'd' on S1 and S2, and write WINDOW 1 min at its end"
    other = "leave windows and conditions on time out, and declare it WITH (ordered = '<column>')"
    for text, ways_out in (
        (
            pair,
            f"join column. {way}; or, if rows arrive roughly in that order, declare ordered = 'epoch' on S1 and S2",
        ),
        (f"{pair} AND a.i = b.i", f"several: epoch, i. {way}"),
        (f"{pair} WINDOW 1 s", f"declare it WITH (time = '<column>'). Or {other}"),
    ):
        with pytest.raises(SqlError) as caught:
            bind_query("q", text, sensors)
        assert ways_out in caught.value.message
        assert "UNBOUNDED" not in caught.value.message
    one = {**sensors, "S1": replace(sensors["S1"], options=(("ordered", "i"),))}
    with pytest.raises(SqlError, match=r"Join on S1.i; or declare time = 'd' on S1 and S2, and write"):
        bind_query("q", pair, one)


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        (
            f"{DECLARED}, scrambling = >>'-1')",
            "scrambling '-1' is not a number of rows: it must be whole, and 0 or",
        ),
        (f"{DECLARED}, scrambling = >>'many')", "scrambling 'many' is not a number of rows"),
        (
            f"{DECLARED}, multiplicity = >>'0')",
            "multiplicity '0' is not a number of rows: it must be whole, and 1",
        ),
        (
            f"{DECLARED}, scrambling = '1', multiplicity = >>'5')",
            "multiplicity 5 and scrambling 1 contradict each",
        ),
        (
            f"{DECLARED}, ordered = >>'epch')",
            "ordered column epch is not a column of S: did you mean epoch?",
        ),
        (
            "CREATE STREAM S (name STRING) WITH (format = 'rate', ordered = >>'name')",
            "ordered column name of S is string, which has no order that streams follow. Name a column of numbers",
        ),
        (f"{DECLARED}, >>orderd = 'epoch')", "unknown option orderd: did you mean ordered?"),
        (f"{DECLARED}, >>lateness = '1 s')", "option lateness needs event time, and stream S has none"),
        (f"{DECLARED}, >>retain = '1 s')", "option retain needs event time"),
        (f"{DECLARED}, >>unique = 'epoch')", "option unique needs event time"),
        (f"{DECLARED}, >>scramblng = '5')", "unknown option scramblng: did you mean scrambling?"),
    ],
)
def test_characteristics_that_cannot_be_are_refused_where_they_stand(marked, message):
    check(parse_script, marked, message)
