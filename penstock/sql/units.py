"""Lengths of time: text to whole microseconds and back.

All lengths of time in SQL and options are read here: ``WINDOW 2.5 seconds``, ``lateness = '5 seconds'``,
``INTERVAL '01:30' MINUTE TO SECOND``.  A length is an integer of microseconds.

Months and years have no fixed length and are refused; a day is 24 hours and a week 7 days.
"""

from __future__ import annotations

import re
from fractions import Fraction

from penstock.errors import did_you_mean
from penstock.sql.query import FOREVER, SECOND

_SPELLINGS = {
    1: "microsecond microseconds us",
    1_000: "millisecond milliseconds ms",
    SECOND: "second seconds sec secs s",
    60 * SECOND: "minute minutes min mins m",
    3_600 * SECOND: "hour hours hr hrs h",
    86_400 * SECOND: "day days d",
    604_800 * SECOND: "week weeks w",
}
UNITS = {name: micros for micros, names in _SPELLINGS.items() for name in names.split()}
"""The microseconds of each unit, by every spelling."""

_CALENDAR_UNITS = {"month", "months", "year", "years", "quarter", "quarters"}
_SHOWN_UNITS = (
    ("d", 86_400 * SECOND),
    ("h", 3_600 * SECOND),
    ("min", 60 * SECOND),
    ("s", SECOND),
    ("ms", 1_000),
)
_PART = re.compile(r"\s*([+-]?\s*(?:[0-9]+\.?[0-9]*|\.[0-9]+))\s*([^\W\d_]*)")
_LONGEST_NUMBER_CHARACTERS = 60
_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")


class DurationError(ValueError):
    """A text that is not a length of time; the message completes the sentence "<text> …"."""


def parse_duration(text: str) -> int:
    """Read a length of time such as ``5 seconds`` or ``1 hour 30 minutes``, in microseconds.

    >>> parse_duration("2.5 seconds"), parse_duration("1 min 30s"), parse_duration("-1 ms")
    (2500000, 90000000, -1000)
    >>> parse_duration("10")
    Traceback (most recent call last):
    penstock.sql.units.DurationError: has no unit: write one, such as 10 seconds
    """
    rest, total = text.strip(), Fraction(0)
    if not rest:
        raise DurationError("is empty: write a number and a unit, such as 10 seconds")
    while rest:
        part = _PART.match(rest)
        if not part:
            raise DurationError("is not a length of time: write a number and a unit, such as 10 seconds")
        total += _number(part[1]) * _unit(part[2], part[1])
        rest = rest[part.end() :].strip()
    return _whole(total)


def parse_span(text: str, first: str, last: str) -> int:
    """Read the text of an interval of several fields, such as ``'01:30' MINUTE TO SECOND``.

    >>> parse_span("01:30", "MINUTE", "SECOND"), parse_span("-1 02:00:00.5", "DAY", "SECOND")
    (90000000, -93600500000)
    """
    if first not in _FIELDS or last not in _FIELDS:
        raise DurationError("has no fixed length: state it in days")
    fields = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    sign, body = (-1, text.strip()[1:]) if text.strip().startswith("-") else (1, text.strip())
    numbers = re.split(r"[ :]", body.lstrip("+"))
    if len(numbers) != len(fields) or not all(
        re.fullmatch(r"[0-9]+(\.[0-9]+)?", number) for number in numbers
    ):
        raise DurationError(f"does not have the fields {first} TO {last}: write a number for each")
    pairs = zip(numbers, fields, strict=True)
    return sign * _whole(sum((_number(n) * UNITS[f.lower()] for n, f in pairs), Fraction(0)))


def show_duration(micros: int) -> str:
    """Write a length of time for display.

    >>> [show_duration(micros) for micros in (0, 1, 2_500_000, 60_000_000, 61_000_000, -1_000, 5_400_000_000)]
    ['0 s', '1 µs', '2.5 s', '1 min', '61 s', '-1 ms', '1.5 h']
    >>> show_duration(12_345_678), show_duration(FOREVER)
    ('12.345678 s', 'unbounded')
    """
    if micros < 0:
        return f"-{show_duration(-micros)}"
    if micros >= FOREVER:
        return "unbounded"
    if micros == 0:
        return "0 s"
    for unit, size in _SHOWN_UNITS:
        if micros >= size and micros * 10 % size == 0:
            return f"{_decimal(micros, size)} {unit}"
    unit, size = next(((unit, size) for unit, size in _SHOWN_UNITS[3:] if micros >= size), ("µs", 1))
    return f"{_decimal(micros, size)} {unit}"


def _decimal(micros: int, size: int) -> str:
    """Divide exactly, without trailing zeros."""
    whole, part = divmod(micros, size)
    digits = len(str(size)) - 1 if str(size).strip("0") == "1" else 1
    tail = str(part * 10**digits // size).zfill(digits).rstrip("0") if part else ""
    return f"{whole}.{tail}" if tail else str(whole)


def _number(text: str) -> Fraction:
    if len(text) > _LONGEST_NUMBER_CHARACTERS:
        raise DurationError(f"has a number of {len(text)} characters: write a shorter one")
    return Fraction("".join(text.split()))


def _unit(name: str, number: str) -> int:
    if not name:
        raise DurationError(f"has no unit: write one, such as {number.strip()} seconds")
    if name.lower() in _CALENDAR_UNITS:
        raise DurationError(f"has no fixed length ({name} vary): state it in days")
    if name.lower() not in UNITS:
        raise DurationError(f"has an unknown unit {name}: {did_you_mean(name, _unit_names())}")
    return UNITS[name.lower()]


def _unit_names() -> list[str]:
    return [names.split()[1] for names in _SPELLINGS.values()]


def _whole(total: Fraction) -> int:
    """Check that a length is a whole number of microseconds within the range of timestamps."""
    if total.denominator != 1:
        raise DurationError("is not a whole number of microseconds, the smallest unit: round it")
    if abs(total) >= FOREVER:
        raise DurationError("is longer than any time in Spark: write [UNBOUNDED] after each stream")
    return int(total)


_UNITS = "kmgtp"
_SIZE = re.compile(rf"([0-9]{{1,40}}(?:\.[0-9]{{1,40}})?|\.[0-9]{{1,40}})\s*([{_UNITS}]?)i?b?", re.IGNORECASE)
_UNIT_RATIO = 1024


class SizeError(ValueError):
    """A text that is not an amount of memory; the message completes the sentence "<text> …"."""


def parse_size(text: str) -> int:
    """Read an amount of memory in bytes.

    >>> parse_size("2 GiB"), parse_size("1.5k"), parse_size("10")
    (2147483648, 1536, 10)
    """
    match = _SIZE.fullmatch(text.strip())
    if not match or not Fraction(match[1]):
        raise SizeError("is not an amount of memory: write one such as 2 GiB or 512m")
    power = _UNITS.index(match[2].lower()) + 1 if match[2] else 0
    return int(Fraction(match[1]) * _UNIT_RATIO**power)


def show_size(size: float) -> str:
    """Write an amount of memory for display.

    >>> show_size(10), show_size(1536), show_size(2 << 30)
    ('10 B', '1.5 KiB', '2 GiB')
    """
    power = 0
    while size >= _UNIT_RATIO and power < len(_UNITS):
        size, power = size / _UNIT_RATIO, power + 1
    return f"{size:.3g} {_UNITS[power - 1].upper()}iB" if power else f"{size:.0f} B"
