"""What the user got wrong is said in one sentence before anything starts; what a file got wrong stops the run there.

A batch that failed is in Spark's checkpoint: the next run reads the same files again, so a mended file is read as if it
had been right from the first, and one that was removed is left out.
"""

from __future__ import annotations

import os
from random import Random

import pyarrow as pa
import pytest

from penstock.engine.api import Engine
from penstock.errors import InputError, RunError
from tests.oracle import Feed, Spec, Window, answer, bag, parquet_rows, put_file
from tests.spark.runner import Run
from tests.spark.world import START, at

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = {"k": "bigint", "v": "int", "s": "string", "flag": "boolean", "ts": "timestamp"}
ASK = "SELECT a.v FROM a, b WHERE a.k = b.k WINDOW 1 s"


def feeds(root, **options):
    return [Feed(name, root / name, COLUMNS, 60 * SECOND, options=options) for name in "ab"]


def run_script(spark, state, script):
    with Engine(state, spark) as engine:
        engine.script(script)
        engine.start(once=True)
        engine.wait()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT a.nosuch FROM a, b WHERE a.k = b.k WINDOW 1 s", "nosuch"),
        ("SELECT a.v FROM a, b WHERE a.k = b.k AND a.nosuch > 1 WINDOW 1 s", "nosuch"),
        ("SELECT frobnicate(a.v) AS x FROM a, b WHERE a.k = b.k WINDOW 1 s", "frobnicate"),
        ("SELECT a.v FROM a, b WHERE a.k = b.k AND frobnicate(a.v) > 1 WINDOW 1 s", "frobnicate"),
        ("SELECT a.v FROM a, b WHERE a.k = b.k AND frobnicate(a.v, b.v) WINDOW 1 s", "frobnicate"),
        ("SELECT a.v FROM a, b WHERE frobnicate(a.v) = b.v WINDOW 1 s", "frobnicate"),
        ("SELECT a.v FROM a, b WHERE a.k = b.flag WINDOW 1 s", "flag is boolean"),
        ("SELECT a.v FROM a, b WHERE abs(a.k) = (b.flag OR b.flag) WINDOW 1 s", "abs"),
        ("SELECT a.v FROM a, b WHERE a.k = b.k AND a.flag > 5 WINDOW 1 s", "flag"),
        ("SELECT a.v FROM a, b WHERE a.k = b.k AND a.flag > b.v WINDOW 1 s", "flag"),
        ("SELECT a.v + a.flag AS x FROM a, b WHERE a.k = b.k WINDOW 1 s", "flag"),
        ("SELECT a.v FROM a, b WHERE a.k = b.k AND a.v WINDOW 1 s", "v"),
    ],
)
def test_a_query_that_spark_cannot_run_is_refused_before_anything_starts(spark, tmp_path, sql, said):
    script = " ".join(feed.declare() for feed in feeds(tmp_path))
    with pytest.raises(InputError) as error:
        run_script(spark, tmp_path / "state", f"{script} CREATE QUERY q AS {sql};")
    _is_one_clear_sentence(error.value, said)
    assert not any((tmp_path / "state" / "checkpoint").rglob("*"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda text, root: text.replace(str(root / "a"), str(root / "gone")),
            "gone' of stream a does not exist",
        ),
        (lambda text, _: text.replace("time = 'ts'", "time = 'tss'"), "did you mean ts?"),
        (lambda text, _: text.replace("time = 'ts'", "time = 'v'"), "must be TIMESTAMP"),
        (lambda text, _: text.replace("format = 'parquet'", "format = 'nosuch'"), "nosuch"),
    ],
    ids=["no path", "no such time column", "time is no time", "no such format"],
)
def test_a_stream_that_cannot_be_read_is_refused_before_anything_starts(spark, tmp_path, change, said):
    script = change("\n".join(feed.declare() for feed in feeds(tmp_path)), tmp_path)
    with pytest.raises(InputError) as error:
        run_script(spark, tmp_path / "state", f"{script} CREATE QUERY q AS {ASK};")
    _is_one_clear_sentence(error.value, said)
    assert not any((tmp_path / "state" / "checkpoint").rglob("*"))


def test_an_option_that_only_the_source_can_check_stops_the_run_in_one_sentence(spark, tmp_path):
    """Spark reads the options of a file source when the stream has started."""
    a, b = feeds(tmp_path, maxFilesPerTrigger="two")
    run = Run(spark, tmp_path, [Spec("q", a, b, ("a.k = b.k",), Window("both", SECOND))])
    with pytest.raises(RunError) as error:
        run.once()
    _is_one_clear_sentence(error.value, "'two'")


def test_two_queries_with_one_directory_and_a_directory_with_strangers_are_refused(spark, tmp_path):
    a, b = feeds(tmp_path)
    for feed in (a, b):
        feed.append(rows(0))
    script = f"{a.declare()} {b.declare()}"
    one, other = (
        f"CREATE QUERY {n} WITH (sink = 'parquet', path = '{tmp_path}/out') AS {ASK};" for n in ("q", "r")
    )
    with pytest.raises(InputError, match="both write to"):
        run_script(spark, tmp_path / "state", f"{script} {one} {other}")
    run_script(spark, tmp_path / "state", f"{script} {one}")
    with pytest.raises(InputError, match="already holds results"):
        run_script(spark, tmp_path / "another", f"{script} {one}")


def _is_one_clear_sentence(error, said):
    text = str(error)
    assert said.lower() in text.lower()
    headline = text.splitlines()[0]
    assert len(headline) < 600
    for noise in ("\tat ", "org.apache", "Py4J", "SQLSTATE", "Traceback", "AnalysisException"):
        assert noise not in text


# ------------------------------------------------------------------ files


def rows(number, count=6):
    random = Random(number)
    return [
        {
            "k": random.randrange(3),
            "v": 10 * number + n,
            "s": "x",
            "flag": True,
            "ts": at(START + second * SECOND),
        }
        for n, second in enumerate(range(10 * number, 10 * number + count))
    ]


def _overwrite(path, content):
    """Replace what is in a file and keep its age: Spark passes over files much older than the newest it has seen."""
    age = path.stat().st_mtime
    path.write_bytes(content)
    os.utime(path, (age, age))


def _garbage(path, _feed, _rows, _number):
    _overwrite(path, b"PAR1 this is no parquet file PAR1")


def _torn(path, feed, rows, number):
    put_file(feed.table(rows), path, number)
    _overwrite(path, path.read_bytes()[:-40])


def _lacking(path, feed, rows, number):
    put_file(feed.table(rows).drop_columns(["v"]), path, number)


def _mistyped(path, feed, rows, number):
    table = feed.table(rows)
    place = table.column_names.index("v")
    put_file(table.set_column(place, "v", table.column("v").cast(pa.string())), path, number)


def test_a_bad_file_stops_the_run_which_goes_on_once_it_is_mended_or_removed(spark, tmp_path):
    """File by file on one state: each bad one is named, what was committed stays, and the end result is exact."""
    a, b = feeds(tmp_path, maxFilesPerTrigger="1")
    spec = Spec(
        "q",
        a,
        b,
        ("a.k = b.k",),
        Window("both", 30 * SECOND),
        select=(("a.v", "x"), ("b.v", "y")),
        sink="parquet",
    )
    run = Run(spark, tmp_path, [spec])
    for feed in (a, b):
        feed.append(rows(0))
    run.once()
    for number, spoil in enumerate((_garbage, _torn, _lacking, _mistyped), start=1):
        before = bag(parquet_rows(run.out / "q"))
        path = a.append(rows(number))
        good = path.read_bytes()
        spoil(path, a, rows(number), number)
        with pytest.raises(RunError, match="of stream a") as error:
            run.once()
        assert str(path) in str(error.value), spoil
        _is_one_clear_sentence(error.value, "run again")
        assert not before - bag(parquet_rows(run.out / "q")), f"{spoil}: committed results are gone"
        _overwrite(path, good)
        b.append(rows(number))
        run.once()
        run.check(spoil.__name__)

    path = a.append(rows(9))
    _garbage(path, a, [], 9)
    with pytest.raises(RunError, match=path.name):
        run.once()
    path.unlink()
    a.append(rows(10))
    b.append(rows(10))
    run.once()
    run.check("removed")
    assert answer(spec).total() > 50


def test_a_file_without_a_column_is_found_among_good_ones_of_the_same_batch(spark, tmp_path):
    """Spark reads the missing column as null, and the other files' values hide it."""
    a, b = feeds(tmp_path)
    for number in range(3):
        a.append(rows(number))
        b.append(rows(number))
    path = a.files()[1]
    _lacking(path, a, rows(1), 1)
    run = Run(spark, tmp_path, [Spec("q", a, b, ("a.k = b.k",), Window("both", 9 * SECOND))])
    with pytest.raises(RunError, match="has no column v") as error:
        run.once()
    assert str(path) in str(error.value)
    put_file(a.table(rows(1)), path, 1)
    run.once()
    run.check("mended")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.ansi.doubleQuotedIdentifiers", "true"),
        ("spark.sql.parser.escapedStringLiterals", "true"),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
    ],
)
def test_a_session_that_reads_the_same_text_otherwise_is_refused(spark, tmp_path, name, value):
    before = spark.conf.get(name)
    script = "".join(feed.declare() for feed in feeds(tmp_path))
    try:
        spark.conf.set(name, value)
        with pytest.raises(InputError, match=name):
            run_script(spark, tmp_path / "state", f"{script} CREATE QUERY q AS {ASK};")
    finally:
        spark.conf.set(name, before)
    assert not any((tmp_path / "state" / "checkpoint").rglob("*"))


@pytest.mark.parametrize("options", [{}, {"mergeSchema": "false"}], ids=["read by Arrow", "read by Spark"])
def test_a_pipe_among_the_files_stops_the_run_and_not_for_ever(spark, tmp_path, options):
    """To open one is to wait for whoever writes to it."""
    a, b = feeds(tmp_path, **options)
    row = {"k": 1, "v": 1, "s": "x", "flag": True, "ts": at(START)}
    for feed in (a, b):
        feed.append([row])
    pipe = a.folder / "00001.parquet"
    os.mkfifo(pipe)
    script = f"{a.declare()} {b.declare()} CREATE QUERY q AS {ASK};"
    with pytest.raises(InputError) as refused:
        run_script(spark, tmp_path / "state", script)
    pipe.unlink()
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(script)
        engine.start()
        engine.process_available()
        os.mkfifo(pipe)
        with pytest.raises(RunError) as stopped:
            engine.process_available()
    for error in (refused.value, stopped.value):
        _is_one_clear_sentence(error, f"source file {pipe} of stream a is not a regular file")
    pipe.unlink()
    run_script(spark, tmp_path / "state", script)
    with Engine(tmp_path / "state", spark) as engine:
        assert engine.results("q").count() == 1
