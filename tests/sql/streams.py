"""The streams and the short forms every test of this room uses."""

from penstock.sql.bind.binder import bind_query
from penstock.sql.query import Column, Query, Stream

_TYPES = {
    "A": "k bigint, n int, v double, name string, flag boolean, day date, amount decimal(10,2), "
    "tags array<int>, attrs map<string,int>, place struct<City:string,zip:int>, order string, ts timestamp",
    "B": "k bigint, n bigint, w double, Name string, flag boolean, day date, amount decimal(12,4), "
    "tags array<bigint>, attrs map<string,int>, seen timestamp, big decimal(20,0), ts timestamp",
}


def stream(name: str, columns: str, time: str = "ts") -> Stream:
    """Declare a stream in one line: columns as ``name type`` separated by a comma and a space."""
    pairs = [each.split(" ", 1) for each in columns.split(", ")]
    return Stream(name, tuple(Column(column, kind) for column, kind in pairs), time)


STREAMS = {name: stream(name, columns) for name, columns in _TYPES.items()}
STREAMS["Days"] = stream("Days", "k bigint, d date", time="d")
STREAMS["Nights"] = stream("Nights", "k bigint, d date", time="d")


def bind(text: str) -> Query:
    """Bind a SELECT over `STREAMS` as q3."""
    return bind_query("q3", text, STREAMS)


def where(condition: str, window: str = "WINDOW 10 s") -> Query:
    """Bind a join of A and B on k with one more condition."""
    return bind(f"SELECT A.v FROM A, B WHERE A.k = B.k AND {condition} {window}")
