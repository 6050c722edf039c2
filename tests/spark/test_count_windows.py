"""Windows that count rows give what DuckDB gives when it counts them, through disorder, restarts and failures.

A run to the end of its input takes what is there as all there is, so here only the last one is such a run::

    files   |----|----|      |----|----|       |----|
    engine  process, stop    stopped midway    --once: everything sealed
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st

from penstock import limits
from penstock.engine.api import Engine
from penstock.engine.runners.spark import SparkRunner
from penstock.errors import PenstockError
from penstock.state.journal import Journal
from tests.oracle import Spec, Window, answer, bag, number, same_bag
from tests.spark.runner import Run
from tests.spark.test_crash import InjectedError, Supply, _commits, fail_once, runs
from tests.spark.world import (
    GRID,
    KEYS,
    LATENESS,
    Feed,
    make_feeds,
    random_cuts,
    random_rows,
    random_spec,
)

pytestmark = pytest.mark.spark

few = settings(
    max_examples=1,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a run takes seconds: the seed says enough
    suppress_health_check=[HealthCheck.too_slow],
)


def random_window(random):
    """Choose a window that counts rows, on both sides or on one."""
    kind = random.choice(("rows", "rows", "rows", "mixed"))
    first = random.choice((1, 2, 5, 10, 30, 1000))
    if kind == "mixed":
        return Window("mixed", first, random.choice((0, GRID, 5 * GRID, None)) or 0)
    return Window("rows", first, random.choice((None, None, 1, 3, 20)))


def count_spec(random, name, feeds, keys):
    """Choose a query that counts rows: predicates, residual conditions and outputs as for any other."""
    spec = random_spec(random, name, *feeds, keys)
    window = random_window(random)
    where = spec.where + (("b.ts > a.ts - INTERVAL 1 SECOND",) if random.random() < 0.3 else ())
    return Spec(name, *feeds, keys, window, where, spec.select, spec.flipped, spec.sink)


@example(seed=1)
@given(seed=st.integers(0, 2**31))
@few
def test_random_queries_give_what_duckdb_gives(seed, spark, tmp_path_factory):
    """Windows of rows beside windows of time, over the same streams."""
    note(f"seed {seed}")
    root, random = tmp_path_factory.mktemp("counts"), Random(seed)
    feeds = make_feeds(random, root)
    kinds = random.sample(sorted(KEYS), 2)
    specs = [
        count_spec(random, f"n{i}_{j}", feeds, KEYS[kind]) for i, kind in enumerate(kinds) for j in range(4)
    ]
    specs.append(random_spec(random, "time", *feeds, KEYS[kinds[0]]))
    run = Run(spark, root, specs)
    parts = [random_rows(random, 50) for _ in feeds]
    for go in range(3):
        for feed, rows in zip(feeds, parts, strict=True):
            mine = rows[go * len(rows) // 3 : (go + 1) * len(rows) // 3]
            feed.append_cut(mine, random_cuts(random, mine, most=3))
        if go == 2:
            run.once()
        else:
            with run.engine() as engine:
                engine.start()
                if go == 0:
                    engine.process_available()
                engine.check_running()
    run.check(f"seed {seed}")
    with run.engine() as engine:
        assert not any(each.overtaken for each in engine.status().streams)


def crash_specs(feeds):
    ids = (("a.id", "i"), ("b.id", "j"))
    return [
        Spec("short", *feeds, ("a.k = b.k",), Window("rows", 4), select=ids, sink="parquet"),
        Spec("long", *feeds, ("a.k = b.k",), Window("rows", 40), ("a.v > 20",), select=ids),
        Spec("sides", *feeds, ("a.k = b.k",), Window("rows", 9, 2), ("a.v < b.v",), ids, sink="parquet"),
    ]


POINTS = [
    (Journal, "commit", _commits("seal")),
    (SparkRunner, "_run", runs("seal")),
    (Journal, "commit", _commits("unit")),
    (SparkRunner, "_run", runs("join")),
]


@pytest.mark.timeout(600)  # ten starts
def test_a_failure_at_any_step_loses_and_repeats_nothing(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_ROWS_PER_PIECE", 30)  # several pieces, and some of them let go
    random = Random(4)
    feeds = make_feeds(random, tmp_path)
    for feed in feeds:
        rows = random_rows(random, 160)
        feed.append_cut(rows, [len(rows) * n // 18 for n in range(1, 18)])
    specs = crash_specs(feeds)
    supply, run = Supply(feeds, tmp_path / "aside"), Run(spark, tmp_path, specs)
    for owner, name, when in POINTS:
        for after in (False, True):
            supply.reveal(2)
            trap = fail_once(getattr(owner, name), after=after, **({"when": when} if when else {}))
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, trap)
                with run.engine() as engine:
                    engine.start()
                    with pytest.raises((InjectedError, PenstockError), match="injected"):
                        engine.process_available()
    supply.reveal(len(supply.waiting) // 2)
    run.once()
    run.check("after every failure")


def test_a_row_below_what_a_finished_run_has_counted_is_overtaken(spark, tmp_path):
    """The next run counts it as such, and its windows of time still take it."""
    random = Random(2)
    feeds = make_feeds(random, tmp_path)
    rows = [random_rows(random, 60) for _ in feeds]
    specs = [
        Spec("n", *feeds, ("a.k = b.k",), Window("rows", 10), select=(("a.id", "i"), ("b.id", "j"))),
        Spec("t", *feeds, ("a.k = b.k",), Window("both", 4 * GRID), select=(("a.id", "i"), ("b.id", "j"))),
    ]
    run = Run(spark, tmp_path, specs)
    for feed, mine in zip(feeds, rows, strict=True):
        feed.append(mine[:30])
    run.once()
    first = answer(specs[0])
    newest = max(number(f"SELECT max(epoch_us(ts)) FROM {feed.relation()}") for feed in feeds)
    for feed, mine in zip(feeds, rows, strict=True):
        feed.append(mine[30:])
    run.once()
    seen = [feed.files()[0].name for feed in feeds]
    counted = {
        feed.name: f"(SELECT * EXCLUDE (filename) REPLACE (make_timestamp(epoch_us(ts)) AS ts, "
        f"make_timestamp(epoch_us(seen)) AS seen) FROM read_parquet('{feed.folder}/*.parquet', filename = true) "
        f"WHERE filename LIKE '%{name}' OR epoch_us(ts) > {newest})"
        for feed, name in zip(feeds, seen, strict=True)
    }
    with run.engine() as engine:
        overtaken = sum(each.overtaken for each in engine.status().streams)
        same_bag(run.result(engine, specs[1]), answer(specs[1]), "windows of time")
        same_bag(run.result(engine, specs[0]), answer(specs[0], counted), "windows of rows")
        assert first <= run.result(engine, specs[0])
    assert overtaken == sum(
        number(f"SELECT count(*) FROM {feed.relation()} WHERE ts IS NOT NULL")
        - number(f"SELECT count(*) FROM {counted[feed.name]} WHERE ts IS NOT NULL")
        for feed in feeds
    )
    assert overtaken > 0


def test_a_query_goes_over_to_rows_while_it_runs(spark, tmp_path):
    """From the rows to come on it counts; what it had stays, and the plan says so."""
    feeds = [
        Feed(name, tmp_path / name, {"k": "bigint", "id": "bigint", "ts": "timestamp"}, LATENESS)
        for name in "ab"
    ]
    spec = Spec("q", *feeds, ("a.k = b.k",), Window("rows", 3), select=(("a.id", "i"), ("b.id", "j")))
    random = Random(3)

    def grow(first):
        for feed in feeds:
            ids = range(first, first + 40)
            feed.append([{"k": each % 3, "id": each, "ts": _at(each, random)} for each in ids])

    with Engine(tmp_path / "state", spark) as engine:
        engine.script("\n".join(feed.declare() for feed in feeds))
        engine.query("q", spec.penstock().replace("WINDOW 3 ROWS", "WINDOW 1 millisecond"))
        engine.start()
        grow(0)
        engine.process_available()
        before = bag(engine.results("q").toArrow())
        engine.alter("q", spec.penstock())
        assert "WINDOW 3 ROWS" in engine.explain()
        grow(40)
        grow(80)
        engine.process_available()
        after = bag(engine.results("q").toArrow())
        assert before <= after
        since = f"epoch_us(ts) >= {int(engine.complete_from('q').timestamp() * 1e6)}"
        until = min(number(f"SELECT max(epoch_us(ts)) FROM {feed.relation()}") for feed in feeds) - LATENESS
        right = answer(
            spec,
            {
                feed.name: f"(SELECT * FROM {feed.relation()} WHERE {since} AND epoch_us(ts) < {until})"
                for feed in feeds
            },
        )
        assert right.total() > 20
        same_bag(after - before, right, "rows to come")
        assert [each.counted for each in engine.status().groups[0].slices] == [True, True]


def _at(place, random):
    from tests.spark.world import START, at

    return at(START + place * GRID + random.choice((0, 0, 1, GRID)))
