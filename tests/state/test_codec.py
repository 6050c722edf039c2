"""Values survive being written as JSON: the same come back, and the same plan is made of them."""

import json
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.change.plan_commit import served
from penstock.errors import RunError
from penstock.plan.build import Stopped, build_plan
from penstock.sql.query import Column, Stream
from penstock.state.codec import FORMAT, decode, decode_ledger, encode, from_json, to_json
from penstock.state.commits import Commit, PlanServed
from penstock.state.values import ServedPlan
from tests.kernels.drawn import examples
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


@pytest.mark.parametrize("number", [None, 1, FORMAT - 1])
def test_a_state_of_before_the_first_release_is_refused_with_the_fix(number):
    old = {} if number is None else {"format": number}
    for read in (decode, decode_ledger):
        with pytest.raises(RunError, match=f"has format {number or 1}.*a new state directory"):
            read({"kind": "opened", **old})
