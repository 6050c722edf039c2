"""A predicate that may fail is never evaluated without the ones that guard it."""

from __future__ import annotations

from penstock.sql.bind import bind_query
from penstock.sql.query import Column, Stream

STREAMS = {
    name: Stream(name, (Column("k", "bigint"), Column("x", "int"), Column("ts", "timestamp")), "ts")
    for name in ("A", "B")
}


def predicates(where: str) -> tuple[str, ...]:
    text = f"SELECT A.k FROM A JOIN B ON A.k = B.k WHERE {where} WINDOW 1 min"
    return bind_query("q", text, STREAMS).left_predicates


def test_a_division_stands_behind_the_test_that_guards_it() -> None:
    assert predicates("10 / A.x > 1 AND A.x <> 0") == ("x <> 0", "(x <> 0) AND (10 / x > 1)")


def test_plain_predicates_stay_apart_so_that_each_can_be_shared() -> None:
    assert predicates("A.x > 3 AND A.x < 9") == ("x < 9", "x > 3")


def test_a_risky_predicate_alone_is_one_predicate() -> None:
    assert predicates("10 / A.x > 1") == ("10 / x > 1",)
