"""Punctuations on Spark: every form in which values are finished, what is set aside, what sinks are told.

An item is open for ten seconds; then the stream of bids says that it is closed::

    second     0    1    2   ...   9    10
    item 0     open      bids ...       closed
    item 1          open      bids ...       closed
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli.main import main
from penstock.engine.api import Engine
from penstock.engine.sinks.parquet import parquet
from penstock.errors import InputError
from tests.oracle import put_file

pytestmark = pytest.mark.spark

ITEMS, OPEN, LAST = 30, 10, 45
START = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)
TIME = pa.timestamp("us", "UTC")
KINDS = {
    "item": pa.int64(), "name": pa.string(), "small": pa.int32(), "kind": pa.string(), "lots": pa.list_(pa.int64()),
    "lo": pa.int64(), "hi": pa.int64(), "v": pa.int64(), "ts": TIME,
}  # fmt: skip
BID = (
    "item BIGINT, name STRING, small INT, kind STRING, lots ARRAY<BIGINT>, lo BIGINT, hi BIGINT, v BIGINT, "
    "ts TIMESTAMP"
)


def at(second):
    return START + dt.timedelta(seconds=second)


def row(item=None, second=0, kind="bid", v=None, **more):
    name = None if item is None else f"item {item}"
    return {
        "item": item, "name": name, "small": item, "kind": kind, "lots": None, "lo": None, "hi": None, "v": v,
        "ts": at(second), **more,
    }  # fmt: skip


def closings(form, second):
    """Say in one of the ways there are that some items are closed at a second."""
    item = second - OPEN
    if not 0 <= item < ITEMS:
        return []
    if form == "list":
        return [row(None, second, "closed", lots=[item, None]), row(None, second, "closed", lots=[])]
    if form == "range":
        nothing = row(None, second, "closed", lo=ITEMS, hi=0)
        return [row(None, second, "closed", lo=item, hi=item), nothing]
    return [row(item, second, "closed")]


def write(folder, rows, number):
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({name: pa.array([each[name] for each in rows], kind) for name, kind in KINDS.items()})
    put_file(table, folder / f"{number:05d}.parquet", number)


FORMS = {
    "value": "punctuation = 'kind = ''closed''', punctuates = 'item'",
    "text": "punctuation = 'kind = ''closed''', punctuates = 'name'",
    "list": "punctuation = 'kind = ''closed''', punctuates = 'item IN lots'",
    "range": "punctuation = 'kind = ''closed''', punctuates = 'item BETWEEN lo AND hi'",
    "cast": "punctuation = 'kind = ''closed''', punctuates = 'small'",
    "two": "punctuation = 'kind = ''closed''', punctuates = 'item, name'",
    "carrier": "",
}
ON = {"text": "A.name = B.name", "cast": "A.item = B.small", "two": "A.item = B.item AND A.name = B.name"}


def feed(folder, form, step=5):
    """Write the streams of a form, some seconds to a file."""
    for number, first in enumerate(range(0, LAST, step)):
        seconds = range(first, first + step)
        write(
            folder / "a",
            [row(each, each, "open") for each in seconds if each < ITEMS] or [row(-1 - first, first)],
            number,
        )
        bids = []
        for second in seconds:
            closed = closings(form, second)
            bids += [] if form == "carrier" else closed
            bids += [
                row(i, second, v=second) for i in range(ITEMS) if i <= second < i + OPEN and (i + second) % 2
            ]
            if form == "carrier":
                write(folder / "c", closed or [row(-2, second, "closed")], second)
        write(folder / "b", bids or [row(-3, first)], number)


def declared(folder, form):
    one = "maxFilesPerTrigger = '1'"
    unique = "name" if form == "text" else "item, name" if form == "two" else "item"
    text = (
        f"CREATE STREAM A ({BID}) WITH (format = 'parquet', path = '{folder}/a', time = 'ts', {one}, "
        f"unique = '{unique}');\n"
    )
    promise = f", {FORMS[form]}" if FORMS[form] else ""
    text += f"CREATE STREAM B ({BID}) WITH (format = 'parquet', path = '{folder}/b', time = 'ts', {one}{promise});\n"
    if form == "carrier":
        text += (
            f"CREATE STREAM C ({BID}) WITH (format = 'parquet', path = '{folder}/c', time = 'ts', {one}, "
            "punctuation_of = 'B', punctuates = 'item');\n"
        )
    return text


def expected(folder, form, columns):
    on = ON.get(form, "A.item = B.item")
    return Counter(
        duckdb.sql(
            f"SELECT {columns} FROM read_parquet('{folder}/a/*.parquet') A JOIN read_parquet('{folder}/b/*.parquet') B "
            f"ON {on} AND B.kind = 'bid' AND B.ts >= A.ts AND B.ts < A.ts + INTERVAL 1 HOUR "
        ).fetchall()
    )


def bag(rows):
    return Counter(tuple(each) for each in rows.collect())


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_promise_spares_state_and_changes_no_result(spark, tmp_path, form):
    """The window is an hour, so that without promises everything would be held to the end."""
    feed(tmp_path, form)
    on = ON.get(form, "A.item = B.item")
    where = f"{on} AND B.kind = 'bid'"
    text = declared(tmp_path, form) + (
        f"CREATE QUERY q AS SELECT A.item, B.v FROM A [RANGE 1 HOUR], B [NOW] WHERE {where};\n"
        "CREATE QUERY n WITH (emit = 'final') AS SELECT A.item, A.name, COUNT(*) AS n, MAX(B.v) AS m "
        f"FROM A [RANGE 1 HOUR], B [NOW] WHERE {where} GROUP BY A.item, A.name;"
    )
    with Engine(tmp_path / "state", spark=spark) as engine:
        engine.script(text)
        engine.start(once=True)
        engine.wait()
        status = engine.status()
        assert bag(engine.results("q")) == expected(tmp_path, form, "A.item, B.v")
        groups = expected(tmp_path, form, "A.item, A.name")
        counted = {tuple(each)[:2]: each["n"] for each in engine.results("n").collect()}
        assert counted == dict(groups)
        finished = {each[0] for each in engine.punctuations("q").collect()}
    streams = {each.name: each for each in status.streams}
    names = {f"item {each}" for each in range(ITEMS)} if form == "text" else set(range(ITEMS))
    assert form == "range" or finished >= names  # ranges name no values
    assert streams["A"].purged + streams["A"].discarded > ITEMS / 2
    assert streams["A"].broken == streams["B"].broken == 0
    assert status.state_rows < status.window_rows / 2


def test_a_row_after_its_promise_is_set_aside_with_the_reason(spark, tmp_path):
    """In the batch of the promise, read by another task or by the same one, and in a later batch."""
    feed(tmp_path, "value")
    broken = [row(3, 14, v=-1), row(4, 44, v=-2)]
    table = pq.read_table(tmp_path / "b" / "00002.parquet")
    more = pa.table(
        {name: pa.array([each[name] for each in broken[:1]], kind) for name, kind in KINDS.items()}
    )
    put_file(pa.concat_tables([more, table]), tmp_path / "b" / "00002.parquet", 2)
    write(tmp_path / "b", broken[1:], 9)
    with Engine(tmp_path / "state", spark=spark) as engine:
        engine.script(declared(tmp_path, "value"))
        engine.query("q", "SELECT A.item, B.v FROM A, B WHERE A.item = B.item WINDOW 1 hour")
        engine.start(once=True)
        engine.wait()
        assert not {-1, -2} & {each["v"] for each in engine.results("q").collect()}
        aside = {(each["v"], each["_reason"].split(":")[0]) for each in engine.late("B").collect()}
        assert aside == {(-1, "broken promise"), (-2, "broken promise")}
        assert {each.name: each.broken for each in engine.status().streams} == {"A": 0, "B": 2}


def test_groups_are_answered_and_sinks_told_while_the_engine_runs(spark, tmp_path):
    """After the item is closed, long before its window ends; also what comes after a restart is told once."""
    told = tmp_path / "out" / "_punctuations"
    query = (
        "SELECT A.item, COUNT(*) AS n FROM A [RANGE 1 HOUR], B [NOW] WHERE A.item = B.item AND B.kind = 'bid' "
        "GROUP BY A.item"
    )
    feed(tmp_path / "all", "value")
    for number in range(9):
        for name in "ab":
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / "all" / name / f"{number:05d}.parquet").rename(
                tmp_path / name / f"{number:05d}.parquet"
            )
        with Engine(tmp_path / "state", spark=spark) as engine:
            engine.script(declared(tmp_path, "value"))
            handle = engine.query("n", query, emit="final", sink=parquet(tmp_path / "out", punctuations=True))
            engine.start()
            engine.process_available()
            answered = [each["item"] for each in handle.results().collect()]
            assert len(answered) == len(set(answered))
            # all that were closed more than a batch ago, and none that is still open
            done = {each for each in range(ITEMS) if each + OPEN < 5 * number}
            assert done <= set(answered) <= {each for each in range(ITEMS) if each + OPEN < 5 * number + 5}
            assert set(answered) <= {each["item"] for each in handle.punctuations().collect()}
    values = pq.read_table(told).column("item").to_pylist()
    assert len(values) == len(set(values))
    assert set(answered) <= set(values)


def test_a_query_that_comes_later_says_from_when_on_it_is_complete(spark, tmp_path):
    feed(tmp_path, "value")
    text = "SELECT A.item, B.v FROM A [RANGE 1 HOUR], B [NOW] WHERE A.item = B.item AND B.kind = 'bid'"
    with Engine(tmp_path / "state", spark=spark) as engine:
        engine.script(declared(tmp_path, "value"))
        engine.query("q", text)
        engine.start()
        engine.process_available()
        late = engine.query("late", text)
        assert late.complete_from is not None
        since = late.complete_from
        found = bag(late.results())
        for pair, count in expected(tmp_path, "value", "A.item, B.v").items():
            if at(pair[0]) >= since and at(pair[1]) >= since:
                assert found[pair] == count


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("punctuation = 'coalesce(kind, name)', punctuates = 'item'", "condition"),
        ("punctuation = 'nothing_known(kind)', punctuates = 'item'", "NOTHING_KNOWN"),
    ],
)
def test_a_condition_that_only_spark_can_refuse_is_the_users_to_mend(spark, tmp_path, options, message):
    feed(tmp_path, "value", step=45)
    script = declared(tmp_path, "value").replace(FORMS["value"], options)
    query = "CREATE QUERY q AS SELECT A.item FROM A, B WHERE A.item = B.item WINDOW 1 min;"
    with Engine(tmp_path / "state", spark=spark) as engine, pytest.raises(InputError, match=message):
        run(engine, script + query)


def run(engine, text):
    engine.script(text)
    engine.start(once=True)


def test_the_command_line_shows_what_was_promised(tmp_path, capfd):
    feed(tmp_path, "value", step=15)
    script = tmp_path / "s.sql"
    query = "CREATE QUERY q AS SELECT A.item FROM A, B WHERE A.item = B.item WINDOW 1 hour;"
    script.write_text(declared(tmp_path, "value") + query)
    assert main(["run", str(script), "--state", str(tmp_path / "state"), "--once"]) == 0
    capfd.readouterr()
    assert main(["status", "--state", str(tmp_path / "state"), "--format", "json"]) == 0
    status = json.loads(capfd.readouterr().out)
    assert {"rows", "late", "broken", "purged", "discarded", "dropped"} <= set(status["streams"][0])
    assert status["state_rows"] < status["window_rows"]
    assert main(["status", "--state", str(tmp_path / "state")]) == 0
    assert "never stored" in capfd.readouterr().out
