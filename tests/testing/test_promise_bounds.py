"""What is remembered of promises stays small, whatever comes, and forgetting changes no result."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from penstock import limits, testing
from tests.answers import SECOND
from tests.testing.answer_world import START, at_time

COLUMNS = "k BIGINT, lo BIGINT, hi BIGINT, kind STRING, ts TIMESTAMP"
QUERIES = """
CREATE QUERY pairs AS SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 1000 seconds;
CREATE QUERY ends WITH (emit = 'final') AS
    SELECT A.k, COUNT(*) AS n FROM A, B WHERE A.k = B.k GROUP BY A.k WINDOW 1 day;
"""


def streams(options):
    shared = "format = 'parquet', time = 'ts', punctuation = 'kind = ''p'''"
    return "".join(
        f"CREATE STREAM {each} ({COLUMNS}) WITH ({shared}, path = '{each}', {options});" for each in "AB"
    )


def status(session, name):
    return next(each for each in session.status().streams if each.name == name)


def files(session):
    return [len(each.files()) for each in session._store.ledger.promises.values()]


@pytest.mark.parametrize("again", [False, True])
def test_promises_about_thousands_of_values_are_few_at_a_time(again):
    """Each value comes once, is promised about and is done with; `again`: the last ones are promised about twice."""
    batch, budget, rounds = 200, 100, 10
    with testing.Session(streams(f"punctuates = 'k', promises = '{budget}'") + QUERIES) as session:
        for turn in range(rounds):
            values = range(turn * batch, (turn + 1) * batch)
            time = START + turn * 10 * SECOND
            rows = [{"k": k, "kind": "r", "ts": at_time(time)} for k in values]
            rows += [{"k": k, "kind": "p", "ts": at_time(time + SECOND)} for k in values]
            rows += [
                {"k": k - 5, "kind": "p", "ts": at_time(time + SECOND)} for k in values[:5] if again and turn
            ]
            rows += [{"k": -1 - turn, "kind": "r", "ts": at_time(time + 9 * SECOND)}]
            for name in "AB":
                session.send(name, rows)
            session.turn()
            for name in "AB":
                assert status(session, name).promises <= budget * (1 + limits.PROMISE_SLACK_SHARE) + batch + 5
            assert max(files(session)) <= 2 * limits.MERGE_FAN_IN
            assert session.status().state_rows <= 4 * (turn + 1), (
                "of each round one row a stream is waited for"
            )
            assert len(session.results("ends")) == batch * (turn + 1), "each value is finished in its round"
        assert status(session, "A").forgotten > batch
        session.end()
        assert sorted(row["k"] for row in session.results("pairs")) == list(range(-rounds, batch * rounds))


def test_ranges_are_few_at_a_time():
    most = 40
    with (
        patch.object(limits, "MAX_PROMISE_RANGES", most),
        testing.Session(streams("punctuates = 'k BETWEEN lo AND hi'") + QUERIES) as session,
    ):
        for turn in range(6):
            time, first = START + turn * 10 * SECOND, turn * 1000
            rows = [{"k": first, "kind": "r", "ts": at_time(time)}]
            rows += [
                {"lo": first + n, "hi": first + n + 2 - n % 3, "kind": "p", "ts": at_time(time + SECOND)}
                for n in range(30)
            ]
            rows += [{"k": -1 - turn, "kind": "r", "ts": at_time(time + 9 * SECOND)}]
            for name in "AB":
                session.send(name, rows)
            session.turn()
            assert status(session, "A").promises <= most * (1 + limits.PROMISE_SLACK_SHARE)
            assert max(files(session)) <= 2 * limits.MERGE_FAN_IN
            assert len(session.results("ends")) == turn + 1
        session.end()
        assert len(session.results("pairs")) == 12
