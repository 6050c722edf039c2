"""Promises through crashes: whichever commit does not come, or is the last that comes, results are as undisturbed.

batch ── unit ── answer ── rewrite ── promises ── batch ── …      a promise is known with its batch, or not at all
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from unittest.mock import patch

import pytest

from penstock import limits
from tests.answers import bag, same
from tests.engine.aggregate.test_answers import CrashError, FrailSession, FrailStore, frail
from tests.testing.promise_world import sent
from tests.testing.test_promises import World

__all__ = ["frail"]

KINDS = ("batch", "unit", "answer", "rewrite", "promises", "plan")
JOIN = "FROM A, B WHERE A.k = B.k"
QUERIES = f"""
CREATE QUERY pairs AS SELECT A.id AS a, B.id AS b {JOIN} WINDOW 8 seconds;
CREATE QUERY ends WITH (emit = 'final') AS SELECT A.k, COUNT(*) AS n {JOIN} GROUP BY A.k WINDOW 5 seconds;
"""


def deliver(session, name, rows):
    """Let a batch arrive, again if it was lost."""
    before = session._store.ledger.stream(name).batches
    try:
        session.send(name, rows)
    except CrashError:
        session.restart()
        if session._store.ledger.stream(name).batches == before:
            session._unread[name] = [session.sent[name][-1]]
            session._read(name)


def run(trap):
    """Run one world; give its results, and what was counted."""
    world = World(5, 40, kinds=("value", "range"))
    with ExitStack() as stack:
        stack.enter_context(patch.object(limits, "MERGE_FAN_IN", 2))
        session = stack.enter_context(FrailSession(world.declared(promising=True) + QUERIES))
        FrailStore.trap = trap
        for turn in range(world.rounds):
            for source, batches in sorted(world.cuts.items()):
                if turn < len(batches):
                    deliver(session, source, sent(batches[turn], world.streams[source[-1]]))
            session.again(session.turn)
            if turn == 1:
                session.again(session.script, f"CREATE QUERY more AS SELECT A.v {JOIN} WINDOW 1 s;")
        assert FrailStore.trap is None, "nothing has crashed"
        session.again(session.end)
        counts = [(each.rows, each.late, each.broken, each.punctuations) for each in session.status().streams]
        return {name: bag(session.results(name)) for name in ("pairs", "ends")}, counts


@cache
def undisturbed():
    return run(None)


@pytest.mark.parametrize(("kind", "left"), [*((kind, 0) for kind in KINDS), ("batch", 3), ("unit", 2)])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.usefixtures("frail")
def test_results_are_as_undisturbed_whatever_commit_fails(when, kind, left):
    right, counted = undisturbed()
    assert right["pairs"]
    assert right["ends"]
    got, counts = run((when, kind, left))
    for name, some in right.items():
        same(got[name], some, name)
    assert counts == counted
