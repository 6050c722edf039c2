"""What each sink holds: exact rows, the right columns, each pair once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.engine.api import Engine
from penstock.errors import InputError, RunError
from penstock.sql import sinks
from tests.cli.blocks import blocks
from tests.oracle import Feed, Spec, Window, answer, ask, bag, number, parquet_rows, same_bag
from tests.spark.runner import Run
from tests.spark.world import START, at

pytestmark = pytest.mark.spark

COLUMNS = {"k": "bigint", "Value": "int", "note": "string", "ts": "timestamp"}
SECOND = 1_000_000


@pytest.fixture
def feeds(tmp_path):
    made = [
        Feed(name, tmp_path / name, COLUMNS, options={"maxFilesPerTrigger": "1"})
        for name in ("Left", "Right")
    ]
    for feed in made:
        for file in range(3):
            add_file(feed, file)
    return made


def add_file(feed, file):
    feed.append(
        {
            "k": n % 3,
            "Value": 10 * file + n,
            "note": feed.name,
            "ts": at(START + (file * 6 + n) * SECOND),
        }
        for n in range(6)
    )


def test_every_sink_gets_what_its_query_asks_for(spark, tmp_path, feeds, capsys):
    """Two runs with every kind of sink; a pair is in the table once, however many queries read it there."""
    short, long = Window("both", 3 * SECOND), Window("both", 9 * SECOND)
    values = (("a.Value", "x"), ("b.Value", "y"))

    def spec(name, window, *where, select=values, sink="table"):
        return Spec(name, *feeds, ("a.k = b.k",), window, where, select, sink=sink)

    specs = [
        spec("wide", long),
        spec("narrow", short),
        spec("picked", long, "a.Value > 5"),
        spec("residual", long, "a.Value < b.Value"),
        spec("star", short, select=(), sink="parquet"),
        spec(
            "sums", long, select=(("a.Value + b.Value", "total"), ("upper(a.note)", "shout")), sink="parquet"
        ),
        spec("nothing", long, "a.Value > 1000", sink="parquet"),
        spec("nothing_viewed", long, "a.Value > 1000", "a.Value < b.Value"),
        spec("called", long, "b.Value > 3", sink="callback"),
        spec("shown", short, "a.Value = 4", sink="console"),
        spec("counted", long, "a.Value < b.Value", sink="noop"),
    ]
    run = Run(spark, tmp_path, specs)
    run.once()
    for feed in feeds:
        add_file(feed, 3)
    run.once()  # so that there are two units at least, however fast ingest is
    printed = capsys.readouterr().out
    kept = [each for each in specs if each.sink not in {"console", "noop"}]
    with run.engine() as engine:
        for each in kept:
            same_bag(run.result(engine, each), answer(each), each.name)
        counts = {each.name: each.results for each in engine.status().queries}
        (group,) = engine.status().groups
        for name in ("shown", "counted"):
            with pytest.raises(InputError, match="keeps no results"):
                engine.results(name)
        assert engine.results("nothing_viewed").columns == ["x", "y"]
    assert counts == {each.name: answer(each).total() for each in specs}

    stored = number(f"SELECT count(*) FROM read_parquet('{run.state}/pairs/{group.id}/*.parquet')")
    assert stored == answer(specs[0]).total() == group.pairs, "a pair is stored more than once, or not at all"
    assert sum(answer(each).total() for each in specs[:4]) > stored

    assert parquet_rows(run.out / "star").column_names == [
        "k", "Value", "note", "ts", "b_k", "b_Value", "b_note", "b_ts",
    ]  # fmt: skip
    empty = parquet_rows(run.out / "nothing")
    assert (empty.num_rows, empty.schema.names) == (0, ["x", "y"])
    assert empty.schema.field("x").type == pa.int32()
    assert all(unit for unit in run.called["called"])
    assert len(run.called["called"]) > 1, "one call for everything is no stream"
    for x, y in answer(specs[9]):
        assert f"|{x}  |{y}" in printed or f"|{x}  |{y} " in printed
    assert "shown" in printed
    assert not list(tmp_path.rglob("_staging"))
    assert not list((run.state / "spool").rglob("*.parquet"))


def test_any_reader_can_read_a_parquet_sink(spark, tmp_path, feeds):
    """Spark, DuckDB and Arrow see the same columns with the same types in all files."""
    spec = Spec(
        "q",
        *feeds,
        ("a.k = b.k",),
        Window("both", 3 * SECOND),
        select=(("a.ts", "t"), ("b.note", "n"), ("1.5", "d")),
        sink="parquet",
    )
    run = Run(spark, tmp_path, [spec])
    run.once()
    for feed in feeds:
        add_file(feed, 3)
    run.once()  # so that there are files of two units at the least
    folder = run.out / "q"
    right = answer(spec)
    assert len(list(folder.glob("*.parquet"))) > 2
    same_bag(bag(parquet_rows(folder)), right, "Arrow")
    same_bag(bag(ask(f"SELECT * FROM read_parquet('{folder}/*.parquet')")), right, "DuckDB")
    frame = spark.read.parquet(str(folder))
    same_bag(bag(frame.toArrow()), right, "Spark")
    assert [field.dataType.simpleString() for field in frame.schema] == [
        "timestamp",
        "string",
        "decimal(2,1)",
    ]


def test_a_callback_that_raises_stops_the_run_and_gets_its_unit_again(spark, tmp_path, feeds):
    """Under the same unit id, so that the receiver can tell."""
    from penstock.engine.sinks.callback import callback

    calls = []

    def receive(rows, unit):
        calls.append((unit, bag(rows.toArrow())))
        if len(calls) == 1:
            raise ValueError("the receiver is full")

    def go():
        with Engine(tmp_path / "state", spark) as engine:
            engine.script(" ".join(feed.declare() for feed in feeds))
            engine.query("q", spec.penstock(), sink=callback(receive))
            engine.start(once=True)
            engine.wait()

    values = (("a.Value", "x"), ("b.Value", "y"))
    spec = Spec("q", *feeds, ("a.k = b.k",), Window("both", 9 * SECOND), select=values)
    with pytest.raises(RunError, match="the receiver is full"):
        go()
    go()
    assert calls[0] == calls[1], "the unit that failed comes again first, the same"
    delivered = dict(calls)
    assert len(delivered) == len(calls) - 1
    same_bag(sum(delivered.values(), start=type(calls[0][1])()), answer(spec), "delivered")


def test_a_sink_that_is_one_class_and_one_line_delivers(spark, tmp_path, feeds, monkeypatch):
    """The class that docs/extending.md shows, named in a script."""
    monkeypatch.setattr(sinks, "SINKS", dict(sinks.SINKS))
    (shown,) = (block.text for block in blocks("python", on_spark=False) if "class JsonSink" in block.text)
    exec(compile(shown, "docs/extending.md", "exec"), {"__name__": "shown"})  # noqa: S102 - our own page
    spec = Spec(
        "q", *feeds, ("a.k = b.k",), Window("both", 9 * SECOND), select=(("a.Value", "x"), ("b.Value", "y"))
    )
    query = f"CREATE QUERY q WITH (sink = 'json', path = '{tmp_path}/out') AS {spec.penstock()};"
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(" ".join(feed.declare() for feed in feeds) + query)
        engine.start(once=True)
        engine.wait()
        with pytest.raises(InputError, match="query q has a json sink, which keeps no results to read"):
            engine.results("q")
    delivered = spark.read.json(f"{tmp_path}/out/*").select("x", "y").toArrow()
    same_bag(bag(delivered), answer(spec), "JSON")
