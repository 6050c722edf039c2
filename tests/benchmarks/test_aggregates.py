"""Aggregates against other engines: what each must count, and the table.  No engine is started here."""

from __future__ import annotations

import json
import runpy

import pyarrow.dataset as ds
import pytest

from benchmarks import contest as contests
from benchmarks.aggregates import ENGINES, GROUPS, QUERIES, Aggregates, rows_of
from benchmarks.contest import EXACT, STOPPED, Outcome, Series
from benchmarks.oracle import true_answers
from benchmarks.peers.answering import answer_script
from benchmarks.peers.flink import PROGRAM
from benchmarks.peers.run import Report
from benchmarks.workloads import EPOCH, WindowQuery, Workload
from penstock.cli.main import main
from penstock.sql.script import parse_script

SECOND = 1_000_000


def small(tmp_path, *peers: str, group: str = "k") -> Aggregates:
    load = Workload(rows=600, rate=50, keys=90, rows_per_file=200)
    windows = tuple(WindowQuery(each, group=group) for each in (2.0, 5.0))
    return Aggregates(load, peers or tuple(ENGINES), {"small": windows}, 1, tmp_path)


def answers(contest: Aggregates, window: int, group, sides: str) -> int:
    """Look at every pair, instant and group."""
    a, b = contest.workload.streams().values()
    seen = set()
    for key, t in zip(a.key.tolist(), a.time.tolist(), strict=True):
        for other, u in zip(b.key.tolist(), b.time.tolist(), strict=True):
            if key != other or abs(t - u) >= window * SECOND:
                continue
            for e in range(contest.workload.span // SECOND + 2 * window):
                since, until = (e - window) * SECOND, e * SECOND
                both = since < min(t, u) and max(t, u) <= until
                if both if sides == "both" else since <= t < until:
                    seen.add((group(key), e))
    return len(seen)


@pytest.mark.parametrize("sides", ["both", "a"])
@pytest.mark.parametrize("group", ["k", "g", "k % 64"])
def test_the_oracle_counts_the_answers_that_nested_loops_give(tmp_path, sides, group):
    contest = small(tmp_path, group=group)
    truth = true_answers(contest.write(), contest.queries["small"], sides)
    by = (lambda key: key) if group == "k" else (lambda key: key % 64)
    assert truth.results == tuple(answers(contest, window, by, sides) for window in (2, 5))
    assert truth.results[1] > truth.results[0] > 0


def test_rows_have_a_group_and_the_input_an_end(tmp_path):
    contest = small(tmp_path)
    data = contest.write()
    for stream in ("a", "b"):
        rows = ds.dataset(sorted((data / stream).glob("*.parquet"))).to_table()
        keys = rows["k"].to_numpy()
        assert (rows["g"].to_numpy() == keys % 64).all()
        assert (keys[:600] >= 0).all()
        assert (keys[600:] < 0).all()
        assert rows["ts"].cast("int64")[-1].as_py() == EPOCH + contest.workload.span + 120 * SECOND
    assert contest.write() == data


def test_an_engine_with_one_window_has_to_answer_the_widest_only(tmp_path):
    contest = small(tmp_path)
    truths = contest.truths(contest.write(), contest.queries["small"])
    assert list(truths) == list(ENGINES)
    assert truths["spark"].results == truths["flink"].results == truths["spark-each"].results[1:]
    assert truths["pairs"].pairs == truths["pairs"].results[1] > 0
    assert truths["penstock"].results[1] <= truths["spark"].results[0], (
        "both rows in a window are more to ask"
    )


@pytest.mark.parametrize("queries", QUERIES.values())
def test_every_grouping_is_a_script_that_penstock_reads(tmp_path, queries):
    read = parse_script(answer_script(tmp_path, queries)).queries
    assert len(read) == 12
    assert "GROUP BY" in read[0].text
    assert "GROUP BY" not in parse_script(answer_script(tmp_path, queries, pairs=True)).queries[0].text
    assert [each.window for each in queries] == [3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28, 30]


def test_flink_hops_over_one_window_or_over_all():
    inserts, made = runpy.run_path(str(PROGRAM))["inserts"], []
    tables = type("Tables", (), {"execute_sql": staticmethod(made.append)})
    job = {"queries": [{"window": 5.0, "above": None, "group": "k"}, {"window": 30.0, "group": "k % 64"}]}
    (one,) = inserts("answer", tables, job)
    assert "INTERVAL '30' SECOND)) GROUP BY k % 64, window_start, window_end" in one
    assert len(inserts("answer-each", tables, job)) == 2
    assert [each.split(" AS SELECT")[0][-6:] for each in made] == ["pairs0", "pairs0", "pairs1"]


def outcome(engine: str, rate: float, verdict: str = EXACT) -> Outcome:
    return Outcome(engine, verdict, rows=rate, total_seconds=1.0, results=12)


def test_the_table_says_which_targets_are_met():
    runs = {
        "penstock": [outcome("penstock", 400)],
        "pairs": [outcome("pairs", 500)],
        "spark": [outcome("spark", 10, STOPPED)],
        "flink": [outcome("flink", 0, "not here: no network")],
    }
    lines = rows_of(Series("s", "w1", "by key", runs))
    assert lines[0][3:5] == ("1.00", "")
    assert lines[1][3:5] == ("0.80", "1: [red]not met[/]")
    assert lines[2][3:5] == ("40.00", "10: [green]met[/]")
    assert lines[2][-1] == "stopped: the rate it had reached"
    assert lines[3][1:] == ("-",) * 5 + ("not here: no network",)


def test_bench_aggregates_takes_turns_and_keeps_every_run(tmp_path, capsys, monkeypatch):
    called = []

    def pretend(peer, job, _limit):
        called.append((peer.name, job.queries[0].group))
        wanted = Aggregates.truths(small(tmp_path, peer.name), job.data, job.queries)[peer.name]
        done = {"results": list(wanted.results), "seconds": 2.0}
        return Report({}, ((1.0, wanted.rows // 2), (2.0, wanted.rows)), done, None, 1.0, 1)

    monkeypatch.setattr(contests, "run_peer", pretend)
    monkeypatch.setenv("COLUMNS", "200")
    command = ["bench", "aggregates", "--rows", "500", "--rounds", "2", "--engines", "penstock,spark"]
    assert main([*command, "--directory", str(tmp_path)]) == 0
    assert called == [("penstock", "k"), ("spark", "k"), ("penstock", "g"), ("spark", "g")] * 2
    assert "10: not met" in capsys.readouterr().out
    kept = [json.loads(line) for line in (tmp_path / contests.KEPT).read_text().splitlines()]
    assert [each["verdict"] for each in kept] == [EXACT] * 8


@pytest.mark.parametrize("wrong", [("--groups", "kee"), ("--engines", "sparc")])
def test_bench_aggregates_refuses_what_there_is_none_of(tmp_path, capsys, wrong):
    assert main(["bench", "aggregates", *wrong, "--directory", str(tmp_path)]) == 2
    assert {"kee": next(iter(GROUPS)), "sparc": "spark"}[wrong[1]] in capsys.readouterr().err
