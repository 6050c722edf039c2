"""What people see of a plan and a status."""

import io
import logging
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from penstock.cli import progress
from penstock.cli.demos import DEFAULT_DEMO, DEMOS
from penstock.cli.demos.drawing import chain_drawing
from penstock.cli.demos.frame import Demo
from penstock.cli.demos.sharing import QUERIES, Readings, SharingDemo, closing, make_readings, script_text
from penstock.cli.load import load
from penstock.cli.show import progress_line, response_table, savings, status_view
from penstock.engine.report.status import (
    GroupStatus,
    QueryStatus,
    Response,
    SliceStatus,
    Status,
    StreamStatus,
)
from penstock.errors import RunError
from penstock.reporting import Logger
from penstock.state.commits import OrderSwitched
from penstock.state.watch import Miss

SECOND = 1_000_000
SCRIPT = """
CREATE STREAM L (k BIGINT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts');
CREATE STREAM R (k BIGINT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts');
CREATE QUERY near AS SELECT L.k FROM L, R WHERE L.k = R.k WINDOW 10 s;
CREATE QUERY far AS SELECT L.k FROM L [RANGE 1 MIN], R [RANGE 30 SECONDS] WHERE L.k = R.k;
"""
STATUS = Status(
    streams=(StreamStatus("L", 500, 2, 60 * SECOND, 3, 0, 0, 0), StreamStatus("R", 400, 2, None, 0, 0, 1, 0)),
    groups=(
        GroupStatus(
            id="g",
            slices=(
                SliceStatus("L", "l", 2, 0, 10 * SECOND, ("near", "far"), 40),
                SliceStatus("L", "l", 3, 10 * SECOND, 60 * SECOND, ("far",), 20),
                SliceStatus("R", "r", 1, 1, 10 * SECOND, ("near", "far"), 30),
                SliceStatus("R", "r", 0, 10 * SECOND, 30 * SECOND, ("far",), 10),
            ),
            units=4,
            pairs=900,
            state_rows=100,
            stored_rows=130,
            segments=4,
            unshared_rows=250,
        ),
    ),
    queries=(QueryStatus("near", "g", "table", 300, 7), QueryStatus("far", "g", "table", 900, 7)),
)


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "job.sql").write_text(SCRIPT)
    return load(tmp_path / "job.sql").plan


def test_a_query_says_why_rows_that_were_held_are_not_its_past(plan):
    late = replace(STATUS.queries[0], complete_from=0, lacking="column paid of P was not stored before")
    text = shown(status_view(plan, replace(STATUS, queries=(late, STATUS.queries[1]))))
    (line,) = [words for words in text if "because" in words]
    assert line[:4] == ["near", "is", "complete", "from"]
    assert line[-9:] == ["because", "column", "paid", "of", "P", "was", "not", "stored", "before"]


def shown(what):
    out = Console(file=io.StringIO(), width=130)
    out.print(what)
    return [line.split() for line in out.file.getvalue().splitlines() if line.strip()]


def test_slices_of_the_same_ages_stand_in_one_line(plan):
    lines = shown(status_view(plan, STATUS, {"L": 12.4}))
    assert lines[6][:9] == ["0", "s", "to", "10", "s", "40", "30", "near,", "far"]
    assert ["L", "500", "12", "3", "0", "1970-01-01", "00:01:00"] in lines
    assert ["R", "400", "0", "0", "1", "-"] in lines


def test_results_that_wait_for_their_turn_are_counted_where_some_query_has_an_order(tmp_path):
    (tmp_path / "job.sql").write_text(SCRIPT.replace("far AS", "far WITH (order = 'filter-order') AS"))
    near, far = STATUS.queries
    status = replace(STATUS, queries=(near, replace(far, held=1200, output=30, order="filter-order")))
    lines = shown(status_view(load(tmp_path / "job.sql").plan, status))
    ends = [line[-5:] for line in lines]
    assert ["300", "0", "0", "none", "7"] in ends
    assert ["900", "30", "1,200", "filter-order", "7"] in ends
    assert status.to_json()["queries"][1]["held"] == 1200
    assert progress_line(status, {}).endswith("rows behind 7  held 1,200  output 30")


def test_a_change_of_what_waits_is_shown_with_its_reason(plan):
    switch = OrderSwitched(("g",), "filter-order", "0.5, at least alpha = 0.3", "today")
    lines = shown(status_view(plan, replace(STATUS, switches=(switch,))))
    assert " ".join(lines[-1]) == "order changed to filter-order: 0.5, at least alpha = 0.3 (today)"
    assert "out" not in lines[5]
    astray = replace(STATUS, queries=tuple(replace(each, disordered=3) for each in STATUS.queries))
    assert ["300", "3", "7"] in [line[-3:] for line in shown(status_view(plan, astray))]


def test_what_sharing_saves_is_said_in_numbers():
    held, pairs = savings(STATUS)
    assert held == "state  100 rows held; separate queries would hold 250 (2.5 times as many)"
    assert pairs == "pairs  900 joined; delivered as 1,200 results"


def test_rows_behind_are_counted_once_for_a_group():
    assert progress_line(STATUS, {"L": 2, "R": 3}) == (
        "rows in 900 (5/s)  results 1,200  state 100 rows (unshared 250)  rows behind 7"
    )


def test_results_that_are_fed_into_a_query_did_not_come_in():
    fed = replace(STATUS.streams[0], name="near", rows=300)
    status = replace(STATUS, streams=(*STATUS.streams, fed))
    assert progress_line(status, {"L": 2, "R": 3, "near": 9}) == progress_line(STATUS, {"L": 2, "R": 3})


def test_response_times_are_shown_where_there_are_any():
    assert response_table(STATUS) is None
    near, far = STATUS.queries
    status = replace(STATUS, queries=(near, replace(far, response=Response(0.25, 0.2, 1.5, 400.0))))
    assert shown(response_table(status))[-1] == ["far", "250", "ms", "200", "ms", "1.5", "s", "400", "s"]
    assert progress_line(status, {}).endswith("rows behind 7  response 1.5 s")
    assert status.to_json()["queries"][1]["response"]["p99"] == 1.5


def test_a_chain_that_differs_by_side_is_drawn_for_each(plan):
    drawing = chain_drawing(plan.groups[0])
    assert "state of L, by age" in drawing
    assert "state of R, by age" in drawing
    assert drawing.count("far ") == 2


def test_looking_is_put_off_by_what_it_costs(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    pace = progress.StatusPace()
    assert pace.is_due()
    with pace:
        now[0] += 2
    assert not pace.is_due()
    now[0] += 2 / progress.STATUS_SHARE
    assert pace.is_due()


def test_a_line_is_printed_only_when_something_changed(monkeypatch, capfd):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Display() as display:
        for status in (STATUS, STATUS, replace(STATUS, queries=())):
            now[0] += 10
            display.show(SimpleNamespace(plan=None), status)
    assert len(capfd.readouterr().out.splitlines()) == 2


def test_a_stream_that_a_query_starts_to_read_has_no_rate_at_first(monkeypatch):
    """`penstock add` of the first query over a declared stream once ended the engine."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    rates, seen = progress.StreamRates(), []
    for rows in (None, 500, 600, 700):
        more = () if rows is None else (StreamStatus("Shipments", rows, 0, None, 0, 0, 0, 0),)
        seen.append(rates.take(replace(STATUS, streams=(*STATUS.streams, *more))).get("Shipments"))
        now[0] += 4
    assert seen == [None, 0, 0, 25], "as soon as all looks of the last seconds have it"


def test_a_status_of_another_plan_than_the_one_at_hand_is_shown(plan):
    later = replace(STATUS, queries=(*STATUS.queries, QueryStatus("added", "g", "table", 5, 7)))
    assert ["added", "5", "7"] in [line[-3:] for line in shown(status_view(plan, later))]


class Broken:
    """An engine that cannot say how it is."""

    @property
    def plan(self):
        raise KeyError("Shipments")

    def status(self):
        raise AssertionError


@pytest.mark.parametrize("terminal", [False, True])
def test_an_error_of_the_display_is_logged_once_and_raised_never(terminal, monkeypatch, caplog):
    made = Console(file=io.StringIO(), force_terminal=terminal)
    monkeypatch.setattr(progress, "console", lambda: made)
    with progress.Display() as display:
        for _ in range(3):
            display.show(Broken())
    display.sum_up(Broken())
    assert [each.message for each in caplog.records] == [
        "the display failed, and the run goes on: KeyError: 'Shipments'"
    ]
    with pytest.raises(RunError), display:  # of others
        raise RunError("the join failed")


def test_a_closed_standard_output_is_an_error_of_the_display():
    """Rich raises SystemExit for it."""
    script = """
import sys
from penstock.cli.progress import Display

display = Display()
sys.stdin.read()  # until nobody reads our output
for _ in range(3):
    display.say("a line")
sys.exit(7)
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        run.stdout.close()
        run.stdin.close()
        assert run.stderr.read() == b"the display failed, and the run goes on: standard output was closed\n"
    assert run.returncode == 7


def test_a_log_handler_that_fails_is_named_once_and_ends_nothing(capsys, caplog):
    class Failing(logging.Handler):
        def emit(self, _record):
            raise ValueError("the log server is gone")

    log, handler = Logger("penstock.test"), Failing()
    logging.getLogger().addHandler(handler)
    try:
        log.warning("one %s", 1)
        log.warning("two")
    finally:
        logging.getLogger().removeHandler(handler)
    said = "a log handler failed, and the run goes on: ValueError: the log server is gone\n"
    assert capsys.readouterr().err == said
    log.warning("three")
    assert [(each.message, each.funcName) for each in caplog.records][-1] == (
        "three",
        "test_a_log_handler_that_fails_is_named_once_and_ends_nothing",
    )


def late_status():
    left, right = STATUS.streams
    return replace(STATUS, streams=(replace(left, warning="79 % of L late: raise `lateness`"), right))


def test_a_stream_with_many_late_rows_is_warned_of(plan):
    lines = [" ".join(line) for line in shown(status_view(plan, late_status()))]
    assert lines.count("warning: 79 % of L late: raise `lateness`") == 1
    assert not any("warning" in word for line in shown(status_view(plan, STATUS)) for word in line)


def test_without_a_terminal_a_warning_is_printed_once(capfd):
    show = progress._lines()
    for _ in range(3):
        show(None, late_status())
    assert capfd.readouterr().out.count("warning: 79 % of L late") == 1


def test_the_share_of_results_is_shown_where_a_query_misses_some(plan):
    near, far = STATUS.queries
    miss = Miss("today", 7.0, ("L",), (40,))
    some = replace(far, accuracy=0.9876, missed=12.4, misses=(miss,))
    status = replace(STATUS, queries=(replace(near, accuracy=1.0), some))
    lines = [" ".join(line) for line in shown(status_view(plan, status))]
    assert [line for line in lines if line.startswith("query")][1:] == [
        "query far has found 98.76 % of its results and missed about 12, last 7 at today: L is out of order by 40 rows"
    ]
    unknown = replace(STATUS, queries=(near, replace(some, misses=())))
    assert shown(status_view(plan, unknown))[-1][-4:] == ["and", "missed", "about", "12"]


def test_the_readings_of_the_demo_are_the_same_every_time(tmp_path):
    wanted = Readings(sensors=3, minutes=12)
    for folder in ("one", "other"):
        make_readings(tmp_path / folder, wanted)
    read = [pq.read_table(tmp_path / folder / "data" / "humidity") for folder in ("one", "other")]
    assert read[0].equals(read[1])
    assert read[0].num_rows == wanted.rows


def test_every_demo_of_the_table_can_be_run_and_one_is_the_usual():
    assert DEFAULT_DEMO in DEMOS
    places = [place.split(":") for place, _ in DEMOS.values()]
    assert all(issubclass(getattr(import_module(module), name), Demo) for module, name in places)


def test_the_script_of_the_demo_is_one_chain(tmp_path):
    (tmp_path / "demo.sql").write_text(script_text(tmp_path))
    plan = load(tmp_path / "demo.sql").plan
    assert len(plan.groups) == 1
    assert len(plan.queries) == len(QUERIES) == 12


def test_the_demo_closes_with_what_sharing_saved():
    assert closing(STATUS, 20, 40).startswith(
        "2 queries ran as one. The state holds 100 rows; separate queries would hold 250 "
        "(2.5 times as many). 900 pairs were joined once and served 1,200 results"
    )


@pytest.mark.spark
def test_the_demo_runs_to_its_end_and_keeps_what_it_is_told_to(tmp_path, capfd):
    SharingDemo(Readings(sensors=4, minutes=12)).run(tmp_path / "kept")
    out = capfd.readouterr().out
    assert "12 queries ran as one." in out
    assert Path(tmp_path / "kept" / "demo.sql").exists()
    assert list((tmp_path / "kept" / "out" / "dew_point").glob("part-*.parquet"))
