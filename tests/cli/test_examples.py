"""Every block of SQL and Python in the documents is run, and one that shows an error gives that error.

SQL runs without a JVM on rows made up from the declared columns, and its results are held against DuckDB.  Blocks whose
fence says ``spark`` run on Spark.
"""

from __future__ import annotations

import datetime as dt
import re
import shutil
import subprocess
import sys
from decimal import Decimal

import pyarrow.parquet as pq
import pytest

from penstock import testing
from penstock.errors import PenstockError
from penstock.plan.plan_text import plan_text, serving
from penstock.sql.script import Explain, parse_script
from penstock.sql.spark_types import parse_type
from tests.cli.blocks import BLOCKS, PAGES, ROOT, blocks, created, statements

START = dt.datetime(2026, 1, 1, 9, 59, 30, tzinfo=dt.UTC)
"""An hour begins among the rows, so that there is an instant for whatever EVERY."""

NUMBERS = (-10, 5, 42, 99)
WORDS = ("Oslo", "fragile", "Bergen")


def made_up(kind, number):
    """Make up a value of a type: few different ones, so that rows meet."""
    if kind.name == "array":
        return [made_up(kind.parts[0], number + each) for each in (0, 1)]
    if kind.name == "struct":
        return {name: made_up(part, number) for name, part in zip(kind.names, kind.parts, strict=True)}
    return {
        "bigint": number % 3,
        "double": float(NUMBERS[number % 4]),
        "decimal": Decimal(NUMBERS[number % 4]),
        "string": WORDS[number % 3],
        "timestamp": START + dt.timedelta(seconds=2 * number),
    }[kind.name]


def rows_of(stream, first, last):
    """Make up rows of a stream, two seconds apart; rows of all streams with one number are of one time."""
    kinds = {column.name: parse_type(column.type) for column in stream.columns}
    return [{name: made_up(kind, number) for name, kind in kinds.items()} for number in range(first, last)]


def with_a_query(script):
    """Add a query that reads the first stream alone, so that there is one whatever comes and goes."""
    stream = re.search(r"(?i)CREATE STREAM (\w+)", script)[1]
    return f"{script.rstrip().rstrip(';')};\nCREATE QUERY beside AS SELECT a.* FROM {stream} a, {stream} b WINDOW 2 s"


def send(session, first, last):
    for stream in session.plan.streams:
        if stream.results is None:  # else its rows are found, not sent
            session.send(stream.name, rows_of(stream, first, last))
    session.turn()


def test_there_are_blocks_to_run():
    assert len(blocks("sql", on_spark=False)) > 12
    assert len(blocks("python", on_spark=False)) > 3
    assert {each.page for each in BLOCKS if each.language == "sql"} >= {
        "README.md",
        "docs/sql.md",
        "docs/guide.md",
    }
    assert [each.error for each in BLOCKS if each.error]
    assert len(PAGES) > 20


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.sql")), ids=lambda path: path.stem)
def test_the_scripts_among_the_examples_give_what_duckdb_gives(path, tmp_path):
    subprocess.run([sys.executable, ROOT / "examples" / "make_readings.py"], check=True, cwd=tmp_path)
    batches = {
        name: [pq.read_table(each) for each in sorted((tmp_path / "data" / name).glob("*.parquet"))]
        for name in ("temperature", "humidity")
    }
    run = testing.run(path.read_text(encoding="utf-8"), batches)
    testing.expect(run, *comparable(run.session))
    assert all(run.results.values())


def comparable(session):
    """Name the queries whose results are finished: changes are told again and again."""
    return [
        each.name
        for each in session.queries
        if each.aggregation is None or each.aggregation.emit != "changes"
    ]


CHANGING = ("ALTER", "DROP", "SHOW", "EXPLAIN")
QUIET = [each for each in blocks("sql", on_spark=False) if not each.error]


@pytest.mark.parametrize("block", [each for each in QUIET if not each.text.startswith(CHANGING)], ids=str)
def test_a_script_of_the_documents_runs_and_gives_what_duckdb_gives(block):
    with testing.Session(with_a_query(block.before + block.script)) as session:
        send(session, 0, 20)
        session.restart()
        send(session, 20, 40)
        session.end()
        testing.expect(session, *comparable(session))
        assert all(session.results(each.name) for each in session.queries), (
            "made-up rows give every query some"
        )


@pytest.mark.parametrize("block", [each for each in QUIET if each.text.startswith(CHANGING)], ids=str)
def test_what_the_documents_say_to_a_running_engine_is_done(block):
    with testing.Session(with_a_query(block.before)) as session:
        for number, statement in enumerate(statements(block.script)):
            send(session, 9 * number, 9 * number + 9)
            for asked in parse_script(
                statement, {each.name: each for each in session.plan.streams}
            ).statements:
                if isinstance(asked, Explain):
                    assert plan_text(serving(session.plan, asked.name) if asked.name else session.plan)
            session.script(statement)
        session.end()
        testing.expect(session, "beside")


@pytest.mark.parametrize("block", [each for each in blocks("sql", on_spark=False) if each.error], ids=str)
def test_what_the_documents_show_as_refused_is_refused_in_these_words(block):
    with testing.Session(with_a_query(block.before)) as session, pytest.raises(PenstockError) as caught:
        session.script(block.script)
    assert str(caught.value) == block.error


@pytest.mark.parametrize("page", sorted({each.page for each in blocks("python", on_spark=False)}))
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_python([each for each in blocks("python", on_spark=False) if each.page == page], {"__name__": page})


def run_python(listed, names, change=lambda code: code):
    """Run the blocks of a page one after the other: what one defines, the next may use."""
    for block in listed:
        exec(compile(change(block.text), str(block), "exec", dont_inherit=True), names)  # noqa: S102 - our own documents


# --- on Spark -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark():
    from penstock.engine.spark.session import QUICK_START, embedded_session

    return embedded_session(QUICK_START)


@pytest.mark.parametrize("block", [each for each in blocks("sql", on_spark=True) if not each.error], ids=str)
def test_a_script_that_is_marked_for_spark_needs_it(block):
    with pytest.raises(testing.NeedsSparkError):
        testing.Session(block.script)


@pytest.mark.spark
@pytest.mark.parametrize("block", blocks("sql", on_spark=True), ids=str)
def test_a_script_that_needs_spark_runs_on_it(block, spark, tmp_path):
    import penstock

    script = block.script.replace("'data/", f"'{tmp_path}/data/")
    streams = parse_script(script).streams.values()
    for stream in streams:
        if path := dict(stream.options).get("path"):
            ddl = ", ".join(f"`{column.name}` {column.type}" for column in stream.columns)
            spark.createDataFrame(rows_of(stream, 0, 9), ddl).write.format(stream.format).save(path)
    with penstock.Engine(tmp_path / "state", spark) as engine:
        engine.script(script)
        if block.error:
            with pytest.raises(PenstockError) as caught:
                engine.start(once=True)
            assert str(caught.value) == block.error
            return
        engine.start(once=True)
        engine.wait()
        names = [re.match(r"(?i)CREATE QUERY (\w+)", each) for each in created(script)]
        assert all(engine.results(each[1]).count() for each in names if each)


RUNNING = """
engine = penstock.Engine(state="live/state", spark=spark)
engine.stream("Temperature", spark.readStream.schema(schema).parquet("live/temperature"), time="ts")
engine.stream("Humidity", spark.readStream.schema(schema).parquet("live/humidity"), time="ts")
engine.query("beside", f"SELECT T.Room {pair} WINDOW 1 second")
engine.start()
"""
"""An engine that runs and has read nothing yet: the first block of the guide ends with the stop of its own."""


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_python_of_the_guide_runs(tmp_path, monkeypatch, capfd):
    """The session that the guide asks for is the one there is, whose workers run in this environment."""
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, ROOT / "examples" / "make_readings.py"], check=True)

    def absolute(code):  # Spark takes relative paths to begin where its JVM was started
        return re.sub(r'"(data|out|live)/', rf'"{tmp_path}/\1/', code)

    names = {}
    first, *others = [block for block in blocks("python", on_spark=True) if block.page == "docs/guide.md"]
    run_python([first], names, absolute)
    out = capfd.readouterr().out
    assert "only showing top 20 rows" in out
    assert "2 queries, 1 chain" in out
    assert list((tmp_path / "out" / "ice").glob("part-*.parquet"))

    for name in ("temperature", "humidity"):
        (tmp_path / "live" / name).mkdir(parents=True)
    exec(absolute(RUNNING), names)  # noqa: S102 - see above
    with names["engine"] as engine:
        run_python(others, names, absolute)
        for name in ("temperature", "humidity"):
            shutil.copy(tmp_path / "data" / name / "0.parquet", tmp_path / "live" / name)
        engine.process_available()
        latest = {row["Room"]: row["pairs"] for row in names["rooms"].results().collect()}
    assert list((tmp_path / "out" / "alarm").glob("*/part-*.parquet"))
    assert len(latest) == 12
    assert names["table"] == latest
