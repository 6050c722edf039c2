"""Columns may have any name and any type that Spark lets them have, from the declaration to the results."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.engine.api import Engine
from penstock.errors import InputError
from tests.oracle import bag, same_bag
from tests.spark.world import START, at

pytestmark = pytest.mark.spark

SECOND = 1_000_000
NAMES = ("a.b", "it`s", "x y", "penstock_t", "batch", "level", "l", "é", "select", "s0", "a,b;{}=()")


def write(folder, shift, late=False):
    """Write rows with a number in each column; the last file has rows that come too late, and one without a time."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = range(8)
    times = [at(START + (row - 900 * late) * SECOND) for row in rows]
    columns = {name: pa.array([(row + shift) % 4 for row in rows], pa.int64()) for name in NAMES}
    columns["t s"] = pa.array([None, *times[1:]] if late else times, pa.timestamp("us", "UTC"))
    file = folder / f"{late:d}.parquet"
    pq.write_table(pa.table(columns), file)
    os.utime(file, (START // SECOND + late,) * 2)  # Spark reads by age


def test_a_column_with_any_name_works_from_the_declaration_to_the_results(spark, tmp_path):
    quoted = {name: "`" + name.replace("`", "``") + "`" for name in (*NAMES, "t s")}
    for number, stream in enumerate("ab"):
        write(tmp_path / stream, number)
    write(tmp_path / "a", 0, late=True)
    declared = ", ".join(f"{quoted[name]} BIGINT" for name in NAMES) + ", `t s` TIMESTAMP"
    texts = {
        "plain": "SELECT a.* FROM a, b WHERE a.`a.b` = b.`a.b`",
        "computed": "SELECT a.`a.b` + b.`it``s` AS `x.y`, b.`x y`, a.penstock_t, b.`a,b;{}=()` AS `p``q`, a.l, b.level "
        "FROM a, b WHERE a.`it``s` = b.`x y` AND a.`a.b` > 0 AND b.`é` < 3 AND a.l + b.s0 < 5",
        "ordered": "SELECT a.`x y`, b.batch, b.`select` FROM a, b WHERE a.`é` = b.`it``s` AND a.`x y` <= b.`a.b`",
        "struct": "SELECT struct(a.`a.b`, b.`x y` AS `u.v`) AS `s.t`, transform(array(a.l), l -> l + b.l) AS t "
        "FROM a, b WHERE a.`a.b` % 2 = b.`select`",
    }
    near = "AND a.`t s` BETWEEN b.`t s` - INTERVAL 4 SECONDS AND b.`t s` + INTERVAL 4 SECONDS"
    with Engine(tmp_path / "state", spark) as engine:
        for stream in "ab":
            options = (
                f"format = 'parquet', path = '{tmp_path / stream}', time = 't s', maxFilesPerTrigger = '1'"
            )
            engine.script(f"CREATE STREAM {stream} ({declared}) WITH ({options});")
        got: list[pa.Table] = []
        engine.query("plain", f"{texts['plain']} {near}", sink=penstock.parquet(tmp_path / "out"))
        engine.query("computed", f"{texts['computed']} {near}")
        engine.query("ordered", f"{texts['ordered']} {near}", order="filter-order")
        engine.query(
            "struct",
            f"{texts['struct']} {near}",
            sink=penstock.callback(lambda rows, _: got.append(rows.toArrow())),
        )
        engine.start(once=True)
        engine.wait()
        for stream in "ab":
            spark.read.parquet(str(tmp_path / stream)).createOrReplaceTempView(stream)
        found = {name: engine.results(name).toArrow() for name in texts if name != "struct"}
        found["struct"] = pa.concat_tables(got)
        for name, text in texts.items():
            right = spark.sql(f"{text} {near}").toArrow()
            assert right.num_rows > 0
            assert found[name].column_names == right.column_names
            same_bag(bag(found[name]), bag(right), name)
        late = engine.late("a")
        assert late.columns == [*NAMES, "t s", "_reason"]
        assert late.count() == 8
        assert sorted(row["batch"] for row in late.collect()) == [0, 0, 1, 1, 2, 2, 3, 3]


ODD_TYPES = (
    "id AS k",
    "parse_json(concat('{\"x\":', id, '}')) AS v",
    "CAST(IF(id % 2 = 0, 'Ab', 'aB') AS STRING COLLATE UTF8_LCASE) AS c",
    "timestamp_seconds(1700000000 + id) AS ts",
)
WITH_ODD_TYPES = {
    "predicates": "SELECT a.k FROM a, b WHERE a.k = b.k AND a.v:x::int > 2 AND b.c = 'AB'",
    "outputs": "SELECT a.v:x::int + b.v:x::int AS y, b.c, b.c = 'ab' AS same FROM a, b WHERE a.k = b.k AND a.c <= b.c",
    "key": "SELECT a.k FROM a, b WHERE variant_get(a.v, '$.x', 'bigint') = b.k",
    "whole": "SELECT to_json(a.v) AS v, b.k FROM a, b WHERE a.k = b.k",
}


def declare_odd_types(spark, root):
    """Write two streams with a VARIANT and with strings that ignore case."""
    for stream in "ab":
        spark.range(6).selectExpr(*ODD_TYPES).coalesce(1).write.parquet(str(root / stream))
        spark.read.parquet(str(root / stream)).createOrReplaceTempView(stream)
        columns = "k BIGINT, v VARIANT, c STRING COLLATE UTF8_LCASE, ts TIMESTAMP"
        yield f"CREATE STREAM {stream} ({columns}) WITH (format = 'parquet', path = '{root / stream}', time = 'ts');"


def test_variants_and_collations_mean_what_they_mean_in_spark(spark, tmp_path):
    near = "AND a.ts BETWEEN b.ts - INTERVAL 4 SECONDS AND b.ts + INTERVAL 4 SECONDS"
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(" ".join(declare_odd_types(spark, tmp_path)))
        for name, text in WITH_ODD_TYPES.items():
            engine.query(name, f"{text} {near}")
        engine.start(once=True)
        engine.wait()
        for name, text in WITH_ODD_TYPES.items():
            right = spark.sql(f"{text} {near}")
            assert engine.results(name).schema == right.schema
            same_bag(bag(engine.results(name).toArrow()), bag(right.toArrow()), name)


@pytest.mark.parametrize("output", ["a.v", "array(a.v)", "parse_json('1')", "struct(b.v AS x)"])
def test_a_variant_is_not_written_to_a_file_where_nobody_could_read_it(spark, tmp_path, output):
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(" ".join(declare_odd_types(spark, tmp_path)))
        text = f"SELECT {output} AS x FROM a, b WHERE a.k = b.k WINDOW 1 min"
        engine.query("q", text, sink=penstock.parquet(tmp_path / "out"))
        with pytest.raises(
            InputError, match=r"query q: column x of its result is .*variant.*extract what you need"
        ):
            engine.start(once=True)


def test_a_python_stream_keeps_the_names_and_types_of_its_columns(spark, tmp_path):
    columns = (
        "named_struct('a.b', id, 'it`s', 'x') AS s", "array(CAST('Q' AS STRING COLLATE UTF8_LCASE)) AS c",
        "map('x', named_struct('y z', id)) AS m", "timestamp_seconds(id) AS ts", "id AS k",
    )  # fmt: skip
    spark.range(3).selectExpr(*columns).write.parquet(str(tmp_path / "x"))
    schema = spark.read.parquet(str(tmp_path / "x")).schema
    with Engine(tmp_path / "state", spark) as engine:
        for name in "ab":
            engine.stream(name, spark.readStream.schema(schema).parquet(str(tmp_path / "x")), time="ts")
        engine.query(
            "q", "SELECT a.s, b.c, a.m, a.s.`a.b` AS p FROM a, b WHERE a.s = b.s AND a.c[0] = 'q' WINDOW 1 s"
        )
        engine.start(once=True)
        engine.wait()
        results = engine.results("q")
        assert (
            results.select("s", "c", "m").schema
            == spark.read.schema(schema).parquet(str(tmp_path / "x")).select("s", "c", "m").schema
        )
        assert sorted(row["p"] for row in results.collect()) == [0, 1, 2]


def test_a_reserved_name_of_a_python_stream_is_refused(spark, tmp_path):
    spark.range(1).selectExpr("id AS `Penstock.x`", "timestamp_seconds(id) AS ts").write.parquet(
        str(tmp_path / "x")
    )
    rows = spark.readStream.schema("`Penstock.x` BIGINT, ts TIMESTAMP").parquet(str(tmp_path / "x"))
    with (
        Engine(tmp_path / "state", spark) as engine,
        pytest.raises(InputError, match=r"Penstock\.x of stream s: names"),
    ):
        engine.stream("s", rows, time="ts")
