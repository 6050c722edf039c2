"""Queries and streams of any name work with an order and each sink, through a restart (and no state is unopenable)."""

from __future__ import annotations

from random import Random

import pytest

from tests.oracle import Feed, Spec, Window
from tests.spark.runner import Run
from tests.spark.world import COLUMNS, GRID, LATENESS, random_rows

pytestmark = pytest.mark.spark

NAMES = ("a/b", "../", "./", "CON", "é", "x" * 300, "my query-")
ORDER = "filter-order"


def test_queries_of_any_name_deliver_in_order_to_each_sink_and_go_on(spark, tmp_path):
    """Held at the first stop, released after the second start: the restart reads what the names led to."""
    random = Random(14)
    a, b = (
        Feed(name, tmp_path / folder, COLUMNS, LATENESS) for name, folder in (("al/pha é", "a"), ("..", "b"))
    )
    chosen = (("a.id", "i"), ("b.id", "j"))
    specs = [
        Spec(
            f"{name}{number}",
            a,
            b,
            ("a.k = b.k",),
            Window("both", 8 * GRID),
            (),
            chosen,
            sink=sink,
            order=ORDER,
        )
        for number, sink in enumerate(("parquet", "table", "callback"))
        for name in NAMES
    ]
    run = Run(spark, tmp_path, specs)
    rows = {feed.name: random_rows(random, 80) for feed in (a, b)}
    for feed in (a, b):
        feed.append(rows[feed.name][:44])
    with run.engine() as engine:
        engine.start()
        engine.process_available()
        assert any(each.held for each in engine.status().queries), "nothing waits, so nothing is found again"
    for feed in (a, b):
        feed.append(rows[feed.name][44:])
    run.once()
    run.check("named at will")
