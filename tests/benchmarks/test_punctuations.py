"""What punctuations cost and spare: the files of each kind, what every run must count, and the tables."""

from __future__ import annotations

import json

import pyarrow.dataset as ds
import pytest

from benchmarks import contest as contests
from benchmarks.contest import EXACT, STOPPED, Outcome, Series
from benchmarks.peers.peer import Job
from benchmarks.peers.promising import average, share_of_data
from benchmarks.peers.run import Report
from benchmarks.punctuations import MOST_TIMES_SLOWER, WAYS, Promising, compared, rows_of
from benchmarks.workloads import QUERY_SETS, WindowQuery, Workload
from penstock.cli.main import main
from penstock.sql.bind.promises import promise_options
from penstock.sql.script import parse_script


def small(tmp_path, *ways: str) -> Promising:
    load = Workload(rows=600, rate=50, keys=40, rows_per_file=200)
    return Promising(load, ways or tuple(WAYS), {"small": (WindowQuery(5.0),)}, 1, tmp_path)


def rows_in(data, kind, stream):
    return ds.dataset(sorted((data / kind / stream).glob("*.parquet"))).to_table()


def test_three_kinds_of_files_are_written_once(tmp_path):
    data = small(tmp_path).write()
    for stream in ("a", "b"):
        plain, irrelevant, ends = (rows_in(data, kind, stream) for kind in ("rows", "irrelevant", "ends"))
        assert set(plain["kind"].to_pylist()) == {"row"}
        is_row = [each == "row" for each in irrelevant["kind"].to_pylist()]
        assert irrelevant.filter(is_row) == plain, "the same rows, in the same order"
        assert irrelevant.num_rows == 600 + 600 // 30
        assert ends["kind"].to_pylist().count("end") == len(set(ends["k"].to_pylist())) == 6
        files = list((data / "irrelevant" / stream).glob("*.parquet"))
        assert len(files) == 3, "as many micro-batches as without punctuations"
    written = (data / "ends" / "a" / "00000.parquet").stat().st_mtime_ns
    assert small(tmp_path).write() == data
    assert (data / "ends" / "a" / "00000.parquet").stat().st_mtime_ns == written


def test_punctuations_are_neither_counted_nor_joined(tmp_path):
    contest = small(tmp_path)
    data = contest.write()
    truths = contest.truths(data, contest.queries["small"])
    assert list(truths) == list(WAYS)
    assert {each.rows for each in truths.values()} == {1200}
    assert len({truths[name] for name in ("plain", "none", "filtered", "irrelevant")}) == 1
    a, b = (rows_in(data, "ends", stream).filter(ds.field("kind") == "row") for stream in "ab")
    times = [each["ts"].cast("int64").to_pylist() for each in (a, b)]
    pairs = sum(
        key == other and abs(t - u) < 5_000_000
        for key, t in zip(a["k"].to_pylist(), times[0], strict=True)
        for other, u in zip(b["k"].to_pylist(), times[1], strict=True)
    )
    assert truths["kept"].results == truths["ignored"].results == (pairs,)
    assert pairs > 0


@pytest.mark.parametrize("name", WAYS)
def test_every_run_is_a_script_that_penstock_reads(tmp_path, name):
    script = parse_script(WAYS[name].script(tmp_path, QUERY_SETS["N1"]))
    assert all(bool(promise_options(each)) == bool(WAYS[name].heeds) for each in script.streams.values())
    assert ("kind = 'row'" in script.queries[0].text) == (WAYS[name].heeds is False)


def test_a_rate_is_of_rows_that_are_data(tmp_path):
    job = Job(small(tmp_path).write(), (), rows=1200, home=tmp_path)
    shares = {name: share_of_data(way, job) for name, way in WAYS.items()}
    assert shares["filtered"] == pytest.approx(30 / 31)
    assert [shares[name] for name in ("plain", "none", "irrelevant", "kept")] == [1.0] * 4


def test_state_is_averaged_after_the_warm_up():
    assert average([(100, 10), (300, 20), (600, 40)], 300) == 40
    assert average([(100, 10), (200, 20)], 300) == 15
    assert average([], 300) == 0


def outcome(rate: float, state: int, verdict: str = EXACT, **gone: int) -> Outcome:
    counts = {"state_rows": state, "purged": 0, "discarded": 0, "dropped": 0, **gone}
    more = {"state_rows": state // 2, "counts": counts} if verdict == EXACT else {}
    return Outcome("", verdict, rows=rate, total_seconds=1.0, cpu_seconds=4.0, results=12, **more)


def test_the_tables_say_what_promises_cost_and_whether_that_is_little():
    runs = {
        "none": [outcome(1000, 500)],
        "filtered": [outcome(1000, 500)],
        "irrelevant": [outcome(900, 500)],
        "ignored": [outcome(800, 500)],
        "kept": [outcome(1000, 200, purged=2_000, dropped=1)],
        "plain": [outcome(0, 0, "failed: no memory")],
    }
    series = Series("s", "w1", "punctuations", runs)
    lines = {each[0]: each[1:] for each in rows_of(series)}
    assert lines[WAYS["kept"].title] == ("1,000", "4", "200", "100", "2,000", "0", "1", "exact, 12")
    assert lines[WAYS["plain"].title] == ("-",) * 7 + ("failed: no memory",)
    assert compared(series) == [
        ("none", "plain", "-", "-", "-", "-"),
        ("irrelevant", "filtered", "1.11", f"at most {MOST_TIMES_SLOWER}: [red]not met[/]", "1.00", "1.00"),
        ("irrelevant", "none", "1.11", "", "1.00", "1.00"),
        ("kept", "ignored", "0.80", "", "1.00", "0.40"),
    ]
    runs["irrelevant"] = [outcome(999, 500)]
    assert "[green]met" in compared(series)[1][3]


def test_a_run_that_was_stopped_has_a_rate_and_no_state():
    runs = {"filtered": [outcome(1000, 500)], "irrelevant": [outcome(500, 0, STOPPED)]}
    series = Series("s", "w1", "punctuations", runs)
    assert rows_of(series)[1][1:] == ("500", "4", *["-"] * 5, "stopped: the rate it had reached")
    assert compared(series)[0][2] == "2.00"


def test_bench_punctuations_takes_turns_and_keeps_every_run(tmp_path, capsys, monkeypatch):
    called = []

    def pretend(peer, job, _limit):
        called.append(peer.name)
        wanted = Promising.truths(small(tmp_path, peer.name), job.data, job.queries)[peer.name]
        counts = {"state_rows": 7, "purged": 1, "discarded": 2, "dropped": 3}
        done = {"results": list(wanted.results), "seconds": 2.0, "state_rows": 5, "counts": counts}
        return Report({}, ((1.0, wanted.rows // 2), (2.0, wanted.rows)), done, None, 1.0, 1)

    monkeypatch.setattr(contests, "run_peer", pretend)
    monkeypatch.setenv("COLUMNS", "200")
    assert (
        main(["bench", "punctuations", "--rows", "500", "--rounds", "2", "--directory", str(tmp_path)]) == 0
    )
    assert called == list(WAYS) * 2
    assert f"at most {MOST_TIMES_SLOWER}: met" in capsys.readouterr().out
    kept = [json.loads(line) for line in (tmp_path / contests.KEPT).read_text().splitlines()]
    assert [each["verdict"] for each in kept] == [EXACT] * 12
    assert kept[-1]["counts"]["dropped"] == 3


def test_bench_punctuations_refuses_what_there_is_none_of(tmp_path, capsys):
    assert main(["bench", "punctuations", "--engines", "keept", "--directory", str(tmp_path)]) == 2
    assert "kept" in capsys.readouterr().err


@pytest.mark.spark
def test_promises_that_are_kept_spare_state_and_change_no_result(tmp_path, capsys):
    command = ["bench", "punctuations", "--rows", "2000", "--rounds", "1", "--engines", "ignored,kept"]
    assert main([*command, "--directory", str(tmp_path)]) == 0
    ignored, kept = (json.loads(line) for line in (tmp_path / contests.KEPT).read_text().splitlines())
    assert ignored["verdict"] == kept["verdict"] == EXACT
    assert ignored["results"] == kept["results"] > 0
    assert kept["state_rows"] < ignored["state_rows"]
    assert sum(kept["counts"][name] for name in ("purged", "discarded", "dropped")) > 0
    assert kept["counts"]["broken"] == 0
    assert "keys that end, heeded" in capsys.readouterr().out
