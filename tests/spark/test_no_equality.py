"""Joins without an equality give what DuckDB gives: bands, inequalities, expressions, and every pair of a window."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from penstock.engine.api import Engine
from tests.oracle import Spec, Window, answer, bag, same_bag
from tests.spark.runner import Run
from tests.spark.world import GRID, KEYS, make_feeds, random_rows, random_spec

pytestmark = pytest.mark.spark

IDS = (("a.id", "i"), ("b.id", "j"))
CONDITIONS = {
    "band": ("abs(a.v - b.v) < 20",),
    "between": ("a.v BETWEEN b.v - 5 AND b.v + 5",),
    "less": ("a.v < b.v",),
    "int_bigint": ("a.n >= b.n",),
    "double": ("a.x <= b.x",),
    "double_band": ("abs(a.x - b.x) <= 1.5",),
    "int_double": ("a.v + 1 > b.x",),
    "decimal": ("a.amount < b.amount",),
    "date": ("a.day > b.day",),
    "timestamp": ("a.seen < b.seen",),
    "text": ("a.name < b.name",),
    "expression": ("a.v * b.k % 3 = 1 OR a.name = b.name",),
    "one_side": ("a.v > 30", "b.v % 3 = 0"),
    "all_of_it": ("a.v > 10", "b.v > 10", "a.v - b.v > 3", "a.x <= b.x"),
    "cross": (),
}


def specs_of(feeds):
    return [
        Spec(name, *feeds, (), Window("both", (2 + place % 3) * GRID), where, IDS, sink=("table", "parquet")[place % 2])
        for place, (name, where) in enumerate(CONDITIONS.items())
    ]  # fmt: skip


def test_every_kind_of_condition_is_exact_beside_keyed_joins_and_across_a_restart(spark, tmp_path):
    """Nulls, NaN and both zeros are among the values; every query without a key is in one group."""
    random = Random(21)
    feeds = make_feeds(random, tmp_path)
    keyed = [random_spec(random, f"k{place}", *feeds, KEYS["two columns"]) for place in range(2)]
    run = Run(spark, tmp_path, [*specs_of(feeds), *keyed])
    rows = [random_rows(random, 60) for _ in feeds]
    for half in (slice(0, 35), slice(35, None)):
        for feed, mine in zip(feeds, rows, strict=True):
            feed.append_cut(mine[half], [9])
        run.once()
    run.check("no equality")
    assert all(answer(spec).total() > 0 for spec in run.specs[: len(CONDITIONS)])
    with run.engine() as engine:
        assert len(engine.plan.groups) == 2


def test_pairs_that_no_query_can_want_never_reach_spark(spark, tmp_path):
    """Of whole numbers exactly the results are handed on, whatever the other query's condition; with a key as well."""
    random = Random(9)
    feeds = make_feeds(random, tmp_path)
    for feed in feeds:
        feed.append_cut(random_rows(random, 80), [30])
    for name, keys in (("keyless", ()), ("keyed", ("a.k = b.k",))):
        near, far = (
            Spec(each, *feeds, keys, Window("both", 8 * GRID), (where,), IDS)
            for each, where in (("near", "abs(a.v - b.v) <= 2"), ("far", "a.v + 60 < b.v"))
        )
        run = Run(spark, tmp_path / name, [near, far])
        run.once()
        run.check(name)
        with run.engine() as engine:
            assert [each.pairs for each in engine.status().groups] == [
                answer(near).total() + answer(far).total()
            ]


def test_a_stream_is_joined_with_itself_without_an_equality(spark, tmp_path):
    random = Random(4)
    feed, _ = make_feeds(random, tmp_path)
    rising = Spec("rising", feed, feed, (), Window("bounds", 0, 4 * GRID, (True, False)), ("a.v < b.v",), IDS)
    near = Spec(
        "near", feed, feed, (), Window("both", 3 * GRID), ("abs(a.v - b.v) <= 3",), IDS, sink="parquet"
    )
    feed.append_cut(random_rows(random, 80), [25, 50])
    run = Run(spark, tmp_path, [rising, near])
    run.once()
    run.check("self-join")


def test_queries_come_and_go_and_new_predicates_are_asked_of_the_rows_held(spark, tmp_path):
    random = Random(8)
    feeds = [replace(feed, options={"retain": "1 hour"}) for feed in make_feeds(random, tmp_path)]
    first, *later = (
        Spec(name, *feeds, (), Window("both", width * GRID), where, (*IDS, ("a.v", "v"), ("b.v", "w")))
        for name, width, where in (
            ("first", 2, ("a.v < b.v",)),
            ("choosy", 3, ("a.v > 30", "abs(a.v - b.v) < 9")),
            ("cross", 5, ("b.v < 20",)),
        )
    )
    parts = [random_rows(random, 90) for _ in feeds]
    with Engine(tmp_path / "state", spark) as engine:
        script = "\n".join(feed.declare() for feed in feeds)
        engine.script(f"{script}\nCREATE QUERY first AS {first.penstock()};")
        engine.start()
        for place, added in enumerate((*later, None)):
            for feed, rows in zip(feeds, parts, strict=True):
                feed.append(rows[33 * place : 33 * (place + 1)])
            engine.process_available()
            if added:
                engine.query(added.name, added.penstock())
        for spec in (first, *later):
            same_bag(bag(engine.results(spec.name).toArrow()), answer(spec), spec.name)
        engine.drop("first")
        assert [each.name for each in engine.status().queries] == ["choosy", "cross"]
