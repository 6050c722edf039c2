"""Joins of many streams against other engines: what each must count, and the tables.  No engine is started here."""

from __future__ import annotations

import json
import runpy

import pytest

from benchmarks import contest as contests
from benchmarks.contest import EXACT, STOPPED, Outcome, Series
from benchmarks.many_streams import CHAIN, STAR, ManyStreams, common_key, true_results
from benchmarks.multiway import ENGINES, Multiway, Orders, named, orders_of, rows_of
from benchmarks.peers.flink import PROGRAM
from benchmarks.peers.peer import Job
from benchmarks.peers.run import Report
from benchmarks.workloads import QUERY_SETS
from penstock.cli.main import main


def small(tmp_path, streams: int, *peers: str) -> Multiway:
    sets = named(streams, {"N12": QUERY_SETS["N12"]})
    return Multiway(ManyStreams(common_key(streams), 500), peers or tuple(ENGINES), sets, 1, tmp_path)


def test_a_job_names_its_streams_also_as_json(tmp_path):
    job = small(tmp_path, 5).job(tmp_path, "5 streams, N12", 7)
    assert job.streams == ("a", "b", "c", "d", "e")
    assert Job.from_json(job.to_json()) == job


def test_all_engines_must_count_the_same(tmp_path):
    contest = small(tmp_path, 3)
    truths = contest.truths(contest.write(), QUERY_SETS["N12"])
    assert list(truths) == list(ENGINES)
    assert len(set(truths.values())) == 1
    assert truths["flink"].pairs == truths["penstock"].results[-1] > 0


def flink_sql(way: str) -> tuple[str, list[str]]:
    program, made = runpy.run_path(str(PROGRAM)), []
    tables = type("Tables", (), {"execute_sql": staticmethod(made.append)})
    queries = [{"window": each, "above": None} for each in (2.5, 30.0)]
    job = {"queries": queries, "streams": ["a", "b", "c"], "checking": False}
    (one,) = program["inserts"](way, tables, job)
    columns = program["columns_of"](way, job)
    assert (
        columns == "k BIGINT, av DOUBLE, ats BIGINT, bv DOUBLE, bts BIGINT, cv DOUBLE, cts BIGINT, level INT"
    )
    return one, made


def test_flink_joins_two_by_two_within_the_widest_interval():
    one, made = flink_sql("cascade")
    assert one.count("BETWEEN a.ts - INTERVAL '30.000' SECOND(3)") == 2
    assert "ABS(c.us - b.us) < 30000000" in one
    assert "< 2500000 THEN 0" in one
    assert not made


def test_flinks_multi_join_gets_a_hint_and_no_event_times():
    one, made = flink_sql("multi")
    assert "/*+ MULTI_JOIN(a, b, c) */" in one
    assert ".ts" not in one
    assert len(made) == 3


def outcome(rate: float, verdict: str = EXACT, **more) -> Outcome:
    return Outcome("", verdict, rows=rate, total_seconds=1.0, cpu_seconds=4.0, results=12, **more)


def test_the_table_says_how_many_times_faster_and_whether_that_is_enough():
    runs = {
        "penstock": [outcome(900, counts={"most_state_rows": 950}, state_rows=900)],
        "spark": [outcome(100, state_rows=1234)],
        "flink": [outcome(300, STOPPED)],
        "flink-multi": [outcome(0, "failed: no such hint")],
    }
    lines = {each[0]: each[1:] for each in rows_of(Series("s", "common-3", "3 streams, N1", runs))}
    assert lines["Penstock"][-2:] == ("950", "exact, 12")
    assert lines["Spark, a cascade"][2:4] == ("9.00", "8: [green]met[/]")
    assert lines["Spark, a cascade"][-2] == "1,234"
    assert lines["Flink SQL, a cascade"][3] == "4: [red]not met[/]"
    assert lines["Flink SQL, a cascade"][-1] == "stopped: the rate it had reached"
    assert lines["Flink SQL, MULTI_JOIN"] == ("-",) * 7 + ("failed: no such hint",)


def test_the_choice_is_held_against_the_best_and_the_worst_order():
    rates = {"chosen": 600, "acd": 700, "adc": 500, "cad": 100, "cda": 90, "dac": 200}
    runs = {f"star {order}": [outcome(rate)] for order, rate in rates.items()}
    lines = {
        each[0]: each[1:] for each in orders_of(Series("s", "star-1", "star", {**runs, "star dca": []}), STAR)
    }
    assert list(lines) == list(rates), "an order that was not run has no line"
    assert lines["acd"][1:3] == ("0.86", "the best, faster at most 1.2: [green]met[/]")
    assert lines["cda"][1:3] == ("6.67", "the worst, slower at least 5: [green]met[/]")
    assert lines["dac"][2] == ""
    runs["star chosen"] = [outcome(400)]
    lines = {each[0]: each[1:] for each in orders_of(Series("s", "star-1", "star", runs), STAR)}
    assert "not met" in lines["acd"][2]
    assert "not met" in lines["cda"][2]


def test_every_order_of_a_graph_is_a_run(tmp_path):
    assert [each for each in Orders.known if each.startswith("chain")] == [
        "chain chosen",
        "chain ac",
        "chain ca",
    ]
    assert len([each for each in Orders.known if each.startswith("star")]) == 7
    command = Orders.known["star cda"].launch(Job(tmp_path, (), 0, tmp_path)).command
    assert command[3:5] == ("star", "cda")


def test_bench_multiway_takes_turns_and_keeps_every_run(tmp_path, capsys, monkeypatch):
    called = []

    def pretend(peer, job, _limit):
        called.append(peer.name)
        graph = CHAIN if "chain" in str(job.data) else common_key(len(job.streams))
        wanted = true_results(graph, job.data, job.queries)
        done = {"results": list(wanted.results), "pairs": wanted.pairs, "seconds": 2.0}
        return Report({}, ((1.0, wanted.rows // 2), (2.0, wanted.rows)), done, None, 1.0, 1)

    monkeypatch.setattr(contests, "run_peer", pretend)
    monkeypatch.setenv("COLUMNS", "200")
    command = ["bench", "multiway", "--rows", "400", "--rounds", "2", "--streams", "3", "--queries", "N1"]
    command += ["--engines", "penstock,flink", "--graphs", "chain", "--directory", str(tmp_path)]
    assert main(command) == 0
    assert called == ["penstock", "flink"] * 2 + ["chain chosen", "chain ac", "chain ca"] * 2
    shown = capsys.readouterr().out
    assert "4: not met" in shown
    assert "common-3-400-7, 3 streams, N1: 360 rows in 30 s" in shown
    kept = [json.loads(line) for line in (tmp_path / contests.KEPT).read_text().splitlines()]
    assert [each["verdict"] for each in kept] == [EXACT] * 10


@pytest.mark.parametrize(
    ("wrong", "told"),
    [(("--streams", "2"), "3 to 16"), (("--engines", "sparc"), "spark"), (("--graphs", "chian"), "chain")],
)
def test_bench_multiway_refuses_what_there_is_none_of(tmp_path, capsys, wrong, told):
    assert main(["bench", "multiway", *wrong, "--directory", str(tmp_path)]) == 2
    assert told in capsys.readouterr().err
