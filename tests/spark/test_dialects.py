"""Interval joins written for Spark and Flink run as they are; the judge is Spark's own batch join of the same text."""

from __future__ import annotations

from random import Random

import pytest

from penstock.engine.api import Engine
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


NUMBERS = {
    "seconds": "CAST(b.ts AS LONG) - CAST(a.ts AS LONG) BETWEEN 0 AND 3",
    "equal": "CAST(a.ts AS LONG) = CAST(b.ts AS LONG)",
    "towards 1970": "unix_timestamp(b.ts) - unix_timestamp(a.ts) BETWEEN -1 AND 1",
    "millis": "unix_millis(a.ts) - unix_millis(b.ts) BETWEEN 1 AND 2000",
    "micros": "unix_micros(b.ts) - unix_micros(a.ts) BETWEEN 0 AND 1000001",
    "quotient": "abs((unix_seconds(a.ts) - unix_seconds(b.ts)) / 2) < 1.5",
    "timestampdiff": "timestampdiff(SECOND, a.ts, b.ts) BETWEEN -1 AND 2",
    "datediff": "datediff(MILLISECOND, b.ts, a.ts) = 0",
    "negated": "NOT b.ts < a.ts AND NOT b.ts > a.ts + INTERVAL 2 SECONDS",
}
TUMBLING = {
    "tumbling": ("window(a.ts, '3 seconds') = window(b.ts, '3 seconds')", "window(ts, '3 seconds')"),
    "shifted": (
        "window(a.ts, '4 seconds', '4 seconds', '1 second') = window(b.ts, '4 seconds', '4 seconds', '1 second')",
        "window(ts, '4 seconds', '4 seconds', '1 second')",
    ),
}
"""The condition, and what Spark joins on: in a condition of its own join it does not take the function."""


def test_times_compared_as_numbers_and_in_time_windows_are_windows(spark, tmp_path):
    """Microseconds around 1970, before which numbers are rounded down by some functions, and up by others."""
    random = Random(7)
    feeds = [Feed(name, tmp_path / name, {"id": "bigint", "k": "bigint", "ts": "timestamp"}, lateness=60_000_000)
             for name in "ab"]  # fmt: skip
    number = iter(range(1000))
    for feed in feeds * 3:
        feed.append(
            {
                "id": next(number),
                "k": random.randrange(2),
                "ts": at(random.randint(-6, 6) * 1_000_000 + random.choice((0, 1, -1, 500_000, 999_000))),
            }
            for _ in range(25)
        )
    select = "SELECT a.id AS x, b.id AS y FROM {a} a, {b} b WHERE a.k = b.k AND "
    asked = NUMBERS | {name: condition for name, (condition, _) in TUMBLING.items()}
    queries = {name.replace(" ", "_"): select.format(a="a", b="b") + text for name, text in asked.items()}
    without = " a, b WHERE ".join(("SELECT a.id AS x, b.id AS y FROM", asked["tumbling"]))
    with Engine(tmp_path / "state", spark) as engine:
        engine.script("".join(feed.declare() for feed in feeds))
        for name, text in (queries | {"no_key": without}).items():
            engine.query(name, text)
        engine.start(once=True)
        engine.wait()
        for feed in feeds:
            spark.read.parquet(str(feed.folder)).createOrReplaceTempView(feed.name)
        wanted = {name: select.format(a="a", b="b") + text for name, text in NUMBERS.items()}
        for name, (_, window) in TUMBLING.items():
            a, b = (f"(SELECT *, {window} AS w FROM {each})" for each in "ab")
            wanted[name] = select.format(a=a, b=b) + "a.w = b.w"
        wanted["no_key"] = wanted["tumbling"].replace("a.k = b.k AND", "")
        for name, text in wanted.items():
            right = bag(spark.sql(text).toArrow())
            assert right.total() > 20, f"{name} has few results"
            same_bag(bag(engine.results(name.replace(" ", "_")).toArrow()), right, name)


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
