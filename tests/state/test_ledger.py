"""The ledger is a fold of commits: each makes one thing true, a snapshot forgets none of it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RunError
from penstock.sql.query import Query, Range
from penstock.state.codec import FORMAT, decode, decode_ledger, encode, encode_ledger
from penstock.state.commits import (
    Backfilled,
    BatchIngested,
    CommitOutput,
    EngineOpened,
    PlanServed,
    Published,
    Rewritten,
    UnitJoined,
)
from penstock.state.ledger import Ledger
from penstock.state.ledger_fold import fold
from penstock.state.segment import PatternCount, Segment
from penstock.state.values import (
    Cursor,
    GroupState,
    Layout,
    Move,
    Publication,
    QueryState,
    Replacement,
    ServedPlan,
    StreamState,
)


def query(name):
    return Query(name, "A", "B", (), Range(0, 9), ())


PLAN = PlanServed(
    ServedPlan(queries=(query("q"), query("p"))),
    reason="start",
    logs=("a", "b"),
    layouts={"a": Layout(("x",), ("p",)), "b": Layout((), ())},
    groups={"g": GroupState((Cursor((0, 0)), Cursor((0, 0))))},
)
OUTPUT = (Move("/out", "_staging/x", "part-1.parquet"),)


def segment(name, first=0, last=0):
    return Segment(name, first, last, 3, -5, 7, 99, 1, (PatternCount(1 << 70, 3, -5, 7),))


def batch(*names, stream="A", log="a", **state):
    counted = {"source_batch": 0, "batches": 1, "newest": 5, "watermark": 4, "rows": 3, **state}
    return BatchIngested(stream, StreamState(**counted), {log: tuple(map(segment, names))})


def unit(cursors, results=None, publish=(), pairs=0):
    output = CommitOutput(results or {}, tuple(publish))
    return UnitJoined("g", tuple(Cursor(each) for each in cursors), (4, None), pairs, output)


def folded(*commits):
    ledger = Ledger()
    for commit in commits:
        ledger = fold(ledger, as_read(commit))
    return ledger


def as_read(commit):
    """Give a commit as it comes back from the journal."""
    return decode(json.loads(json.dumps(encode(commit))))


def names(ledger, log="a"):
    return [each.name for each in ledger.segments(log)]


def test_a_new_state_has_every_slice_at_its_beginning():
    ledger = folded(PLAN)
    assert ledger.groups["g"].cursors == (Cursor((0, 0)), Cursor((0, 0)))
    assert ledger.stream("A") == StreamState()
    assert ledger.segments("a") == ()


def test_a_batch_adds_its_segments_and_replaces_its_streams_counts():
    ledger = folded(PLAN, batch("s1"), batch("s2", "s3", batches=2, watermark=9))
    assert names(ledger) == ["s1", "s2", "s3"]
    assert (ledger.stream("A").batches, ledger.stream("A").watermark) == (2, 9)
    assert ledger.stream("B") == StreamState()


def test_a_batch_of_a_version_that_did_not_know_how_late_rows_were_is_read():
    written = encode(batch("one", late=2, behind=9))
    assert fold(Ledger(), decode(written)).stream("A").behind == 9
    del written["state"]["behind"]
    state = fold(Ledger(), decode(written)).stream("A")
    assert (state.late, state.behind) == (2, 0)


def test_a_unit_advances_cursors_adds_results_and_leaves_output_to_publish():
    one = Publication("u1", OUTPUT)
    two = Publication("u2", (), "q")
    ledger = folded(
        PLAN,
        unit([[1, 1], [1, 1]], {"q": 2}, [one], 5),
        unit([[2, 1], [2, 1]], {"q": 1, "p": 4}, [two], 6),
    )
    group = ledger.groups["g"]
    assert (group.cursors, group.watermarks, group.units, group.pairs) == (
        (Cursor((2, 1)), Cursor((2, 1))),
        (4, None),
        2,
        11,
    )
    assert {name: state.results for name, state in ledger.queries.items()} == {"q": 3, "p": 4}
    assert ledger.pending == (one, two)
    done = fold(ledger, Published((("u1", ""),)))
    assert done.pending == (two,), "what was published is forgotten, the rest is not"


def test_a_rewrite_puts_one_segment_in_the_place_of_others_of_its_log_only():
    ledger = folded(
        PLAN, batch("s1", "s2", "s3"), batch("s1", stream="B", log="b"),
        Rewritten("a", ("s1", "s2"), (segment("m", 0, 1),)),
    )  # fmt: skip
    assert sorted(names(ledger)) == ["m", "s3"]
    assert names(ledger, "b") == ["s1"]
    assert names(fold(ledger, Rewritten("a", ("m", "s3")))) == []


def test_a_commit_of_a_newer_version_is_refused_and_not_passed_over():
    for newer in ({"kind": "moved", "format": FORMAT}, {"kind": "opened", "format": FORMAT + 1}):
        with pytest.raises(RunError, match="Update Penstock"):
            decode(newer)
    with pytest.raises(RunError, match="Update Penstock"):
        decode_ledger({"format": FORMAT + 1})


commits = st.one_of(
    st.builds(lambda n, b: batch(f"s{n}", batches=b), st.integers(0, 5), st.integers(1, 9)),
    st.builds(
        lambda n, i, query: unit([[i, i], [i, 0]], {query: n}, [Publication(f"u{n}", OUTPUT)]),
        st.integers(0, 5), st.integers(0, 9), st.sampled_from("pq"),
    ),
    st.builds(lambda n: Rewritten("a", (f"s{n}",)), st.integers(0, 5)),
    st.builds(lambda n: Published(((f"u{n}", ""),)), st.integers(0, 5)),
    st.just(EngineOpened()),
)  # fmt: skip


@given(st.lists(commits, max_size=12), st.integers(0, 12))
def test_going_on_from_a_snapshot_is_the_same_as_folding_from_the_start(history, cut):
    whole = folded(PLAN, *history)
    restored = decode_ledger(json.loads(json.dumps(encode_ledger(folded(PLAN, *history[:cut])))))
    for commit in history[cut:]:
        restored = fold(restored, as_read(commit))
    assert restored == whole


@given(st.lists(commits, min_size=1, max_size=6))
def test_folding_changes_nothing_that_somebody_already_holds(history):
    before = folded(PLAN, *history[:-1])
    kept = json.dumps(encode_ledger(before))
    fold(before, history[-1])
    assert json.dumps(encode_ledger(before)) == kept


def test_a_plan_adds_a_layout_to_a_log_and_lets_go_of_logs_nobody_reads():
    change = replace(PLAN, logs=("a",), layouts={"a": Layout(("x", "y"), ("p",))})
    ledger = folded(PLAN, batch("s1"), batch("s2", log="b"), change)
    assert ledger.layout("a") == 1
    assert ledger.layouts["a"][1].columns == ("x", "y")
    assert names(ledger) == ["s1"]
    assert "b" not in ledger.logs
    assert "b" not in ledger.layouts


def test_a_plan_puts_upgraded_segments_in_the_place_of_the_old_ones():
    change = replace(PLAN, layouts={}, upgrades={"a": Replacement(("s1",), (segment("n1"),))})
    assert sorted(names(folded(PLAN, batch("s1", "s2"), change))) == ["n1", "s2"]


def test_a_query_lacks_its_past_until_the_backfill_is_committed():
    start = QueryState(backfill=Cursor((3, 4)), held_from=(7, None), complete_from=7, born=2)
    late = replace(PLAN, plan=ServedPlan(queries=(query("late"),)), queries={"late": start})
    ledger = folded(PLAN, late)
    assert ledger.query("late").backfill == Cursor((3, 4))
    assert ledger.query("late").complete_from == 7
    done = fold(ledger, Backfilled(("late",), CommitOutput({"late": 2})))
    assert (done.query("late").backfill, done.query("late").results) == (None, 2)
    assert done.query("late").complete_from == 7
