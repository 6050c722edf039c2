"""Queries without a window: which are read, and which are refused with the ways out."""

import pytest

from penstock.errors import SqlError
from penstock.sql.arrival import known_multiplicity, known_scrambling
from penstock.sql.bind import bind_query
from penstock.sql.query import FOREVER, Range
from penstock.sql.script import parse_script
from tests.sql.streams import stream
from tests.sql.test_errors import check

COLUMNS = "epoch bigint, i int, v double, name string, d date, t timestamp, m decimal(20,2), ts timestamp"
STREAMS = {each: stream(each, COLUMNS) for each in ("S1", "S2", "S3", "S4")}
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
    assert caught.value.message.endswith(why)
    for way_out in ("WINDOW 1 min", "[UNBOUNDED]", "punctuations"):
        assert way_out in caught.value.message


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
        (FOUR, {"order": "filter-order"}, "order = 'filter-order' goes by event time"),
        (FOUR, {"idle_after": "1 min"}, "idle_after = '1 min' goes by event time"),
    ],
)
def test_what_goes_by_time_is_refused(text, options, message):
    with pytest.raises(SqlError) as caught:
        bind(text, options)
    assert message in caught.value.message


def test_a_stream_needs_no_time_but_a_window_needs_one():
    sensors = (
        "CREATE STREAM A (k BIGINT) WITH (format='rate', scrambling='500', multiplicity='1');"
        "CREATE STREAM B (k BIGINT) WITH (format='rate');"
    )
    script = parse_script(f"{sensors} CREATE QUERY q AS SELECT A.k FROM A, B WHERE A.k = B.k")
    first = script.statements[0].stream
    assert first.timeless
    assert (known_scrambling(first), known_multiplicity(first)) == (500, 1)
    with pytest.raises(SqlError, match="q has a window, and stream A has no event time"):
        parse_script(f"{sensors} CREATE QUERY q AS SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 1 s")


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
        (f"{DECLARED}, >>lateness = '1 s')", "option lateness goes by event time, and stream S has none"),
        (f"{DECLARED}, >>retain = '1 s')", "option retain goes by event time"),
        (f"{DECLARED}, >>unique = 'epoch')", "option unique goes by event time"),
        (f"{DECLARED}, >>scramblng = '5')", "unknown option scramblng: did you mean scrambling?"),
    ],
)
def test_characteristics_that_cannot_be_are_refused_where_they_stand(marked, message):
    check(parse_script, marked, message)
