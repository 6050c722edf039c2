"""Amounts of memory: text to bytes and back; ``2g``, ``2 GB`` and ``2 GiB`` are the same, as they are to Spark."""

from __future__ import annotations

import re
from fractions import Fraction

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
    """Write an amount of memory the way a person would.

    >>> show_size(10), show_size(1536), show_size(2 << 30)
    ('10 B', '1.5 KiB', '2 GiB')
    """
    power = 0
    while size >= _UNIT_RATIO and power < len(_UNITS):
        size, power = size / _UNIT_RATIO, power + 1
    return f"{size:.3g} {_UNITS[power - 1].upper()}iB" if power else f"{size:.0f} B"
