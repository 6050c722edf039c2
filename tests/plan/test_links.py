"""Links: what must be equal in which inputs, and which keys a stream is logged by."""

from __future__ import annotations

import pytest

from penstock.plan.build import build_plan
from penstock.plan.links import columns_of_input, links_of
from penstock.sql.script import parse_script

STREAMS = "".join(
    f"CREATE STREAM {name} (k BIGINT, j BIGINT, i INT, s STRING, ts TIMESTAMP) "
    f"WITH (format = 'parquet', path = '{name}', time = 'ts');"
    for name in "ABCD"
)


def planned(*conditions):
    """Plan a query over as many of A, B, C, D as each condition names."""
    queries = ""
    for number, condition in enumerate(conditions):
        names = ", ".join(name for name in "ABCD" if f"{name}." in condition)
        queries += f"CREATE QUERY q{number} AS SELECT A.k FROM {names} WHERE {condition} WINDOW 1 min;"
    script = parse_script(STREAMS + queries)
    return script, build_plan(script.streams, script.queries)


def links(condition):
    """Give the links of a query: the inputs of each, and the expressions of the first."""
    script, plan = planned(condition)
    (group,) = plan.groups
    streams = {name.lower(): each for name, each in script.streams.items()}
    return [(link.inputs, str(link)) for link in links_of(group.signature, streams)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("A.k = B.k AND B.k = C.k", [((0, 1, 2), "k")]),
        ("A.k = B.k AND B.j = C.j", [((0, 1), "k"), ((1, 2), "j")]),
        ("A.k = B.k AND A.j = B.j AND B.s = C.s", [((0, 1), "j, k"), ((1, 2), "s")]),
        ("A.k = B.k AND B.k = C.k AND A.j = C.j", [((0, 1, 2), "k"), ((0, 2), "j")]),
        ("A.k = B.k AND A.j = B.k AND B.k = C.k", [((0, 1, 2), "j, k")]),
        ("A.k = B.k AND C.k = D.k AND A.j < C.j", [((0, 1), "k"), ((0, 2), "time alone"), ((2, 3), "k")]),
    ],
)
def test_equalities_that_follow_from_each_other_are_one_link(condition, expected):
    assert links(condition) == expected


def test_a_text_that_equals_two_numbers_does_not_make_them_equal():
    """``'1' = 1`` and ``'1' = '01'`` are compared as other types, so they are two links."""
    assert len(links("A.s = B.i AND A.s = C.s")) == 2


def test_a_stream_is_logged_by_each_of_its_keys_and_no_more():
    _, plan = planned("A.k = B.k AND B.j = C.j")
    keys = sorted((log.stream, log.order) for log in plan.logs)
    assert keys == [("A", "k"), ("B", "j"), ("B", "k"), ("C", "j")]


def test_an_input_with_one_key_stores_no_other():
    _, plan = planned("A.k = B.k AND B.j = C.j")
    (group,) = plan.groups
    assert [bool(columns_of_input(number, group.links)) for number in range(3)] == [False, True, False]


def test_a_join_of_three_shares_the_logs_of_a_join_of_two():
    _, plan = planned("A.k = B.k AND B.k = C.k", "A.k = B.k")
    three, two = plan.groups
    assert {log.id for log in two.logs} <= {log.id for log in three.logs}
    assert len(plan.logs) == 3


def test_windows_of_one_join_share_a_chain():
    script = parse_script(
        STREAMS
        + "".join(
            f"CREATE QUERY q{w} AS SELECT A.k FROM A, B, C WHERE A.k = B.k AND B.k = C.k WINDOW {w} s;"
            for w in (10, 60)
        )
    )
    (group,) = build_plan(script.streams, script.queries).groups
    assert group.chain.cuts == (0, 10_000_000, 60_000_000)
    assert [member.levels for member in group.members] == [(0, 1), (0, 2)]
