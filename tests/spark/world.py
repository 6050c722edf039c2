"""Two random streams and random queries over them, all from one seed.

Times lie on a grid of which every window is a multiple, so that rows exactly one window apart, equal times and
duplicates are common; a few are a microsecond off.  A row arrives up to the lateness after its time::

    time      1   2   3   4   5        each row waits u, 0 <= u <= lateness
    arrival   2   1   4   3   5        sorted by time + u: no row is late, whatever the cuts
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

from tests.oracle import Feed, Spec, Window

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]

GRID = 250_000
START = 1_700_000_000_000_000
SPAN = 40 * GRID
LATENESS = 6 * GRID

COLUMNS = {
    "id": "bigint", "k": "bigint", "n": "int", "name": "string", "x": "double", "amount": "decimal(10,2)",
    "day": "date", "flag": "boolean", "seen": "timestamp", "v": "int", "ts": "timestamp",
}  # fmt: skip
OTHER_COLUMNS = {**COLUMNS, "n": "bigint", "amount": "decimal(12,4)"}

KEYS = {
    "bigint": ("a.k = b.k",),
    "int and bigint": ("a.n = b.n",),
    "string": ("a.name = b.name",),
    "double": ("a.x = b.x",),
    "decimals of two scales": ("a.amount = b.amount",),
    "date": ("a.day = b.day",),
    "boolean": ("a.flag = b.flag",),
    "timestamp": ("a.seen = b.seen",),
    "two columns": ("a.k = b.k", "a.name = b.name"),
    "expression on text": ("lower(a.name) = lower(b.name)",),
    "expression on numbers": ("a.k + 1 = b.n",),
    "expression on decimals": ("a.amount * 2 = b.amount",),
    "int and decimal": ("a.n = b.amount",),
    "date and timestamp": ("a.day = b.seen",),
}

_ON_ONE = (
    "{}.v > 30", "{}.v BETWEEN 10 AND 60", "{}.name LIKE 'K%'", "{}.v % 3 = 0", "{}.x > 0", "{}.flag",
    "NOT {}.flag", "{}.name IS NULL", "{}.amount < 2.5", "{}.v IN (1, 2, 3, 40, 41)", "{}.v > 30 OR {}.k = 2",
    "{}.day >= DATE '2023-11-15'", "30 < {}.v", "{}.v IS NOT NULL AND {}.v <> 7", "coalesce({}.v, 99) > 80",
)  # fmt: skip
_ON_BOTH = (
    "a.v < b.v", "a.v + b.v > 60", "a.name <> b.name", "a.v > 50 OR b.v > 50", "a.x <= b.x", "a.ts <> b.ts",
    "abs(a.v - b.v) < 20", "coalesce(a.name, b.name) IS NULL",
)  # fmt: skip
_OUTPUTS = (
    "a.id", "b.id", "a.ts", "b.ts", "a.v + b.v", "a.v * 2", "upper(a.name)", "a.amount", "b.amount", "a.x", "b.day",
    "coalesce(b.name, '?')", "CASE WHEN a.v > b.v THEN 'gt' ELSE 'le' END", "a.flag AND b.flag", "b.seen", "a.n",
    "a.name || '-' || b.name", "7", "a.ts < b.ts",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class World:
    """Two feeds whose files are not written yet, the rows in order of arrival, and the queries."""

    a: Feed
    b: Feed
    rows_a: list[Row]
    rows_b: list[Row]
    specs: tuple[Spec, ...]


def make_world(seed: int, root: Path, kinds: int, each: int, rows: int = 60) -> World:
    """Make a world with `each` queries on every one of `kinds` kinds of key."""
    random = Random(seed)
    feeds = make_feeds(random, root)
    names = random.sample(sorted(KEYS), kinds)
    specs = [
        random_spec(random, f"q{place}_{number}", *feeds, KEYS[name])
        for place, name in enumerate(names)
        for number in range(each)
    ]
    return World(*feeds, random_rows(random, rows), random_rows(random, rows), tuple(specs))


def make_feeds(random: Random, root: Path) -> tuple[Feed, Feed]:
    """Make two feeds that Spark reads so many files of at a time."""
    a, b = ({"maxFilesPerTrigger": str(random.randint(1, 4))} for _ in "ab")
    return (
        Feed("Alpha", root / "alpha", COLUMNS, LATENESS, options=a),
        Feed("beta", root / "beta", OTHER_COLUMNS, LATENESS, options=b),
    )


def random_rows(random: Random, count: int) -> list[Row]:
    """Make rows, some of them twice, in an order of arrival that makes none late."""
    rows = [_random_row(random, number) for number in range(count)]
    rows += random.sample(rows, count // 10)
    return arrival(random, rows)


def arrival(random: Random, rows: list[Row]) -> list[Row]:
    """Shuffle rows within the lateness; those without a time come anywhere."""
    waits = [(micros(row["ts"]) + random.randint(0, LATENESS), i) for i, row in enumerate(rows)]
    return [rows[i] for _, i in sorted(waits)]


def micros(time: dt.datetime | None) -> int:
    """Give a time as the engine counts it; rows without one are put in the middle."""
    if time is None:
        return START + SPAN // 2
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def at(micros: int) -> dt.datetime:
    """Give a time as a file holds it."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def random_time(random: Random) -> dt.datetime:
    """Choose a time, mostly on the grid."""
    off = random.choice((0, 0, 0, 0, 1, -1, 100_000))
    return at(START + random.randrange(0, SPAN, GRID) + off)


def _random_row(random: Random, number: int) -> Row:
    def seldom_null(value: Any) -> Any:
        return None if random.random() < 0.06 else value

    return {
        "id": number,
        "k": seldom_null(random.randint(0, 5)),
        "n": seldom_null(random.randint(0, 6)),
        "name": seldom_null(random.choice(("K1", "k1", "K2", "k 3", "", "é", "É", "K" * 40))),
        "x": seldom_null(random.choice((0.0, -0.0, float("nan"), 1.5, float("inf"), -2.0))),
        "amount": seldom_null(Decimal(random.choice(("0", "1", "2", "2.5", "5", "-1.25", "-2.5", "3.10")))),
        "day": seldom_null(dt.date(2023, 11, random.randint(13, 16))),
        "flag": seldom_null(random.random() < 0.5),
        "seen": seldom_null(dt.datetime(2023, 11, random.randint(13, 16), tzinfo=dt.UTC)),
        "v": seldom_null(random.randint(0, 99)),
        "ts": seldom_null(random_time(random)),
    }


def random_window(random: Random) -> Window:
    """Choose a window of any kind."""
    kind = random.choice(("both", "both", "sides", "bounds", "bounds"))
    if kind == "both":
        return Window("both", GRID * random.choice((1, 2, 3, 4, 8, 12, 240)) + random.choice((0, 0, 1)))
    if kind == "sides":
        lengths = (0, 0, GRID, 2 * GRID, 5 * GRID, 12 * GRID, 3 * GRID + 1, None)
        return Window("sides", random.choice(lengths), random.choice(lengths))
    strict = (random.random() < 0.4, random.random() < 0.4)
    low = GRID * random.randint(-10, 8)
    return Window("bounds", low, low + GRID * random.randint(1, 10), strict, random.randrange(4))


def random_spec(random: Random, name: str, a: Feed, b: Feed, keys: tuple[str, ...]) -> Spec:
    """Choose a query."""
    where = []
    for alias in "ab":
        where += [
            text.format(*(alias,) * text.count("{}"))
            for text in random.sample(_ON_ONE, random.choice((0, 0, 1, 2)))
        ]
    where += random.sample(_ON_BOTH, random.choice((0, 0, 0, 1)))
    outputs = random.sample(_OUTPUTS, random.randint(1, 6)) if random.random() < 0.85 else []
    return Spec(
        name,
        a,
        b,
        keys,
        random_window(random),
        tuple(where),
        tuple((text, f"c{place}") for place, text in enumerate(outputs)),
        flipped=random.random() < 0.3,
        sink=random.choice(("parquet", "parquet", "table", "callback")),
    )


def random_cuts(random: Random, rows: list[Row], most: int = 8) -> list[int]:
    """Choose where files end; two equal cuts make an empty file."""
    return [random.randint(0, len(rows)) for _ in range(random.randint(1, most))]


# --- the queries and files of crash tests, for the process that is killed and for the one that kills it ---------------


def crash_feeds(root: Path) -> tuple[Feed, Feed]:
    """Make two feeds that are read one file at a time."""
    one = {"maxFilesPerTrigger": "1"}
    return (
        Feed("Alpha", root / "alpha", COLUMNS, LATENESS, options=one),
        Feed("beta", root / "beta", OTHER_COLUMNS, LATENESS, options=one),
    )


def crash_specs(root: Path, *, callback: bool = False) -> list[Spec]:
    """Make queries with plain and computed outputs, with and without predicates, in three groups; one waits."""
    a, b = crash_feeds(root)
    ids = (("a.id", "i"), ("b.id", "j"), ("a.ts", "t"))
    both = ("a.k = b.k", "a.name = b.name")
    short, long = Window("both", 4 * GRID), Window("both", 20 * GRID)
    specs = [
        Spec("plain", a, b, ("a.k = b.k",), short, select=ids, sink="parquet"),
        Spec("picky", a, b, ("a.k = b.k",), long, ("a.v > 20", "b.v < 90"), ids, sink="parquet"),
        Spec("viewed", a, b, ("a.k = b.k",), long, ("a.v > 40",), ids),
        Spec(
            "computed",
            a,
            b,
            ("a.name = b.name",),
            long,
            ("a.v < b.v",),
            (*ids, ("a.v + b.v", "s")),
            sink="parquet",
        ),
        Spec("everything", a, b, ("a.name = b.name",), short),
        Spec("steady", a, b, both, long, select=ids, sink="parquet", order="sync-filter"),
        Spec("minded", a, b, both, short, ("a.v > 10",), ids, order="adaptive"),
    ]
    if callback:
        specs.append(Spec("called", a, b, ("a.k = b.k",), long, ("b.v > 50",), ids, sink="callback"))
    return specs


def write_files(feeds: tuple[Feed, Feed], files: int, rows: int, seed: int) -> None:
    """Write each feed's rows as so many files."""
    random = Random(seed)
    for feed in feeds:
        mine = random_rows(random, rows)
        feed.append_cut(mine, [len(mine) * n // files for n in range(1, files)])
