"""A line that cannot be read is set aside with its text, unless Spark's own reader makes a row of it: that is joined.

line                          Spark's row            here
1,2024-05-01 00:00:01,7       1, …:01, 7             joined
x,2024-05-01 00:00:01,7       null, …:01, 7          a row, as in Spark: it has no key
1,2024-05-01 00:00:02,x       1, …:02, null          a row, as in Spark: joined
1,soon,7                      1, null, 7             set aside, with its text
"""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.engine.api import Engine
from penstock.errors import RunError
from penstock.limits import MAX_CORRUPT_CHARACTERS

pytestmark = pytest.mark.spark

COLUMNS = "k BIGINT, ts TIMESTAMP, v INT, s STRING"
VALUES = [
    ("1", "2024-05-01 00:00:01", "7", "a"),
    ("2", "2024-05-01 00:00:01", "8", "b"),
    ("x", "2024-05-01 00:00:01", "9", "no key"),
    ("1", "2024-05-01 00:00:02", "x", "no number"),
    ("1", "soon", "7", "no time"),
    ("x", "soon", "x", "nothing"),
    ("1", "2024-05-01 00:00:03", "9", "c"),
]
BROKEN = {"x": "[]"}
LINES = {
    "json": [
        *(f'{{"k": {BROKEN.get(k, k)}, "ts": "{t}", "v": {BROKEN.get(v, v)}, "s": "{s}"}}' for k, t, v, s in VALUES),
        '{"k": 1, "ts": "2024-05-01 00:00:0',
        "what is this?",
        "",
    ],
    "csv": [*map(",".join, VALUES), "what is this?", "1,2024-05-01 00:00:04,5,d,too,many", '2,"', ""],
    "xml": [
        "<rows>",
        *(f"<row><k>{k}</k><ts>{t}</ts><v>{v}</v><s>{s}</s></row>" for k, t, v, s in VALUES),
        "</rows>",
    ],
}  # fmt: skip
OPTIONS = {"json": {}, "csv": {}, "xml": {"rowTag": "row"}}
JOIN = "SELECT x.k, x.v, y.s FROM {0} x, {0} y WHERE x.k = y.k {1}"
NEAR = "AND x.ts BETWEEN y.ts - INTERVAL 1 SECONDS AND y.ts + INTERVAL 1 SECONDS"


def write(folder, kind, lines=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"lines.{kind}").write_text("\n".join(lines or LINES[kind]), encoding="utf-8")


def declare(name, folder, kind, columns=COLUMNS, **more):
    options = {"format": kind, "path": str(folder), "time": "ts", **OPTIONS[kind], **more}
    given = ", ".join(f"{key} = '{value}'" for key, value in options.items())
    return f"CREATE STREAM {name} ({columns}) WITH ({given});"


def batch(spark, folder, kind, columns=COLUMNS, **more):
    return spark.read.format(kind).options(**OPTIONS[kind], **more).schema(columns).load(str(folder))


def rows(frame):
    return Counter(map(repr, frame.collect()))


def run(engine):
    engine.start(once=True)
    engine.wait()


def test_a_line_that_cannot_be_read_is_set_aside_with_its_text(spark, tmp_path):
    with Engine(tmp_path / "state", spark) as engine:
        for kind in LINES:
            write(tmp_path / kind, kind)
            engine.script(declare(f"a_{kind}", tmp_path / kind, kind))
            engine.query(kind, JOIN.format(f"a_{kind}", NEAR))
        run(engine)
        streams = {each.name: each for each in engine.status().streams}
        for kind, lines in LINES.items():
            name, folder = f"a_{kind}", tmp_path / kind
            batch(spark, folder, kind).cache().createOrReplaceTempView(
                name
            )  # read whole, as XML reads otherwise else
            right = spark.sql(JOIN.format(name, NEAR))
            assert right.where("v IS NULL").count() > 0, f"a row of {kind} with a broken field joins"
            assert rows(engine.results(kind)) == rows(right), kind

            late = engine.late(name)
            whole = batch(spark, folder, kind, f"{COLUMNS}, _corrupt_record STRING").cache()
            assert rows(late.drop("_reason")) == rows(whole.where("ts IS NULL")), kind
            assert late.columns == [*whole.columns, "_reason"]
            assert {row["_reason"] for row in late.collect()} == {"no event time"}
            texts = {row["_corrupt_record"] for row in late.collect()}
            document = {"\n".join(lines)} if kind == "xml" else set()
            assert texts <= {*lines} | document
            assert None not in texts
            assert streams[name].no_time == late.count()


@pytest.mark.parametrize(
    ("column", "more"),
    [("_corrupt_record", {}), ("bad line", {"columnNameOfCorruptRecord": "bad line"})],
)
def test_a_column_for_the_text_that_a_stream_declares_is_the_streams_own(spark, tmp_path, column, more):
    write(tmp_path / "in", "csv")
    columns = f"{COLUMNS}, `{column}` STRING"
    sql = f"SELECT x.v, x.ts, x.s, x.`{column}` FROM a x, a y WHERE x.k = y.k {NEAR}"
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(declare("a", tmp_path / "in", "csv", columns, **more))
        engine.query("q", sql)
        run(engine)
        whole = batch(spark, tmp_path / "in", "csv", columns, **more)
        whole.createOrReplaceTempView("a")
        assert rows(engine.results("q")) == rows(spark.sql(sql))
        assert engine.results("q").where(f"`{column}` LIKE '%no number'").count() > 0
        late = engine.late("a")
        assert late.columns == [*whole.columns, "_reason"]
        assert rows(late.drop("_reason")) == rows(whole.cache().where("ts IS NULL"))


def test_of_a_long_text_the_beginning_is_kept(spark, tmp_path):
    """Of XML, and of JSON over several lines, Spark gives the whole document for every row that it could not read."""
    write(
        tmp_path / "in", "csv", ["1,2024-05-01 00:00:01,7,a", "1,soon,7," + "x" * 2 * MAX_CORRUPT_CHARACTERS]
    )
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(declare("a", tmp_path / "in", "csv"))
        engine.query("q", JOIN.format("a", NEAR))
        run(engine)
        (row,) = engine.late("a").collect()
        assert len(row["s"]) == 2 * MAX_CORRUPT_CHARACTERS
        assert row["_corrupt_record"] == ("1,soon,7," + "x" * MAX_CORRUPT_CHARACTERS)[:MAX_CORRUPT_CHARACTERS]


def test_an_option_without_its_column_loses_no_text(spark, tmp_path):
    write(tmp_path / "in", "json")
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(declare("a", tmp_path / "in", "json", columnNameOfCorruptRecord="bad"))
        engine.query("q", JOIN.format("a", NEAR))
        run(engine)
        assert "what is this?" in {row["_corrupt_record"] for row in engine.late("a").collect()}


def test_lines_are_dropped_where_a_stream_says_so(spark, tmp_path):
    write(tmp_path / "in", "csv")
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(declare("a", tmp_path / "in", "csv", mode="DROPMALFORMED"))
        engine.query("q", "SELECT x.* FROM a x, a y WHERE x.k = y.k AND x.ts = y.ts")
        run(engine)
        right = batch(spark, tmp_path / "in", "csv", mode="DROPMALFORMED")
        assert rows(engine.results("q")) == rows(right)
        assert (engine.late("a").count(), engine.late("a").columns) == (0, [*right.columns, "_reason"])


def test_a_run_fails_on_a_line_where_a_stream_says_so(spark, tmp_path):
    write(tmp_path / "in", "json")
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(declare("a", tmp_path / "in", "json", mode="failfast"))
        engine.query("q", JOIN.format("a", NEAR))
        with pytest.raises(RunError, match="stream a"):
            run(engine)


def test_rows_that_an_earlier_version_set_aside_are_read_beside_those_of_today(spark, tmp_path):
    write(tmp_path / "in", "csv")
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(declare("a", tmp_path / "in", "csv"))
        engine.query("q", JOIN.format("a", NEAR))
        run(engine)
        before = engine.late("a").collect()
        old = spark.createDataFrame([(5, None, 6, "old")], COLUMNS)
        old.write.mode("append").parquet(str(tmp_path / "state" / "late" / "a" / "0000000000"))
        after = engine.late("a").collect()
        assert len(after) == len(before) + 1
        assert {(row["_corrupt_record"], row["_reason"]) for row in after if row["s"] == "old"} == {
            (None, None)
        }


def test_a_stream_without_late_rows_has_the_column_too(spark, tmp_path):
    write(tmp_path / "in", "csv", ["1,2024-05-01 00:00:01,7,a"])
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(declare("a", tmp_path / "in", "csv"))
        engine.query("q", JOIN.format("a", NEAR))
        run(engine)
        assert engine.late("a").columns == ["k", "ts", "v", "s", "_corrupt_record", "_reason"]
        assert engine.late("a").count() == 0
