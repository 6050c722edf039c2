"""Aggregates on the inline runner: every answer is DuckDB's, given once and in time, whatever happens on the way.

rows      1   2 3     4 5 |     6   7       | 8  9
turns     ----------------▲-----------------▲-------▲ end
answers        E1   E2          E3   E4          E5        each when both watermarks have passed it
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from random import Random
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import Phase, event, example, given, settings
from hypothesis import strategies as st

from penstock import limits, testing
from penstock.engine.aggregate import answers as due
from penstock.engine.aggregate import group_totals, pane_fold, running_fold, sliding, window_requests
from penstock.sql.options import STRATEGIES
from tests.answers import SECOND, Asked, applied, bag, judged, micros, same
from tests.kernels.drawn import examples
from tests.testing.answer_world import (
    LATENESS,
    STREAMS,
    at_time,
    check_order,
    in_minutes,
    random_asked,
    random_rows,
    random_shape,
    random_windows,
    rows_so_far,
    watermarks,
)

seeds = st.integers(0, 2**31)
SETTINGS = (
    "",
    *(f"SET strategy = '{each}';" for each in STRATEGIES),
    "SET scheduler = 'mqt';",
    "SET scheduler = 'swf';",
)


def few(count):
    """Ask for few examples, and take a seed that fails as it is: a smaller number is no smaller world."""
    return settings(examples(count), phases=(Phase.explicit, Phase.reuse, Phase.generate))


def narrow(random):
    """Make every bound small, so that what happens seldom happens here: merges, nodes, blocks."""
    stack = ExitStack()
    stack.enter_context(patch.object(limits, "MERGE_FAN_IN", random.choice((2, 3))))
    stack.enter_context(patch.object(pane_fold, "MOST_ENTRIES", random.choice((1, 10))))
    stack.enter_context(patch.object(running_fold, "MOST_TRIED", random.choice((1, 10, 1 << 14))))
    stack.enter_context(patch.object(running_fold, "MOST_APART", random.choice((1, 10, 1 << 20))))
    stack.enter_context(patch.object(group_totals, "MOST_TOTALS", random.choice((1, 40, 1 << 20))))
    stack.enter_context(patch.object(due, "FEW_INSTANTS", random.choice((1, 3))))
    stack.enter_context(patch.object(window_requests, "MOST_CELLS", random.choice((1, 50))))
    stack.enter_context(patch.object(sliding, "INSTANTS_AT_ONCE", random.choice((1, 3))))
    return stack


def rounds(random, count, most=6):
    """Cut the rows of both streams anywhere, so many of each for every round."""
    cuts = []
    for _ in "AB":
        ends = sorted(random.randint(0, count) for _ in range(random.randint(0, most)))
        cuts.append([slice(a, b) for a, b in pairwise((0, *ends, count))])
    return [
        {name: mine[turn] for name, mine in zip("AB", cuts, strict=True) if turn < len(mine)}
        for turn in range(max(map(len, cuts)))
    ]


def send(session, streams, cut):
    for name, some in cut.items():
        session.send(name, streams[name][some])


def check_sliding(session, asked, what, *, ended=False):
    """All instants that both watermarks have passed are answered, and no other; in order, once."""
    got = session.results(asked.name)
    check_order(got, asked)
    marks = watermarks(session)
    if ended:
        right = judged(asked, rows_so_far(session))
    else:
        right = judged(asked, rows_so_far(session), until=min(marks) - 1) if marks else Counter()
    same(bag(got), right, f"{what} {asked.penstock()}")
    return right.total()


# --- sliding ----------------------------------------------------------------------------------------------------------


@few(5)
@example(seed=1757018, count=50, is_narrow=False, tasks=2, setting="SET strategy = 'auto';")
@given(seeds, st.sampled_from([20, 50]), st.booleans(), st.integers(1, 3), st.sampled_from(SETTINGS))
def test_sliding_answers_are_duckdbs_and_are_given_when_they_can_be(seed, count, is_narrow, tasks, setting):
    random = Random(seed)
    streams = {name: random_rows(random, count) for name in "AB"}
    shapes = [random_shape(random) for _ in range(2)]
    asked = [random_asked(random, f"q{n}", random.choice(shapes)) for n in range(random.randint(1, 4))]
    pairs = "CREATE QUERY pairs AS SELECT A.v, B.v AS w FROM A, B WHERE A.k = B.k WINDOW 4 seconds;"
    script = (
        setting
        + STREAMS
        + (pairs if random.random() < 0.5 else "")
        + "".join(each.penstock() for each in asked)
    )
    with narrow(random) if is_narrow else ExitStack(), testing.Session(script, tasks=tasks) as session:
        for number, cut in enumerate(rounds(random, count)):
            send(session, streams, cut)
            session.turn()
            if random.random() < 0.3:
                session.restart()
            for each in asked:
                check_sliding(session, each, f"round {number}")
        session.end()
        answers = sum(check_sliding(session, each, "end", ended=True) for each in asked)
        event("answers" if answers else "no answers")
        if "pairs" in script.split():
            testing.expect(session, "pairs")


@few(2)
@given(seeds)
def test_a_row_at_an_instant_and_one_a_window_old(seed):
    """(E - window, E]: at the end it counts, at the beginning it does not; on a grid both are common."""
    random = Random(seed)
    grid = [at_time(1_767_261_600 * SECOND + SECOND * random.randrange(12)) for _ in range(24)]
    rows = [{"k": 1, "v": n, "ts": time} for n, time in enumerate(sorted(grid))]
    asked = [
        Asked(f"q{n}", windows=random_windows(random), every=random.choice((SECOND, SECOND // 2)))
        for n in range(3)
    ]
    asked = [replace(each, every=min(each.every, *each.windows)) for each in asked]
    run = testing.run(
        STREAMS + "".join(each.penstock() for each in asked), {"A": rows[::2], "B": rows[1::2]}, batch=5
    )
    for each in asked:
        whole = {name: pa.concat_tables(run.session.sent[name]) for name in "AB"}
        same(bag(run[each.name]), judged(each, whole), each.penstock())


def test_an_answer_waits_until_both_watermarks_have_passed_its_instant():
    """Lateness is 1 s: with rows at 12.0 in both streams, E = 10 is answered, and E = 11 is not.

    seconds    10      11      12
    A, B       x               x
    answered   E=10            watermark 11: a row at 11.0 may still come
    """
    start = 1_767_261_600 * SECOND
    row = {"k": 1, "v": 1}
    with testing.Session(STREAMS + Asked("q").penstock()) as session:
        for name, second in (("A", 10), ("B", 10), ("A", 12)):
            session.send(name, [{**row, "ts": at_time(start + second * SECOND)}])
            session.turn()
            assert session.results("q") == []
        session.send("B", [{**row, "ts": at_time(start + 12 * SECOND)}])
        session.turn()
        assert [(micros(each["window_end"]) - start) // SECOND for each in session.results("q")] == [10]
        session.send("A", [{**row, "ts": at_time(start + 11 * SECOND)}])
        session.turn()
        session.end()
        assert [each["n"] for each in session.results("q")] == [1, 2, 6]


@few(2)
@given(seeds, st.booleans())
def test_a_run_to_the_end_and_then_another(seed, is_narrow):
    """What was taken for all there is was answered for; the next run answers for later instants, over all rows.

    An instant for which there was nothing to answer may be answered by the next run, if rows came for it.
    """
    random = Random(seed)
    streams = {name: random_rows(random, 40) for name in "AB"}
    asked = [random_asked(random, f"q{n}") for n in range(2)]
    script = STREAMS + "".join(each.penstock() for each in asked)
    with narrow(random) if is_narrow else ExitStack(), testing.Session(script) as session:
        send(session, streams, dict.fromkeys("AB", slice(20)))
        session.turn()
        session.end()
        first = {each.name: bag(session.results(each.name)) for each in asked}
        tables = rows_so_far(session)
        for each in asked:
            same(first[each.name], judged(each, tables), each.penstock())
        times = [micros(time) for table in tables.values() for time in table.column("ts").to_pylist()]
        session.restart()
        send(session, streams, dict.fromkeys("AB", slice(20, None)))
        session.turn()
        session.end()
        for each in asked:
            check_order(session.results(each.name), each)
            second = bag(session.results(each.name)) - first[each.name]
            right, until = judged(each, rows_so_far(session)), max(times, default=-(2**62))
            answered = {row[0] for row in first[each.name]}
            later = Counter({row: count for row, count in second.items() if row[0] > until})
            same(
                later,
                Counter({row: count for row, count in right.items() if row[0] > until}),
                each.penstock(),
            )
            assert second - later <= right
            assert not {row[0] for row in second - later} & answered


# --- queries that come, change and go ---------------------------------------------------------------------------------


def answered_until(session, name):
    """Say up to which instant a query was answered."""
    until = session._store.ledger.query(name).answered
    return -(2**62) if until is None else until


@few(4)
@given(seeds, st.booleans(), st.integers(1, 3), st.sampled_from(SETTINGS))
def test_queries_that_come_change_and_go_answer_right_from_when_they_are_complete(
    seed, is_narrow, tasks, setting
):
    random = Random(seed)
    count = 60
    streams = {name: random_rows(random, count) for name in "AB"}
    shapes = [random_shape(random) for _ in range(2)]
    names = [f"q{n}" for n in range(5)]
    running = {name: random_asked(random, name, random.choice(shapes)) for name in names[:2]}
    script = setting + STREAMS + "".join(each.penstock() for each in running.values())
    born = dict.fromkeys(running, -(2**62))
    with narrow(random) if is_narrow else ExitStack(), testing.Session(script, tasks=tasks) as session:
        for cut in rounds(random, count, most=8):
            send(session, streams, cut)
            session.turn()
            change = random.random()
            if change < 0.15 and len(running) > 1:
                gone = random.choice(sorted(running))
                del running[gone]
                session.script(f"DROP QUERY {gone};")
            elif change < 0.45:
                name = random.choice([each for each in names if each not in running] or [None])
                if name:
                    running[name] = random_asked(random, name, random.choice(shapes))
                    session.script(running[name].penstock())
                    born[name] = -(2**62)
            elif change < 0.6:
                name = random.choice(sorted(running))
                seconds = random.choice((2, 3, 8, 16))
                old = running[name]
                if old.windows[0] == old.windows[1] and old.every <= seconds * SECOND:
                    born[name] = answered_until(session, name)
                    running[name] = replace(old, windows=(seconds * SECOND,) * 2)
                    session.script(f"ALTER QUERY {name} SET WINDOW {seconds} seconds;")
            elif change < 0.7:
                session.restart()
            check_from_complete(session, running, born, ended=False)
        session.end()
        event(f"{check_from_complete(session, running, born, ended=True) > 0}")


def check_from_complete(session, running, born, *, ended):
    """Hold every query against the judge, for the instants whose windows lie after it was complete."""
    session.turn()
    tables, marks, answers = rows_so_far(session), watermarks(session), 0
    until = None if ended else min(marks) - 1 if marks else -(2**62)
    for name, asked in running.items():
        since = session.since[name]
        first = born[name] + 1 if since is None else max(born[name] + 1, since + max(asked.windows) - 1)
        got = [row for row in session.results(name) if micros(row["window_end"]) >= first]
        right = judged(asked, tables, since=first, until=until)
        same(bag(got), right, f"{name} from {first} on: {asked.penstock()}")
        check_order(got, asked)
        answers += right.total()
    return answers


def test_a_wider_window_that_comes_later_leaves_the_panes_of_others_readable():
    """Eight panes make a node; who reads exactly eight must not be sent to a node that nobody made."""
    start = 1_767_261_600 * SECOND
    narrow_one = Asked("narrow", windows=(8 * SECOND,) * 2, every=SECOND)
    wide = Asked("wide", windows=(64 * SECOND,) * 2, every=SECOND)
    with testing.Session(STREAMS + narrow_one.penstock()) as session:
        for second in range(26):
            rows = [{"k": 1, "v": second, "ts": at_time(start + second * SECOND)}]
            session.send("A", rows)
            session.send("B", rows)
            session.turn()
            if second == 15:
                session.script(wide.penstock())
        session.end()
        check_sliding(session, narrow_one, "narrow", ended=True)


# --- final and changes ------------------------------------------------------------------------------------------------


@few(4)
@given(seeds, st.booleans(), st.integers(1, 3), st.sampled_from(SETTINGS))
def test_final_groups_come_once_and_as_soon_as_they_are_complete(seed, is_narrow, tasks, setting):
    random = Random(seed)
    count = 50
    streams = {name: random_rows(random, count, span=200 * SECOND) for name in "AB"}
    shape = random_shape(random)
    asked = [
        in_minutes(random_asked(random, f"q{n}", shape, emit="final"), random)
        for n in range(random.randint(1, 3))
    ]
    script = setting + STREAMS + "".join(each.penstock() for each in asked)
    with narrow(random) if is_narrow else ExitStack(), testing.Session(script, tasks=tasks) as session:
        for cut in rounds(random, count):
            send(session, streams, cut)
            session.turn()
            if random.random() < 0.3:
                session.restart()
            for each in asked:
                check_final(session, each)
        session.end()
        for each in asked:
            same(bag(session.results(each.name)), judged(each, rows_so_far(session)), each.penstock())


def check_final(session, asked):
    """A bucket of one side is complete when no row of it, and no partner of its rows, can still come."""
    unit, side = asked.keys[0][0].split("'")[1], asked.keys[0][0][-5]
    length = {"second": SECOND, "minute": 60 * SECOND}[unit]
    marks, right = watermarks(session), Counter()
    if marks:
        own, other = marks if side == "A" else reversed(marks)
        reach = asked.windows[0 if side == "A" else 1]  # its youngest partner is less than this away
        for row, times in judged(asked, rows_so_far(session)).items():
            end = row[0] + length
            if own >= end and other >= end - 1 + reach:
                right[row] += times
    same(bag(session.results(asked.name)), right, f"complete by now: {asked.penstock()}")


@few(4)
@given(seeds, st.booleans(), st.integers(1, 3), st.sampled_from(SETTINGS))
def test_changes_lead_from_each_state_to_the_next(seed, is_narrow, tasks, setting):
    random = Random(seed)
    count = 40
    streams = {name: random_rows(random, count) for name in "AB"}
    shape = random_shape(random)
    asked = [random_asked(random, f"q{n}", shape, emit="changes") for n in range(random.randint(1, 3))]
    script = setting + STREAMS + "".join(each.penstock() for each in asked)
    with narrow(random) if is_narrow else ExitStack(), testing.Session(script, tasks=tasks) as session:
        for cut in rounds(random, count):
            send(session, streams, cut)
            session.turn()
            if random.random() < 0.3:
                session.restart()
            for each in asked:
                rows = session.results(each.name)
                state = applied(rows, len(each.keys))
                same(Counter(state.values()), judged(each, rows_so_far(session)), each.penstock())
        before = {each.name: len(session.results(each.name)) for each in asked}
        session.end()
        session.turn()
        assert before == {each.name: len(session.results(each.name)) for each in asked}, "nothing has changed"


def test_a_group_that_having_lets_go_is_deleted_and_may_come_back():
    start = 1_767_261_600 * SECOND
    asked = Asked("q", (("A.g", "g"),), (("SUM(A.v)", "s"),), having="SUM(A.v) > 0", emit="changes")
    with testing.Session(STREAMS + asked.penstock()) as session:
        session.send("B", [{"k": 1, "ts": at_time(start)}])
        for value in (5, -7, 1, 1, 1):
            session.send("A", [{"k": 1, "g": "x", "v": value, "ts": at_time(start)}])
            session.turn()
        rows = [(row["_op"], row["_seq"], row["s"]) for row in session.results("q")]
    assert rows == [("insert", 1, 5), ("delete", 2, -2), ("insert", 5, 1)]


def test_keys_that_are_null_in_one_batch_and_not_in_another_are_the_same_groups():
    """A group is found again by a hash of its key, which must not depend on the batch it came in."""
    start = 1_767_261_600 * SECOND
    asked = Asked("q", (("A.v", "v"), ("A.x", "x")), emit="changes")
    with testing.Session(STREAMS + asked.penstock()) as session:
        session.send("B", [{"k": 1, "ts": at_time(start)}])
        for values in ((1, 2), (1, None), (None,), (2, None)):
            session.send("A", [{"k": 1, "v": v, "x": v and 0.0 * -v, "ts": at_time(start)} for v in values])
            session.turn()
        state = applied(session.results("q"), 2)
    assert sorted(state.values(), key=str) == [(1, 0.0, 2), (2, 0.0, 2), (None, None, 3)]


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("emit", ["sliding", "final", "changes"])
@pytest.mark.parametrize(
    "measure",
    ["SUM(DISTINCT A.m)", "AVG(DISTINCT A.m)", "SUM(A.m)", "AVG(A.v)", "MIN(A.day)", "MAX(B.g)", "BOOL_AND(A.f)",
     "STDDEV(A.d)", "SUM(DISTINCT A.v)", "AVG(DISTINCT A.d)"],
)  # fmt: skip
def test_a_group_of_nulls_has_no_value(emit, measure):
    asked = Asked("q", (("A.g", "g"),), ((measure, "x"), ("COUNT(DISTINCT A.v)", "n")), emit=emit)
    row = {"k": 1, "g": "x", "ts": at_time(1_767_261_600 * SECOND)}
    run = testing.run(STREAMS + asked.penstock(), {"A": [row], "B": [{**row, "g": None}]})
    (answer,) = ({name: each[name] for name in "gxn"} for each in run["q"])
    assert answer == {"g": "x", "x": None, "n": 0}


def test_a_bigint_average_never_overflows_and_a_sum_says_so():
    big = 2**63 - 1
    row = {"k": 1, "v": big, "ts": at_time(1_767_261_600 * SECOND)}
    average = Asked("q", measures=(("AVG(A.v)", "x"),), emit="changes")
    run = testing.run(STREAMS + average.penstock(), {"A": [row] * 3, "B": [row]})
    assert run["q"][-1]["x"] == float(big)
    total = Asked("q", measures=(("SUM(A.v)", "x"),), emit="changes")
    with pytest.raises(Exception, match="a SUM is too large"):
        testing.run(STREAMS + total.penstock(), {"A": [row] * 3, "B": [row]})


# --- state ------------------------------------------------------------------------------------------------------------


def held(session):
    """Count pane files, their entries, and the files that are there, read or not."""
    states = session._store.ledger.panes.values()
    named = {file.name for each in states for file in each.files}
    there = [name for name in session._store.files.find("panes") if name.endswith(".arrow")]
    return len(named), sum(file.rows for each in states for file in each.files), len(there)


@pytest.mark.parametrize("emit", ["sliding", "final"])
def test_state_is_bounded_once_the_data_has_moved_on(emit):
    asked = [
        Asked(
            "a",
            (("A.g", "g"),),
            (("COUNT(DISTINCT A.v)", "n"), ("SUM(B.v)", "s")),
            (3 * SECOND,) * 2,
            emit=emit,
        ),
        Asked(
            "b",
            (("A.g", "g"),),
            (("COUNT(DISTINCT A.v)", "n"), ("SUM(B.v)", "s")),
            (9 * SECOND,) * 2,
            emit=emit,
        ),
    ]
    if emit == "final":
        asked = [replace(each, keys=(("date_trunc('second', A.ts)", "t"), *each.keys)) for each in asked]
    start, most = 1_767_261_600 * SECOND, []
    with testing.Session(STREAMS + "".join(each.penstock() for each in asked)) as session:
        for turn in range(30):
            for name in "AB":
                rows = [
                    {"k": 1, "g": "xy"[n], "v": n, "ts": at_time(start + (turn * 3 + n) * SECOND)}
                    for n in range(2)
                ]
                session.send(name, rows)
            session.turn()
            most.append(held(session))
        late = [max(each[n] for each in most[18:]) for n in range(3)]
        early = [max(each[n] for each in most[6:18]) for n in range(3)]
        for then, now in zip(early, late, strict=True):
            assert now <= then * 1.3 + 2, (early, late)
        session.restart()
        session.turn()
        assert held(session)[2] <= early[2] + 2


def test_panes_that_nobody_reads_are_let_go():
    asked = [Asked("a"), Asked("b", (("A.g", "g"),))]
    row = {"k": 1, "g": "x", "ts": at_time(1_767_261_600 * SECOND)}
    with testing.Session(STREAMS + "".join(each.penstock() for each in asked)) as session:
        for name in "AB":
            session.send(name, [row])
        session.turn()
        assert held(session)[2] >= 2
        session.script("DROP QUERY b;")
        session.send("A", [row])  # what a commit does without is deleted with the next one
        session.turn()
        assert {name for each in session._store.ledger.panes.values() for name in each.panes.readers} == {"a"}
        assert held(session)[2] <= held(session)[0] + 1


def test_rows_later_than_allowed_are_in_no_answer():
    start = 1_767_261_600 * SECOND
    with testing.Session(STREAMS + Asked("q").penstock()) as session:
        for second in (0, 5, 0, 9):
            for name in "AB":
                session.send(name, [{"k": 1, "v": second, "ts": at_time(start + second * SECOND)}])
            session.turn()
        assert len(session.late("A")) == 1
        session.end()
        check_sliding(session, Asked("q"), "late", ended=True)
        assert LATENESS < 5 * SECOND
