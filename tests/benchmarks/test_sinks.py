"""What `bench sinks` runs and tells.  Nothing is started here."""

from __future__ import annotations

from benchmarks.contest import EXACT, Outcome, Series
from benchmarks.sinks import HEADINGS, SINKS, rows_of, sink_script
from benchmarks.workloads import WindowQuery
from penstock.sql.script import parse_script


def test_every_query_has_a_sink_of_its_own(tmp_path):
    for name in SINKS:
        script = parse_script(
            sink_script(tmp_path, (WindowQuery(1.0), WindowQuery(2.0)), name, tmp_path / "out")
        )
        assert [each.sink.kind for each in script.queries] == [name, name]
        assert len({each.sink.option("path") for each in script.queries}) == (2 if name == "parquet" else 1)


def outcome(engine, seconds, cpu, verdict=EXACT):
    return Outcome(engine, verdict, rows=1000, results=9, total_seconds=seconds, cpu_seconds=cpu)


def test_sinks_are_held_against_the_noop_run_of_their_round():
    runs = {
        "sink-noop": [outcome("sink-noop", 10, 20)],
        "sink-parquet": [outcome("sink-parquet", 12, 30)],
        "sink-table": [outcome("sink-table", 0, 0, "failed: no room")],
        "spark-files": [outcome("spark-files", 48, 80)],
    }
    noop, parquet, stored, spark = rows_of(Series("s", "w1", "N1", runs))
    assert noop[1:6] == ("100", "1.00", "1.00", "-", "")
    assert parquet[2:] == ("1.20", "1.20", "-", "at most 1.4", "30", "1.50", "exact, 9")
    assert stored[-1] == "failed: no room"
    assert spark[2:6] == ("4.80", "4.80", "4.00", "at least 3")
    assert len(stored) == len(HEADINGS)
