"""Joins without a window on Spark: the order of arrival is that of files and of rows in them, however they are read."""

from __future__ import annotations

import json
import os
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.engine.api import Engine
from tests.testing.windowless_world import scrambled, true_scrambling

pytestmark = pytest.mark.spark

SENSORS = 4
LOCATED = """
CREATE QUERY located WITH (sink = 'parquet', path = '{out}') AS
SELECT S1.epoch, S1.v AS v1, S2.v AS v2, S3.v AS v3, S4.v AS v4
FROM Sensor1 S1, Sensor2 S2, Sensor3 S3, Sensor4 S4
WHERE S1.epoch = S2.epoch AND S2.epoch = S3.epoch AND S3.epoch = S4.epoch;
"""


def write(folder, values, files, since=0, *, timed=False):
    """Write rows to files whose names and sizes say nothing of their order: their dates do."""
    folder.mkdir(exist_ok=True)
    size = -(-len(values) // files)
    for number in range(files):
        some = values[number * size : (number + 1) * size]
        columns = {
            "epoch": pa.array(some, pa.int64()),
            "v": pa.array(range(since, since + len(some)), pa.float64()),
        }
        if timed:
            columns["ts"] = pa.array(
                [1_000_000 * each for each in range(len(some))], pa.timestamp("us", "UTC")
            )
        hidden = folder / f".{since}-{files - number}.parquet"  # until it is whole and has its date
        pq.write_table(pa.table(columns), hidden, row_group_size=7)
        os.utime(hidden, (1_000_000_000 + since + number, 1_000_000_000 + since + number))
        hidden.rename(folder / hidden.name[1:])


def sensor(folder, number, apart, more=""):
    """Declare a sensor as users do."""
    return (
        f"CREATE STREAM Sensor{number} (epoch BIGINT, v DOUBLE) WITH (format = 'parquet', "
        f"path = '{folder}/s{number}', scrambling = '{apart}', multiplicity = '4', maxFilesPerTrigger = '3'{more});"
    )


def joined(values):
    """Count the results of the whole join, value by value."""
    common = set.intersection(*(set(each) for each in values)) - {None}
    return sum(
        values[0].count(each) * values[1].count(each) * values[2].count(each) * values[3].count(each)
        for each in common
    )


@pytest.mark.parametrize(
    "setting", ["", "SET buffers = 'dbf';", "SET buffers = 'msf';", "SET buffers = 'hybrid';"]
)
def test_four_sensors_are_located_exactly_through_a_restart(spark, tmp_path, setting):
    rng = Random(3)
    values = [scrambled(rng, 300, 20, 2) for _ in range(SENSORS)]
    for number, each in enumerate(values, 1):
        write(tmp_path / f"s{number}", each[:150], 5)
    declared = "".join(
        sensor(tmp_path, number, max(3, true_scrambling(each))) for number, each in enumerate(values, 1)
    )
    script = declared + LOCATED.format(out=tmp_path / "out") + setting

    def run():
        engine = Engine(state=tmp_path / "state", spark=spark)
        engine.script(script)
        engine.start(once=True)
        engine.wait()
        status = engine.status()
        engine.stop()
        return status

    run()
    for number, each in enumerate(values, 1):
        write(tmp_path / f"s{number}", each[150:], 5, since=1000)
    status = run()
    assert pq.read_table(tmp_path / "out").num_rows == joined(values)
    (query,) = status.queries
    assert (query.accuracy, query.missed) == (1.0, 0.0)
    assert query.memory.strategy == (setting.split("'")[1] if setting else "plain")
    assert query.memory.most_mapped > 0
    files = [each for each in (tmp_path / "out").glob("*.parquet") if pq.read_metadata(each).num_rows]
    notes = [json.loads(pq.read_metadata(each).metadata[b"penstock"]) for each in files]
    assert {(each["accuracy"], each["missed"]) for each in notes} == {(1.0, 0.0)}
    for each, buffer in zip(values, query.buffers, strict=True):
        assert buffer.scrambling == max(3, true_scrambling(each)), "positions are those of the files' order"
        assert buffer.is_known
        assert buffer.rows < len(each) / 2
    assert {each.watermark for each in status.streams} == {299}


def test_a_query_without_a_window_may_come_while_one_with_a_window_runs(spark, tmp_path):
    rng = Random(5)
    values = [scrambled(rng, 80, 4, 1) for _ in range(2)]
    timed = ", time = 'ts', lateness = '1 hour'"
    declared = "".join(
        sensor(tmp_path, number, 40, timed).replace("v DOUBLE", "v DOUBLE, ts TIMESTAMP") for number in (1, 2)
    )
    for number in (1, 2):
        write(tmp_path / f"s{number}", values[number - 1][:20], 2, timed=True)
    engine = Engine(state=tmp_path / "state", spark=spark)
    engine.script(
        f"{declared} CREATE QUERY w AS SELECT A.v FROM Sensor1 A, Sensor2 B WHERE A.epoch = B.epoch WINDOW 1 min;"
    )
    engine.start()
    engine.process_available()
    engine.query("q", "SELECT A.epoch FROM Sensor1 A, Sensor2 B WHERE A.epoch = B.epoch")
    for number in (1, 2):
        write(tmp_path / f"s{number}", values[number - 1][20:], 6, since=1000, timed=True)
    engine.process_available()
    found = engine.results("q").count()
    (buffers,) = [each.buffers for each in engine.status().queries if each.name == "q"]
    engine.stop()
    later = [each[20:] for each in values]
    common = (set(later[0]) & set(later[1])) - {None}
    assert found == sum(later[0].count(each) * later[1].count(each) for each in common)
    assert all(each.scrambling == 40 for each in buffers), "files were read in order"


def test_files_that_spark_cuts_into_many_parts_are_read_in_order(spark, tmp_path):
    for name in ("s1", "s2"):
        (tmp_path / name).mkdir()
        for number in range(3):
            path = tmp_path / name / f"{3 - number}.csv"
            path.write_text("".join(f"{each},0.5\n" for each in range(1000 * number, 1000 * number + 1000)))
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    declared = "".join(
        f"CREATE STREAM S{number} (epoch BIGINT, v DOUBLE) WITH (format = 'csv', path = '{tmp_path}/s{number}', "
        "ordered = 'epoch');"
        for number in (1, 2)
    )
    settings = {"spark.sql.files.maxPartitionBytes": "2000", "spark.sql.files.openCostInBytes": "100"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        engine = Engine(state=tmp_path / "state", spark=spark)
        engine.script(f"{declared} CREATE QUERY q AS SELECT S1.epoch FROM S1, S2 WHERE S1.epoch = S2.epoch;")
        engine.start(once=True)
        engine.wait()
        (query,) = engine.status().queries
        engine.stop()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert query.results == 3000
    assert [(each.scrambling, each.rows) for each in query.buffers] == [(0, 0), (0, 0)]
