"""Who does the work while there are no Python workers, and for how long."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from penstock.engine.units import own_work
from penstock.engine.units.own_work import WORTH, OwnWork, needs_workers
from penstock.plan.build import build_plan
from penstock.sql.script import parse_script


class Workers:
    """Workers that are there when the test says so."""

    def __init__(self):
        self.begun, self.are_there = False, False

    def begin(self):
        self.begun = True


@pytest.fixture
def clock(monkeypatch):
    """Let every part of some work take a second."""
    ticks = iter(range(10_000))
    monkeypatch.setattr(own_work.time, "thread_time", lambda: float(next(ticks)))


def test_parts_are_done_here_and_their_results_are_in_order():
    assert OwnWork(Workers(), 4).run(lambda part: part * part, 100) == [part * part for part in range(100)]


def test_as_many_parts_are_done_at_once_as_there_are_threads():
    together = threading.Barrier(3, timeout=60)
    assert len(OwnWork(Workers(), 3).run(lambda _: together.wait(), 3)) == 3


def test_what_goes_wrong_in_a_part_is_heard():
    with pytest.raises(ZeroDivisionError):
        OwnWork(Workers(), 2).run(lambda part: 1 // part, 2)


def test_once_a_part_has_failed_no_more_are_begun_and_none_is_under_way():
    begun, ended = [], []
    failed = threading.Event()

    def work(part):
        begun.append(part)
        if part == 0:
            failed.set()
            raise OSError(28, "No space left on device")
        failed.wait(60)
        ended.append(part)

    with pytest.raises(OSError, match="No space left"):
        OwnWork(Workers(), 2).run(work, 100)
    assert len(begun) < 100
    assert sorted(ended) == sorted(begun)[1:], "what was begun has ended: nobody writes any more"


def test_nobody_has_to_wait_for_a_unit_to_leave():
    """A process that ends waits for the threads of a pool, however long a unit takes; it does not for daemons."""
    program = """if True:
        import threading
        from penstock.engine.units.own_work import OwnWork
        begun = threading.Semaphore(0)
        def work(part):
            begun.release()
            threading.Event().wait()
        threading.Thread(target=OwnWork(None, 2).run, args=(work, 2), daemon=True).start()
        begun.acquire(), begun.acquire()
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.usefixtures("clock")
def test_workers_are_begun_once_the_work_has_cost_what_they_cost():
    workers = Workers()
    own = OwnWork(workers, 1)
    for _ in range(int(WORTH)):
        assert own.is_wanted()
        assert not workers.begun
        own.run(str, 1)
    assert own.is_wanted(), "they are begun, not there"
    assert workers.begun
    workers.are_there = True
    assert not own.is_wanted()


def test_workers_that_are_there_do_the_work():
    workers = Workers()
    workers.are_there = True
    assert not OwnWork(workers, 2).is_wanted()


def test_the_workers_of_somebody_elses_session_always_do_it():
    assert not OwnWork(None, 2).is_wanted()


STREAM = (
    "CREATE STREAM {name} (k {kind}, v DOUBLE, ts TIMESTAMP) "
    "WITH (format = '{format}', path = '/d', time = 'ts');"
)


def planned(select: str = "a.k, b.v", where: str = "", *, more: str = "", **stream: str):
    """Plan one query over two streams that are alike."""
    told = {"kind": "BIGINT", "format": "parquet"} | stream
    streams = "".join(STREAM.format(name=name, **told) for name in "ab")
    options = f"WITH (sink = 'noop'{more})"
    text = f"{streams} CREATE QUERY q {options} AS SELECT {select} FROM a, b WHERE a.k = b.k {where}"
    script = parse_script(f"{text} WINDOW 5 SECONDS")
    return build_plan(script.streams, script.queries)


@pytest.mark.parametrize(
    "query",
    [{}, {"where": "AND a.v > 3"}, {"select": "COUNT(*) AS n, SUM(b.v) AS s"}],
    ids=str,
)
def test_columns_of_plain_files_need_no_workers(query):
    assert not needs_workers(planned(**query))


@pytest.mark.parametrize(
    "query",
    [
        {"select": "a.v + b.v AS s"},
        {"select": "SUM(a.v) + 1 AS s"},
        {"where": "AND a.v < b.v * b.v"},
        {"where": "AND sqrt(a.v) > 3"},
        {"more": ", order = 'sync-filter'"},
        {"format": "json"},
        {"kind": "STRING"},
        {"kind": "DECIMAL(30, 2)"},
    ],
    ids=str,
)
def test_what_only_sparks_tasks_can_do_needs_them_at_once(query):
    assert needs_workers(planned(**query))
