"""What the columns of a result are called and what they hold."""

import pytest

from penstock.sql.bind.binder import bind_query
from penstock.sql.query import OutputColumn
from tests.sql.streams import bind, stream

TEMPERATURE = stream("Temperature", "LocationId bigint, Value double, ts timestamp")
HUMIDITY = stream("Humidity", "LocationId bigint, Value double, ts timestamp")
SENSORS = {"Temperature": TEMPERATURE, "Humidity": HUMIDITY}


def names(select, join="FROM Temperature A, Humidity B WHERE A.LocationId = B.LocationId"):
    query = bind_query("q", f"SELECT {select} {join} WINDOW 1 s", SENSORS)
    return [each.name for each in query.outputs]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("*", ["LocationId", "Value", "ts", "B_LocationId", "B_Value", "B_ts"]),
        ("B.*", ["LocationId", "Value", "ts"]),
        ("B.*, A.value", ["LocationId", "Value", "ts", "A_Value"]),
        ("a.VALUE", ["Value"]),
        ("A.Value, B.Value", ["Value", "B_Value"]),
        ("A.Value AS t, B.Value h", ["t", "h"]),
        ("A.Value + 1, A.Value+1 AS `x y`", ["A.Value + 1", "x y"]),
        ("A.Value\n  +\t1", ["A.Value + 1"]),
        ("ALL A.Value + 1", ["A.Value + 1"]),
        ("/* BROADCAST(B) */ A.Value + 1, 2", ["A.Value + 1", "2"]),
        ("coalesce(A.Value, 0), A.ts", ["coalesce(A.Value, 0)", "ts"]),
    ],
)
def test_names_are_those_of_the_columns_and_a_taken_name_is_qualified(select, expected):
    assert names(select) == expected


def test_star_of_using_has_the_column_once_and_first():
    assert names("*", "FROM Temperature A JOIN Humidity B USING (ts, LocationId)") == [
        "ts",
        "LocationId",
        "Value",
        "B_Value",
    ]


def test_using_makes_the_bare_column_unambiguous():
    assert names("LocationId", "FROM Temperature A JOIN Humidity B USING (LocationId)") == ["LocationId"]


def test_star_of_streams_without_aliases_is_qualified_by_the_stream():
    join = "FROM Humidity, Temperature WHERE Humidity.LocationId = Temperature.LocationId"
    assert names("*", join)[3:] == ["Temperature_LocationId", "Temperature_Value", "Temperature_ts"]


def test_outputs_are_written_over_both_sides():
    query = bind(
        "SELECT y.w, x.order, x.v * (y.w + 1) AS p, x.place.City FROM B y, A x WHERE x.k = y.k WINDOW 1 s"
    )
    assert query.outputs == (
        OutputColumn("w", "r.w", ("r", "w")),
        OutputColumn("order", "l.`order`", ("l", "order")),
        OutputColumn("p", "l.v * (r.w + 1)"),
        OutputColumn("City", "l.place.City"),
    )


def test_the_text_is_kept_as_written():
    text = "select  A.v from A,B -- both\n where A.k=B.k\n window 1 s"
    assert bind(f"  {text} ; ").text == text
