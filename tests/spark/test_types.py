"""Values of every type come out of every sink as Spark's own batch query gives them, or are refused before a start.

columns of all types ──▶ log ──▶ pairs ──▶ view, settled table, ordered table, parquet, ordered parquet, callback
                                           the same values, of the same types
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import cycle

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.engine.api import Engine
from penstock.engine.outputs.results import to_show
from penstock.engine.spark.schemas import type_text
from penstock.errors import InputError

pytestmark = pytest.mark.spark

STORED = {
    "boolean": "id % 2 = 0",
    "tinyint": "CAST(id - 2 AS TINYINT)",
    "smallint": "CAST(id - 2 AS SMALLINT)",
    "int": "CAST(id - 2 AS INT)",
    "bigint": "id - 2",
    "float": "CAST(id / 4 AS FLOAT)",
    "double": "id / 4",
    "decimal": "CAST(id / 4 AS DECIMAL(10, 2))",
    "wide": "CAST(id / 4 AS DECIMAL(38, 4))",
    "string": "concat('é', id)",
    "collated": "CAST(IF(id % 2 = 0, 'Ab', 'aB') AS STRING COLLATE UTF8_LCASE)",
    "trimmed": "CAST(concat('x', id, ' ') AS STRING COLLATE UNICODE_CI_RTRIM)",
    "binary": "CAST(concat('é', id) AS BINARY)",
    "date": "date_add(DATE'2024-02-28', CAST(id AS INT))",
    "timestamp": "timestamp_micros(1700000000000001 + id)",
    "timestamp_ntz": "TIMESTAMP_NTZ'2024-03-31 02:30:00.000001'",
    "day_to_second": "make_dt_interval(CAST(id AS INT), -5, 0, 1.000001)",
    "day": "CAST(id AS INTERVAL DAY)",
    "minute_to_second": "INTERVAL '3:04.5' MINUTE TO SECOND",
    "void": "NULL",
    "variant": "parse_json(concat('{\"x\":', id, '}'))",
}
"""Types that are stored: an expression of the number of a row for each."""

UNSTORED = {
    "time": "TIME'12:34:56'",
    "year_to_month": "INTERVAL '1-2' YEAR TO MONTH",
    "month": "INTERVAL '3' MONTH",
    "calendar": "make_interval(1, 2, 0, 3)",
    "geometry": "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')",
    "geography": "st_geogfromwkb(X'0101000000000000000000F03F0000000000000040')",
}
"""Types that are refused."""

FORMS = {
    "alone": "IF(id = 3, NULL, {})",
    "array": "IF(id = 3, NULL, array({}, NULL))",
    "struct": "IF(id = 3, NULL, named_struct('f', {}, 'g', 1))",
    "map": "map('k', {})",
    "deep": "IF(id = 3, NULL, array(named_struct('f', map(1, {}))))",
}
"""Ways to nest one, null here and there."""

WITHOUT_VARIANT = {name: text for name, text in STORED.items() if name != "variant"}
WINDOW = "AND a.ts BETWEEN b.ts - INTERVAL 2 SECONDS AND b.ts + INTERVAL 2 SECONDS"
COMPUTED = (
    "b.ts - a.ts AS gap, a.string_alone COLLATE UNICODE AS u, IF(a.k > 2, named_struct('f', 1), NULL) AS s"
)


def columns(kinds):
    """Name every form of some types, and give the expression of each."""
    return {
        f"{kind}_{form}": shape.format(text) for kind, text in kinds.items() for form, shape in FORMS.items()
    }


def some_columns(kinds):
    """Name one form of every type, each form in its turn."""
    turns = zip(kinds.items(), cycle(FORMS.items()))
    return {f"{kind}_{form}": shape.format(text) for (kind, text), (form, shape) in turns}


def computed(kinds):
    """Write outputs that Spark has to compute, of every type."""
    made = (f"{text.replace('id', 'a.k')} AS new_{name}" for name, text in some_columns(kinds).items())
    return ", ".join(made)


def write_stream(spark, folder):
    """Write two files of rows with a column for every form of every type; some rows of the second come too late."""
    texts = [f"{text} AS {name}" for name, text in columns(STORED).items()]
    for number, shift in enumerate((0, 3)):
        rows = spark.range(6).selectExpr(
            "id AS k", f"timestamp_seconds(1700000000 + id * {1 + shift}) AS ts", *texts
        )
        part = folder.parent / f"{folder.name}-{number}"
        rows.where(f"{number} = 0 OR id <> 4").coalesce(1).write.parquet(str(part))
        (file,) = part.glob("*.parquet")
        folder.mkdir(exist_ok=True)
        file.rename(folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_700_000_000 + number,) * 2)  # Spark reads by age
    return spark.read.parquet(str(folder)).schema


def types(frame):
    """Give the columns of a frame with their types, whether they may be null or not."""
    return [(each.name, type_text(each.dataType)) for each in frame.schema.fields]


def rows(frame):
    """Count the rows of a frame, as they are written."""
    return Counter(map(repr, frame.collect()))


def judge(got, right, name):
    assert types(got) == types(right), name
    assert rows(got) == rows(right), name
    assert right.count() > 5, name


@pytest.fixture
def streams(spark, tmp_path):
    """Declare one stream in SQL and the other in Python; give their frames to compare with."""
    schemas = {name: write_stream(spark, tmp_path / name) for name in "ab"}
    ddl = ", ".join(f"{each.name} {type_text(each.dataType)}" for each in schemas["a"].fields)
    frames = {name: spark.read.schema(schemas[name]).parquet(str(tmp_path / name)) for name in "ab"}

    def declare(engine, lateness="1 hour"):
        engine.script(
            f"CREATE STREAM a ({ddl}) WITH (format = 'parquet', path = '{tmp_path / 'a'}', time = 'ts', "
            f"maxFilesPerTrigger = '1', lateness = '{lateness}');"
        )
        source = spark.readStream.schema(schemas["b"]).option("maxFilesPerTrigger", "1")
        engine.stream("b", source.parquet(str(tmp_path / "b")), time="ts", lateness=lateness)

    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return declare


def test_every_type_comes_out_of_every_sink_as_spark_gives_it(spark, tmp_path, streams):
    own = ", ".join(f"a.{name}" for name in columns(WITHOUT_VARIANT))
    whole = f"SELECT a.*, b.variant_alone AS v, b.variant_deep AS w FROM a, b WHERE a.k = b.k {WINDOW}"
    plain = f"SELECT {own} FROM a, b WHERE a.k = b.k {WINDOW}"
    made = f"SELECT {COMPUTED}, {computed(WITHOUT_VARIANT)} FROM a, b WHERE a.k = b.k {WINDOW}"
    handed = {"callback": Counter(), "in_turn": Counter()}

    def take(name):
        def handler(frame, _):
            assert types(frame) == types(spark.sql(made)), name
            handed[name] += rows(frame)

        return penstock.callback(handler)

    queries = {
        "view": (whole, penstock.table(), "none"),
        "settled": (made, penstock.table(), "none"),
        "ordered": (made, penstock.table(), "filter-order"),
        "files": (made, penstock.parquet(tmp_path / "files"), "none"),
        "sorted_files": (made, penstock.parquet(tmp_path / "sorted"), "filter-order"),
        "plain_files": (plain, penstock.parquet(tmp_path / "plain"), "none"),
        "plain_sorted": (plain, penstock.parquet(tmp_path / "plain_sorted"), "filter-order"),
        "callback": (made, take("callback"), "none"),
        "in_turn": (made, take("in_turn"), "filter-order"),
        "counted": (made, penstock.noop(), "none"),
    }
    with Engine(tmp_path / "state", spark) as engine:
        streams(engine)
        for name, (sql, sink, order) in queries.items():
            engine.query(name, sql, sink=sink, order=order)
        engine.start(once=True)
        engine.wait()
        for name, got in handed.items():
            assert got == rows(spark.sql(made)), name
        for name in ("view", "settled", "ordered", "files", "sorted_files", "plain_files", "plain_sorted"):
            judge(engine.results(name), spark.sql(queries[name][0]), name)
        shown = to_show(engine.results("view").select("v", "w", "day_alone")).toArrow()
        assert {None, '{"x":1}'} < set(shown.column("v").to_pylist())
        assert None in shown.column("w").to_pylist()
        counts = {each.name: each.results for each in engine.status().queries}
        assert counts["counted"] == counts["settled"] > 5
    gaps = duckdb.sql(f"SELECT DISTINCT gap FROM '{tmp_path}/files/*.parquet' ORDER BY 1")
    assert gaps.types == ["BIGINT"]
    assert (0,) in gaps.fetchall(), "to others an interval is its microseconds"
    assert pq.read_table(tmp_path / "sorted").schema.field("gap").type == pa.duration("us")


def test_values_of_every_type_are_chosen_as_spark_chooses_them(spark, tmp_path, streams):
    """MAX_BY over the rows of one stream, and MIN_BY over pairs; a third query lets Spark compute what is taken."""
    names, join = list(columns(WITHOUT_VARIANT)), "FROM a, b WHERE a.k = b.k"
    later = ", ".join(f"MAX_BY(a.{name}, a.ts) AS {name}" for name in names)
    across = ", ".join(f"MIN_BY(a.{name}, b.ts) AS {name}" for name in names)
    made = ", ".join(f"MAX_BY(IF(b.k > 1, a.{name}, NULL), b.ts) AS {name}" for name in names)
    with Engine(tmp_path / "state", spark) as engine:
        streams(engine)
        engine.query("rows", f"SELECT a.k, {later} {join} GROUP BY a.k WINDOW 1 min EVERY 1 s")
        for name, chosen in (("pairs", across), ("computed", made)):
            sink = penstock.parquet(tmp_path / name)
            engine.query(
                name, f"SELECT a.k, {chosen} {join} GROUP BY a.k WINDOW 1 min", sink=sink, emit="changes"
            )
        variant = f"SELECT MAX_BY(a.variant_alone, a.ts) AS v, MAX_BY(a.k, NULL) AS n {join} WINDOW 1 min"
        engine.query("counted", variant, sink=penstock.noop(), emit="changes")
        assert engine.explain().count("of the rows of either side") == 1
        engine.start(once=True)
        engine.wait()
        last = engine.results("rows").where("window_end = timestamp_seconds(1700000020)")
        judge(last.drop("window_end"), spark.sql(f"SELECT a.k, {later} {join} GROUP BY a.k"), "rows")
        for name, chosen in (("pairs", across), ("computed", made)):
            judge(engine.results(name), spark.sql(f"SELECT a.k, {chosen} {join} GROUP BY a.k"), name)
        assert {each.name: each.results for each in engine.status().queries}["counted"] > 0


def test_late_rows_keep_values_of_every_type(spark, tmp_path, streams):
    with Engine(tmp_path / "state", spark) as engine:
        streams(engine, lateness="1 second")
        engine.query("q", "SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 1 s", sink=penstock.noop())
        engine.start(once=True)
        engine.wait()
        late = engine.late("a").drop("_reason")
        right = spark.table("a")
        assert types(late) == types(right)
        assert late.count() > 0
        assert not rows(late) - rows(right)


SINKS = {
    "table": lambda _: (penstock.table(), "none"),
    "ordered": lambda _: (penstock.table(), "filter-order"),
    "parquet": lambda folder: (penstock.parquet(folder / "out"), "none"),
    "callback": lambda _: (penstock.callback(print), "none"),
    "console": lambda _: (penstock.console(), "filter-order"),
    "noop": lambda _: (penstock.noop(), "none"),
}


def declare_plain(engine, folder):
    """Declare two streams with hardly any columns."""
    for name in "ab":
        engine.script(
            f"CREATE STREAM {name} (k BIGINT, v VARIANT, ts TIMESTAMP) "
            f"WITH (format = 'parquet', path = '{folder / name}', time = 'ts');"
        )


def test_a_type_that_cannot_be_stored_is_refused_before_anything_starts(spark, tmp_path):
    texts = columns(UNSTORED)
    sinks = zip(cycle(SINKS), texts)
    with Engine(tmp_path / "state", spark) as engine:
        declare_plain(engine, tmp_path)
        for sink, name in [*sinks, *((each, "month_alone") for each in SINKS)]:
            where, order = SINKS[sink](tmp_path)
            sql = f"SELECT {texts[name].replace('id', 'a.k')} AS x FROM a, b WHERE a.k = b.k WINDOW 1 s"
            engine.query("q", sql, sink=where, order=order)
            with pytest.raises(InputError, match=REFUSED) as said:
                engine.start(once=True)
            assert name.split("_")[0] in str(said.value).lower()
            engine.drop("q")
        assert not (tmp_path / "out").exists()
        assert not any((tmp_path / "state" / "checkpoint").glob("**/*"))


REFUSED = r"query q: (column x of its result is .*, which cannot be stored\. .*: write (CAST|st_as)|The data type TIME)"


@pytest.mark.parametrize("output", ["a.v", "array(a.v)", "parse_json('1')"])
def test_a_variant_is_stored_in_shared_pairs_only(spark, tmp_path, output):
    sinks = {**SINKS, "settled": SINKS["table"]}
    del sinks["table"], sinks["noop"]
    with Engine(tmp_path / "state", spark) as engine:
        declare_plain(engine, tmp_path)
        for name, make in sinks.items():
            sink, order = make(tmp_path)
            more = ", uuid() AS u" * (name == "settled")
            sql = f"SELECT {output} AS x{more} FROM a, b WHERE a.k = b.k WINDOW 1 s"
            engine.query("q", sql, sink=sink, order=order)
            with pytest.raises(InputError, match=r"column x .*variant.*extract what you need"):
                engine.start(once=True)
            engine.drop("q")


def test_a_column_of_a_type_that_cannot_be_stored_is_refused_when_it_is_declared(spark, tmp_path):
    kinds = {name: spark.sql(f"SELECT {text} AS x").schema[0].dataType for name, text in UNSTORED.items()}
    texts = [type_text(kind) for kind in kinds.values()]
    nested = [f"array<{text}>" for text in texts] + [f"struct<f: map<string, {text}>>" for text in texts]
    refused = [*texts, *nested, "map<string collate UTF8_LCASE, int>", "map<void, int>"]
    with Engine(tmp_path / "state", spark) as engine:
        for text in refused:
            with pytest.raises(InputError, match="column x cannot be stored"):
                engine.script(
                    f"CREATE STREAM a (x {text}, ts TIMESTAMP) WITH (format = 'parquet', path = '/x', time = 'ts');"
                )
            source = spark.readStream.schema(f"x {text}, ts TIMESTAMP").parquet(str(tmp_path))
            with pytest.raises(InputError, match=r"column x of stream a is .*cannot be stored"):
                engine.stream("a", source, time="ts")


def test_a_query_added_to_a_running_engine_is_refused_for_its_types_and_the_others_go_on(
    spark, tmp_path, streams
):
    with Engine(tmp_path / "state", spark) as engine:
        streams(engine)
        engine.query("q", f"SELECT a.k, b.ts - a.ts AS gap FROM a, b WHERE a.k = b.k {WINDOW}")
        engine.start()
        with pytest.raises(InputError, match=r"query r: column x .*interval month.*CAST"):
            engine.query("r", "SELECT INTERVAL '3' MONTH AS x FROM a, b WHERE a.k = b.k WINDOW 1 s")
        engine.query(
            "s",
            f"SELECT b.ts - a.ts AS gap FROM a, b WHERE a.k = b.k {WINDOW}",
            sink=penstock.parquet(tmp_path / "s"),
        )
        engine.process_available()
        gaps = spark.sql(f"SELECT b.ts - a.ts AS gap FROM a, b WHERE a.k = b.k {WINDOW}")
        judge(engine.results("q").select("gap"), gaps, "q")
        judge(engine.results("s"), gaps, "s")
