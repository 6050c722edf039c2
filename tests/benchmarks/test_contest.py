"""Runs of peers: how they are watched, judged, kept and held against the targets.  No peer is started here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from functools import cache

import pytest

from benchmarks import contest as contests
from benchmarks.against_peers import fill_in, markdown_of, picture_of, rows_of
from benchmarks.contest import (
    EXACT,
    STOPPED,
    Contest,
    Outcome,
    append_line,
    grouped,
    judged,
    middle,
    ratios,
    read,
    steady_part,
)
from benchmarks.oracle import Truth
from benchmarks.peers import PEERS, Job
from benchmarks.peers.peer import Launch, NotHereError
from benchmarks.peers.run import (
    MemoryWatch,
    Report,
    family_bytes,
    family_cpu_seconds,
    family_of,
    watched,
)
from benchmarks.scale import Judgement, judge, more_state
from benchmarks.workloads import WindowQuery, Workload, query_sets
from penstock.cli.main import main
from penstock.errors import InputError

TRUTH = Truth(rows=1_000, results=(7, 3), pairs=9)
MEBIBYTE = 1 << 20


def python(program: str) -> Launch:
    return Launch((sys.executable, "-c", program))


def speaking(*lines: dict[str, object], then: str = "sys.stdin.read()") -> Launch:
    said = [json.dumps(each) for each in lines]
    return python(f"import sys, time\nfor line in {said!r}: print(line, flush=True)\n{then}")


# --- what a family uses -----------------------------------------------------------------------------


def test_memory_of_a_child_and_its_child_is_seen():
    """A process that holds 60 MiB starts one that holds 60 more; the peak has both, though both are gone by then."""
    hold = "block = bytearray(60 << 20); import sys, subprocess; "
    grandchild = f"{hold}sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{hold}subprocess.run([sys.executable, '-c', {grandchild!r}])"],
        stdin=subprocess.PIPE,
    )
    with MemoryWatch(child.pid, every=0.05) as watch:
        until = time.monotonic() + 60
        while watch.peak <= 120 * MEBIBYTE and time.monotonic() < until:
            time.sleep(0.05)
        child.communicate()
    assert 120 * MEBIBYTE < watch.peak < 400 * MEBIBYTE


def test_cpu_time_of_children_that_ended_is_counted():
    burn = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    started = family_cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert family_cpu_seconds(os.getpid()) - started >= 0.45


def test_a_process_that_is_gone_has_no_family():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert family_of(child.pid) == {}
    assert family_bytes(child.pid) == 0


# --- one run ----------------------------------------------------------------------------------------


def test_a_run_is_heard_to_its_end():
    lines = (
        {"about": {"versions": {}}},
        {"mark": [1.0, 500]},
        {"mark": [2.0, 1000]},
        {"done": {"results": [7, 3]}},
    )
    report = watched(speaking(*lines), 30)
    assert report.about == {"versions": {}}
    assert report.marks == ((1.0, 500), (2.0, 1000))
    assert report.done == {"results": [7, 3]}
    assert report.failure is None
    assert report.peak_bytes > 0


def test_a_run_that_takes_too_long_is_ended_with_all_it_started():
    sleeper = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', 'import time; time.sleep(600)'])"
    started = time.monotonic()
    report = watched(speaking({"mark": [1.0, 500]}, then=sleeper), 2)
    assert time.monotonic() - started < 60
    assert (report.marks, report.done, report.failure) == (((1.0, 500),), None, None)


def test_a_run_that_fails_says_why():
    report = watched(python("raise ValueError('no such engine')"), 30)
    assert report.done is None
    assert report.failure == "ValueError: no such engine"


def test_a_log_line_is_no_part_of_a_run():
    loud = speaking({"done": {"pairs": 9}}).command[2].replace("for line", "print('{hello}')\nfor line", 1)
    assert watched(python(loud), 30).done == {"pairs": 9}


# --- judging ----------------------------------------------------------------------------------------


def report(done: dict[str, object] | None, *marks: tuple[float, float]) -> Report:
    return Report({}, marks, done, None, cpu_seconds=3.0, peak_bytes=5)


def test_warm_up_is_told_apart():
    """..300 rows warm up (10 s)..|..700 rows steady (2 s).."""
    marks = ((10.0, 300), (11.0, 600), (12.0, 1000))
    outcome = judged(PEERS["spark"], report({"results": [7, 3], "seconds": 14.0}, *marks), TRUTH)
    assert outcome.verdict == EXACT
    assert outcome.steady_rate == 350
    assert outcome.total_rate == pytest.approx(1000 / 14)
    assert steady_part(marks[:1], 1000) == (0.0, 0)
    assert steady_part([(5.0, 200), (6.0, 400), (8.0, 1000)], 1000) == (2.0, 600)
    assert steady_part([(5.0, 200), (6.0, 1000), (8.0, 1000)], 1000) == (0.0, 0), "one unit took it all"


def test_wrong_counts_have_no_time():
    outcome = judged(PEERS["flink"], report({"results": [7, 4], "seconds": 1.0}, (1.0, 1000)), TRUTH)
    assert not outcome.has_figures
    assert outcome.verdict == "wrong counts: [7, 4], DuckDB's are [7, 3]"
    assert judged(PEERS["duckdb"], report({"pairs": 9, "seconds": 1.0}, (1.0, 1000)), TRUTH).verdict == EXACT
    assert not judged(PEERS["duckdb"], report({"pairs": 8, "seconds": 1.0}, (1.0, 1000)), TRUTH).has_figures


def test_a_stopped_run_has_the_rate_it_had_reached():
    early = judged(PEERS["spark"], report(None, (5.0, 100), (10.0, 200)), TRUTH)
    assert (early.verdict, early.steady_rate) == (STOPPED, 20)
    late = judged(PEERS["spark"], report(None, (5.0, 100), (10.0, 400), (12.0, 600)), TRUTH)
    assert (late.verdict, late.steady_rate) == (STOPPED, 100)
    assert not judged(PEERS["spark"], report(None), TRUTH).has_figures


def test_a_job_survives_being_written(tmp_path):
    job = Job(tmp_path / "data", (WindowQuery(2.5, 80), WindowQuery(30.0)), 10, tmp_path)
    again = Job.from_json(job.to_json())
    assert again == job
    assert again.widest == WindowQuery(30.0)
    assert job.heap(1) <= job.heap(12) <= job.heap(200)


# --- a contest, with peers that only pretend ----------------------------------------------------------


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    """A contest whose runs are made up: what each peer gives is looked up in a table."""
    given: dict[str, object] = {}
    called: list[tuple[str, bool]] = []

    def pretend(peer, job, _limit):
        called.append((peer.name, job.checking))
        answer = given.get(peer.name)
        if isinstance(answer, Exception):
            raise answer
        truth = contests.true_counts(job.data, job.queries)
        counts = {"results": list(truth.results), "pairs": truth.pairs, "seconds": 2.0}
        rows = truth.rows
        return Report({}, ((1.0, rows // 2), (2.0, rows)), {**counts, **(answer or {})}, None, 1.0, MEBIBYTE)

    monkeypatch.setattr(contests, "run_peer", pretend)
    monkeypatch.setattr(contests, "true_counts", cache(contests.true_counts))

    def run(peers, queries=("N1",), rounds=2):
        load = Workload(rows=500, keys=20, rows_per_file=100)
        return list(Contest(load, peers, query_sets(queries), rounds, tmp_path).run(lambda _: None))

    return run, given, called


def test_peers_take_turns(pretended):
    run, _, called = pretended
    outcomes = run(("penstock", "spark"), ("N1", "N12"))
    assert [name for name, _ in called] == ["penstock", "spark"] * 4
    assert [(each.queries, each.turn) for each in outcomes[::2]] == [
        ("N1", 0),
        ("N12", 0),
        ("N1", 1),
        ("N12", 1),
    ]
    assert all(each.verdict == EXACT for each in outcomes)


def test_a_peer_that_cannot_be_had_is_asked_once_and_told_each_time(pretended):
    run, given, called = pretended
    given["flink"] = NotHereError("no network")
    outcomes = run(("penstock", "flink"))
    assert [each.verdict for each in outcomes] == [EXACT, "not here: no network"] * 2
    assert [name for name, _ in called] == ["penstock", "flink", "penstock"]


def test_a_peer_that_counts_pairs_only_is_checked_once_apart(pretended):
    run, given, called = pretended
    assert [each.verdict for each in run(("flink-widest",))] == [EXACT, EXACT]
    assert called == [("flink-widest", True), ("flink-widest", False), ("flink-widest", False)]
    given["flink-widest"] = {"results": [0]}
    assert not any(each.has_figures for each in run(("flink-widest",)))


def test_bench_first_sets_one_window_beside_spark_and_twelve_beside_one(
    pretended, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    _, given, called = pretended
    given["spark"] = {"seconds": 8.0}
    assert main(["bench", "first", "--rows", "500", "--rounds", "2", "--directory", str(tmp_path)]) == 0
    assert [name for name, _ in called] == ["penstock", "spark", "penstock"] * 2
    printed = capsys.readouterr().out
    assert "Penstock against Spark's join, one window: 1.00 (1.00 to 1.00) times" in printed
    assert "twelve windows against one, time taken:    1.00 (1.00 to 1.00) times" in printed
    kept = [(each.queries, len(each.runs["penstock"])) for each in read(tmp_path / "peers.jsonl")]
    assert kept == [("N1", 2), ("N12", 2)]
    given["spark"] = {"results": [0]}
    assert main(["bench", "first", "--rows", "500", "--rounds", "1", "--directory", str(tmp_path)]) == 1
    assert "no figures that can be compared" in capsys.readouterr().err


def test_bench_scale_takes_turns_and_says_what_is_wanted(pretended, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "scale", "--rows", "500", "--rounds", "2", "--directory", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "200 queries against one, time taken: 1.00 (1.00 to 1.00) times, at most 2 wanted" in printed
    assert "ten times the state, time of a batch: 1.00 (1.00 to 1.00) times, at most 1.3 wanted" in printed
    names = [
        (each.queries, [run.turn for run in each.runs["penstock"]]) for each in read(tmp_path / "peers.jsonl")
    ]
    assert names == [("N1", [0, 1]), ("N200", [0, 1]), ("state", [0, 1]), ("state x 10", [0, 1])]
    assert pretended[2] == [("penstock", False)] * 8


def test_a_contest_refuses_what_there_is_none_of(tmp_path):
    with pytest.raises(InputError, match=r"no engine flin.*flink"):
        Contest(Workload(), ("flin",), query_sets(["N1"]), 1, tmp_path)
    with pytest.raises(InputError, match="0 rounds"):
        Contest(Workload(), ("spark",), query_sets(["N1"]), 0, tmp_path)


# --- keeping, showing, judging ------------------------------------------------------------------------


def run_of(engine: str, rate: float, queries: str = "N1", turn: int = 0, **more: object) -> Outcome:
    figures = {"rows": rate, "total_seconds": 1.0, "peak_bytes": MEBIBYTE, "results": 5}
    return Outcome(engine, **{"verdict": EXACT, "queries": queries, "turn": turn, **figures, **more})


def kept(path, series, *outcomes, workload=None):
    for each in outcomes:
        append_line(path, series=series, workload=workload or Workload().label, **asdict(each))
    return read(path)


def in_one_go(*outcomes):
    return grouped(("1", "w1", each) for each in outcomes)


def verdicts(series) -> dict[str, str]:
    return {each.name: each.verdict for each in judge(series, Workload())}


def test_what_is_kept_is_read_again(tmp_path):
    runs = [run_of("penstock", 400, turn=0), run_of("spark", 100, turn=0, settings={"heap": "4096 MiB"})]
    series = kept(tmp_path / "lines", "2026-01-01", *runs)
    assert [dict(each.runs) for each in series] == [{"penstock": runs[:1], "spark": runs[1:]}]
    line = json.loads((tmp_path / "lines").read_text().splitlines()[0])
    assert {"series", "workload", "machine"} <= line.keys()
    assert read(tmp_path / "nothing") == []


def test_a_median_is_printed_with_its_spread():
    assert (middle([1.0, 3.0, 2.0]), middle([12_345.6], 0)) == ("2.00 (1.00 to 3.00)", "12,346")


def test_a_target_is_at_least_or_at_most():
    speed, time = Judgement("speed", 5, 7.25, goal=10), Judgement("time", 2, 2.5, at_most=True)
    assert (speed.verdict, speed.wanted) == ("met", "at least 5 (10)")
    assert (time.verdict, time.wanted) == ("not met", "at most 2")


def test_nothing_measured_is_no_verdict():
    assert set(verdicts([]).values()) == {"not measured"}


def test_targets_compare_the_latest_runs_made_together(tmp_path):
    path = tmp_path / "lines"
    kept(path, "1", run_of("penstock", 300), run_of("spark", 100))
    kept(path, "2", run_of("penstock", 700), run_of("spark", 100))
    series = kept(path, "3", run_of("penstock", 9000))
    name = f"throughput against {PEERS['spark'].title}, N1"
    assert verdicts(series[:1])[name] == "not met"
    assert verdicts(series)[name] == "met", "the third series has no Spark"
    assert verdicts(kept(path, "4", run_of("penstock", 1000), run_of("spark", 100)))[name] == "goal met"


def test_a_series_that_was_interrupted_counts_as_far_as_it_got(tmp_path):
    rounds = [run_of("penstock", 600), run_of("spark", 100), run_of("penstock", 9000, turn=1)]
    found = {each.name: each for each in judge(kept(tmp_path / "lines", "1", *rounds), Workload())}
    assert found[f"throughput against {PEERS['spark'].title}, N1"].measured == 6


def test_targets_take_the_median_of_the_rounds(tmp_path):
    rounds = [
        run_of(engine, rate, turn=turn)
        for turn, ours in enumerate((100, 600, 610))
        for engine, rate in (("penstock", ours), ("spark", 100))
    ]
    found = {each.name: each for each in judge(kept(tmp_path / "lines", "1", *rounds), Workload())}
    assert found[f"throughput against {PEERS['spark'].title}, N1"].measured == 6


def test_a_stopped_peer_is_noted_and_a_wrong_one_left_out(tmp_path):
    series = kept(
        tmp_path / "lines",
        "1",
        run_of("penstock", 6000, "N12"),
        run_of("spark", 100, "N12", verdict=STOPPED),
        run_of("flink", 100, "N12", verdict="wrong counts"),
    )
    found = {each.name: each for each in judge(series, Workload())}
    spark = found[f"throughput against {PEERS['spark'].title}, N12"]
    assert (spark.verdict, "stopped" in spark.note) == ("met", True)
    assert found[f"throughput against {PEERS['flink'].title}, N12"].verdict == "not measured"


def test_memory_limit_and_scale_are_judged_the_other_way_round(tmp_path):
    path = tmp_path / "lines"
    series = kept(
        path,
        "1",
        run_of("penstock", 100, peak_bytes=2),
        run_of("spark", 100, peak_bytes=1),
        run_of("duckdb", 500),
        run_of("penstock", 60, "N200"),
    )
    found = verdicts(series)
    assert found[f"peak memory against {PEERS['spark'].title}, N1"] == "not met"
    assert found["DuckDB's batch join against us, N1"] == "met"
    assert found["time of N200 against N1"] == "met"
    assert found["time of a batch with ten times the state"] == "not measured"
    for contest, rate in zip(more_state(Workload().rows), (150, 100), strict=True):
        (name,) = contest.queries
        series = kept(path, "2", run_of("penstock", rate, name), workload=contest.workload.label)
    assert verdicts(series)["time of a batch with ten times the state"] == "not met"


def test_small_trials_are_no_evidence(tmp_path):
    series = kept(tmp_path / "lines", "1", run_of("penstock", 900), run_of("spark", 1), workload="w1-5")
    assert set(verdicts(series).values()) == {"not measured"}


def test_ten_times_the_state_gives_as_many_results():
    """Partners of a row: rate x window x 2 / keys."""
    for rows in (1_000_000, 20_000):
        contests = more_state(rows)
        windows = [query.window for contest in contests for (query,) in contest.queries.values()]
        held = [each.workload.rate * window for each, window in zip(contests, windows, strict=True)]
        less, more = (rows_held / each.workload.keys for each, rows_held in zip(contests, held, strict=True))
        assert less == pytest.approx(more, rel=0.01)
        assert held[1] == pytest.approx(10 * held[0], rel=0.01)
        assert held[1] <= contests[1].warm * contests[1].workload.rows + 1


def test_a_table_shows_no_time_of_a_run_without_figures():
    runs = [run_of("penstock", 400), run_of("spark", 100), run_of("flink", 0, verdict="not here: no network")]
    rows = rows_of(in_one_go(*runs)[0])
    assert rows[1][3] == "4.00"
    assert rows[2][1:] == ["-"] * 7 + ["not here: no network"]
    assert ratios(runs[:1], runs[2:]) == []


def test_tables_go_between_the_markers(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- peers -->\nlast year\n<!-- /peers -->\nafter\n")
    series = in_one_go(run_of("penstock", 400), run_of("spark", 100, verdict=STOPPED))
    for _ in range(2):
        fill_in(page, "peers", markdown_of(series, "two cores"))
    text = page.read_text()
    assert text.startswith("before\n<!-- peers -->\nOn two cores")
    assert text.endswith("<!-- /peers -->\nafter\n")
    assert "last year" not in text
    assert text.count("| Penstock |") == 1
    assert "stopped: the rate it had reached" in text
    page.write_text("no markers")
    with pytest.raises(InputError, match="<!-- peers -->"):
        fill_in(page, "peers", "")


def test_the_picture_is_drawn_without_engines_that_have_no_figures(tmp_path):
    runs = [run_of("penstock", 400), run_of("spark", 100, verdict=STOPPED), run_of("flink", 0, verdict="no")]
    picture_of(in_one_go(*runs)).savefig(tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 5_000


def test_bench_prints_the_targets(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "peers", "--targets", "--directory", str(tmp_path)]) == 0
    assert "not measured" in capsys.readouterr().out


def test_bench_names_an_engine_it_does_not_know(tmp_path, capsys):
    assert main(["bench", "peers", "--engines", "sparc", "--directory", str(tmp_path)]) == 2
    assert "spark" in capsys.readouterr().err
