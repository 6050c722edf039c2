"""Time zones, as far as differences of event times depend on them.

A TIMESTAMP is a point in time; a TIMESTAMP_NTZ or a DATE is a reading of a wall clock.  Spark uses the wall clock of
the session's zone where it compares one with the other, where it adds a day or more to a TIMESTAMP, and where it
subtracts one from another.  With daylight saving, an hour of that clock may last no time, or two hours::

    Europe/Oslo, 31 March 2024       01:30 + 1 day = 01:30 of the next day: 23 hours later
                                     03:30 - 01:30 = 2 hours of the clock:   1 hour later

In:  the name of a zone.  Out: whether it is UTC, whether its offset changes, and by how much.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

ZONE = "spark.sql.session.timeZone"

_UTC_NAMES = """
    utc etc/utc ut uct etc/uct z zulu etc/zulu universal etc/universal gmt etc/gmt gmt0 etc/gmt0 gmt+0 gmt-0 greenwich
    etc/greenwich utc+0 utc-0 +00:00 -00:00 +00 +0 gmt+00:00 utc+00:00
"""
_UTC = frozenset(_UTC_NAMES.split())
"""Spellings of the zone UTC."""

_FIRST_DAY, _LAST_DAY, _SAMPLE_STEP = (
    datetime(1800, 1, 1, tzinfo=UTC),
    datetime(2100, 1, 1, tzinfo=UTC),
    timedelta(days=5),
)
_SHIFT_MARGIN = timedelta(hours=2)
_WIDEST_SHIFT = timedelta(hours=36)
"""The largest shift of a zone that Python does not know: Java has zones from -18:00 to +18:00."""


def is_utc(zone: str) -> bool:
    """Check whether a zone is UTC."""
    return zone.lower() in _UTC


@cache
def has_fixed_offset(zone: str) -> bool:
    """Check whether the offset of a zone is known to be fixed.

    >>> has_fixed_offset("UTC"), has_fixed_offset("+05:30"), has_fixed_offset("Europe/Oslo")
    (True, True, False)
    """
    if is_utc(zone) or zone[:1] in {"+", "-"}:
        return True
    info = _zone(zone)
    return info is not None and info.key.startswith("Etc/")


@cache
def clock_shift(zone: str) -> int:
    """Return the largest error, in microseconds, that changes of a zone's offset cause in a difference of times.

    >>> clock_shift("UTC"), clock_shift("Europe/Oslo") // 3_600_000_000, clock_shift("Nowhere/Else") // 3_600_000_000
    (0, 3, 36)
    """
    if has_fixed_offset(zone):
        return 0
    info = _zone(zone)
    if info is None:
        return _WIDEST_SHIFT // timedelta(microseconds=1)
    days = range((_LAST_DAY - _FIRST_DAY) // _SAMPLE_STEP)
    offsets = {
        (_FIRST_DAY + number * _SAMPLE_STEP).astimezone(info).utcoffset() or timedelta() for number in days
    }
    return (max(offsets) - min(offsets) + _SHIFT_MARGIN) // timedelta(microseconds=1)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
