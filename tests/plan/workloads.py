"""Queries drawn at random, as values: no SQL is parsed for the tests of this room."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.sql.query import Column, Comparison, Key, OutputColumn, Query, Range, Sink, Stream

COLUMNS = (
    Column("id", "bigint"), Column("k", "bigint"), Column("n", "int"), Column("name", "string"),
    Column("day", "date"), Column("ts", "timestamp"),
)  # fmt: skip
STREAMS = {name: Stream(name, COLUMNS, "ts", lateness=5) for name in ("A", "B", "C")}
KEYS = (Key("k", "k"), Key("n", "k", "bigint"), Key("name", "name"))
PREDICATES = ("id > 0", "id > 1", "name = 'x'")


def ranges(around=30):
    """Some window, also one that does not contain 0."""
    ends = st.lists(st.integers(-around, around), min_size=2, max_size=2, unique=True)
    return ends.map(lambda two: Range(min(two), max(two)))


def chains(most=6):
    """The windows of a group by the name of the query."""
    return st.dictionaries(st.sampled_from([f"q{n}" for n in range(9)]), ranges(), min_size=1, max_size=most)


_pairs = st.sampled_from([("A", "B"), ("A", "C"), ("B", "B"), ("B", "C")])
_keys = st.sampled_from([(KEYS[0],), (KEYS[1],), (KEYS[2],), tuple(sorted(KEYS[::2])), ()])
_predicates = st.sampled_from([(), PREDICATES[:1], PREDICATES[:2], PREDICATES[1:]])
_columns = st.sampled_from([frozenset(), frozenset({"id"}), frozenset({"id", "ts"}), frozenset({"n"})])
_rest = st.sampled_from(
    [
        {"outputs": (OutputColumn("id", "l.id", ("l", "id")),)},
        {
            "outputs": (OutputColumn("two", "l.id + r.id"),),
            "residual": ("l.n < r.n",),
            "text": "SELECT ünïcode",
            "comparisons": (Comparison("n", "n", None, -1, (7, 7)),),
        },
        {"outputs": (), "sink": Sink("parquet", (("path", "out/it"),)), "options": (("order", "none"),)},
    ]
)


@st.composite
def queries(draw, name="q"):
    """A query on two of the streams, or on one with itself."""
    (left, right), rest = draw(_pairs), draw(_rest)
    return Query(
        name=name,
        left=left,
        right=right,
        keys=draw(_keys),
        window=draw(ranges()),
        left_predicates=draw(_predicates),
        right_predicates=draw(_predicates),
        left_columns=draw(_columns),
        right_columns=draw(_columns),
        **rest,
    )


@st.composite
def workloads(draw, most=4):
    """Several queries with names of their own."""
    return tuple(draw(queries(f"q{number}")) for number in range(draw(st.integers(1, most))))
