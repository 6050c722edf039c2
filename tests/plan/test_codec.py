"""A workload survives being written as JSON: the same values come back, and the same plan."""

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.build import build_plan
from penstock.plan.codec import workload_from_json, workload_to_json
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
    text = json.dumps(workload_to_json(declared, queries))
    back, same = workload_from_json(json.loads(text))
    assert back == {each.name: each for each in declared}
    assert same == queries


@examples(50)
@given(workloads())
def test_equal_workloads_have_equal_text_and_make_equal_plans(queries):
    text = json.dumps(workload_to_json(STREAMS.values(), queries))
    streams_again, queries_again = workload_from_json(json.loads(text))
    assert json.dumps(workload_to_json(streams_again.values(), queries_again)) == text
    assert build_plan(streams_again, queries_again) == build_plan(STREAMS, queries)
