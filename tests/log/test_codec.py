"""Values survive being written as JSON: the same come back, and the same plan is made of them."""

import json
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.change.plan_commit import served
from penstock.errors import RunError
from penstock.log.codec import FORMAT, decode, encode, from_json, to_json
from penstock.log.commits import Commit, Output, PlanServed, UnitJoined
from penstock.log.ledger import Ledger
from penstock.log.snapshot import dump, load
from penstock.log.values import Cursor, GroupState, QueryState, ServedPlan
from penstock.plan.build import Stopped, build_plan
from penstock.sql.query import Column, Stream
from tests.join.drawn import examples
from tests.plan.workloads import STREAMS, workloads

names = st.text(min_size=1, max_size=8)


@st.composite
def streams(draw):
    """A stream with any names and options."""
    columns = draw(
        st.dictionaries(names.map(str.lower), st.sampled_from(["bigint", "array<struct<a:int>>"]), min_size=1)
    )
    listed = tuple(Column(name, kind) for name, kind in columns.items())
    options = tuple(draw(st.dictionaries(names, names)).items())
    return Stream(
        draw(names),
        listed,
        listed[0].name,
        draw(st.integers(0, 9)),
        draw(st.sampled_from(["", "kafka"])),
        options,
    )


@examples(50)
@given(st.lists(streams(), unique_by=lambda each: each.name), workloads())
def test_streams_and_queries_come_back_as_they_went(declared, queries):
    stopped = tuple(Stopped(each, "it failed", "then") for each in queries[:1])
    plan = ServedPlan(tuple(declared), tuple(queries), cuts={"g": (3, 1 << 60)}, stopped=stopped)
    commit = PlanServed(plan, "start")
    assert decode(json.loads(json.dumps(encode(commit)))) == commit


@examples(50)
@given(workloads())
def test_a_plan_that_comes_back_is_the_same_plan(queries):
    plan = build_plan(STREAMS, queries)
    text = json.dumps(to_json(served(plan)))
    again = from_json(json.loads(text), ServedPlan)
    assert replace(again, streams=()) == replace(served(plan), streams=())
    assert build_plan(STREAMS, again.queries) == plan


@pytest.mark.parametrize("kind", get_args(Commit))
def test_a_commit_that_lacks_something_or_has_it_of_another_type_is_refused_by_name(kind):
    assert is_dataclass(kind)
    needed = [each for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
    if needed:
        with pytest.raises(RunError, match=f"{kind.KIND}.*cannot be read.*`{needed[0].name}`"):
            decode({"kind": kind.KIND, "format": FORMAT})
    for each in fields(kind):
        with pytest.raises(RunError, match="cannot be read"):
            decode({"kind": kind.KIND, "format": FORMAT, each.name: object()})


def test_a_state_of_format_2_is_read_with_its_cursors_of_two():
    """A cursor was the batches of both streams and a time; a group said `mixed` of its layouts."""
    group = GroupState((Cursor((3, 4)), Cursor((2, 1), 7)), (5, None), mixed_layouts=True)
    apart = replace(group, stations=((Cursor((2, 1), 7), (5, None)), (Cursor((3, 4)), (6, 8))))
    late = QueryState(backfill=Cursor((3, 4)))
    for commit in (
        PlanServed(ServedPlan(), "start", groups={"g": apart}, queries={"q": late, "r": QueryState()}),
        UnitJoined("g", group.cursors, (5, None), 9, Output(), stations=apart.stations),
    ):
        assert decode(_as_format_2(encode(commit))) == commit
    ledger = Ledger(groups={"g": apart}, queries={"q": late}, plan=ServedPlan())
    assert load(_as_format_2(dump(ledger))) == ledger


@pytest.mark.parametrize("number", [3, 4])
def test_a_state_of_format_3_or_4_is_read_as_it_is(number):
    group = GroupState((Cursor((3, 4)), Cursor((2, 1), 7)), (5, None), mixed_layouts=True)
    commit = UnitJoined("g", group.cursors, (5, None), 9, Output(), stations=group.stations)
    assert decode({**json.loads(json.dumps(encode(commit))), "format": number}) == commit
    ledger = Ledger(groups={"g": group}, plan=ServedPlan())
    assert load({**json.loads(json.dumps(dump(ledger))), "format": number}) == ledger


def _as_format_2(data):
    """Write cursors flat, as they were."""
    data = json.loads(json.dumps({**data, "format": 2}))
    for each in (data, *data.get("groups", {}).values()):
        if "cursors" in each:
            each["cursors"] = [[*batches, below] for batches, below, _ in each["cursors"]]
            each["stations"] = [[[*batches, below], marks] for (batches, below, _), marks in each["stations"]]
        if "mixed_layouts" in each:
            each["mixed"] = each.pop("mixed_layouts")
    for query in data.get("queries", {}).values():
        if query["backfill"]:
            batches, below, _ = query["backfill"]
            query["backfill"] = [*batches, below]
    return data
