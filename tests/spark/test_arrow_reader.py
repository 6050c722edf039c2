"""Plain Parquet files, read by Arrow inside ingest tasks: bit by bit what Spark would read; or Spark reads them.

Every test names the reader that it expects, Arrow or Spark, and checks that it is the one.
"""

from __future__ import annotations

import math
import os
import pickle
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from random import Random
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine.api import Engine
from penstock.engine.sources import ingester
from penstock.engine.sources.ingester import SourceIngest
from penstock.engine.sources.sources import ingest_columns_of
from penstock.engine.spark.schemas import arrow_time_type, arrow_types, schema_ddl
from penstock.engine.tasks.ingest import BatchSpec, LogSpec
from penstock.engine.tasks.order_watch import Arrival
from penstock.engine.tasks.parquet_reader import FILE_TYPES, arrow_columns, is_plain_parquet, plain_batch
from penstock.engine.tasks.promise_columns import PromiseSpec
from penstock.errors import RunError
from penstock.limits import MAX_ARROW_PREDICATE_CHARACTERS
from penstock.plan.stored import KeyPart, LogPlan
from penstock.sql.query import Column, Stream

pytestmark = pytest.mark.spark


ARROW, SPARK = "arrow", "spark"
"""Readers."""


@pytest.fixture
def readers(monkeypatch):
    """Note who reads the batches of a run."""
    noted, decide = [], SourceIngest._plain_batch

    def note(*arguments):
        batch = decide(*arguments)
        noted.append(SPARK if batch is None else ARROW)
        return batch

    monkeypatch.setattr(SourceIngest, "_plain_batch", note)
    return noted


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
"""Keys that 64 bits do not hold, nor do they hold several of any: Spark hashes them."""


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


def batch_task(spark, stream, key, predicates=(), columns=None) -> BatchSpec:
    """Tell tasks to write one log."""
    stored = tuple(COLUMNS) if columns is None else columns
    log = LogPlan("log", "S", key, tuple(dict.fromkeys(predicates)), stored)
    masks = (1,) if predicates else (0,)
    kind = arrow_time_type(stream, spark)
    return BatchSpec(0, (LogSpec(log, masks),), stream.time, kind, None)


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


def columns_of(spark, stream, task):
    """Build the columns of a task; None if Spark has to."""
    return arrow_columns(stream, task, lambda: arrow_types(spark, stream))


def reader_of(batch) -> str:
    """Name the reader of a batch."""
    return SPARK if batch is None else ARROW


def check_both_readers(spark, folder, stream, task, note="") -> None:
    """Read files by Arrow, in shares of several sizes, and compare with Spark's columns bit by bit."""
    source = spark.read.schema(schema_ddl(stream)).parquet(str(folder))
    by_spark = ingest_columns_of(source, stream, task.computed_for, task.columns()).toArrow()
    batch = plain_batch(columns_of(spark, stream, task), origin_of(sorted(folder.iterdir())))
    assert reader_of(batch) == ARROW
    batch = pickle.loads(pickle.dumps(batch))  # noqa: S301 - as tasks get it
    for shares in ([batch], batch.shares(2), batch.shares(9)):
        read = [rows for share in shares for rows in share.read()]
        by_arrow = pa.Table.from_batches(read) if read else by_spark.schema.empty_table()
        assert bits(by_arrow) == bits(by_spark), note


@pytest.mark.runs_task_here
@given(
    tables(),
    st.sampled_from(["c_timestamp", "c_timestamp_ntz", "c_date"]),
    st.lists(st.sampled_from(KEYS), max_size=1).map(tuple),
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
    check_both_readers(spark, folder, stream, batch_task(spark, stream, key, predicates))


ENDS = {kind: [0, 1, -1, 80, (1 << bits) - 1, -(1 << bits)] for kind, bits in WHOLE.items()}
NEAR = [0, -1, 1 << 59, (1 << 59) + 1, -(1 << 59), -(1 << 59) - 1]


def random_value(random: Random, kind: str):
    """Draw a value of a type, often one at the ends of its range, sometimes null."""
    if random.random() < 0.1:
        return None
    if kind in WHOLE:
        bits = WHOLE[kind]
        return random.choice([*ENDS[kind], random.randrange(-(1 << bits), 1 << bits)])
    text = "".join(random.choices("aé漢🌊", k=random.randrange(30)))
    others = {
        "boolean": random.random() < 0.5,
        "string": text,
        "binary": text.encode(),
        "date": random.randrange(-8_000_000, 8_000_000),
    }
    others |= dict.fromkeys(
        ("float", "double"),
        random.choice([0.0, -0.0, 80.0, math.nan, math.inf, -math.inf, random.gauss(0, 100)]),
    )
    return others.get(kind, random.choice([*NEAR, random.randrange(-(1 << 60), 1 << 60)]))


def random_predicate(random: Random, depth: int = 2) -> str:
    """Draw a predicate over columns of numbers."""
    if depth and random.random() < 0.5:
        form = random.choice(["({}) AND ({})", "({}) OR ({})", "NOT ({})"])
        return form.format(*(random_predicate(random, depth - 1) for _ in range(form.count("{}"))))
    kind = random.choice([*WHOLE, "double"])
    numbers = [*map(str, NUMBERS), *(["80.5", "-0.0", ".5", "3."] if kind == "double" else ["80"])]
    number, operator = random.choice(numbers), random.choice(OPERATORS)
    column = f"c_{kind}"
    forms = [f"{column} {operator} {number}", f"{number} {operator} {column}", f"{column} IS NULL"]
    return random.choice([*forms, f"{column} IS NOT NULL"])


@pytest.mark.runs_task_here
@pytest.mark.parametrize("time", ["c_timestamp", "c_timestamp_ntz", "c_date"])
def test_many_random_rows_and_predicates_are_the_same_by_both_readers(spark, tmp_path, time):
    seed = int.from_bytes(os.urandom(4))
    random, rows = Random(seed), 5000
    arrays = {"id": pa.array(range(rows), pa.int64())}
    for kind, wanted in FILE_TYPES.items():
        base = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ntz": pa.int64()}.get(kind, wanted)
        arrays[f"c_{kind}"] = pa.array([random_value(random, kind) for _ in range(rows)], base).cast(wanted)
    for number, size in enumerate((rows, 700)):
        part = pa.table(arrays).slice(number * rows // 2, rows // 2)
        pq.write_table(part, tmp_path / f"{number}.parquet", row_group_size=size)
    stream = stream_of(time, tmp_path)
    texts = [random_predicate(random) for _ in range(random.choice([20, 64, 90]))]
    key = random.choice([(), *((part,) for part in KEYS)])
    check_both_readers(spark, tmp_path, stream, batch_task(spark, stream, key, texts), f"seed {seed}")


@pytest.mark.runs_task_here
def test_times_in_a_session_of_another_zone_are_the_same_by_both_readers(spark, tmp_path):
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    times = pa.array([-1, 0, 1_700_000_000_000_000, -62_135_596_800_000_000, None], pa.int64())
    columns = {
        "id": pa.array(range(5), pa.int64()),
        "c_date": pa.array([-1, 0, 1, -719_162, None], pa.int32()),
    }
    columns |= {name: times.cast(FILE_TYPES[name[2:]]) for name in ("c_timestamp", "c_timestamp_ntz")}
    columns["c_date"] = columns["c_date"].cast(pa.date32())
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    for time in ("c_timestamp", "c_timestamp_ntz", "c_date"):
        stream = stream_of(time, tmp_path)
        check_both_readers(
            theirs, tmp_path, stream, batch_task(theirs, stream, KEYS[-3:-2], columns=tuple(columns))
        )


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_int96_is_sparks(spark, tmp_path, kind, zone):
    """Readers disagree about its calendar and its range."""
    file = tmp_path / "x.parquet"
    rows = pa.table({"id": pa.array([1], pa.int64()), f"c_{kind}": pa.array([0], pa.timestamp("us", zone))})
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(file).schema.column(1).physical_type == "INT96"
    stream = stream_of(f"c_{kind}")
    columns = columns_of(spark, stream, batch_task(spark, stream, (), columns=("id", f"c_{kind}")))
    assert reader_of(plain_batch(columns, origin_of([file]))) == SPARK


@pytest.mark.parametrize(
    "predicate",
    [
        "c_string = 'x'",
        "c_float > 1",
        "c_int > 1.5",
        "c_double + 1 > 2",
        "c_bigint > 9999999999999999999",
        "c_double > 1e3",
        f"c_int > {'0' * MAX_ARROW_PREDICATE_CHARACTERS}1",
        "NOT " * (MAX_ARROW_PREDICATE_CHARACTERS // 4) + "c_int > 1",
    ],
)
def test_a_predicate_that_rounds_casts_or_computes_is_sparks(spark, predicate):
    stream = stream_of("c_timestamp")
    assert columns_of(spark, stream, batch_task(spark, stream, KEYS[:1], ["c_int > 1"]))
    assert columns_of(spark, stream, batch_task(spark, stream, KEYS[:1], ["c_int > 1", predicate])) is None


@pytest.mark.runs_task_here
def test_a_predicate_of_the_greatest_depth_is_arrows(spark, tmp_path):
    text = "!" * (MAX_ARROW_PREDICATE_CHARACTERS - 11) + "(c_int > 1)"
    assert len(text) == MAX_ARROW_PREDICATE_CHARACTERS
    columns = {"id": [1, 2, 3], "c_int": pa.array([1, 2, None], pa.int32())}
    columns["c_timestamp"] = pa.array([0] * 3, FILE_TYPES["timestamp"])
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    stream = stream_of("c_timestamp", tmp_path)
    task = batch_task(spark, stream, (), [text], columns=("id",))
    (rows,) = plain_batch(columns_of(spark, stream, task), origin_of([tmp_path / "x.parquet"])).read()
    assert rows.column(2).to_pylist() == [1, 0, 0]


@pytest.mark.parametrize(
    "part",
    [
        *TEXTS,
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
    assert columns_of(spark, stream, batch_task(spark, stream, KEYS[:1]))
    for key in ((part,), (TEXTS[0], part), (part, KEYS[0]), KEYS[:2]):
        assert columns_of(spark, stream, batch_task(spark, stream, tuple(key))) is None


@pytest.mark.parametrize(("name", "kind"), [("a.b", "int"), ("d", "decimal(10,2)"), ("l", "array<int>")])
def test_a_stored_column_with_a_dot_in_its_name_or_of_another_type_is_sparks(spark, name, kind):
    plain = stream_of("c_timestamp")
    stream = replace(plain, columns=(*plain.columns, Column(name, kind)))
    assert columns_of(spark, stream, batch_task(spark, stream, KEYS[:1], columns=("id",)))
    assert columns_of(spark, stream, batch_task(spark, stream, KEYS[:1], columns=("id", name))) is None


@pytest.mark.runs_task_here
def test_a_column_beside_one_that_is_called_like_its_field_is_arrows(spark, tmp_path):
    """To pyarrow ``id.x`` is the name of a column and the path of a field."""
    pq.write_table(pa.table(ROW | {"id.x": pa.array([7], pa.int64())}), tmp_path / "x.parquet")
    (rows,) = batch_of(spark, tmp_path).read()
    assert rows.column("id").to_pylist() == [1]


ROW = {"id": pa.array([1], pa.int64()), "c_timestamp": pa.array([0], pa.timestamp("us", "UTC"))}


@pytest.mark.parametrize(
    ("columns", "metadata", "reader"),
    [
        (ROW, {}, ARROW),
        (ROW | {"more": pa.array(["x"])}, {}, ARROW),
        (ROW | {"c_timestamp": pa.array([0], pa.timestamp("us", "Asia/Tokyo"))}, {}, ARROW),
        (ROW, {"org.apache.spark.version": "3.0.0"}, ARROW),
        (ROW, {"org.apache.spark.version": "2.4.8"}, SPARK),
        (ROW, {"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyDateTime": ""}, SPARK),
        (ROW | {"c_timestamp": pa.array([0], pa.timestamp("ms", "UTC"))}, {}, SPARK),
        (ROW | {"c_timestamp": pa.array([0], pa.timestamp("ns", "UTC"))}, {}, SPARK),
        (ROW | {"c_timestamp": pa.array([0], pa.timestamp("us"))}, {}, SPARK),
        (ROW | {"id": pa.array([1], pa.int32())}, {}, SPARK),
        (ROW | {"id": pa.array([1], pa.uint64())}, {}, SPARK),
        (ROW | {"id": pa.array([1], pa.int64()).dictionary_encode()}, {}, ARROW),
        (ROW | {"ID": pa.array([2], pa.int64())}, {}, SPARK),
        ({"ID": ROW["id"], "c_timestamp": ROW["c_timestamp"]}, {}, SPARK),
        ({"c_timestamp": ROW["c_timestamp"]}, {}, SPARK),
    ],
)
def test_a_file_is_arrows_if_its_columns_have_the_declared_types(spark, tmp_path, columns, metadata, reader):
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), tmp_path / "x.parquet")
    assert reader_of(batch_of(spark, tmp_path)) == reader


def test_a_batch_is_sparks_if_a_file_is_elsewhere_or_broken_or_its_directory_is_a_column(spark, tmp_path):
    stream = stream_of("c_timestamp")
    made = columns_of(spark, stream, batch_task(spark, stream, (), columns=("id",)))
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
    assert is_plain_parquet(stream_of("c_timestamp", maxFilesPerTrigger="1", retain="1 h"))
    assert not is_plain_parquet(stream_of("c_timestamp", mergeSchema="true"))
    assert not is_plain_parquet(stream_of("c_timestamp", datetimeRebaseMode="LEGACY"))


SCRIPT = """
    CREATE STREAM A (k BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = '{path}/a', time = 'ts');
    CREATE STREAM B (k BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = '{path}/b', time = 'ts');
    CREATE QUERY q AS SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 10 SECONDS;
"""


def write_rows(folder, rows: int, kind: str = "int64") -> None:
    """Write one file of rows, all at one time."""
    folder.mkdir(parents=True, exist_ok=True)
    times = pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * rows, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"k": pa.array(range(rows)).cast(kind), "ts": times}), folder / "0.parquet")


def results_of_a_run(spark, path, script=SCRIPT) -> int:
    """Run a script over what is there, and count its results."""
    with Engine(state=path / "state", spark=spark) as engine:
        engine.script(script.format(path=path))
        engine.start(once=True)
        engine.wait()
        return engine.results("q").count()


def test_a_run_reads_plain_files_by_arrow(spark, tmp_path, readers):
    for name in "ab":
        write_rows(tmp_path / name, 100)
    assert results_of_a_run(spark, tmp_path) == 100
    assert readers == [ARROW, ARROW]


def test_a_run_over_files_without_rows_reads_them_by_arrow(spark, tmp_path, readers):
    write_rows(tmp_path / "a", 100)
    write_rows(tmp_path / "b", 0)
    assert results_of_a_run(spark, tmp_path) == 0
    assert readers == [ARROW, ARROW]


def test_a_file_of_another_type_is_read_by_spark(spark, tmp_path, readers):
    write_rows(tmp_path / "a", 100)
    write_rows(tmp_path / "b", 100, "int32")
    assert results_of_a_run(spark, tmp_path) == 100
    assert sorted(readers) == [ARROW, SPARK]


def test_text_keys_are_read_and_hashed_by_spark(spark, tmp_path, readers):
    for name in "ab":
        write_rows(tmp_path / name, 100, "string")
    assert results_of_a_run(spark, tmp_path, SCRIPT.replace("BIGINT", "STRING")) == 100
    assert readers == [SPARK, SPARK]


@pytest.mark.parametrize("setting", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_a_session_that_passes_over_bad_files_reads_by_spark(spark, tmp_path, readers, setting):
    theirs = spark.newSession()
    theirs.conf.set(f"spark.sql.files.{setting}", "true")
    for name in "ab":
        write_rows(tmp_path / name, 100)
    assert results_of_a_run(theirs, tmp_path) == 100
    assert readers == [SPARK, SPARK]


def batch_of(spark, folder, names=("id",)):
    """Read the footers of all files of a directory, of which some columns are stored."""
    stream = stream_of("c_timestamp")
    columns = columns_of(spark, stream, batch_task(spark, stream, (), columns=names))
    return plain_batch(columns, origin_of(sorted(folder.iterdir())))


@pytest.mark.parametrize(("codec", "reader"), [("zstd", ARROW), ("lz4", ARROW), ("brotli", SPARK)])
def test_a_codec_that_spark_does_not_have_is_sparks_to_refuse(spark, tmp_path, codec, reader):
    """Else a run would go well until a row is late, which only Spark writes to the dead letters."""
    pq.write_table(pa.table(ROW), tmp_path / "x.parquet", compression=codec)
    assert reader_of(batch_of(spark, tmp_path)) == reader


def test_a_file_with_a_name_that_is_no_text_is_sparks(spark, tmp_path):
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table(ROW | {"zzzz": pa.array([1])}), file, store_schema=False)
    file.write_bytes(file.read_bytes().replace(b"zzzz", b"z\xff\xfez"))
    assert reader_of(batch_of(spark, tmp_path)) == SPARK


@pytest.mark.runs_task_here
@pytest.mark.parametrize(
    "other",
    [
        ROW | {"id": pa.array([1], pa.int32())},
        {name: pa.concat_arrays([column, column]) for name, column in ROW.items()},
        {"c_timestamp": ROW["c_timestamp"]},
    ],
)
def test_a_file_that_changes_before_arrow_reads_it_is_an_error(spark, tmp_path, other):
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table(ROW), file)
    batch = batch_of(spark, tmp_path)
    assert reader_of(batch) == ARROW
    pq.write_table(pa.table(other), file)
    with pytest.raises(RunError, match=rf"{file} was changed .* Restore the file and run again"):
        list(batch.read())


@pytest.mark.runs_task_here
def test_a_file_with_a_damaged_page_is_an_error_that_names_it(spark, tmp_path):
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table(ROW), file, compression="gzip", use_dictionary=False)
    batch = batch_of(spark, tmp_path)
    assert reader_of(batch) == ARROW
    whole = file.read_bytes()
    file.write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])
    with pytest.raises(RunError, match=rf"cannot read source file {file}: .* Restore the file and run again"):
        list(batch.read())


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_file_that_changes_while_a_run_reads_it_stops_the_run(
    spark, tmp_path, monkeypatch, readers, change
):
    for name in "ab":
        write_rows(tmp_path / name, 100)
    decide = ingester.plain_batch

    def change_it(columns, origin):
        batch = decide(columns, origin)
        file = tmp_path / "a" / "0.parquet"
        if "/a/" in batch.groups[0].path:
            file.unlink() if change == "removed" else write_rows(file.parent, 50)
        return batch

    monkeypatch.setattr(ingester, "plain_batch", change_it)
    with pytest.raises(RunError, match=r"source file /.*/a/0\.parquet.* Restore the file and run again"):
        results_of_a_run(spark, tmp_path)
    assert set(readers) == {ARROW}


def test_a_truncated_file_is_named_by_spark(spark, tmp_path, readers):
    for name in "ab":
        write_rows(tmp_path / name, 100)
    file = tmp_path / "a" / "0.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(RunError, match=r"/a/0\.parquet"):
        results_of_a_run(spark, tmp_path)
    assert SPARK in readers


@pytest.mark.runs_task_here
def test_text_is_read_in_short_pieces_however_small_its_file_is(spark, tmp_path):
    rows = 30_000
    columns = {name: pa.concat_arrays([column] * rows) for name, column in ROW.items()}
    columns["c_string"] = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array(["x" * 10_000])
    )
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", store_schema=False)
    batch = batch_of(spark, tmp_path, ("id", "c_string"))
    assert reader_of(batch) == ARROW
    assert sum(group.bytes for group in batch.groups) < 1 << 20, "its bytes are those of one text"
    before, most, pieces = pa.total_allocated_bytes(), 0, []
    for piece in batch.read():
        pieces.append(piece.nbytes)
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 120 << 20, "rows are decoded a few at a time"
    assert sum(pieces) > 2 * max(pieces)
    assert sum(pieces) > rows * 10_000


def test_a_file_that_spark_would_find_damaged_is_sparks(spark, tmp_path, readers):
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
    assert set(readers) == {SPARK}


@pytest.mark.parametrize("step", ["arrow_columns", "plain_batch"])
def test_an_unexpected_error_is_raised_and_nothing_is_read_another_way(spark, tmp_path, monkeypatch, step):
    monkeypatch.setattr(ingester, step, Mock(side_effect=KeyError("unexpected")))
    for name in "ab":
        write_rows(tmp_path / name, 100)
    with pytest.raises(RunError, match="unexpected"):
        results_of_a_run(spark, tmp_path)


def test_a_stream_that_others_make_promises_about_from_now_on_is_sparks(spark, tmp_path):
    for name in "ab":
        write_rows(tmp_path / name, 1)
    with Engine(state=tmp_path / "state", spark=spark) as engine:
        engine.script(SCRIPT.format(path=tmp_path))
        engine.start(once=True)
        engine.wait()
        ingest = engine._running.ingesters[0].batches
        task = ingest._task(ingest.store.ledger.stream(ingest.stream.name))
        assert ingest._arrow_columns(spark, task)
        assert ingest._arrow_columns(spark, replace(task, promises=PromiseSpec())) is None
        assert ingest._arrow_columns(spark, replace(task, arrival=Arrival(0, {}))) is None
        assert ingest._arrow_columns(spark, task)
