"""Directories may be called anything: what Spark would take for a pattern is read as the name it is."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from penstock.engine.api import Engine
from penstock.errors import InputError
from tests.oracle import put_file

pytestmark = pytest.mark.spark

NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
STREAM = (
    "CREATE STREAM {} (k BIGINT, ts TIMESTAMP) "
    "WITH (format = 'parquet', path = '{}', time = 'ts', maxFilesPerTrigger = '1');"
)
ODD = ["run[1] p%20q", "x{{y,eq=1", "it''s #1 back\\\\slash"]


def write(folder, *seconds):
    folder.mkdir(parents=True, exist_ok=True)
    times = [NOON + dt.timedelta(seconds=each) for each in seconds]
    table = pa.table({"k": pa.array([1] * len(times)), "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    number = len(list(folder.iterdir()))
    put_file(table, folder / f"{number}.parquet", number)


def run(spark, state, script, look=lambda _: None):
    with Engine(state, spark) as engine:
        engine.script(script)
        engine.start(once=True)
        engine.wait()
        return look(engine)


def test_sinks_state_and_sources_may_have_any_name(spark, tmp_path):
    """As written in SQL, where a quote is doubled and a backslash escapes."""
    for place, odd in enumerate(ODD):
        root = tmp_path / str(place)
        name = odd.format().replace("''", "'").replace("\\\\", "\\")
        write(root / name / "a", 1, 2)
        write(root / name / "a", 0)  # late
        write(root / name / "b", 1, 2)
        path = f"{root}/{odd.format()}"
        ask = "SELECT A.ts AS x, B.ts AS y FROM A, B WHERE A.k = B.k WINDOW 1 s"
        script = STREAM.format("A", f"{path}/a") + STREAM.format("B", f"{path}/b")
        script += f"CREATE QUERY files WITH (sink = 'parquet', path = '{path}/out') AS {ask};"
        script += f"CREATE QUERY sorted WITH (order = 'filter-order') AS {ask};"
        script += f"CREATE QUERY tabled AS {ask};"
        counts = run(
            spark,
            root / name / "state",
            script,
            lambda engine: (
                [engine.results(each).count() for each in ("files", "sorted", "tabled")]
                + [engine.late("A").count()]
            ),
        )
        assert counts == [2, 2, 2, 1], odd


def test_a_source_may_be_a_choice_of_directories(spark, tmp_path):
    for name, second in (("north", 1), ("south", 2), ("west", 3)):
        write(tmp_path / name, second)
    write(tmp_path / "b", 1, 2, 3)
    script = STREAM.format("A", f"{tmp_path}/{{north,south}}") + STREAM.format("B", f"{tmp_path}/b")
    script += "CREATE QUERY q AS SELECT A.ts FROM A, B WHERE A.k = B.k WINDOW 1 us;"
    assert run(spark, tmp_path / "state", script, lambda engine: engine.results("q").count()) == 2


def test_a_name_that_is_a_pattern_for_others_too_is_refused_before_anything_starts(spark, tmp_path):
    for name in ("st*r", "star", "b"):
        write(tmp_path / name, 1)
    script = STREAM.format("A", f"{tmp_path}/st*r") + STREAM.format("B", f"{tmp_path}/b")
    script += "CREATE QUERY q AS SELECT A.ts FROM A, B WHERE A.k = B.k WINDOW 1 s;"
    with pytest.raises(InputError, match="also matches"):
        run(spark, tmp_path / "state", script)
    assert not any((tmp_path / "state" / "checkpoint").rglob("*"))


def test_a_state_that_only_one_process_sees_is_refused(spark):
    with pytest.raises(InputError, match="exists in one process only"):
        Engine("memory://state", spark)


def test_two_queries_of_one_directory_are_refused_also_while_running(spark, tmp_path):
    for name in "ab":
        write(tmp_path / name, 1)
    (tmp_path / "link").symlink_to(tmp_path / "out")
    ask = "SELECT A.ts FROM A, B WHERE A.k = B.k WINDOW 1 s"
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(STREAM.format("A", tmp_path / "a") + STREAM.format("B", tmp_path / "b"))
        engine.script(f"CREATE QUERY one WITH (sink = 'parquet', path = '{tmp_path}/out') AS {ask};")
        engine.start()
        with pytest.raises(InputError, match="both write to"):
            engine.script(
                f"CREATE QUERY two WITH (sink = 'parquet', path = 'file:{tmp_path}/link') AS {ask};"
            )
        engine.process_available()
        assert engine.results("one").count() == 1
