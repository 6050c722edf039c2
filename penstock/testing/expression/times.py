"""Arithmetic and parts of times, in UTC.

In:  nodes.  Out: a node; `Refusal` where the session's zone matters and is not UTC, and for months, which vary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import RunError
from penstock.sql.spark_types import SparkType
from penstock.testing.expression.casts import cast
from penstock.testing.expression.nodes import BIGINT, DATE, INT, TIMESTAMP, Refusal, strict
from penstock.testing.expression.values import DAY, STAMPS, civil, days_of, in_range, is_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.testing.expression.nodes import Node, Settings

_ELAPSED = SparkType("interval day to second")
_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": DAY,
    "WEEK": 7 * DAY,
}
_MONDAY = 4 * DAY
"""1970 began on a Thursday; weeks begin on Mondays."""
_TRUNCATED = {
    **{unit: unit for unit in (*_MICROS, "MONTH", "QUARTER", "YEAR")},
    **dict.fromkeys(("MON", "MM"), "MONTH"),
    **dict.fromkeys(("YYYY", "YY"), "YEAR"),
    "DD": "DAY",
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def shifts_time(left: Node, right: Node) -> bool:
    """Say whether a sum or difference is one of times."""
    return any(node.kind.name in {"date", *STAMPS} or is_interval(node.kind) for node in (left, right))


def shift(head: str, left: Node, right: Node, settings: Settings) -> Node:
    """Make a sum or difference of times, intervals and days."""
    if head == "+" and left.kind.name not in {"date", *STAMPS}:
        if left.fails or right.fails:
            raise Refusal("only Spark knows which side it evaluates first")
        left, right = right, left
    sign = -1 if head == "-" else 1
    if left.kind.name in STAMPS and is_interval(right.kind):
        return _moved(left, right, sign, settings)
    if left.kind == DATE and is_interval(right.kind):
        if right.kind.name == "interval day":
            return strict(DATE, lambda day, span: _whole_days(day + sign * (span // DAY)), [left, right])
        return _moved(cast(left, TIMESTAMP, settings), right, sign, settings)
    if left.kind == DATE and right.kind.name in {"tinyint", "smallint", "int"}:
        return strict(DATE, lambda day, days: _whole_days(day + sign * days), [left, right])
    if head == "-" and left.kind == right.kind:
        return _elapsed(left, right, settings)
    raise Refusal(f"only Spark computes {left.kind} {head} {right.kind}")


def shift_days(head: str, nodes: list[Node], settings: Settings) -> Node:
    """Make DATE_ADD or DATE_SUB."""
    day, days = nodes
    if day.kind != DATE or days.kind.name not in {"tinyint", "smallint", "int"}:
        raise Refusal("it is known of a DATE and a whole number only")
    return shift(head, day, days, settings)


def _moved(time: Node, span: Node, sign: int, settings: Settings) -> Node:
    """Move a timestamp by an interval; whole days are those of the session's clock."""
    short = span.constant and span.value is not None and abs(span.value) < DAY
    if time.kind == TIMESTAMP and not settings.utc and not short:
        raise _zoned()
    return strict(time.kind, lambda at, by: _micros(at + sign * by), [time, span], fails=True)


def _elapsed(left: Node, right: Node, settings: Settings) -> Node:
    """Make the difference of two times of one type."""
    if left.kind == DATE:
        return strict(
            SparkType("interval day"),
            lambda one, other: _micros((one - other) * DAY),
            [left, right],
            fails=True,
        )
    if left.kind == TIMESTAMP and not settings.utc:
        raise _zoned()
    if left.kind.name not in STAMPS:
        raise Refusal(f"only Spark subtracts {right.kind} from {left.kind}")
    return strict(_ELAPSED, lambda one, other: _micros(one - other), [left, right], fails=True)


def _zoned() -> Refusal:
    return Refusal("it depends on the clock of the session's time zone, which is not UTC")


def _micros(value: int) -> int:
    if not in_range(value, BIGINT):
        raise RunError("long overflow (ARITHMETIC_OVERFLOW)")
    return value


def days_between(end: int, start: int) -> int:
    """Count the days from one date to another."""
    return _whole_days(end - start)


def _whole_days(value: int) -> int:
    """Keep days in their 32 bits: beyond them they wrap, as Spark has it."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _clock(node: Node, settings: Settings, *, days: bool) -> Node:
    """Require a time whose parts are known: a date only where it has the part."""
    if node.kind == TIMESTAMP and not settings.utc:
        raise _zoned()
    if node.kind.name in STAMPS or (days and node.kind == DATE):
        return node
    raise Refusal(f"only Spark knows the parts of {node.kind}")


def part(unit: str) -> Callable[[list[Node], Settings], Node]:
    """Make YEAR, MONTH, DAY, HOUR, MINUTE or SECOND of a time."""
    if unit in {"HOUR", "MINUTE", "SECOND"}:
        size, count = _MICROS[unit], {"HOUR": 24}.get(unit, 60)
        return lambda nodes, settings: strict(
            INT, lambda at: at // size % count, [_clock(nodes[0], settings, days=False)]
        )
    index = ("YEAR", "MONTH", "DAY").index(unit)

    def made(nodes: list[Node], settings: Settings) -> Node:
        node = _clock(nodes[0], settings, days=True)
        size = 1 if node.kind == DATE else DAY
        return strict(INT, lambda at: civil(at // size)[index], [node])

    return made


def truncated(nodes: list[Node], settings: Settings) -> Node:
    """Make DATE_TRUNC of a constant unit."""
    unit, time = nodes
    if not (unit.constant and unit.kind.name == "string" and time.kind == TIMESTAMP):
        raise Refusal("only Spark truncates what is no TIMESTAMP to what is no constant unit")
    name = _TRUNCATED.get(unit.value.upper())
    if name is None:
        raise Refusal(f"{unit.value} is no unit that is known here")
    if not settings.utc:
        raise _zoned()
    return strict(TIMESTAMP, lambda at: _micros(_start(at, name)), [time], fails=True)


def _start(at: int, unit: str) -> int:
    """Give the first instant of the unit that a time is in."""
    if unit in _MICROS:
        offset = _MONDAY if unit == "WEEK" else 0
        return (at - offset) // _MICROS[unit] * _MICROS[unit] + offset
    year, month, _ = civil(at // DAY)
    return days_of(year, (month - 1) // _MONTHS[unit] * _MONTHS[unit] + 1, 1) * DAY


def counted(unit: str, nodes: list[Node], settings: Settings) -> Node:
    """Make TIMESTAMPDIFF in whole units of fixed length."""
    start, end = nodes
    if unit not in _MICROS or start.kind != TIMESTAMP or end.kind != TIMESTAMP or not settings.utc:
        raise Refusal("only Spark counts months, and units between what is no TIMESTAMP of UTC")
    size = _MICROS[unit]

    def count(one: int, other: int) -> int:
        whole = abs(other - one) // size
        return _micros(whole if other >= one else -whole)

    return strict(BIGINT, count, [start, end], fails=True)


def since_1970(size: int) -> Callable[[list[Node], Settings], Node]:
    """Make UNIX_MICROS, UNIX_MILLIS or UNIX_SECONDS."""

    def made(nodes: list[Node], _: Settings) -> Node:
        (node,) = nodes
        if node.kind != TIMESTAMP:
            raise Refusal("it is known of a TIMESTAMP only")
        return strict(BIGINT, lambda at: at // size, nodes)

    return made
