"""Answers through crashes: whichever commit does not come, or is the last that comes, each answer is given once.

unit ── answer ── published ── unit ── answer ── …          plan: when a query comes
        ▲ before: nothing of it is true     ▲ after: all of it is true, and nothing that follows
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pyarrow.parquet as pq
import pytest

from penstock import testing
from penstock.engine.store import Store
from penstock.errors import RunError
from penstock.sql.query import Sink
from tests.answers import SECOND, Asked, applied, bag, judged, micros, same
from tests.testing.answer_world import STREAMS, check_order, random_rows, rows_so_far

GROUP = (("A.g", "g"),)
MEASURES = (("COUNT(*)", "n"), ("SUM(B.v)", "s"), ("COUNT(DISTINCT A.v)", "d"), ("MAX(B.d)", "m"))
SLIDING = Asked("slides", GROUP, MEASURES, (4 * SECOND,) * 2)
WIDER = Asked("wider", GROUP, MEASURES, (9 * SECOND,) * 2, where=("A.v > 0",))
FINAL = Asked(
    "ends", (("date_trunc('second', A.ts)", "t"), *GROUP), MEASURES, (4 * SECOND,) * 2, emit="final"
)
CHANGES = Asked("moves", GROUP, MEASURES, (4 * SECOND,) * 2, having="COUNT(*) < 40", emit="changes")
ALL = (SLIDING, WIDER, FINAL, CHANGES)


class CrashError(Exception):
    """What these tests break things with."""


class FrailStore(Store):
    """A store that fails at one commit of a kind, before it is made or after."""

    trap: tuple[str, str, int] | None = None
    """When, which kind, and how many of them come before."""

    def commit(self, commit):
        trap, FrailStore.trap = self._next(commit.KIND)
        if trap == "before":
            raise CrashError
        super().commit(commit)
        if trap == "after":
            raise CrashError

    @classmethod
    def _next(cls, kind):
        if cls.trap is None or cls.trap[1] != kind:
            return "", cls.trap
        when, _, left = cls.trap
        return ("", (when, kind, left - 1)) if left else (when, None)


class FrailSession(testing.Session):
    """A session on a frail store, which starts again after a crash; each query has its own sink."""

    sinks: dict[str, Sink] = {}  # noqa: RUF012 - set for each test

    def _register(self, script):
        super()._register(script)
        for name, sink in self.sinks.items():
            if name in self._workload.queries:
                self._workload.queries[name] = replace(self._workload.queries[name], sink=sink)

    def again(self, work, *args):
        """Do something until it has been done."""
        try:
            work(*args)
        except CrashError:
            self.restart()
            return self.again(work, *args) if work != self.script else self.again(self.turn)
        return None


@pytest.fixture
def frail(monkeypatch):
    monkeypatch.setattr("penstock.testing.session.Store", FrailStore)
    yield
    FrailStore.trap = None
    FrailSession.sinks = {}


@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("kind", ["unit", "answer", "published", "plan"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.usefixtures("frail")
def test_each_answer_is_given_once_whatever_commit_fails(when, kind, left, tmp_path):
    random = Random(f"{when} {kind} {left}")
    streams = {name: random_rows(random, 32) for name in "AB"}
    FrailSession.sinks = {"wider": Sink("parquet", (("path", str(tmp_path / "wider")),))}
    (tmp_path / "wider").mkdir()
    with FrailSession(STREAMS + "".join(each.penstock() for each in ALL)) as session:
        FrailStore.trap = (when, kind, left)
        for start in range(0, 32, 8):
            for name in "AB":
                session.send(name, streams[name][start : start + 8])
            session.again(session.turn)
            if start == 8:
                session.again(
                    session.script, "CREATE QUERY other AS SELECT A.v FROM A, B WHERE A.k = B.k WINDOW 1 s;"
                )
            if start == 16:
                session.again(session.script, "DROP QUERY other;")
                session.again(
                    session.script, "CREATE QUERY other AS SELECT B.v FROM A, B WHERE A.k = B.k WINDOW 1 s;"
                )
        assert FrailStore.trap is None, "nothing has crashed"
        session.again(session.end)
        check(session, tmp_path)


def check(session, out):
    """Hold what every query has got against the judge."""
    tables = rows_so_far(session)
    files = sorted(out.glob("wider/*.parquet"))
    written = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    for asked, got in ((SLIDING, session.results("slides")), (WIDER, written)):
        same(bag(got), judged(asked, tables), asked.name)
        check_order(got, asked)
    for file in files:
        ends = [micros(each) for each in pq.ParquetFile(file).read().column("window_end").to_pylist()]
        assert ends == sorted(ends), f"{file} is out of order"
    same(bag(session.results("ends")), judged(FINAL, tables), "ends")
    state = applied(session.results("moves"), 1)
    assert set(state.values()) == set(judged(CHANGES, tables))
    counts = {each.name: each.results for each in session.status().queries}
    assert counts["slides"] == len(session.results("slides"))
    assert counts["wider"] == len(written)


@pytest.mark.usefixtures("frail")
def test_files_of_answers_that_were_never_committed_are_not_seen_and_do_not_stay():
    random = Random(3)
    streams = {name: random_rows(random, 20) for name in "AB"}
    with FrailSession(STREAMS + SLIDING.penstock()) as session:
        for name in "AB":
            session.send(name, streams[name])
        FrailStore.trap = ("before", "answer", 0)
        with pytest.raises(CrashError):
            session.turn()
        assert session.results("slides") == []
        session.restart()
        session.turn()
        session.end()
        same(bag(session.results("slides")), judged(SLIDING, rows_so_far(session)), "slides")
        session.restart()
        ledger, files = session._store.ledger, session._store.files
        there = {name for name in files.find("panes") if name.endswith(".arrow")}
        named = {file.name for state in ledger.panes.values() for file in state.files}
        assert named <= there
        assert len(there - named) <= 2, "what the last commit does without goes with the next"


@pytest.mark.usefixtures("frail")
def test_a_pane_file_that_was_damaged_is_found_out():
    random = Random(4)
    with FrailSession(STREAMS + SLIDING.penstock()) as session:
        for name in "AB":
            session.send(name, random_rows(random, 20))
        session.turn()
        (file, *_) = (file for state in session._store.ledger.panes.values() for file in state.files)
        path = session._store.files.path(file.name).removeprefix("file://")
        with open(path, "r+b") as damaged:  # noqa: PTH123 - a byte in the middle
            damaged.seek(file.rows * 8)
            byte = damaged.read(1)
            damaged.seek(file.rows * 8)
            damaged.write(bytes([byte[0] ^ 255]))
        session.restart()
        with pytest.raises(RunError, match="panes"):
            session.end()
