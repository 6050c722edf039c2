"""Aggregates on the inline runner where rows are folded and no pair is found: every answer is DuckDB's."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from penstock import testing
from penstock.engine.aggregate import answers, group_totals, window_requests
from tests.answers import SECOND, Asked
from tests.testing.answer_world import (
    OF_ONE_ROW,
    START,
    STREAMS,
    at_time,
    random_asked,
    random_rows,
    random_shape,
)
from tests.testing.test_aggregates import (
    SETTINGS,
    check_from_complete,
    check_sliding,
    few,
    narrow,
    rounds,
    seeds,
    send,
)

KEYS = ("k", "g", "v", "m", "f", "day")
"""Columns of whole numbers, texts, decimals, truth values and dates."""


def by_key(random, name, columns):
    """Choose a query that groups by what it joins by, each column taken from either side."""
    joined = tuple(f"A.{each} = B.{each}" for each in columns)
    keys = tuple((f"{random.choice('AB')}.{each}", f"k{n}") for n, each in enumerate(columns))
    measures = [(each[0], f"a{n}", *each[1:]) for n, each in enumerate(random.sample(OF_ONE_ROW, 4))]
    asked = replace(random_asked(random, name), keys=keys, measures=tuple(measures), join=joined, having="")
    where = random.sample(("A.v > 0", "B.v > 0", "A.g = 'x'", "B.f"), random.choice((0, 0, 1, 2)))
    return replace(asked, where=tuple(where))


def folds_rows(session, name):
    """Say whether rows are folded for a query."""
    return any(
        name in each.panes.readers and each.panes.by_rows for each in session._store.ledger.panes.values()
    )


def check_world(seed, is_narrow, tasks, setting, choose):
    """Let rows of random queries arrive in rounds, now and then in no hurry, with restarts; hold all against DuckDB."""
    random = Random(seed)
    streams = {name: random_rows(random, 50) for name in "AB"}
    columns = random.sample(KEYS, random.choice((1, 1, 2)))
    asked = [choose(random, f"q{n}", columns) for n in range(random.randint(1, 4))]
    script = setting + STREAMS + "".join(each.penstock() for each in asked)
    with narrow(random) if is_narrow else ExitStack(), testing.Session(script, tasks=tasks) as session:
        folded = [each for each in asked if folds_rows(session, each.name)]
        wide = [each for each in asked if max(each.windows) > 64 * each.every]
        assert len(folded) + len(wide) == len(asked)
        for number, cut in enumerate(rounds(random, 50)):
            session._context.defers_answers = defers_answers = random.random() < 0.3
            send(session, streams, cut)
            session.turn()
            if random.random() < 0.3:
                session.restart()
            for each in () if defers_answers else asked:
                check_sliding(session, each, f"round {number}")
        session.end()
        answers = sum(check_sliding(session, each, "end", ended=True) for each in folded)
        event("answers" if answers else "no answers")


@few(8)
@given(seeds, st.booleans(), st.integers(1, 3), st.sampled_from(SETTINGS))
def test_answers_by_keys_of_every_type_are_duckdbs(seed, is_narrow, tasks, setting):
    check_world(seed, is_narrow, tasks, setting, by_key)


def by_group(random, name, columns):
    """Choose a query that groups by columns of one side, or by none."""
    side = random.choice("AB")
    plain = [f"{side}.{each}" for each in ("k", "g", "v", "m", "f", "day")]
    chosen = random.sample([*plain, f"{side}.v % 2", f"{side}.k % 3"], random.choice((0, 1, 1, 1, 2)))
    keys = tuple((each, f"k{n}") for n, each in enumerate(chosen))
    return replace(by_key(random, name, columns), keys=keys, having=random.choice(("", "", "COUNT(*) > 1")))


@few(12)
@given(seeds, st.booleans(), st.integers(1, 3), st.sampled_from(SETTINGS))
def test_answers_by_columns_of_one_side_are_duckdbs(seed, is_narrow, tasks, setting):
    """Groups that have many keys, and keys that are in many groups."""
    check_world(seed, is_narrow, tasks, setting, by_group)


@few(5)
@given(seeds, st.sampled_from((by_key, by_group)))
def test_one_that_comes_later_answers_from_the_rows_that_are_held(seed, kind):
    """A second query joins the first one's panes: its past is folded for it alone."""
    random = Random(seed)
    streams = {name: random_rows(random, 60) for name in "AB"}
    first, second = (replace(kind(random, f"q{n}", ["k"]), every=SECOND // 2) for n in range(2))
    second = replace(second, keys=first.keys, measures=first.measures)
    with testing.Session(STREAMS + first.penstock()) as session:
        send(session, streams, dict.fromkeys("AB", slice(30)))
        session.turn()
        session.script(second.penstock())
        send(session, streams, dict.fromkeys("AB", slice(30, None)))
        session.turn()
        session.end()
        check_sliding(session, first, "end", ended=True)
        check_from_complete(session, {"q1": second}, {"q1": -(2**62)}, ended=True)


@few(5)
@given(seeds, st.booleans())
def test_deferred_answers_are_the_same_answers_in_fewer_goes(seed, is_by_key):
    """Answers wait until many are due, or the input ends; a restart in between loses none."""
    random = Random(seed)
    streams = {name: random_rows(random, 80) for name in "AB"}
    asked = by_key(random, "q", ["k"]) if is_by_key else replace(random_asked(random, "q"), having="")
    goes = {}
    for defers_answers in (False, True):
        with testing.Session(STREAMS + asked.penstock()) as session:
            for first in range(0, 80, 8):
                session._context.defers_answers = defers_answers
                send(session, streams, dict.fromkeys("AB", slice(first, first + 8)))
                session.turn()
                if first == 40:
                    session.restart()
            session.end()
            check_sliding(session, asked, f"defers answers: {defers_answers}", ended=True)
            goes[defers_answers] = session._store.ledger.answers
    assert goes[True] <= goes[False]
    event("fewer goes" if goes[True] < goes[False] else "as many goes")


def test_answers_are_counted_and_pairs_found_for_others_are_not():
    """Beside a query that wants pairs, and with predicates, so that pairs come with the set of queries they are for."""
    asked = Asked("q", keys=(("A.k", "ka"),), where=("A.v > 0",))
    pairs = "CREATE QUERY pairs AS SELECT A.v FROM A, B WHERE A.k = B.k AND B.v > 0 WINDOW 4 seconds;"
    streams = {name: random_rows(Random(7), 40) for name in "AB"}
    with testing.Session(STREAMS + asked.penstock() + pairs) as session:
        send(session, streams, dict.fromkeys("AB", slice(None)))
        session.end()
        counted = {each.name: each.results for each in session.status().queries}
        assert counted["q"] == check_sliding(session, asked, "end", ended=True)
        assert counted["pairs"] == len(session.results("pairs"))


@pytest.mark.parametrize(
    "change",
    [
        {"keys": (("A.g", "kg"), ("B.v", "kv"))},
        {"keys": (("A.d", "kd"),)},
        {"measures": (("COUNT(DISTINCT A.v)", "n"),)},
        {"measures": (("SUM(A.v + B.v)", "n"),)},
        {"measures": (("MAX_BY(A.v, B.v)", "n"),)},
        {"where": ("A.v > B.v",)},
        {"where": ("B.ts >= A.ts",)},
        {"windows": (65 * SECOND, 65 * SECOND)},
    ],
)
def test_pairs_are_folded_where_rows_would_not_do(change):
    """By columns of both sides or floats, with DISTINCT, with both rows in an aggregate, or seen at many instants."""
    plain = Asked("q", keys=(("A.k", "ka"),))
    for asked, by_rows in ((plain, True), (replace(plain, **change), False)):
        with testing.Session(STREAMS + asked.penstock()) as session:
            assert folds_rows(session, "q") is by_rows


@pytest.mark.parametrize("counted", [False, True], ids=["rows", "only counted"])
@pytest.mark.parametrize("key", ["A.k", "A.k % 1"])
def test_sums_that_are_too_large_are_refused_as_those_of_pairs_are(key, counted):
    """2^62 on one side, and four rows on the other: the pairs' sum has 65 bits, also where nobody looks at it."""
    asked = Asked("q", keys=((key, "ka"),), measures=(("SUM(A.v)", "s"),))
    streams = {name: random_rows(Random(1), 4) for name in "AB"}
    for rows in streams.values():
        for row in rows:
            row |= {"k": 1, "v": 1 << 62, "ts": rows[0]["ts"] or rows[1]["ts"]}
    as_noop = patch.object(answers.Reader, "is_counted", property(lambda _: counted))
    with as_noop, testing.Session(STREAMS + asked.penstock()) as session:
        for name, rows in streams.items():
            session.send(name, rows)
        with pytest.raises(Exception, match="too large"):
            session.end()


def test_shapes_of_the_join_key_are_drawn_often_enough():
    """The other properties of aggregates have such queries too."""
    shapes = [random_shape(Random(seed)) for seed in range(200)]
    assert sum(each.keys in {(("A.k", "ka"),), (("B.k", "kk"),)} for each in shapes) > 20


@pytest.mark.parametrize("least", [1, 1 << 20])
def test_groups_without_a_partner_take_no_room_from_others(least):
    """Of forty groups four have a partner: a block of few members must not span the numbers of those between."""
    streams = {
        "A": [{"k": i, "v": i, "ts": at_time(START + i % 2 * SECOND)} for i in range(40)],
        "B": [{"k": i, "v": 1, "ts": at_time(START)} for i in range(0, 40, 10)],
    }
    asked = Asked("q", keys=(("A.v", "kv"),), measures=(("COUNT(*)", "n"), ("SUM(A.v)", "s")), every=SECOND)
    bounds = patch.object(group_totals, "MOST_TOTALS", least), patch.object(window_requests, "MOST_CELLS", 8)
    with bounds[0], bounds[1], testing.Session(STREAMS + asked.penstock(), tasks=1) as session:
        send(session, streams, dict.fromkeys("AB", slice(None)))
        session.end()
        assert check_sliding(session, asked, "end", ended=True)


MOST = 2**63 - 1


@pytest.mark.parametrize("key", ["A.k", "A.g"])
def test_averages_of_the_largest_numbers_are_right(key):
    """Their sum is far beyond 64 bits, and no average is refused for it."""
    asked = Asked("q", keys=((key, "key"),), measures=(("AVG(A.v)", "m"),), every=SECOND)
    streams = {
        "A": [{"k": 1, "g": "x", "v": MOST, "ts": at_time(START)} for _ in range(5)],
        "B": [{"k": 1, "ts": at_time(START)} for _ in range(3)],
    }
    with testing.Session(STREAMS + asked.penstock()) as session:
        send(session, streams, dict.fromkeys("AB", slice(None)))
        session.end()
        check_sliding(session, asked, "end", ended=True)


@pytest.mark.parametrize(("others", "times", "fits"), [((2,), 4, False), ((2, 3, 4), 2, True)])
def test_a_sum_too_large_for_a_key_is_refused_only_if_the_group_has_it(others, times, fits):
    """Six times the largest number by one key, and less four or six times by others of the same group."""
    rows = [(1, MOST)] * 6 + [(k, -MOST) for k in others for _ in range(times)]
    asked = Asked("q", keys=(("A.g", "kg"),), measures=(("SUM(A.v)", "s"),), every=SECOND)
    with testing.Session(STREAMS + asked.penstock()) as session:
        session.send("A", [{"k": k, "g": "x", "v": v, "ts": at_time(START)} for k, v in rows])
        session.send("B", [{"k": k, "ts": at_time(START)} for k in (1, *others)])
        if fits:
            session.end()
            assert {row["s"] for row in session.results("q")} == {0}
        else:
            with pytest.raises(Exception, match="too large"):
                session.end()
