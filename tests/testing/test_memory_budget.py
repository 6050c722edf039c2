"""The memory of joins without a window: kept where it suffices, told where it does not.

What counts is what a unit maps, unit by unit: whenever the model said before it that there is room, it keeps the
budget.  Results are never its price where the scrambling of all streams is known.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.show import memory_lines
from penstock.engine.report.status import Status
from penstock.errors import InputError
from penstock.plan.buffers import DBF, HYBRID, PLAIN, STRATEGIES
from penstock.sql.units import parse_size
from penstock.state.values import Cursor
from penstock.testing import Session
from tests.testing.test_oblivious import buffers, play, results, script, table
from tests.testing.windowless_world import Sensor, full_join, scrambled, sensor


def streams(rng, rows=(40, 200)):
    """Draw two or three streams of more rows, in small batches, some far behind others."""
    drawn = []
    for number in range(rng.randint(2, 3)):
        count = rng.randint(*rows)
        values = scrambled(rng, count, rng.choice([0, 3, 20]), rng.choice([1, 1, 2]))
        cuts, at = [], rng.randint(1, 15)
        while at < count:
            cuts.append(at)
            at += rng.randint(1, 15)
        drawn.append(Sensor(f"S{number}", values, tuple(cuts), rng.choice([0, 0, 5, 15])))
    return drawn


def watch_units(session, seen):
    """Note of each unit what it maps, the budget, and whether there was room by what was known before it."""
    (group,) = session.plan.groups

    def note(_unit):
        ledger = session._store.ledger
        known = ledger.buffers.get(group.id)
        seen.append((ledger.groups[group.id].mapped_bytes, known.memory if known else None))

    session._context.watchers = [note]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1 << 30))
def test_with_known_characteristics_nothing_is_missed_and_the_budget_is_kept_where_it_fits(seed):
    rng = Random(seed)
    sensors, units = streams(rng), []
    memory = f"SET memory = '{rng.choice([1, 2, 4, 8])} KiB';"
    with Session(script(sensors) + memory) as session:
        watch_units(session, units)
        play(session, sensors, rng, restarts=False)
        assert results(session, sensors) == full_join(sensors)
        query = buffers(session)
    assert (query.missed, query.memory.dropped) == (0.0, 0)
    assert query.memory.most_mapped == max(mapped for mapped, _ in units)
    for mapped, known in units:
        if known is not None and known.fits:
            assert mapped <= known.budget, seed


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1 << 30))
def test_memory_may_change_at_any_moment_and_the_engine_may_stop(seed):
    rng = Random(seed)
    sensors = streams(rng, rows=(20, 80))

    def change(session, _seen):
        if rng.random() < 0.3:
            session.script(f"SET memory = '{rng.choice(['1 KiB', '3 KiB', '1 MiB'])}';")

    with Session(script(sensors) + "SET memory = '2 KiB';") as session:
        play(session, sensors, rng, look=change)
        assert results(session, sensors) == full_join(sensors)
        assert buffers(session).missed == 0.0


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1 << 30))
def test_with_measured_characteristics_the_budget_is_kept_and_what_that_misses_is_told(seed):
    rng = Random(seed)
    sensors, units = streams(rng), []
    with Session(script(sensors, declared=False) + "SET memory = '2 KiB';") as session:
        watch_units(session, units)
        play(session, sensors, rng, restarts=False)
        found, whole = set(results(session, sensors)), set(full_join(sensors))
        query = buffers(session)
    assert found <= whole
    assert len(whole) - len(found) <= query.missed + 1e-6
    if query.memory.dropped == 0:
        assert query.missed == 0 or query.misses[-1].dropped == 0
    batch = len(sensors) * 15 * 40  # a batch of each stream: at most 15 rows, of less than 40 bytes
    over = [mapped for mapped, known in units if known is not None and mapped > known.budget + batch]
    assert not over, seed


def send_rows(session, name, start, count=20):
    session.send(name, table(start, list(range(start, start + count)), "BIGINT", timed=False))


def congestion(memory, rounds=40, *, declared=True):
    """Let S1 come to a halt while S0 goes on; then it catches up.  Give the figures on the way, and the results."""
    sensors = [sensor(Random(seed), name, 5) for seed, name in enumerate(["S0", "S1"])]
    known = [replace(each, values=list(range(5))) for each in sensors]  # in order
    seen = []
    with Session(script(known, declared=declared) + memory) as session:
        for start in range(0, 20 * rounds, 20):
            send_rows(session, "S0", start)
            session.turn()
            seen.append(buffers(session).memory)
        for start in range(0, 20 * rounds, 20):
            send_rows(session, "S1", start)
            session.turn()
            seen.append(buffers(session).memory)
        session.end()
        query = buffers(session)
        return seen, query, len(session.results("q"))


def test_a_congestion_is_survived_on_disk_and_left_when_it_is_over():
    seen, query, found = congestion("SET memory = '8 KiB';")
    assert found == 800
    assert query.accuracy == 1.0
    strategies = [each.strategy for each in seen]
    assert strategies[0] == PLAIN
    assert DBF in strategies
    assert max(each.most_mapped for each in seen) <= parse_size("8 KiB")
    assert max(each.waiting_rows for each in seen) > 400, "most of S0 was on disk"
    assert seen[-1].waiting_rows == 0
    plain, _, found = congestion("")
    assert found == 800
    assert max(each.most_mapped for each in plain) > parse_size("16 KiB"), "without a budget it takes more"
    assert plain[0].budget is None


def test_what_was_asked_for_stays_whatever_the_memory():
    seen, _, found = congestion("SET memory = '1 MiB'; SET buffers = 'hybrid';")
    assert found == 800
    assert {each.strategy for each in seen} == {HYBRID}


def test_where_there_is_no_room_the_oldest_rows_go_and_somebody_is_told(caplog):
    asked = "SET memory = '2 KiB'; SET buffers = 'plain';"
    with caplog.at_level(logging.WARNING):
        seen, query, found = congestion(asked, declared=False)
    assert max(each.most_mapped for each in seen) <= parse_size("2 KiB")
    assert found < 800
    assert query.memory.dropped > 0
    assert query.missed == pytest.approx(800 - found, rel=0.25)
    assert query.misses[-1].dropped > 0
    assert "is too small, buffers = 'plain' takes" in caplog.text
    assert "the oldest rows are let go" in caplog.text
    assert "rows were dropped for lack of memory" in caplog.text
    with caplog.at_level(logging.WARNING):
        seen, query, found = congestion(asked, declared=True)
    assert (found, query.missed, query.memory.dropped) == (800, 0.0, 0)
    assert max(each.most_mapped for each in seen) > parse_size("2 KiB")
    assert "more is taken, since the scrambling of every stream is declared" in caplog.text


@pytest.mark.parametrize("strategy", ["", *STRATEGIES])
def test_decimals_that_fall_together_where_they_are_watched_cost_no_result(strategy):
    """In order they are: that doubles cannot tell them apart breaks no declaration."""
    kind, known = "DECIMAL(20, 2)", [Sensor(name, list(range(5)), (), 0) for name in ("S0", "S1")]
    asked = "SET memory = '2 KiB';" + (f"SET buffers = '{strategy}';" if strategy else "")
    with Session(script(known, kind) + asked) as session:
        for name in ("S0", "S1"):
            for start in range(0, 300, 20):
                rows = list(range(start, start + 20))
                session.send(name, table(start, rows, kind, timed=False))
                session.turn()
        session.end()
        query = buffers(session)
        assert len(session.results("q")) == 300
    assert (query.accuracy, query.missed, query.memory.dropped) == (1.0, 0.0, 0)
    assert all(each.is_known for each in query.buffers)


def test_of_more_rows_than_are_remembered_what_had_no_room_is_told_too():
    """Values of rows let go for want of room stay open: their partners are still to come, all of them."""
    sensors, rows = [Sensor(name, list(range(5)), (), 0) for name in ("S0", "S1")], 6_000
    asked = "SET memory = '19 KiB'; SET buffers = 'plain';"
    with Session(script(sensors, declared=False) + asked) as session:
        for name in ("S0", "S1"):
            for start in range(0, rows, 200):
                send_rows(session, name, start, 200)
                session.turn()
        session.end()
        query, found = buffers(session), len(session.results("q"))
        (watch,) = session._store.ledger.buffers.values()
    assert found < rows / 10
    assert abs(query.missed - (rows - found)) <= 2 * query.missed_error
    assert query.accuracy == pytest.approx(found / rows, rel=0.25)
    assert watch.sketch.unjudged == 0


@pytest.mark.parametrize("strategy", ["", *STRATEGIES])
def test_a_budget_that_cannot_hold_one_batch_is_refused(strategy):
    sensors = [sensor(Random(seed), name, 5) for seed, name in enumerate(["S0", "S1"])]
    memory = "SET memory = '100 B';" + (f"SET buffers = '{strategy}';" if strategy else "")
    with Session(script(sensors) + memory) as session:
        for name in ("S0", "S1"):
            send_rows(session, name, 0)
        with pytest.raises(
            InputError, match="memory = '100 B' has no room for one batch: batch 0 of S"
        ) as said:
            session.end()
    assert "SET memory to twice that or more, or make batches smaller" in str(said.value)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux says what is resident")
def test_no_more_of_the_segments_is_resident_than_is_said_to_be_mapped():
    """What counts as mapped bounds the resident pages of segments, up to their headers and whole pages."""
    sensors = [sensor(Random(seed), name, 5) for seed, name in enumerate(["S0", "S1"])]
    with Session(script(sensors)) as session:
        for start in range(0, 60_000, 20_000):
            for name in ("S0", "S1"):
                send_rows(session, name, start, 20_000)
        (group,) = session.plan.groups
        ledger, context = session._store.ledger, session._context
        none, ends = Cursor((0, 0)), Cursor((3, 3))
        task = context.planner(ledger).task(group, (none, none), ends, (None, None))
        files = session._store.files
        found = [
            each for part in range(task.parts) for each in task.find(files, part)
        ]  # which keep their segments mapped
        resident = resident_bytes(session._folder)
    assert sum(each.batch.num_rows for each in found) == 60_000
    assert task.mapped_bytes == sum(each.bytes for log in group.logs for each in ledger.segments(log.id))
    assert 0.5 * task.mapped_bytes < resident <= task.mapped_bytes + 6 * 8192, "headers, and whole pages"


def resident_bytes(folder):
    """Count the resident bytes of mapped files below a folder: pages that several mappings share count once."""
    resident, inside = {}, ""
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        head = line.split()
        if not head[0].endswith(":"):  # the next mapping, maybe of no file
            inside = head[5] if len(head) > 5 and head[5].startswith(folder) else ""
        elif inside and head[0] == "Rss:":
            resident[inside] = max(resident.get(inside, 0), 1024 * int(head[1]))
    return sum(resident.values())


def test_status_says_what_memory_costs():
    shown = []

    def look(query):
        shown.append(list(memory_lines(Status((), (), (query,)))))

    for memory in ("SET memory = '8 KiB';", "SET memory = '2 KiB'; SET buffers = 'plain';", ""):
        _, query, _ = congestion(memory, declared=False)
        look(query)
    assert shown[0][0].startswith("memory q: ")
    assert "of 8 KiB mapped" in shown[0][0]
    assert "rows were dropped because the budget was too small" in shown[1][-1]
    assert shown[2] == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_backlog_is_joined_in_steps_that_the_budget_has_room_for(strategy):
    sensors = [sensor(Random(seed), name, 5) for seed, name in enumerate(["S0", "S1"])]
    known, units = [replace(each, values=list(range(5))) for each in sensors], []
    with Session(script(known) + f"SET memory = '4 KiB'; SET buffers = '{strategy}';") as session:
        watch_units(session, units)
        for start in range(0, 800, 20):
            for name in ("S0", "S1"):
                send_rows(session, name, start)
        session.turn()
        session.end()
        assert len(session.results("q")) == 800
    assert len(units) > 8
    assert max(mapped for mapped, _ in units) <= parse_size("4 KiB")
