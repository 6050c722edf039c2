"""A row that comes later than its stream declared is counted and kept whole, and never joined.

lateness 1 s        file 0    file 1          file 2    file 3
times               10        9   8.999999    20        19   18.9   -
watermark before    none      9               9         19
                    in time   in  late        in        in   late   no time
"""

from __future__ import annotations

from random import Random

import pytest

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


def test_late_rows_are_kept_whole_and_never_joined(spark, tmp_path):
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
            same_bag(bag(kept), right, f"late rows of {feed.name}")
            assert kept.column_names == list(COLUMNS)
            assert streams[feed.name].late + streams[feed.name].no_time == right.total()
        assert (streams["a"].rows, streams["a"].late, streams["a"].no_time) == (9, 2, 2)
        assert streams["b"].late > 5


def test_a_stream_without_late_rows_has_an_empty_late_frame(spark, tmp_path):
    a, b = make_feed("a", tmp_path), make_feed("b", tmp_path)
    for feed in (a, b):
        feed.append([row(1, 1)])
    run = Run(spark, tmp_path, [Spec("q", a, b, ("a.k = b.k",), Window("both", SECOND))])
    run.once()
    with run.engine() as engine:
        frame = engine.late("A")
        assert (frame.count(), frame.columns) == (0, list(COLUMNS))
