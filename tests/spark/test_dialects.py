"""Interval joins written for Spark and Flink run as they are; the judge is Spark's own batch join of the same text."""

from __future__ import annotations

from random import Random

import pytest

from penstock.engine.engine import Engine
from tests.oracle import Feed, bag, same_bag
from tests.spark.world import START, at

pytestmark = pytest.mark.spark

MINUTE = 60_000_000

SPARK = {
    # Structured Streaming Programming Guide, "Inner Joins with optional Watermarking"
    "guide": """
        SELECT * FROM impressions JOIN clicks
        ON clickAdId = impressionAdId AND clickTime >= impressionTime AND clickTime <= impressionTime + interval 1 hour
    """,
    "between": """
        select i.impressionAdId as ad, c.clickTime - i.impressionTime as took, c.user
        from impressions i inner join clicks c
        on i.impressionAdId = c.clickAdId
        and c.clickTime between i.impressionTime - interval '10' minutes
                            and i.impressionTime + interval '1 hour 30 minutes'
        where c.user is not null and i.price > 0.5
    """,
    "using": """
        SELECT user, impressionAdId, clickAdId FROM impressions JOIN clicks USING (user)
        WHERE clickTime > impressionTime - INTERVAL 30 MINUTES AND clickTime < impressionTime + INTERVAL 30 MINUTES
    """,
    "computed": """
        SELECT concat(i.user, '/', c.user) AS both, CASE WHEN i.price > 1 THEN 'dear' ELSE 'cheap' END AS kind
        FROM impressions AS i, clicks AS c
        WHERE i.impressionAdId = c.clickAdId AND i.user <> c.user
        AND i.impressionTime BETWEEN c.clickTime - INTERVAL 2 HOURS AND c.clickTime
    """,
}
FLINK = {
    # Flink documentation, "Interval Joins", with these tables' names
    "shipped within 4 hours": """
        SELECT o.impressionAdId, s.clickAdId FROM impressions o, clicks s
        WHERE o.impressionAdId = s.clickAdId
        AND o.impressionTime BETWEEN s.clickTime - INTERVAL '4' HOUR AND s.clickTime
    """,
    "equal": "SELECT i.user FROM impressions i, clicks c WHERE i.user = c.user AND impressionTime = clickTime",
    "half open": """
        SELECT c.user FROM clicks c JOIN impressions i ON c.clickAdId = i.impressionAdId
        WHERE clickTime >= impressionTime AND clickTime < impressionTime + INTERVAL '10' MINUTE
    """,
    "both sides": """
        SELECT i.price FROM impressions i JOIN clicks c ON c.clickAdId = i.impressionAdId
        AND i.impressionTime BETWEEN c.clickTime - INTERVAL '10' MINUTE AND c.clickTime + INTERVAL '5' MINUTE
    """,
}


def test_interval_joins_of_spark_and_flink_run_unchanged(spark, tmp_path):
    columns = {"user": "string", "price": "double"}
    impressions = Feed(
        "impressions", tmp_path / "i", {"impressionAdId": "bigint", "impressionTime": "timestamp", **columns},
        time="impressionTime", lateness=300 * MINUTE,
    )  # fmt: skip
    clicks = Feed(
        "clicks", tmp_path / "c", {"clickAdId": "bigint", "clickTime": "timestamp", "user": "string"},
        time="clickTime", lateness=300 * MINUTE,
    )  # fmt: skip
    random = Random(2)

    def time():
        return at(START + random.randrange(0, 300, 5) * MINUTE)

    for _ in range(3):
        impressions.append(
            {
                "impressionAdId": random.randrange(6),
                "impressionTime": time(),
                "user": random.choice("uvw"),
                "price": random.random() * 2,
            }
            for _ in range(30)
        )
        clicks.append(
            {"clickAdId": random.randrange(6), "clickTime": time(), "user": random.choice(("u", "v", None))}
            for _ in range(30)
        )
    queries = {name.replace(" ", "_"): text for name, text in (SPARK | FLINK).items()}
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(f"{impressions.declare()} {clicks.declare()}")
        for name, text in queries.items():
            engine.query(name, text)
        engine.start(once=True)
        engine.wait()
        for feed in (impressions, clicks):
            spark.read.parquet(str(feed.folder)).createOrReplaceTempView(feed.name)
        for name, text in queries.items():
            right = bag(spark.sql(text).toArrow())
            assert right.total() > 0, f"{name} has no result"
            same_bag(bag(engine.results(name).toArrow()), right, name)
