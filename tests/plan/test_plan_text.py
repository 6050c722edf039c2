"""The plan as JSON and as a drawing says what the plan says."""

import json
import re

from hypothesis import given

from penstock.plan.build import build_plan
from penstock.plan.plan_export import plan_json, plan_mermaid
from penstock.plan.plan_text import plan_text, serving, show_cut
from penstock.sql.query import FOREVER, Key, OutputColumn, Query, Range
from penstock.sql.script import parse_script
from tests.kernels.drawn import examples
from tests.plan.workloads import STREAMS, workloads

LINE = re.compile(
    r'  (?:L\d+\[\("[^"]*"\)\]'  # a log
    r'|(?:L\d+|S\d+_\d+) --> S\d+_\d+\["[^"]*"\]'  # a slice after the log or the slice before it
    r'|S\d+_\d+ -\.-> Q\d+\(\("[^"]*"\)\))'  # a slice to a query that reads it
)


def plan_of(*queries):
    return build_plan(STREAMS, queries)


@examples(50)
@given(workloads())
def test_json_lists_every_log_slice_and_query_with_its_window(queries):
    plan = plan_of(*queries)
    data = json.loads(plan_json(plan))
    assert {log["id"] for log in data["logs"]} == {log.id for log in plan.logs}
    windows = {
        each["name"]: tuple(each["window_us"]) for chain in data["chains"] for each in chain["queries"]
    }
    assert windows == {each.name: (each.window.lo, each.window.hi) for each in queries}
    for chain, group in zip(data["chains"], plan.groups, strict=True):
        assert len(chain["slices"]) == len(group.chain.slices)
        for query in chain["queries"]:
            first, last = query["levels"]
            reads = [
                place for place, piece in enumerate(chain["slices"]) if query["name"] in piece["readers"]
            ]
            assert reads == list(range(first, last))


@examples(50)
@given(workloads())
def test_the_drawing_has_every_slice_once_and_an_arrow_to_each_reader(queries):
    plan = plan_of(*queries)
    first, *lines = plan_mermaid(plan).splitlines()
    assert first == "flowchart LR"
    assert all(LINE.fullmatch(line) for line in lines)
    assert sum(" --> " in line for line in lines) == sum(len(group.chain.slices) for group in plan.groups)
    arrows = sum(len(readers) for group in plan.groups for readers in group.chain.readers)
    assert sum(" -.-> " in line for line in lines) == arrows


def test_a_drawing_survives_names_and_keys_that_are_not_plain_words():
    """``end`` closes a block in Mermaid, and a quote would close the label."""
    keys = (Key("replace(name, '\"', '')", "name"),)
    window, outputs = Range(0, 5), (OutputColumn("id", "l.id", ("l", "id")),)
    plan = plan_of(
        Query("end", "A", "B", keys, window, outputs), Query('two "words"', "A", "B", keys, window, outputs)
    )
    drawing = plan_mermaid(plan)
    assert all(LINE.fullmatch(line) for line in drawing.splitlines()[1:])
    assert '(("end"))' in drawing
    assert '(("two #quot;words#quot;"))' in drawing


@examples(50)
@given(workloads())
def test_text_names_every_query_log_and_reader(queries):
    text = plan_text(plan_of(*queries))
    for query in queries:
        assert re.search(rf"^    {query.name} ", text, re.MULTILINE)
    for group in plan_of(*queries).groups:
        assert f"Chain {group.streams[0]} l ⋈ {group.streams[1]} r on" in text


def test_windows_that_count_rows_are_shown_in_rows():
    keys, outputs = (Key("k", "k"),), (OutputColumn("id", "l.id", ("l", "id")),)
    plan = plan_of(
        Query("q", "A", "B", keys, Range(-10, 1000), outputs, rows=(True, True)),
        Query("m", "A", "B", keys, Range(-10, 5_000_000), outputs, rows=(False, True)),
    )
    both, mixed = json.loads(plan_json(plan))["chains"]
    assert [each["ages_rows"] for each in both["slices"]] == [[0, 10], [0, 1000]]
    assert both["queries"][0]["windows"] == {"left": {"rows": 1000}, "right": {"rows": 10}}
    assert [sorted(set(each) & {"ages_us", "ages_rows"}) for each in mixed["slices"]] == [
        ["ages_rows"],
        ["ages_us"],
    ]
    assert "[0, 1,000 rows)" in plan_mermaid(plan)
    assert "l [RANGE 5 s], r [ROWS 10]" in plan_text(plan)
    assert [show_cut(plan.groups[1], cut) for cut in (-10, 0, 5_000_000)] == [
        "10 rows of B",
        "r - l = 0 s",
        "r - l = 5 s",
    ]


def test_an_unbounded_window_is_shown_as_such():
    query = Query(
        "q",
        "A",
        "B",
        (Key("k", "k"),),
        Range(1 - FOREVER, FOREVER),
        (OutputColumn("id", "l.id", ("l", "id")),),
    )
    assert "WINDOW unbounded" in plan_text(plan_of(query))


def test_what_serves_a_query_are_also_the_chains_of_those_whose_results_it_reads():
    streams = "".join(
        f"CREATE STREAM S{number} (k BIGINT, v DOUBLE) WITH (format = 'parquet', path = 's', ordered = 'k');"
        for number in range(4)
    )
    script = parse_script(
        f"{streams} CREATE QUERY q1 AS SELECT S0.k FROM S0, S1 WHERE S0.k = S1.k;"
        "CREATE QUERY q2 AS SELECT q1.k FROM q1, S2 WHERE q1.k = S2.k;"
        "CREATE QUERY other AS SELECT S3.k FROM S2, S3 WHERE S2.k = S3.k;"
    )
    plan = build_plan(script.inputs, script.queries)
    assert [each.name for each in serving(plan, "q2").queries] == ["q1", "q2"]
    assert [each.name for each in serving(plan, "q1").queries] == ["q1"]
    assert [each.get("results_of") for each in json.loads(plan_json(plan))["logs"]].count("q1") == 1
    assert "  Q0 ==> L2\n" in plan_mermaid(plan), "results of q1 lead to their log"


SENSORS = """
CREATE STREAM S1 (k BIGINT) WITH (format = 'parquet', path = 's1', scrambling = '500', multiplicity = '2');
CREATE STREAM S2 (k BIGINT) WITH (format = 'parquet', path = 's2', scrambling = '30');
CREATE STREAM S3 (k BIGINT) WITH (format = 'parquet', path = 's3', scrambling = '0');
CREATE QUERY both AS SELECT S1.k FROM S1, S2 WHERE S1.k = S2.k;
CREATE QUERY three AS SELECT S1.k FROM S1, S2, S3 WHERE S1.k = S2.k AND S2.k = S3.k;
"""


def test_a_query_without_a_window_has_buffers_and_no_length_of_time():
    script = parse_script(SENSORS)
    plan = build_plan(script.streams, script.queries)
    text = plan_text(plan)
    assert "buffer of S1 (l), scrambling 500, multiplicity 2 -> both" in text
    assert "buffer of S2 (i1), scrambling 30, multiplicity measured -> three" in text
    drawing = plan_mermaid(plan)
    assert drawing.count("buffer, no window") == 5
    assert "for ever" not in text + drawing
    pair, three = json.loads(plan_json(plan))["chains"]
    assert [(each["stream"], each["scrambling"], each["multiplicity"]) for each in three["buffers"]] == [
        ("S1", 500, 2),
        ("S2", 30, None),
        ("S3", 0, None),
    ]
    assert [each["queries"][0]["window"] for each in (pair, three)] == [None, None]
    assert str(FOREVER) not in plan_json(plan)
