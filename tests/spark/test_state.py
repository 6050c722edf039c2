"""After every batch the engine holds exactly the rows that some partner still to come can reach (S4, S6).

    a row of A at T, WINDOW w        T -------------- T + w
    B's watermark                          W             |        W < T + w: needed      W >= T + w: gone

The least state is counted by DuckDB from the raw files; nothing the engine knows goes into it.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.oracle import Feed, Spec, Window, number
from tests.spark.runner import Run
from tests.spark.world import START, at

pytestmark = pytest.mark.spark

COLUMNS = {"id": "bigint", "k": "bigint", "v": "int", "ts": "timestamp"}
SECOND = 1_000_000
LATENESS = {"a": SECOND, "b": 3 * SECOND}


def watermark(feed):
    return f"(SELECT max(ts) - to_microseconds({feed.lateness}) FROM {feed.relation()})"


def needed(specs, side, ages=None):
    """Count the rows of one side that some query of a group still needs, or those of an age only."""
    spec = specs[0]
    mine, other = (spec.a, spec.b) if side == "a" else (spec.b, spec.a)
    if not mine.files():
        return 0
    mark = watermark(other) if other.files() else "TIMESTAMP '1900-01-01'"
    wanted = " OR ".join(
        f"(({each.window.still_waits(side, mark)})"
        + "".join(f" AND ({w})" for w in each.where if f"{side}." in w)
        + ")"
        for each in specs
    )
    within = ""
    if ages:
        age = f"(epoch_us({mark}) - epoch_us({side}.ts))"
        within = f" AND {age} >= {ages[0]} AND {age} < {ages[1]}"
    key = spec.keys[0].split(" = ")["ab".index(side)]
    return number(
        f"SELECT count(*) FROM {mine.relation()} {side} WHERE {key} IS NOT NULL AND ({wanted}){within}"
    )


def make_feeds(root):
    return [Feed(name, root / name, COLUMNS, LATENESS[name]) for name in "ab"]


def test_state_is_the_least_that_the_windows_need_after_every_batch(spark, tmp_path):
    """Four groups in one run: windows alone, predicates, a window per side, and an interval that leaves 0 out."""
    a, b = make_feeds(tmp_path)
    out = (("a.id", "i"), ("b.id", "j"))

    def spec(name, key, window, *where):
        return Spec(name, a, b, (key,), window, where, out)

    groups = [
        [spec(f"w{w}", "a.k = b.k", Window("both", w * SECOND)) for w in (1, 4, 9)],
        [
            spec("p1", "a.v = b.v", Window("both", 9 * SECOND), "a.v > 50"),
            spec("p2", "a.v = b.v", Window("both", 4 * SECOND), "a.v > 20", "b.v < 70"),
            spec("p3", "a.v = b.v", Window("both", 1 * SECOND), "b.v >= 30"),
        ],
        [
            spec("s1", "a.k = b.v", Window("sides", 6 * SECOND, 0)),
            spec("s2", "a.k = b.v", Window("sides", 2 * SECOND, 3 * SECOND)),
        ],
        [
            spec("i1", "a.v = b.k", Window("bounds", 2 * SECOND, 5 * SECOND)),
            spec("i2", "a.v = b.k", Window("bounds", 3 * SECOND, 7 * SECOND, strict=(True, True))),
        ],
    ]
    run = Run(spark, tmp_path, [each for group in groups for each in group])
    random = Random(21)
    with run.engine() as engine:
        engine.start()
        for batch in range(6):
            for feed, speed in ((a, 1.0), (b, 0.8)):
                if batch == 0 and feed is b:
                    continue  # one stream has sent nothing yet: everything of the other is needed
                centre = 4 * batch * speed
                feed.append(_rows(random, batch, centre, 1.0, 40))
            engine.process_available()
            status = {each.id: each for each in engine.status().groups}
            for specs in groups:
                group = status[engine.plan.find(specs[0].name)[0].id]
                _check_group(specs, group, f"batch {batch}")
            widest = status[
                engine.plan.find("w9")[0].id
            ]  # no other group keeps a row of these logs for longer
            assert widest.stored_rows <= 1.5 * widest.state_rows + 2 * 40, widest
    run.check("state")


def _rows(random, batch, centre, spread, count):
    times = (centre + random.random() * spread for _ in range(count))
    return [
        {
            "id": 1000 * batch + n,
            "k": random.choice((1, 2, 3, None)),
            "v": random.randrange(100),
            "ts": at(START + round(t * SECOND)),
        }
        for n, t in enumerate(times)
    ]


def _check_group(specs, group, note):
    """Compare the rows held, in all and slice by slice, with the least."""
    least = sum(needed(specs, side) for side in "ab")
    names = [each.name for each in specs]
    assert group.state_rows == least, f"{note} {names}: {group.state_rows} rows held, {least} needed"
    for place, piece in enumerate(group.slices):
        first = (
            place == 0 or group.slices[place - 1].side != piece.side
        )  # holds the rows that are younger still
        right = needed(specs, piece.stream, (-(10**17) if first else piece.youngest, piece.oldest))
        assert piece.state_rows == right, f"{note} {names} {piece}: {right} needed"


def test_a_key_never_seen_again_leaves_by_time(spark, tmp_path):
    """Every row has a key of its own, and the state does not grow (B8)."""
    a, b = make_feeds(tmp_path)
    spec = Spec("q", a, b, ("a.id = b.id",), Window("both", 2 * SECOND))
    run = Run(spark, tmp_path, [spec])
    with run.engine() as engine:
        engine.start()
        for batch in range(12):
            for feed in (a, b):
                times = (2 * batch + n / 10 for n in range(20))
                feed.append(
                    {
                        "id": (feed is a) * 10**6 + 100 * batch + n,
                        "k": 1,
                        "v": 1,
                        "ts": at(START + round(t * SECOND)),
                    }
                    for n, t in enumerate(times)
                )
            engine.process_available()
            (group,) = engine.status().groups
            assert group.state_rows == sum(needed([spec], side) for side in "ab")
            assert group.stored_rows <= 2 * group.state_rows + 2 * 20, f"batch {batch}: {group}"
        files = sum(1 for _ in (run.state / "log").rglob("*.arrow"))
    assert files <= group.segments + 2, "segments that were let go are still on the disk"
    run.check("keys")
