"""Random streams that make promises and keep them, and queries over them, for the tests of this room.

Values come and go as time passes, so that promises about them are made while rows still come::

    value 1   x  x x   x|                          | a promise: no row of this value after here
    value 2        x  x    xx x  |
    value 3               x    x   x x  |
    time      ------------------------------▶

What a promise says is drawn first; its time is that of the last row it is about, or a little later.  So ties are
common, and a promise about nothing (an empty range, a null in a list) may stand anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.answers import SECOND
from tests.testing.answer_world import START, at_time

if TYPE_CHECKING:
    from random import Random

LATENESS = 2 * SECOND
STEP = SECOND // 2
KINDS = ("value", "list", "range", "unique")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """How streams are joined, and the type of the key on either side."""

    columns: tuple[str, ...]
    types: tuple[str, str] = ("BIGINT", "BIGINT")

    @property
    def condition(self) -> str:
        """Write the equalities."""
        return " AND ".join(f"A.{each} = B.{each}" for each in self.columns)


SHAPES = (
    Shape(("k",)),
    Shape(("k",), ("INT", "BIGINT")),
    Shape(("k",), ("INT", "INT")),
    Shape(("k",), ("STRING", "STRING")),
    Shape(("k", "j")),
    Shape(("k", "j"), ("STRING", "STRING")),
)


@dataclass
class Promised:
    """One stream: its rows in order of arrival, and what it promises by which kind of option."""

    name: str
    shape: Shape
    kind: str = ""
    """Empty: it promises nothing."""
    carried: bool = False
    both: bool = False
    """Whether promises are about both columns, where the join has both."""
    rows: list[Row] = field(default_factory=list)
    carrier: list[Row] = field(default_factory=list)

    @property
    def type(self) -> str:
        """Give the type of column k."""
        return self.shape.types["AB".index(self.name)]

    @property
    def patterns(self) -> str:
        """Write what is promised about."""
        first = {"value": "k", "list": "k IN ks", "range": "k BETWEEN lo AND hi", "unique": "k"}[self.kind]
        return f"{first}, j" if self.both else first

    def declared(self, *, promising: bool = True, more: str = "") -> str:
        """Write the stream, and the one that carries its promises."""
        options = f"format = 'parquet', time = 'ts', lateness = '2 seconds', path = '{self.name}'{more}"
        columns = (
            f"id BIGINT, k {self.type}, j BIGINT, v BIGINT, kind STRING, lo {self.type}, hi {self.type}, "
            f"ks ARRAY<{self.type}>, ts TIMESTAMP"
        )
        plain = columns.replace(f"ks ARRAY<{self.type}>, ", "")
        if not self.kind or not promising:
            return f"CREATE STREAM {self.name} ({plain}) WITH ({options});\n"
        if self.kind == "unique":
            return f"CREATE STREAM {self.name} ({plain}) WITH ({options}, unique = '{self.patterns}');\n"
        mine = columns if self.kind == "list" else plain
        promise = f"punctuation = 'kind = ''p''', punctuates = '{self.patterns}'"
        if not self.carried:
            return f"CREATE STREAM {self.name} ({mine}) WITH ({options}, {promise});\n"
        carrier = options.replace(f"path = '{self.name}'", f"path = 'P{self.name}'")
        return (
            f"CREATE STREAM {self.name} ({plain}) WITH ({options});\n"
            f"CREATE STREAM P{self.name} ({mine}) WITH ({carrier}, {promise}, punctuation_of = '{self.name}');\n"
        )


def random_stream(random: Random, name: str, shape: Shape, count: int, kind: str) -> Promised:
    """Make a stream whose rows keep what it promises."""
    carried = kind not in {"", "unique"} and random.random() < 0.3
    both = random.random() < (0.7 if len(shape.columns) > 1 else 0.2)
    stream = Promised(name, shape, kind, carried, both)
    data = _data(random, stream, count, 1000 * "AB".index(name))
    made = [_promise(random, stream, data) for _ in range(count // 3)] if kind not in {"", "unique"} else []
    if stream.carried:
        stream.carrier = _in_order(random, made) if random.random() < 0.5 else random.sample(made, len(made))
        made = []
    stream.rows = _in_order(random, data + made)
    return stream


def _data(random: Random, stream: Promised, count: int, first: int) -> list[Row]:
    rows: list[Row] = []
    ends: dict[Any, int] = {}
    at = START
    for number in range(count):
        at += random.choice((0, 0, STEP, STEP, 3 * STEP, 1))
        value = random.choice((0, 0, 1, 2)) + (at - START) // (4 * SECOND)
        other = random.choice((0, 0, 1))
        time = at
        if stream.kind == "unique":
            value = value if random.random() < 0.5 else 100 + number
            time = ends.setdefault(
                (value, other if stream.both else 0), at
            )  # rows of a value have its one time
        row = _row(stream, first + number, None if random.random() < 0.04 else value, time)
        rows.append(
            row | {"j": None if random.random() < 0.04 else other, "v": random.randrange(6), "kind": "r"}
        )
    return rows


def _row(stream: Promised, number: int, value: int | None, time: int) -> Row:
    return {"id": number, "k": _value(stream, value), "j": None, "v": 0, "ts": at_time(time), "_t": time}


def _value(stream: Promised, value: int | None) -> Any:
    """Write a value so that texts have the order of numbers."""
    return f"n{value:05d}" if value is not None and stream.type == "STRING" else value


def _promise(random: Random, stream: Promised, data: list[Row]) -> Row:
    """Draw what is promised, and let the promise be made when it holds."""
    values = [row["k"] for row in data if row["k"] is not None] or [_value(stream, 0)]
    row: Row = {"id": -1, "k": None, "j": None, "v": 9, "kind": "p"}
    if stream.kind == "value":
        row["k"] = random.choice(values) if random.random() < 0.95 else None
    elif stream.kind == "range":
        low, high = (random.choice(values) if random.random() < 0.9 else None for _ in range(2))
        row |= {"lo": low, "hi": low if random.random() < 0.4 else high}
    else:
        row["ks"] = [random.choice([*values, None]) for _ in range(random.randrange(4))]
    if stream.both and random.random() < 0.6:
        row["j"] = random.choice((0, 1))
    about = [each["_t"] for each in data if covers(stream, row, each)]
    last = max(about, default=START + random.randrange(20) * SECOND)
    return _at(row, last + random.choice((0, 0, 1, STEP, 2 * SECOND)))


def _at(row: Row, time: int) -> Row:
    return row | {"ts": at_time(time), "_t": time}


def covers(stream: Promised, promise: Row, row: Row) -> bool:
    """Say whether a promise is about a row: by its definition; a wildcard is about nulls too."""
    if stream.kind == "unique":
        same = row["k"] is not None and row["k"] == promise["k"]
        return same and (not stream.both or (row["j"] is not None and row["j"] == promise["j"]))
    if stream.both and promise["j"] is not None and promise["j"] != row["j"]:
        return False
    if stream.kind == "value":
        return promise["k"] is None or promise["k"] == row["k"]
    if stream.kind == "list":
        return row["k"] is not None and row["k"] in (promise["ks"] or ())
    low, high = promise["lo"], promise["hi"]
    if row["k"] is None:
        return low is None and high is None
    return (low is None or low <= row["k"]) and (high is None or row["k"] <= high)


def _in_order(random: Random, rows: list[Row]) -> list[Row]:
    """Put rows in an order of arrival in which none is late."""
    arrivals = [row["_t"] + random.choice((0, 0, 1, STEP, LATENESS)) for row in rows]
    return [rows[number] for number in sorted(range(len(rows)), key=arrivals.__getitem__)]


def sent(rows: list[Row], stream: Promised) -> list[Row]:
    """Give rows as they are sent: without our notes, and without columns the stream does not have."""
    left = {"_t"} | (set() if stream.kind == "list" else {"ks"})
    return [{name: value for name, value in row.items() if name not in left} for row in rows]
