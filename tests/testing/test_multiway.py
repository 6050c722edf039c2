"""Joins of three to six streams on the inline runner: every result is DuckDB's, once, whatever happens on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from penstock import limits, testing
from penstock.schedulers import SCHEDULERS
from penstock.sql.options import STRATEGIES
from tests.answers import SECOND, applied, bag, micros, same
from tests.testing.answer_world import START, at_time
from tests.testing.many_world import (
    GRID,
    LATENESS,
    NAMES,
    SHAPES,
    Many,
    Windows,
    declared,
    in_time,
    judged,
    random_aggregate,
    random_equalities,
    random_many,
    random_outputs,
    random_windows,
    rounds_of,
    streams_of,
)
from tests.testing.test_aggregates import few, seeds

SETTINGS = (
    "",
    *(f"SET strategy = '{each}';" for each in STRATEGIES),
    *(f"SET scheduler = '{each}';" for each in SCHEDULERS),
)
ORDERS = ("sync-filter", "filter-order", "adaptive")


def texts(asked):
    return "".join(each.penstock() for each in asked)


def check(session, asked, what):
    """Hold a query against the judge, over all rows that came in time so far."""
    right = judged(asked, session)
    same(bag(session.results(asked.name)), right, f"{what}: {asked.penstock()}")
    return right.total()


def send(session, some):
    for name, rows in some.items():
        session.send(name, rows)


@few(6)
@given(seeds, st.integers(1, 3), st.sampled_from(SETTINGS))
def test_results_are_duckdbs_after_every_turn(seed, tasks, setting):
    """Queries on one graph with windows of their own share a group; others are beside it."""
    random = Random(seed)
    first = random_many(random, "q0")
    asked = [
        first,
        *(random_many(random, f"q{n}", random.choice((first, None))) for n in range(1, random.randint(1, 4))),
    ]
    streams, found = streams_of(random, asked, random.choice((12, 24))), 0
    with (
        patch.object(limits, "MERGE_FAN_IN", random.choice((2, 8))),
        testing.Session(setting + declared() + texts(asked), tasks=tasks) as session,
    ):
        for number, some in enumerate(rounds_of(random, streams)):
            send(session, some)
            session.turn()
            found = sum(check(session, each, f"round {number}") for each in asked)
            if random.random() < 0.3:
                session.restart()
        session.end()
        for each in asked:
            check(session, each, "end")
    event("results" if found else "no results")


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_a_graph_has_all_of_its_results(shape):
    """Of each number of streams one; a window that is wide enough to make sure that there are some."""
    found = 0
    for count in (3, 4):
        random = Random(f"{shape}{count}")
        equal = random_equalities(random, shape, count)
        query = Many(
            "q", tuple(NAMES[:count]), equal, Windows(16 * GRID), outputs=random_outputs(random, count)
        )
        streams = streams_of(random, [query], 18)
        with testing.Session(declared() + query.penstock()) as session:
            for some in rounds_of(random, streams, most=3):
                send(session, some)
                session.turn()
            found += check(session, query, shape)
    assert found


@few(4)
@given(seeds, st.sampled_from(ORDERS), st.integers(1, 2), st.sampled_from(SETTINGS))
def test_ordered_results_come_by_the_time_of_their_newest_row(seed, order, tasks, setting):
    random = Random(seed)
    first = replace(random_many(random, "q0", most=4), order=order)
    asked = [first, random_many(random, "q1", first)]
    streams = streams_of(random, asked, 16)
    with testing.Session(setting + declared() + texts(asked), tasks=tasks) as session:
        for some in rounds_of(random, streams):
            send(session, some)
            session.turn()
            if random.random() < 0.3:
                session.restart()
            check_times(session, first)
            extra = bag(session.results("q0")) - judged(first, session)
            assert not extra, f"{first.penstock()} has {extra}"
        session.end()
        check_times(session, first)
        for each in asked:
            check(session, each, "end")


def check_times(session, asked):
    rows = session.results(asked.name)
    times = [max(row[f"t{number}"] for number in range(len(asked.streams))) for row in rows]
    assert times == sorted(times), f"{asked.penstock()} is out of order"


# --- queries that come, change and go --------------------------------------------------------------------------------


@few(4)
@given(seeds, st.integers(1, 3), st.sampled_from(SETTINGS))
def test_queries_come_and_go_and_the_others_do_not_notice(seed, tasks, setting):
    """A query that comes has all results of rows since it is complete, and none that is wrong."""
    random = Random(seed)
    first = random_many(random, "q0", most=5)
    running, free = {"q0": first}, [f"q{n}" for n in range(1, 9)]
    streams = streams_of(random, [first, Many("all", tuple(NAMES), (), Windows())], 16)
    one = first.streams[0]
    pair = f"CREATE QUERY pair AS SELECT {one}.id FROM {one}, V WHERE {one}.k = V.k WINDOW 2 s;"
    with testing.Session(setting + declared() + texts([first]), tasks=tasks) as session:
        if one != "V":
            session.script(pair)  # two streams on a key beside three: logs are shared
        for some in rounds_of(random, streams, most=6):
            send(session, some)
            session.turn()
            change = random.random()
            if change < 0.5 and free:
                like = random.choice((first, first, None))
                name = free.pop()
                running[name] = random_many(random, name, like, most=4)
                session.script(running[name].penstock())
            elif change < 0.65 and len(running) > 1:
                gone = random.choice(sorted(running.keys() - {"q0"}))
                del running[gone]
                session.script(f"DROP QUERY {gone};")
            elif change < 0.8:
                session.restart()
            session.turn()
            check(session, first, "the first")
        session.end()
        for name, each in running.items():
            got, right = bag(session.results(name)), judged(each, session)
            least = judged(each, session, since=session.since[name])
            assert not got - right, f"{each.penstock()}: too many {got - right}"
            assert not least - got, f"{each.penstock()}: missing {least - got}"
        event("late ones" if any(session.since[name] is not None for name in running) else "all complete")


@few(4)
@given(seeds, st.integers(1, 2))
def test_a_window_that_is_altered_has_what_both_have_and_no_more_than_the_wider(seed, tasks):
    random = Random(seed)
    lengths = random.sample((GRID, 2 * GRID, 4 * GRID, 9 * GRID), 2)
    asked = [replace(random_many(random, "q", most=4), windows=Windows(each)) for each in lengths[:1]]
    other = replace(random_many(random, "other", asked[0]), windows=Windows(6 * GRID))
    asked.append(replace(asked[0], windows=Windows(lengths[1])))
    streams = streams_of(random, asked, 20)
    with testing.Session(declared() + texts([asked[0], other]), tasks=tasks) as session:
        cuts = rounds_of(random, streams)
        for number, some in enumerate(cuts):
            send(session, some)
            session.turn()
            if number == len(cuts) // 2:
                session.script(f"ALTER QUERY q SET WINDOW {lengths[1]} microseconds;")
        session.end()
        check(session, other, "the other")
        narrow, wide = sorted(asked, key=lambda each: each.windows.length)
        got = bag(session.results("q"))
        assert not got - judged(wide, session)
        assert not judged(narrow, session) - got


# --- aggregates -------------------------------------------------------------------------------------------------------


@few(5)
@given(
    seeds,
    st.sampled_from(["sliding", "sliding", "final", "changes"]),
    st.integers(1, 3),
    st.sampled_from(SETTINGS),
)
def test_aggregates_over_many_streams_are_duckdbs(seed, emit, tasks, setting):
    random = Random(seed)
    first = random_aggregate(random, "q0", emit)
    asked = [first]
    if random.random() < 0.5:  # of the same panes, with another window
        asked.append(replace(first, name="q1", windows=Windows(8 * GRID)))
    streams, found = streams_of(random, asked, 16), 0
    with testing.Session(setting + declared() + texts(asked), tasks=tasks) as session:
        for some in rounds_of(random, streams):
            send(session, some)
            session.turn()
            if random.random() < 0.3:
                session.restart()
            for each in asked:
                check_aggregate(session, each)
        session.end()
        for each in asked:
            found += check_aggregate(session, each, ended=True)
    event(f"{emit}: answers" if found else f"{emit}: none")


def check_aggregate(session, asked, *, ended=False):
    """Sliding: instants that every watermark has passed; final: groups that are complete; changes: the state now."""
    rows = session.results(asked.name)
    if asked.emit == "changes":
        right = judged(asked, session)
        same(Counter(applied(rows, asked.keys).values()), right, asked.penstock())
    elif asked.emit == "final":
        right = judged(asked, session)
        right = right if ended else complete(session, asked, right)
        same(bag(rows), right, f"complete by now: {asked.penstock()}")
    else:
        until = None if ended else min(watermarks(session, asked)) - 1
        right = judged(asked, session, until=until)
        same(bag(rows), right, f"until {until}: {asked.penstock()}")
    return right.total()


def complete(session, asked, answers):
    """A second of one input is complete when neither a row of it nor a partner of its rows can still come."""
    marks, place = watermarks(session, asked), int(asked.outputs[0][0].split(", a")[1].split(".")[0])
    done = Counter()
    for row, times in answers.items():
        end = row[0] + SECOND
        others = (mark for number, mark in enumerate(marks) if number != place)
        if marks[place] >= end and all(mark >= end - 1 + asked.windows.length for mark in others):
            done[row] = times
    return done


def watermarks(session, asked):
    """Give the watermark of each input's stream; one without rows has none."""
    marks = []
    for name in asked.streams:
        times = [micros(each) for each in in_time(session, name).column("ts").to_pylist()]
        marks.append(max(times) - LATENESS if times else -(2**60))
    return marks


# --- edges ------------------------------------------------------------------------------------------------------------


def rows_at(*times, k=1):
    return [{"id": number, "k": k, "j": k, "ts": at_time(START + time)} for number, time in enumerate(times)]


THREE = ("P", "Q", "R")
IDS = tuple((f"a{n}.id", f"i{n}") for n in range(3))


@pytest.mark.parametrize(("apart", "found"), [(2 * SECOND - 1, 1), (2 * SECOND, 0)])
def test_a_result_whose_ends_are_a_window_apart_is_none(apart, found):
    """
    P  x
    Q      x             less than 2 s after P, and before R
    R          x         `apart` after P
    """
    query = Many("q", THREE, ("a0.k = a1.k", "a1.k = a2.k"), Windows(2 * SECOND), outputs=IDS)
    run = testing.run(
        declared() + query.penstock(), {"P": rows_at(0), "Q": rows_at(SECOND), "R": rows_at(apart)}
    )
    assert len(run["q"]) == found


@pytest.mark.parametrize("arrival", ["PQR", "PRQ", "QPR", "QRP", "RPQ", "RQP"])
def test_a_result_is_found_once_in_whichever_order_its_rows_come(arrival):
    query = Many("q", THREE, ("a0.k = a1.k", "a1.j = a2.j"), Windows(5 * SECOND), outputs=IDS)
    with testing.Session(declared() + query.penstock()) as session:
        for name in arrival:
            session.send(name, rows_at(SECOND, SECOND))
            session.turn()
        session.restart()
        session.turn()
        assert check(session, query, arrival) == 8


def test_a_stream_joined_with_itself_twice_has_each_row_in_every_place():
    query = Many("q", ("P", "P", "P"), ("a0.k = a1.k", "a1.k = a2.k"), Windows(3 * SECOND), outputs=IDS)
    with testing.Session(declared("P") + query.penstock()) as session:
        for _ in range(2):
            session.send("P", rows_at(0, SECOND, SECOND))
            session.turn()
        assert check(session, query, "self") == 216


def test_rows_of_a_result_that_nothing_but_time_connects():
    windows = Windows(intervals=((0, 1, 0, SECOND), (1, 2, 0, SECOND)))
    query = Many("q", THREE, (), windows, where=("a0.v > 0",), outputs=IDS)
    with testing.Session(declared() + query.penstock()) as session:
        for name in THREE:
            session.send(name, [{**row, "v": 1} for row in rows_at(0, SECOND, 2 * SECOND)])
            session.turn()
        assert check(session, query, "time only") == 8


def test_a_cross_join_that_is_asked_for_is_given():
    query = Many("q", THREE, ("a0.k = a1.k",), Windows(2 * SECOND), outputs=IDS, joined=True)
    with testing.Session(declared() + query.penstock()) as session:
        for name in THREE:
            session.send(name, rows_at(0, SECOND, 3 * SECOND))
            session.turn()
        assert check(session, query, "crossed") == 9


def test_sixteen_streams_are_joined():
    streams = tuple(NAMES[n % 6] for n in range(16))
    equal = tuple(f"a{n}.k = a{n + 1}.k" for n in range(15))
    outputs = tuple((f"a{n}.id", f"i{n}") for n in range(16))
    query = Many("q", streams, equal, Windows(2 * SECOND), outputs=outputs)
    with testing.Session(declared() + query.penstock()) as session:
        for name in NAMES:
            session.send(name, rows_at(*((0, SECOND) if name == "P" else (0,))))
        session.turn()
        assert check(session, query, "sixteen") == 8


def test_state_is_what_the_inputs_have_in_their_window():
    """However many results there are, each row is held once, and for as long as somebody may come for it."""
    query = Many("q", THREE, ("a0.k = a1.k", "a1.k = a2.k"), Windows(4 * SECOND), outputs=IDS)
    with testing.Session(declared() + query.penstock()) as session:
        for second in range(0, 60, 2):
            for name in THREE:
                session.send(name, rows_at(second * SECOND, second * SECOND, (second + 1) * SECOND))
            session.turn()
        in_window = 3 * 3 * (4 + LATENESS // SECOND) // 2
        batch = 3 * 3
        assert session.status().state_rows <= in_window + batch
        check(session, query, "state")


def test_random_windows_are_drawn_in_every_way():
    """So that none of the tests above tries less than it says."""
    drawn = [random_windows(Random(seed), 3) for seed in range(200)]
    assert any(each.length and not each.intervals for each in drawn)
    assert any(None in each.each for each in drawn)
    assert any(0 in each.each for each in drawn)
    assert any(each.intervals and each.length is None for each in drawn)
    assert any(each.intervals and each.length for each in drawn)
