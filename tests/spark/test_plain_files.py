"""Files that are read without Spark: tasks get what Spark would have given them, to the last bit; or Spark reads.

Both ways are asked for the very columns that a task reads, over random values of every plain type, keys and predicates
at random, several files and row groups.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine.engine import Engine
from penstock.engine.ingest import plain_files, plain_int96, source_ingest
from penstock.engine.ingest.batch_task import BatchTask, LogTask
from penstock.engine.ingest.plain_columns import FILE_TYPES, plain_columns
from penstock.engine.ingest.plain_files import only_says_which_files, plain_batch
from penstock.engine.ingest.plain_keys import Digest
from penstock.engine.ingest.promise_columns import PromiseTask
from penstock.engine.ingest.sources import ingest_columns_of
from penstock.engine.ingest.watching import Arrival
from penstock.engine.spark.schemas import arrow_time_type, arrow_types, schema_ddl
from penstock.errors import RunError
from penstock.log.files import open_files
from penstock.plan.stored import KeyPart, LogPlan
from penstock.sql.query import Column, Stream

pytestmark = pytest.mark.spark


@pytest.fixture
def who_reads_plain_files():
    """Let these tests decide themselves."""


COLUMNS = {"id": "bigint", **{f"c_{kind}": kind for kind in FILE_TYPES}}
WHOLE = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
NUMBERS = [0, 1, -1, 80, 127, -128, 1 << 31, -(1 << 31), 999_999_999_999_999]
OPERATORS = ["=", "==", "<>", "!=", "<", "<=", ">", ">="]
KEYS = [
    *(KeyPart(f"c_{kind}", kind, column=f"c_{kind}") for kind in (*WHOLE, "boolean", "date", "timestamp")),
    KeyPart("c_tinyint", "bigint", cast=True, column="c_tinyint"),
    KeyPart("c_int", "bigint", cast=True, column="c_int"),
]
TEXTS = [KeyPart(f"c_{kind}", kind, column=f"c_{kind}") for kind in ("string", "binary")]
"""Keys that 64 bits do not hold; nor do they hold several of any."""


def whole(bits: int) -> st.SearchStrategy:
    """Whole numbers of so many bits, often those at the ends and those that predicates name."""
    near = [each for each in NUMBERS if abs(each) < 1 << bits]
    return st.sampled_from([*near, (1 << bits) - 1, -(1 << bits)]) | st.integers(
        -(1 << bits), (1 << bits) - 1
    )


FLOATS = st.sampled_from([0.0, -0.0, 80.0, 80.5, math.nan, math.inf, -math.inf, 1e308]) | st.floats()
TIMES = st.integers(-(1 << 60), 1 << 60) | st.sampled_from(
    [0, 1 << 59, (1 << 59) + 1, -(1 << 59), -(1 << 59) - 1]
)
DAYS = st.integers(-8_000_000, 8_000_000)
VALUES = {
    **{kind: whole(bits) for kind, bits in WHOLE.items()},
    "boolean": st.booleans(),
    "double": FLOATS,
    "float": st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan]),
    "string": st.text(max_size=5) | st.text("aé漢🌊", max_size=100),
    "binary": st.binary(max_size=5) | st.binary(max_size=100),
    "date": DAYS,
    "timestamp": TIMES,
    "timestamp_ntz": TIMES,
}


@st.composite
def tables(draw):
    """Rows of every plain type, with nulls, numbered."""
    rows = draw(st.integers(0, 12))
    arrays = {"id": pa.array(range(rows), pa.int64())}
    for kind, values in VALUES.items():
        column = draw(st.lists(values | st.none(), min_size=rows, max_size=rows))
        base = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}.get(kind)
        made = pa.array(column, base or FILE_TYPES[kind])
        arrays[f"c_{kind}"] = made.cast(FILE_TYPES[kind])
    return pa.table(arrays)


@st.composite
def predicates(draw, depth=2):
    """Texts over columns of numbers."""
    if depth and draw(st.booleans()):
        inner = predicates(depth=depth - 1)
        form = draw(st.sampled_from(["({}) AND ({})", "({}) OR ({})", "NOT ({})"]))
        return form.format(draw(inner), draw(inner))
    kind = draw(st.sampled_from([*WHOLE, "double"]))
    column = f"c_{kind}"
    numbers = [str(each) for each in NUMBERS] + (["80.5", "-0.0", ".5", "3."] if kind == "double" else [])
    number, operator = draw(st.sampled_from(numbers)), draw(st.sampled_from(OPERATORS))
    forms = [
        f"{column} {operator} {number}",
        f"{number} {operator} {column}",
        f"{column} IS NOT NULL",
        f"{column} IS NULL",
    ]
    return draw(st.sampled_from(forms))


def stream_of(time: str, path="", **options) -> Stream:
    """Declare a stream of all the columns."""
    columns = tuple(Column(name, kind) for name, kind in COLUMNS.items())
    return Stream("S", columns, time, format="parquet", options=(("path", str(path)), *options.items()))


def batch_task(spark, stream, key, predicates=(), columns=None) -> BatchTask:
    """Tell tasks to write one log."""
    stored = tuple(COLUMNS) if columns is None else columns
    log = LogPlan("log", "S", key, tuple(dict.fromkeys(predicates)), stored)
    masks = (1,) if predicates else (0,)
    kind = arrow_time_type(stream, spark)
    return BatchTask(open_files("memory://plain"), 0, (LogTask(log, masks),), stream.time, kind, None)


def origin_of(paths) -> dict:
    """Say that a batch has some files."""
    files = [(path.as_uri(), 1) for path in paths]
    return {"entries": {"0": {"0": files}}, "begun": {}}


def bits(table: pa.Table) -> list:
    """Give rows in the order of their numbers, each value as the bits that it has."""
    ordered = table.sort_by("id")
    columns = zip(ordered.column_names, ordered.columns, strict=True)
    return [(name, column.type, _bits(column.combine_chunks())) for name, column in columns]


def _bits(column: pa.Array) -> list:
    """Look at floating numbers and times as whole numbers: equal, not merely alike."""
    if (
        pa.types.is_floating(column.type)
        or pa.types.is_timestamp(column.type)
        or pa.types.is_date(column.type)
    ):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    return column.to_pylist()


FOLDERS = count()


@given(
    tables(),
    st.sampled_from(["c_timestamp", "c_timestamp_ntz", "c_date"]),
    st.lists(st.sampled_from(KEYS), max_size=1).map(tuple)
    | st.lists(st.sampled_from([*TEXTS, *KEYS]), max_size=4, unique=True).map(tuple),
    st.lists(predicates(), max_size=70, unique=True),
    st.integers(1, 5),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrow_gives_tasks_what_spark_would_give_them(spark, tmp_path, rows, time, key, predicates, size):  # noqa: PLR0917
    folder = tmp_path / str(next(FOLDERS))
    folder.mkdir()
    for number in range(2):
        pq.write_table(rows.slice(number * 6, 6), folder / f"{number} %.parquet", row_group_size=size)
    stream = stream_of(time, folder)
    task = batch_task(spark, stream, key, predicates)
    source = spark.read.schema(schema_ddl(stream)).parquet(str(folder))
    by_spark = ingest_columns_of(source, stream, task.computed_for, task.columns()).toArrow()

    columns = plain_columns(stream, task, lambda: arrow_types(spark, stream))
    batch = plain_batch(columns, origin_of(sorted(folder.iterdir())))
    for shares in ([batch], batch.shares(2), batch.shares(9)):
        read = [each for share in shares for each in share._read()]
        by_arrow = pa.Table.from_batches(read) if read else by_spark.schema.empty_table()
        assert bits(by_arrow) == bits(by_spark)


LENGTHS = [b"", *(bytes(range(7, 7 + size)) for size in range(101)), bytes(1000)]


def test_texts_of_all_lengths_are_hashed_as_spark_hashes_them(spark):
    """Pieces of 32, 8, 4 and 1 bytes, whatever is left; in the middle of an array, too; as a first and a later part."""
    words = ["", "é", "漢字" * 9, "🌊", "a\0b", *(each.hex() for each in LENGTHS), None]
    rows = pa.table({"c_string": words, "c_int": pa.array(range(len(words)), pa.int32())})
    bins = pa.table({"c_binary": [*LENGTHS, None]})
    by_spark = (
        spark.createDataFrame(rows)
        .selectExpr("xxhash64(c_string) h", "xxhash64(c_int, c_string) i")
        .toArrow()
    )
    of_bins = spark.createDataFrame(bins).selectExpr("xxhash64(c_binary) h").toArrow()
    for skipped in (0, 1, 50):
        (part,) = rows.slice(skipped).to_batches()
        one, two = Digest((("c_string", "string"),)), Digest((("c_int", "int"), ("c_string", "string")))
        assert one.make(part)[:-1].to_pylist() == by_spark["h"].slice(skipped)[:-1].to_pylist()
        assert two.make(part)[:-1].to_pylist() == by_spark["i"].slice(skipped)[:-1].to_pylist()
        assert one.make(part)[-1].as_py() is two.make(part)[-1].as_py() is None
        (part,) = bins.slice(skipped).to_batches()
        hashed = Digest((("c_binary", "binary"),)).make(part)
        assert hashed[:-1].to_pylist() == of_bins["h"].slice(skipped)[:-1].to_pylist()


FIRST = -62_135_596_800_000_000
JULIAN = -2_440_588 * 86_400_000_000
SPARKS_TIMES = st.integers(FIRST, 1 << 57).filter(bool) | st.sampled_from(
    [-1, 1, -12_219_292_800_000_001, -12_219_292_800_000_000, FIRST]
)
OTHER_TIMES = st.sampled_from(
    [
        0,
        FIRST - 1,
        JULIAN,
        JULIAN - 1,
        JULIAN - 86_400_000_001,
        -2 * 10**18,
        -(1 << 61),
        -(1 << 62),
        1 << 60,
        1 << 62,
    ]
)


def written_by_spark(spark, folder, times):
    """Let Spark write times as it does by itself, and read them back."""
    rows = pa.table(
        {"id": range(len(times)), "c_timestamp": pa.array(times, pa.int64()).cast(FILE_TYPES["timestamp"])}
    )
    spark.createDataFrame(rows).coalesce(1).write.parquet(str(folder))
    (file,) = folder.glob("*.parquet")
    assert pq.ParquetFile(file).schema.column(1).physical_type == "INT96"
    stream = stream_of("c_timestamp", folder)
    source = spark.read.schema(schema_ddl(stream)).parquet(str(folder))
    task = batch_task(spark, stream, (KEYS[-3],), columns=("id", "c_timestamp"))
    return ingest_columns_of(source, stream, task.computed_for, task.columns()).toArrow(), task, stream, file


@given(st.lists(SPARKS_TIMES | st.none(), min_size=1, max_size=50))
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_times_as_spark_writes_them_are_read_as_spark_reads_them(spark, tmp_path, times):
    by_spark, task, stream, file = written_by_spark(spark, tmp_path / str(next(FOLDERS)), times)
    columns = plain_columns(stream, task, lambda: arrow_types(spark, stream))
    read = list(plain_batch(columns, origin_of([file]))._read())
    assert bits(pa.Table.from_batches(read)) == bits(by_spark)


@given(st.lists(SPARKS_TIMES, max_size=5), OTHER_TIMES)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_times_that_arrow_would_read_otherwise_are_sparks(spark, tmp_path, times, other):
    _, task, stream, file = written_by_spark(spark, tmp_path / str(next(FOLDERS)), [*times, other])
    columns = plain_columns(stream, task, lambda: arrow_types(spark, stream))
    with pytest.raises(OSError, match=r"too far away|two meanings"):
        list(plain_batch(columns, origin_of([file]))._read())


@pytest.mark.parametrize(
    ("metadata", "by", "kind", "is_plain"),
    [
        ({"org.apache.spark.version": "4.3.0"}, "parquet-mr version 1.16", "timestamp", True),
        ({"org.apache.spark.version": "3.1.0"}, "parquet-mr version 1.16", "timestamp", True),
        ({"org.apache.spark.version": "3.0.3"}, "parquet-mr version 1.16", "timestamp", False),
        (
            {"org.apache.spark.version": "4.3.0", "org.apache.spark.legacyINT96": ""},
            "parquet-mr",
            "timestamp",
            False,
        ),
        ({}, "parquet-mr version 1.16", "timestamp", False),
        ({"org.apache.spark.version": "4.3.0"}, "impala version 4", "timestamp", False),
        ({"org.apache.spark.version": "4.3.0"}, "parquet-mr version 1.16", "timestamp_ntz", False),
    ],
)
def test_int96_of_others_and_of_other_calendars_is_sparks(  # noqa: PLR0917 - a table of cases
    spark, tmp_path, monkeypatch, metadata, by, kind, is_plain
):
    file = tmp_path / "x.parquet"
    rows = pa.table({"id": pa.array([1], pa.int64()), f"c_{kind}": pa.array([0], pa.timestamp("us"))})
    pq.write_table(rows.replace_schema_metadata(metadata), file, use_deprecated_int96_timestamps=True)
    said = Mock(metadata=pq.ParquetFile(file).metadata.metadata, created_by=by)
    monkeypatch.setattr(plain_files, "has_sparks_int96", lambda _: plain_int96.has_sparks_int96(said))
    stream = stream_of(f"c_{kind}")
    task = batch_task(spark, stream, (), columns=("id", f"c_{kind}"))
    made = plain_columns(stream, task, lambda: arrow_types(spark, stream))
    assert (plain_batch(made, origin_of([file])) is not None) == is_plain


@pytest.mark.parametrize(
    "predicate",
    [
        "c_string = 'x'",
        "c_float > 1",
        "c_int > 1.5",
        "c_double + 1 > 2",
        "c_bigint > 9999999999999999999",
        "c_double > 1e3",
    ],
)
def test_a_predicate_that_rounds_casts_or_computes_is_sparks(spark, predicate):
    stream = stream_of("c_timestamp")
    task = batch_task(spark, stream, KEYS[:1], [predicate])
    assert plain_columns(stream, task, lambda: arrow_types(spark, stream)) is None


@pytest.mark.parametrize(
    "part",
    [
        KeyPart("c_string", "string collate UNICODE_CI", cast=True, column="c_string"),
        KeyPart("c_string", "bigint", cast=True, column="c_string"),
        KeyPart("upper(c_string)", "string"),
        KeyPart("c_double", "double", column="c_double"),
        KeyPart("c_bigint", "int", cast=True, column="c_bigint"),
        KeyPart("c_int + 1", "int"),
        KeyPart("c_date", "timestamp", cast=True, column="c_date"),
        KeyPart("c_timestamp_ntz", "timestamp_ntz", column="c_timestamp_ntz"),
    ],
)
def test_a_key_that_is_no_column_as_it_stands_is_sparks(spark, part):
    stream = stream_of("c_timestamp")
    for key in ((part,), (TEXTS[0], part), (part, KEYS[0])):
        task = batch_task(spark, stream, key)
        assert plain_columns(stream, task, lambda: arrow_types(spark, stream)) is None


ROW = {"id": pa.array([1], pa.int64()), "c_timestamp": pa.array([0], pa.timestamp("us", "UTC"))}


@pytest.mark.parametrize(
    ("columns", "metadata", "is_plain"),
    [
        (ROW, {}, True),
        (ROW | {"more": pa.array(["x"])}, {}, True),
        (ROW | {"c_timestamp": pa.array([0], pa.timestamp("us", "Asia/Tokyo"))}, {}, True),
        (ROW, {"org.apache.spark.version": "3.0.0"}, True),
        (ROW, {"org.apache.spark.version": "2.4.8"}, False),
        (ROW, {"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyDateTime": ""}, False),
        (ROW | {"c_timestamp": pa.array([0], pa.timestamp("ms", "UTC"))}, {}, False),
        (ROW | {"c_timestamp": pa.array([0], pa.timestamp("ns", "UTC"))}, {}, False),
        (ROW | {"c_timestamp": pa.array([0], pa.timestamp("us"))}, {}, False),
        (ROW | {"id": pa.array([1], pa.int32())}, {}, False),
        (ROW | {"id": pa.array([1], pa.uint64())}, {}, False),
        (ROW | {"id": pa.array([1], pa.int64()).dictionary_encode()}, {}, True),
        (ROW | {"ID": pa.array([2], pa.int64())}, {}, False),
        ({"ID": ROW["id"], "c_timestamp": ROW["c_timestamp"]}, {}, False),
        ({"c_timestamp": ROW["c_timestamp"]}, {}, False),
    ],
)
def test_a_file_is_plain_if_its_columns_have_the_declared_types(spark, tmp_path, columns, metadata, is_plain):
    stream = stream_of("c_timestamp")
    task = batch_task(spark, stream, (), columns=("id",))
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), file)
    made = plain_columns(stream, task, lambda: arrow_types(spark, stream))
    assert (plain_batch(made, origin_of([file])) is not None) == is_plain


def test_a_batch_is_sparks_if_a_file_is_elsewhere_or_broken_or_its_directory_is_a_column(spark, tmp_path):
    stream = stream_of("c_timestamp")
    made = plain_columns(
        stream, batch_task(spark, stream, (), columns=("id",)), lambda: arrow_types(spark, stream)
    )
    good, broken, gone, column = (tmp_path / each for each in ("good", "broken", "gone", "id=3/x"))
    column.parent.mkdir()
    for path in (good, column):
        pq.write_table(pa.table(ROW), path)
    broken.write_bytes(b"PAR1")
    assert plain_batch(made, origin_of([good]))
    for paths in ([good, broken], [good, gone], [column]):
        assert plain_batch(made, origin_of(paths)) is None
    assert plain_batch(made, {"entries": {"0": {"0": [("s3a://b/x", 1)]}}, "begun": {}}) is None
    assert plain_batch(made, {"entries": {"0": None}, "begun": {}}) is None
    assert plain_batch(made, {"entries": {}, "begun": {"0": {}}}) is None


def test_an_option_that_says_how_to_read_is_sparks():
    assert only_says_which_files(stream_of("c_timestamp", maxFilesPerTrigger="1", retain="1 h"))
    assert not only_says_which_files(stream_of("c_timestamp", mergeSchema="true"))
    assert not only_says_which_files(stream_of("c_timestamp", datetimeRebaseMode="LEGACY"))


SCRIPT = """
    CREATE STREAM A (k BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = '{path}/a', time = 'ts');
    CREATE STREAM B (k BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = '{path}/b', time = 'ts');
    CREATE QUERY q AS SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 10 SECONDS;
"""


def write_rows(folder, rows: int, kind: str = "int64") -> None:
    """Write one file of rows, all at one time."""
    folder.mkdir(parents=True, exist_ok=True)
    times = pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * rows, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"k": pa.array(range(rows), kind), "ts": times}), folder / "0.parquet")


def results_of_a_run(spark, path) -> int:
    """Run the script over what is there, and count its results."""
    with Engine(state=path / "state", spark=spark) as engine:
        engine.script(SCRIPT.format(path=path))
        engine.start(once=True)
        engine.wait()
        return engine.results("q").count()


@pytest.mark.parametrize("most", [-1, 1 << 15])
def test_a_run_reads_plain_files_itself_in_tasks_and_here(spark, tmp_path, monkeypatch, most):
    monkeypatch.setattr(plain_files, "MOST_LITTLE_ROWS", most)
    monkeypatch.setattr("penstock.engine.spark_jobs.SparkJobs.ingest", None)  # Spark is not asked
    for name in "ab":
        write_rows(tmp_path / name, 100)
    assert results_of_a_run(spark, tmp_path) == 100


def test_other_files_of_the_same_stream_are_read_by_spark(spark, tmp_path):
    write_rows(tmp_path / "a", 100)
    write_rows(tmp_path / "b", 100, "int32")
    assert results_of_a_run(spark, tmp_path) == 100


def plain_files_of(spark, folder, names=("id",)):
    """Say how the columns of files are made, and what the batch of all of them is."""
    stream = stream_of("c_timestamp")
    task = batch_task(spark, stream, (), columns=names)
    made = plain_columns(stream, task, lambda: arrow_types(spark, stream))
    return plain_batch(made, origin_of(sorted(folder.iterdir())))


@pytest.mark.parametrize(("codec", "is_plain"), [("zstd", True), ("lz4", True), ("brotli", False)])
def test_a_codec_that_spark_does_not_have_is_sparks_to_refuse(spark, tmp_path, codec, is_plain):
    """Else a run would go well until a row is late, which only Spark writes to the dead letters."""
    pq.write_table(pa.table(ROW), tmp_path / "x.parquet", compression=codec)
    assert (plain_files_of(spark, tmp_path) is not None) == is_plain


def test_a_file_with_a_name_that_is_no_text_is_sparks(spark, tmp_path):
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table(ROW | {"zzzz": pa.array([1])}), file, store_schema=False)
    file.write_bytes(file.read_bytes().replace(b"zzzz", b"z\xff\xfez"))
    assert plain_files_of(spark, tmp_path) is None


@pytest.mark.parametrize(
    "other",
    [
        ROW | {"id": pa.array([1], pa.int32())},
        {name: pa.concat_arrays([column, column]) for name, column in ROW.items()},
        {"c_timestamp": ROW["c_timestamp"]},
    ],
)
def test_a_file_that_becomes_another_before_it_is_read_is_left_to_spark(spark, tmp_path, other):
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table(ROW), file)
    batch = plain_files_of(spark, tmp_path)
    pq.write_table(pa.table(other), file)
    with pytest.raises(OSError, match="was changed while it was being read"):
        list(batch._read())


def test_text_is_read_in_short_pieces_however_small_its_file_is(spark, tmp_path):
    rows = 10_000
    columns = {name: pa.concat_arrays([column] * rows) for name, column in ROW.items()}
    columns["c_string"] = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array(["x" * 10_000])
    )
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", store_schema=False)
    batch = plain_files_of(spark, tmp_path, ("id", "c_string"))
    assert batch.is_little, "its bytes are those of one text"
    pieces = [each.nbytes for each in batch._read()]
    assert sum(pieces) > 2 * max(pieces)
    assert sum(pieces) > rows * 10_000


def test_a_file_that_spark_would_find_damaged_is_sparks(spark, tmp_path):
    """Hadoop puts checksums beside local files, and a session that nobody told otherwise verifies them."""
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    for name in "ab":
        rows = theirs.sql("SELECT 7777777777777777777 AS k, TIMESTAMP'2024-01-01 00:00:00' AS ts")
        rows.write.option("compression", "none").parquet(str(tmp_path / name))
    (file,) = (tmp_path / "a").glob("*.parquet")
    good = (7777777777777777777).to_bytes(8, "little")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(good, b"\0" + good[1:], 1))
    assert file.read_bytes() != whole
    with Engine(state=tmp_path / "state", spark=theirs) as engine:
        engine.script(SCRIPT.format(path=tmp_path))
        engine.start(once=True)
        with pytest.raises(RunError, match=r"[Cc]hecksum"):
            engine.wait()


@pytest.mark.parametrize("step", ["plain_columns", "plain_batch"])
def test_spark_reads_if_something_goes_wrong_before_a_file_is_read(spark, tmp_path, monkeypatch, step):
    monkeypatch.setattr(source_ingest, step, Mock(side_effect=RecursionError("too deep")))
    for name in "ab":
        write_rows(tmp_path / name, 100)
    assert results_of_a_run(spark, tmp_path) == 100


def test_a_stream_that_others_make_promises_about_from_now_on_is_sparks(spark, tmp_path):
    for name in "ab":
        write_rows(tmp_path / name, 1)
    with Engine(state=tmp_path / "state", spark=spark) as engine:
        engine.script(SCRIPT.format(path=tmp_path))
        engine.start(once=True)
        engine.wait()
        ingest = engine._ingesters[0].batches
        task = ingest._task(ingest.store.ledger.stream(ingest.stream.name))
        rows = spark.range(1)
        assert ingest._plain_columns(rows, task)
        assert ingest._plain_columns(rows, replace(task, promises=PromiseTask())) is None
        assert ingest._plain_columns(rows, replace(task, arrival=Arrival(0, {}))) is None
        assert ingest._plain_columns(rows, task)
