"""Units are bounded: whatever waits, a unit ends soon, results are delivered, and the plan can change.

arrived    | a0 b0 | a1 b1 | a2 b2 | … | a9 b9 |        nothing is joined yet
unit 1      =======                                     a batch or so, then results are published
unit 2              =======                             a change of plan waits for one unit at most
"""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock import testing
from penstock.engine.stages.turn import take_turn
from penstock.engine.supervisor import Joiner
from tests.kernels.drawn import examples

STREAMS = """
CREATE STREAM A (k INT, v DOUBLE, ts TIMESTAMP) WITH (format = 'parquet', path = 'a', time = 'ts', lateness = '4 s');
CREATE STREAM B (k INT, v DOUBLE, ts TIMESTAMP) WITH (format = 'parquet', path = 'b', time = 'ts', lateness = '2 s');
"""
QUERIES = {
    "small": "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k WINDOW 3 s",
    "large": "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k WINDOW 30 s",
    "picky": "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k AND A.v > 50 WINDOW 10 s",
    "other": "SELECT A.ts AS a, B.ts AS b FROM A, B WHERE A.v - B.v BETWEEN -2 AND 2 WINDOW 5 s",
    "three": "SELECT A.v AS a, B.v AS b, C.v AS c FROM A, B, A C WHERE A.k = B.k AND B.k = C.k WINDOW 2 s",
}
LATER = "SELECT B.v AS b, A.v AS a FROM A, B WHERE A.k = B.k AND B.v < 70 WINDOW 8 s"
START = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Rows:
    """A bound of so many rows, whatever they cost."""

    most: int

    def rows(self, *_args, **_named):
        return self.most


class BoundedSession(testing.Session):
    """A session whose units may join only so many rows."""

    def __init__(self, script, most):
        self.bound, self.units = Rows(most), 0
        super().__init__(script)

    def _context_of(self, plan):
        context = super()._context_of(plan)
        context.unit_bound = self.bound
        context.watchers.append(self.count)
        return context

    def count(self, _done):
        self.units += 1
        assert self.units < 500, "units advance by next to nothing"


def query(name, text, order="none"):
    return f"CREATE QUERY {name} WITH (order = '{order}') AS {text};\n"


def rows(source, number):
    """Make a batch of eight rows within six seconds, so that neighbouring batches overlap."""
    return [
        {
            "k": source.choice([1, 1, 2, 3, None]),
            "v": float(source.randrange(100)),
            "ts": START + dt.timedelta(seconds=4 * number + source.uniform(0, 6)),
        }
        for _ in range(8)
    ]


def duckdb_agrees(session):
    """Hold all queries against DuckDB."""
    results = {each.name: session.results(each.name) for each in session.queries}
    late = {name: session.late(name) for name in ("A", "B")}
    testing.expect(testing.session.Run(results, late, session.status(), session))


@examples(12)
@given(
    st.integers(0, 2**31),
    st.integers(2, 40),
    st.sampled_from(["none", "filter-order", "sync-filter", "adaptive"]),
    st.sampled_from(["lwo", "swf", "mqt"]),
    st.integers(0, 8),
)
def test_results_are_duckdbs_however_small_the_units_and_whenever_the_plan_changes(
    seed, unit_rows, order, scheduler, turns
):
    source = Random(seed)
    chosen = source.sample(sorted(QUERIES), 2)
    script = STREAMS + f"SET scheduler = '{scheduler}';\n"
    queries = "".join(query(name, QUERIES[name], order) for name in chosen)
    with BoundedSession(script + queries, unit_rows) as session:
        for number in range(4):
            session.send("A", rows(source, number))
            session.send("B", rows(source, number))
        for _ in range(turns):
            take_turn(session._context)
        if source.random() < 0.5:
            session.script(query("later", LATER, order))
            take_turn(session._context)
            session.script("DROP QUERY later;\n")
        if source.random() < 0.5:
            session.restart()
        session.send("A", rows(source, 4))
        session.send("B", rows(source, 5))
        session.end()
        duckdb_agrees(session)


def waiting_batches(session, number):
    """Let so many batches of both streams arrive, and join nothing."""
    source = Random(7)
    for each in range(number):
        session.send("A", rows(source, each))
        session.send("B", rows(source, each))


def test_a_turn_delivers_results_before_all_that_waits_is_joined():
    with BoundedSession(STREAMS + query("small", QUERIES["small"]), 16) as session:
        waiting_batches(session, 10)
        delivered = []
        while session._context.has_work():
            take_turn(session._context)
            delivered.append(len(session.results("small")))
        assert len(delivered) >= 5, "a unit joins two batches or fewer"
        assert 0 < delivered[0] < delivered[-1], "results come from the first turn on"


def test_a_change_of_plan_waits_for_one_unit_and_not_for_all_that_waits():
    with BoundedSession(STREAMS + query("small", QUERIES["small"]), 16) as session:
        waiting_batches(session, 20)
        joiner, context = Joiner(session._context), session._context
        units, asked, let_in = [], threading.Event(), threading.Event()

        def change():
            asked.set()
            with joiner.between_units():
                units.append("the plan changes")
            let_in.set()

        def watch(done):
            units.append(done.unit)
            if len(units) == 1:
                threading.Thread(target=change, daemon=True).start()
                asked.wait(10)

        context.watchers.append(watch)
        joiner.start()
        try:
            joiner.notify()
            assert let_in.wait(30), "the change is never let in"
        finally:
            joiner.finish()
        assert units.index("the plan changes") <= 3, units
