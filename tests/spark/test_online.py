"""Queries come, go and change while the engine runs; who stays sees no difference, who comes gets what is held."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from penstock.engine.api import Engine
from penstock.engine.control import ask
from penstock.errors import InputError
from tests.oracle import Feed, Spec, Window, answer, bag, same_bag
from tests.spark.world import at

pytestmark = pytest.mark.spark

COLUMNS = {"k": "bigint", "id": "bigint", "v": "int", "ts": "timestamp"}
SECOND = 1_000_000
START = 1_700_000_000 * SECOND
IDS = (("a.id", "a"), ("b.id", "b"), ("a.v", "av"), ("b.v", "bv"))


def rows(source, batch, first):
    """Make a batch of about ten seconds, a little out of order."""
    times = [START + (10 * batch * SECOND) + source.randrange(10 * SECOND) for _ in range(60)]
    return [
        {
            "k": source.randrange(4),
            "id": first + place,
            "v": source.randrange(100),
            "ts": datetime.fromtimestamp(time / 1e6, UTC),
        }
        for place, time in enumerate(times)
    ]


class Streams:
    """Two feeds that grow by a batch at a time."""

    def __init__(self, folder, **options):
        self.a, self.b = (Feed(name, folder / name, COLUMNS, 10 * SECOND, options=options) for name in "ab")
        self.source, self.batch = random.Random(5), 0

    def grow(self):
        for feed in (self.a, self.b):
            feed.append(rows(self.source, self.batch, 1000 * self.batch))
        self.batch += 1

    def spec(self, name, seconds, *where, select=IDS):
        window = Window("both", int(seconds * SECOND))
        return Spec(name, self.a, self.b, ("a.k = b.k",), window, where, select)

    def script(self, *specs):
        declared = [
            self.a.declare(),
            self.b.declare(),
            *(f"CREATE QUERY {s.name} AS {s.penstock()};" for s in specs),
        ]
        return "\n".join(declared)


def delivered(engine, name):
    return bag(engine.results(name).toArrow())


def since(spec, moment):
    """Let DuckDB join only rows from a moment on."""
    low = f"ts >= make_timestamp({int(moment.timestamp() * 1e6)})"
    return answer(
        spec, {feed.name: f"(SELECT * FROM {feed.relation()} WHERE {low})" for feed in (spec.a, spec.b)}
    )


def test_a_stream_that_retains_gives_a_new_query_all_of_the_past(spark, tmp_path):
    """New windows, predicates and expressions, over rows that came before anyone asked for them."""
    streams = Streams(tmp_path, retain="1 hour")
    first = streams.spec("first", 2, select=(("a.id", "a"),))
    wide = streams.spec("wide", 15)
    choosy = streams.spec("choosy", 5, "a.v > 50", "b.v < 80")
    computed = streams.spec("computed", 4, "a.v > b.v", select=(("a.id", "a"), ("a.v - b.v", "d")))
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(streams.script(first))
        engine.start()
        for added in (wide, choosy, computed):
            streams.grow()
            engine.process_available()
            engine.query(added.name, added.penstock())
        streams.grow()
        engine.process_available()
        for spec in (first, wide, choosy, computed):
            same_bag(delivered(engine, spec.name), answer(spec), spec.name)
            moment = engine.complete_from(spec.name)
            assert moment is None or moment <= datetime.fromtimestamp(START / 1e6, UTC), spec.name


def test_without_retention_a_new_query_is_complete_from_when_it_says(spark, tmp_path):
    streams = Streams(tmp_path)
    narrow, wide = streams.spec("narrow", 2), streams.spec("wide", 25)
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(streams.script(narrow))
        engine.start()
        for _ in range(4):
            streams.grow()
            engine.process_available()
        handle = engine.query("wide", wide.penstock())
        for _ in range(2):
            streams.grow()
            engine.process_available()
        got, all_of_it = delivered(engine, "wide"), answer(wide)
        assert since(wide, handle.complete_from) <= got <= all_of_it
        assert got != all_of_it, "what was let go before it came is not there"
        assert since(wide, handle.complete_from), "and there is something it is complete in"
        same_bag(delivered(engine, "narrow"), answer(narrow), "narrow, which was there all the time")


def test_a_query_dropped_altered_or_refused_leaves_the_others_as_they_are(spark, tmp_path):
    streams = Streams(tmp_path)
    stays, goes, changes = streams.spec("stays", 6), streams.spec("goes", 20), streams.spec("changes", 3)
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(streams.script(stays, goes, changes))
        engine.start()
        streams.grow()
        engine.process_available()
        went, before = answer(goes), answer(changes)
        same_bag(delivered(engine, "goes"), went, "goes")
        engine.drop("goes")
        engine.alter("changes", replace(changes, where=("a.v > 70",)).penstock())
        with pytest.raises(InputError, match="query goes does not exist"):
            engine.drop("goes")
        with pytest.raises(InputError, match="query stays exists already"):
            engine.query("stays", stays.penstock())
        with pytest.raises(InputError, match="NO_SUCH_FUNCTION"):
            engine.query(
                "wrong", streams.spec("wrong", 1, select=(("no_such_function(a.id)", "x"),)).penstock()
            )
        assert [each.name for each in engine.status().queries] == ["stays", "changes"]
        streams.grow()
        engine.process_available()
        same_bag(delivered(engine, "stays"), answer(stays), "stays")
        after = Counter({row: n for row, n in (answer(changes) - before).items() if row[2] > 70})
        same_bag(delivered(engine, "changes"), before + after, "changes")


def test_an_edited_script_and_a_running_engine_that_is_asked_come_to_the_same(spark, tmp_path):
    streams = Streams(tmp_path, retain="1 hour")
    one, two, three = streams.spec("one", 3), streams.spec("two", 8), streams.spec("three", 5, "b.v > 20")
    streams.grow()
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(streams.script(one))
        engine.start(once=True)
        engine.wait()
    streams.grow()
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(streams.script(one, two))  # the script was edited between two runs
        engine.start()
        engine.process_available()
        said = ask(
            str(tmp_path / "state"), {"do": "add", "script": f"CREATE QUERY three AS {three.penstock()};"}
        )
        assert said.startswith("added three: complete from ")
        with pytest.raises(InputError, match="query nobody does not exist"):
            ask(str(tmp_path / "state"), {"do": "drop", "query": "nobody"})
        streams.grow()
        engine.process_available()
        for spec in (one, two, three):
            same_bag(delivered(engine, spec.name), answer(spec), spec.name)
        ask(str(tmp_path / "state"), {"do": "drop", "query": "one"})
        assert [each.name for each in engine.status().queries] == ["two", "three"]


def test_a_running_engine_does_what_a_script_says_and_answers_what_it_asks(spark, tmp_path):
    streams = Streams(tmp_path, retain="1 hour")
    one, two = streams.spec("one", 3), streams.spec("two", 8)
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(streams.script(one, two))
        engine.start()
        streams.grow()
        engine.process_available()
        before = answer(two)
        narrowed = replace(two, where=("a.v > 70",))
        state = str(tmp_path / "state")
        said = ask(
            state,
            {
                "do": "add",
                "script": f"DROP QUERY ONE; ALTER QUERY two AS {narrowed.penstock()}; SHOW QUERIES; EXPLAIN two;",
            },
        ).splitlines()
        gone = "results were in the state's table and cannot be read any more"
        assert said[0] == f"dropped ONE; its {answer(one).total():,} {gone}"
        assert said[1].startswith("altered two: complete from ")
        assert said[2].startswith("two: complete from ")
        assert any(line.startswith("Chain a l ⋈ b r") for line in said)
        for wrong in ("DROP QUERY one", "ALTER QUERY on SET WINDOW 5 s", "EXPLAIN one", "DROP STREAM a"):
            with pytest.raises(InputError, match=r"query one? does not exist|stream a is read by two"):
                ask(state, {"do": "add", "script": wrong})
        streams.grow()
        engine.process_available()
        after = Counter({row: n for row, n in (answer(two) - before).items() if row[2] > 70})
        same_bag(delivered(engine, "two"), before + after, "two, by its new definition from then on")


@pytest.mark.parametrize("sink", ["table", "parquet"])
def test_results_that_are_there_never_become_another_type(spark, tmp_path, sink):
    """Each refused as it is asked for, and at a start; what is read stays as it was committed."""
    feeds = [Feed(name, tmp_path / name, {"k": "bigint", "s": "string", "ts": "timestamp"}) for name in "ab"]
    for feed in feeds:
        feed.append([{"k": 1, "s": "02", "ts": at(START)}])
    streams = "".join(feed.declare() for feed in feeds)
    where = f", path = '{tmp_path}/out'" if sink == "parquet" else ""

    def query(column):
        text = f"SELECT {column} AS c FROM a, b WHERE a.k = b.k WINDOW 1 s"
        return text, f"{streams} CREATE QUERY q WITH (sink = '{sink}'{where}) AS {text};"

    with Engine(tmp_path / "state", spark) as engine:
        engine.script(query("a.s")[1])
        engine.start()
        engine.process_available()
        with pytest.raises(InputError, match="column c of query q was string and would be bigint"):
            engine.alter("q", query("a.k")[0])
        engine.alter("q", query("CAST(a.k AS STRING)")[0])
        engine.process_available()
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(query("a.k")[1])
        with pytest.raises(InputError, match="CAST it to string"):
            engine.start(once=True)
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(query("a.s || '!'")[1])
        engine.start(once=True)
        engine.wait()
        assert [tuple(row) for row in engine.results("q").collect()] == [("02",)]
