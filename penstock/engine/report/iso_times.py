"""Event times in ISO 8601, for programs that read a status.

In:  microseconds since 1970.  Out: text.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(micros: int | None, *, zoned: bool) -> str | None:
    """Write an event time: in UTC with a Z, or as its clock shows it where it has no time zone.

    Return None where there is none, and beyond the years 1 to 9999.

    >>> iso_time(1_700_000_000_250_000, zoned=True), iso_time(0, zoned=False), iso_time(1 << 60, zoned=True)
    ('2023-11-14T22:13:20.250000Z', '1970-01-01T00:00:00.000000', None)
    """
    if micros is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z" * zoned
