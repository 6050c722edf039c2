"""The edges of a promise, one timeline each: exactly at p, exactly at the watermark, exactly a window away.

lateness 2 s, window 10 s, B promises k = 1 at p = 5

B    x      p=5       7: the watermark is 5, and a row at 5 may still come     7.000001: none may
A       4                                                                      4 has met everybody
"""

from __future__ import annotations

import pytest

from penstock import testing
from tests.answers import SECOND
from tests.testing.answer_world import START, at_time

COLUMNS = "id BIGINT, k BIGINT, kind STRING, ts TIMESTAMP"
OPTIONS = "format = 'parquet', time = 'ts', lateness = '2 seconds'"
SCRIPT = f"""
CREATE STREAM A ({COLUMNS}) WITH ({OPTIONS}, path = 'a');
CREATE STREAM B ({COLUMNS}) WITH ({OPTIONS}, path = 'b', punctuation = 'kind = ''p''', punctuates = 'k');
CREATE QUERY q AS SELECT A.id AS a, B.id AS b FROM A, B WHERE A.k = B.k WINDOW 10 seconds;
"""
FINAL = """
CREATE QUERY f WITH (emit = 'final') AS SELECT A.k, COUNT(*) AS n FROM A, B WHERE A.k = B.k GROUP BY A.k WINDOW 10 s;
"""


def row(seconds, k=1, number=0, kind="r"):
    return {"id": number, "k": k, "kind": kind, "ts": at_time(START + round(seconds * SECOND))}


def said(session, name):
    return next(each for each in session.status().streams if each.name == name)


@pytest.mark.parametrize("stored_first", [True, False])
def test_a_row_at_p_may_come_while_the_watermark_is_at_p(stored_first):
    """Another promise has taken effect, so that rows are held against both."""
    with testing.Session(SCRIPT) as session:
        session.send("B", [row(1, number=1), row(1, k=9, kind="p")])
        for name in ("A", "B") if stored_first else ("B", "A"):
            session.send(name, [row(4, number=4)] if name == "A" else [row(5, kind="p"), row(7, k=2)])
            session.turn()
        assert said(session, "A").purged == said(session, "A").discarded == 0
        session.send("B", [row(5, number=5)])
        session.turn()
        assert sorted(each["b"] for each in session.results("q")) == [1, 5]
        held = session.status().state_rows
        session.send("B", [row(7.000001, k=3)])
        session.turn()
        assert said(session, "A").purged == 1
        assert session.status().state_rows == held, "one comes, one goes"


@pytest.mark.parametrize(("mark", "is_kept"), [(7, True), (7.000001, False)])
def test_a_row_that_comes_when_its_partners_are_done_is_joined_and_not_kept(mark, is_kept):
    with testing.Session(SCRIPT) as session:
        session.send("B", [row(4, number=1), row(5, kind="p"), row(mark, k=2)])
        session.send("A", [row(6, number=6)])
        session.turn()
        assert session.results("q") == [{"a": 6, "b": 1}]
        assert said(session, "A").discarded == (not is_kept)
        assert session.status().window_rows - session.status().state_rows == (not is_kept)


@pytest.mark.parametrize(("seconds", "is_dropped"), [(14.999999, False), (15, True)])
def test_a_row_a_window_after_p_is_never_stored(seconds, is_dropped):
    """At 14.999999 it meets a row at 5; whether p has taken effect does not matter."""
    with testing.Session(SCRIPT) as session:
        session.send("B", [row(5, number=1), row(5, kind="p")])
        session.send("A", [row(seconds, number=2)])
        session.turn()
        assert said(session, "A").dropped == is_dropped
        assert len(session.results("q")) == (not is_dropped)


@pytest.mark.parametrize(("seconds", "is_broken"), [(5, False), (5.000001, True)])
@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("together", [True, False])
def test_a_row_at_p_keeps_the_promise_and_one_after_it_does_not(seconds, is_broken, tasks, together):
    batch = [row(5, kind="p"), row(seconds, number=1)]
    with testing.Session(SCRIPT, tasks=tasks) as session:
        for some in [batch] if together else [batch[:1], batch[1:]]:
            session.send("B", some)
        session.send("A", [row(5)])
        session.turn()
        assert said(session, "B").broken == is_broken
        assert len(session.results("q")) == (not is_broken)


@pytest.mark.parametrize(("seconds", "is_given"), [(16.999999, False), (17, True)])
def test_one_side_is_enough_when_its_last_row_has_left_its_window(seconds, is_given):
    """B's last row is at 5; a row of A at 14.999999 would meet it, and comes while A's watermark is not at 15."""
    with testing.Session(SCRIPT + FINAL) as session:
        session.send("B", [row(5, number=1), row(5, kind="p"), row(9, k=2)])
        session.send("A", [row(5), row(seconds, k=3)])
        session.turn()
        assert session.results("f") == ([{"k": 1, "n": 1}] if is_given else [])
        session.send("A", [row(14.999999)])
        session.end()
        assert session.results("f") == [{"k": 1, "n": 1 if is_given else 2}]


def test_a_query_that_comes_is_complete_after_all_that_promises_have_let_go():
    """Of the past it has what is held; a row of A at 6 was not, and one at 6.5 is."""
    with testing.Session(SCRIPT) as session:
        session.send("B", [row(4, number=1), row(5, kind="p"), row(9, k=2)])
        session.send("A", [row(6, number=6)])
        session.turn()
        session.script("CREATE QUERY wide AS SELECT A.id AS a FROM A, B WHERE A.k = B.k WINDOW 60 seconds;")
        session.turn()
        assert session.since["wide"] == START + 6 * SECOND + 1
        assert session.since["q"] is None
