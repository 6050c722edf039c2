"""Random streams and aggregate queries over them, and what a session has given of each, for the tests of this room.

Rows lie on a grid of which windows and steps are multiples, so that a row exactly at an instant, or exactly a window
old, is common; some come late within the lateness, and a few later than that.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.testing.input_rows import timely
from tests.answers import EPOCH, SECOND, Asked, chosen, micros, plain

if TYPE_CHECKING:
    from random import Random

    from penstock.testing import Session

LATENESS = SECOND
START = 1_767_261_600 * SECOND
COLUMNS = "k INT, g STRING, v BIGINT, d DOUBLE, m DECIMAL(10,2), f BOOLEAN, day DATE, x DOUBLE, ts TIMESTAMP"
_OPTIONS = "format = 'parquet', time = 'ts', lateness = '1 second'"
STREAMS = "".join(f"CREATE STREAM {name} ({COLUMNS}) WITH ({_OPTIONS}, path = '{name}');\n" for name in "AB")
KEYS = (
    ("A.g", "kg"), ("B.k", "kk"), ("A.v % 2", "kv"), ("B.day", "kd"), ("A.f", "kf"), ("A.x", "kx"), ("B.m", "km"),
    ("coalesce(A.g, B.g)", "kc"),
)  # fmt: skip
MEASURES = (
    ("COUNT(*)",), ("COUNT(A.v)",), ("SUM(B.v)",), ("AVG(A.v)",), ("MIN(A.d)",), ("MAX(B.d)",), ("MIN(B.g)",),
    ("MAX(A.m)",), ("SUM(A.m)",), ("STDDEV(A.d)",), ("VAR_POP(B.v)",), ("MAX(A.ts)",), ("MIN(A.day)",),
    ("BOOL_OR(A.f)",), ("MAX(B.x)",), ("MIN(A.x)",),
    ("COUNT_IF(A.v > B.v)", "COUNT(*) FILTER (WHERE A.v > B.v)"), ("SUM(A.v + B.v)",),
    ("COUNT(DISTINCT B.v)",), ("COUNT(DISTINCT A.g)",),
    ("SUM(DISTINCT A.v)",), ("AVG(DISTINCT B.v)",), ("COUNT(DISTINCT A.x)",), ("SUM(DISTINCT A.m)",),
    ("COUNT(DISTINCT A.v, B.g)", "COUNT(DISTINCT (A.v, B.g)) FILTER (WHERE A.v IS NOT NULL AND B.g IS NOT NULL)"),
    ("MAX(A.v) FILTER (WHERE B.v > 0)",), ("COUNT(*) FILTER (WHERE A.g = 'x')",),
    ("COUNT(DISTINCT B.g) FILTER (WHERE A.v > 0)",),
    ("MAX(A.v) - MIN(A.v)",), ("SUM(A.v) * 2 + COUNT(*)",), ("COALESCE(SUM(A.v), 0)",),
    ("CASE WHEN COUNT(*) > 2 THEN MAX(B.g) ELSE 'few' END",),
    chosen("MAX_BY", "A.v", "A.d"), chosen("MIN_BY", "B.g", "B.x"), chosen("MAX_BY", "B.x", "B.day"),
    chosen("MIN_BY", "A.g", "B.v"), chosen("MAX_BY", "A.v + B.v", "A.ts"),
    ("MAX_BY(A.m, B.g) FILTER (WHERE A.v > 0)", f"{chosen('MAX_BY', 'A.m', 'B.g')[1][:-1]} AND A.v > 0)"),
)  # fmt: skip
OF_ONE_ROW = tuple(
    each for each in MEASURES if each[0].count("A.") * each[0].count("B.") == 0 and "FILTER" not in each[0]
    and not any(word in each[0] for word in ("DISTINCT", "BOOL_OR", "COUNT_IF"))
)  # fmt: skip
"""Measures that take a column of one row, so that rows are folded where groups are keys."""

HAVINGS = ("COUNT(*) > 1", "MAX(A.v) > 1", "COUNT(*) < 3", "SUM(B.v) IS NOT NULL", "COUNT(DISTINCT B.v) > 1")
WHERES = ("A.v > 0", "B.v > 0", "A.g = 'x'", "B.f", "A.v > B.v", "A.v + B.v < 5")


def random_rows(random: Random, count: int, span: int = 20 * SECOND) -> list[dict[str, Any]]:
    """Make rows in an order of arrival; now and then a long silence, or a row without a time."""
    rows, at = [], START
    step = max(SECOND // 4, span // max(1, count))
    for _ in range(count):
        at += random.choice((0, 0, step, step, 2 * step, 1))
        if random.random() < 0.02:
            at += 40 * SECOND
        early = random.choice((0, 0, 0, LATENESS // 2, LATENESS, 3 * LATENESS))
        rows.append(
            {
                "k": random.choice((None, 1, 1, 2, 3)),
                "g": random.choice(("x", "x", "y", "é", None)),
                "v": random.choice((None, 1, 2, 5, -7)),
                "d": random.choice((None, 1.5, 2.25, -3.0, 0.0)),
                "m": random.choice((None, Decimal("1.25"), Decimal("-0.01"), Decimal("99999999.99"))),
                "f": random.choice((None, True, False)),
                "day": random.choice((None, dt.date(2026, 1, 1), dt.date(1969, 7, 20))),
                "x": random.choice((None, 0.0, -0.0, float("nan"), float("inf"), 1.5)),
                "ts": None if random.random() < 0.02 else at_time(at - early),
            }
        )
    return rows


def at_time(micros: int) -> dt.datetime:
    """Give a time as rows have it."""
    return EPOCH + dt.timedelta(microseconds=micros)


WINDOWS = (
    SECOND // 2,
    SECOND,
    2 * SECOND,
    3 * SECOND,
    5 * SECOND,
    8 * SECOND,
    10 * SECOND,
    16 * SECOND,
    30 * SECOND,
)
STEPS = (SECOND // 4, SECOND // 2, SECOND, 2 * SECOND, 2 * SECOND, 5 * SECOND, SECOND // 3 * 3)


@dataclass(frozen=True, slots=True)
class Shape:
    """What queries that share panes have in common."""

    keys: tuple[tuple[str, str], ...]
    measures: tuple[tuple[str, ...], ...]


def random_shape(random: Random) -> Shape:
    """Choose keys and measures; now and then the join's own key and what needs no pairs."""
    keys = tuple(random.sample(KEYS, random.choice((0, 1, 1, 2, 3))))
    chosen = random.sample(MEASURES, random.randint(1, 5))
    if random.random() < 0.4:
        keys = random.choice(((("A.k", "ka"),), (("B.k", "kk"),), (("A.k", "ka"), ("B.k", "kk"))))
        chosen = random.sample(OF_ONE_ROW, random.randint(1, 5))
    measures = tuple((each[0], f"a{n}", *each[1:]) for n, each in enumerate(chosen))
    return Shape(keys, measures)


def random_windows(random: Random) -> tuple[int, int]:
    """Choose windows, mostly the same for both sides."""
    one = random.choice(WINDOWS)
    return one, random.choice(WINDOWS) if random.random() < 0.3 else one


def random_asked(random: Random, name: str, shape: Shape | None = None, emit: str = "sliding") -> Asked:
    """Choose a query; of one shape with others, it shares their panes."""
    shape = shape or random_shape(random)
    windows = random_windows(random)
    every = random.choice([each for each in STEPS if each <= max(windows)])
    where = tuple(random.sample(WHERES, random.choice((0, 0, 0, 1, 2))))
    having = random.choice(HAVINGS) if random.random() < 0.3 else ""
    return Asked(name, shape.keys, shape.measures, windows, every, where, having, emit)


def in_minutes(asked: Asked, random: Random) -> Asked:
    """Give a query a bucket of time for a key, which makes its groups complete."""
    side = random.choice("AB")
    unit = random.choice(("second", "minute"))
    bucket = (f"date_trunc('{unit}', {side}.ts)", "bucket")
    return replace(asked, keys=(bucket, *asked.keys[:2]))


def rows_so_far(session: Session) -> dict[str, pa.Table]:
    """Give the rows of both streams that count: in time, and with a time."""
    tables = {}
    for name in "AB":
        stream = session.stream(name)
        tables[name] = timely(session.sent.get(name) or [_no_rows(session, name)], stream)
    return tables


def _no_rows(session: Session, name: str) -> pa.Table:
    types = session.arrow_types(session.stream(name))
    return pa.table({column: pa.array([], kind) for column, kind in types.items()})


def watermarks(session: Session) -> list[int] | None:
    """Give both streams' watermarks; None if one has none yet."""
    marks = []
    for table in rows_so_far(session).values():
        times = [micros(each) for each in table.column("ts").to_pylist()]
        if not times:
            return None
        marks.append(max(times) - LATENESS)
    return marks


def check_order(rows: list[dict[str, Any]], asked: Asked) -> None:
    """Assert that the answers of each group ascend; groups are answered in parts, which have no order."""
    last: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key, at = tuple(plain(row[name]) for _, name in asked.keys), micros(row["window_end"])
        assert at > last.get(key, -(2**62)), f"{asked.name}: {key} is answered for {at} again, or too late"
        last[key] = at
