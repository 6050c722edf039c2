"""A row that comes later than its stream declared is counted and kept whole, and never joined.

lateness 1 s        file 0    file 1          file 2    file 3
times               10        9   8.999999    20        19   18.9   -
watermark before    none      9               9         19
                    in time   in  late        in        in   late   no time
"""

from __future__ import annotations

import json
from random import Random

import pytest

from penstock.cli.main import main
from tests.oracle import Feed, Spec, Window, answer, ask, bag, late, same_bag, timely
from tests.spark.runner import Run
from tests.spark.world import GRID, START, at

pytestmark = pytest.mark.spark

COLUMNS = {"id": "bigint", "k": "bigint", "note": "string", "ts": "timestamp"}
SECOND = 1_000_000


def make_feed(name, root, lateness=SECOND):
    return Feed(name, root / name, COLUMNS, lateness, options={"maxFilesPerTrigger": "1"})


def row(number, seconds, key=1):
    time = None if seconds is None else at(START + round(seconds * SECOND))
    return {"id": number, "k": key, "note": f"row {number}", "ts": time}


def printed(capfd, *arguments):
    capfd.readouterr()
    assert main(["results", *arguments]) == 0
    return capfd.readouterr().out


def test_late_rows_are_kept_whole_and_never_joined(spark, tmp_path, capfd):
    """The drawing above, and beside it a stream with random disorder far beyond its lateness."""
    a, b = make_feed("a", tmp_path), make_feed("b", tmp_path, lateness=2 * GRID)
    for number, times in enumerate([[10], [9, 8.999999], [20], [19, 18.9, None], [None], [19]]):
        a.append(row(10 * number + place, time) for place, time in enumerate(times))
    random = Random(8)
    for number in range(6):
        centre = 3 * number
        b.append(
            row(100 * number + n, centre + random.randrange(-12, 12) / 4, random.choice((1, 1, None)))
            for n in range(20)
        )
    specs = [
        Spec("narrow", a, b, ("a.k = b.k",), Window("both", 2 * SECOND), sink="parquet"),
        Spec(
            "wide",
            a,
            b,
            ("a.k = b.k",),
            Window("sides", None, 5 * SECOND),
            select=(("a.id", "i"), ("b.id", "j")),
        ),
    ]
    run = Run(spark, tmp_path, specs)
    run.once()

    run.check("late", {"a": timely(a), "b": timely(b)})
    assert answer(specs[1]) != answer(specs[1], {"a": timely(a), "b": timely(b)}), (
        "no late row would have joined"
    )
    with run.engine() as engine:
        streams = {each.name: each for each in engine.status().streams}
        for feed in (a, b):
            kept = engine.late(feed.name).toArrow()
            right = bag(ask(f"SELECT * FROM {late(feed)}"))
            same_bag(bag(kept.drop_columns("_reason")), right, f"late rows of {feed.name}")
            assert kept.column_names == [*COLUMNS, "_reason"]
            untimed = [None if each is None else "late" for each in kept.column("ts").to_pylist()]
            reasons = [each.split(":")[0] for each in kept.column("_reason").to_pylist()]
            assert reasons == [each or "no event time" for each in untimed]
            assert streams[feed.name].late + streams[feed.name].no_time == right.total()
        assert (streams["a"].rows, streams["a"].late, streams["a"].no_time) == (9, 2, 2)
        assert streams["b"].late > 5
        assert (streams["a"].behind, streams["a"].late_share) == (1_100_000, 2 / 9)
    state = ("--state", str(tmp_path / "state"))
    assert printed(capfd, "A", "--late", "--count", *state) == "4\n"
    lines = [
        json.loads(each) for each in printed(capfd, "--late", "a", "--format", "json", *state).splitlines()
    ]
    assert {each["id"]: each["_reason"].split(":")[0] for each in lines} == {
        11: "late",
        31: "late",
        32: "no event time",
        40: "no event time",
    }
    assert printed(capfd, "--late", "a", "--limit", "2", *state).splitlines()[-1] == "2 of 4 late rows"
    (header, *rows) = printed(capfd, "--late", "a", "--format", "csv", *state).splitlines()
    assert (header, len(rows)) == ('"id","k","note","ts","_reason"', 4)
    assert main(["results", "--late", "c", *state]) == 2
    assert "stream c does not exist" in capfd.readouterr().err


def test_rows_of_a_batch_that_is_not_committed_are_not_among_the_late_ones(spark, tmp_path):
    a, b = make_feed("a", tmp_path), make_feed("b", tmp_path)
    for feed in (a, b):
        feed.append([row(1, 10)])
    run = Run(spark, tmp_path, [Spec("q", a, b, ("a.k = b.k",), Window("both", SECOND))])
    run.once()
    with run.engine() as engine:
        for batch, count in (("0000000001", 0), ("0000000000", 1)):
            spark.range(1).write.parquet(str(tmp_path / "state" / "late" / "a" / batch))
            assert engine.late("a").count() == count


def test_a_stream_without_late_rows_has_an_empty_late_frame(spark, tmp_path):
    a, b = make_feed("a", tmp_path), make_feed("b", tmp_path)
    for feed in (a, b):
        feed.append([row(1, 1)])
    run = Run(spark, tmp_path, [Spec("q", a, b, ("a.k = b.k",), Window("both", SECOND))])
    run.once()
    with run.engine() as engine:
        frame = engine.late("A")
        assert (frame.count(), frame.columns) == (0, [*COLUMNS, "_reason"])
