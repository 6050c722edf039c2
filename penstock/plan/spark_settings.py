"""The settings of Spark that decide what an expression means: under others, the same text gives other values.

Predicate bits, keys and event times are worked out when a row arrives, outputs when a pair is found.  A state that was
made under one time zone and goes on under another would hold both, and nobody could tell which row is which.

In:  what a Spark session is set to.  Out: a `SparkSettings`, kept with the plan and compared at every start.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"

_UTC_NAMES = """
    utc etc/utc ut uct etc/uct z zulu etc/zulu universal etc/universal gmt etc/gmt gmt0 etc/gmt0 gmt+0 gmt-0 greenwich
    etc/greenwich utc+0 utc-0 +00:00 -00:00 +00 +0 gmt+00:00 utc+00:00
"""
_UTC = frozenset(_UTC_NAMES.split())
"""Ways to write the time zone whose wall clock is the time itself."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The time zone in which times are read and written, and whether what goes wrong is an error (ANSI) or null."""

    zone: str = "UTC"
    ansi: bool = True

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> SparkSettings:
        """Read the settings of a Spark session; what is not set is as Penstock's own session has it."""
        return cls(settings.get(ZONE, "UTC"), settings.get(ANSI, "true").lower() == "true")

    def as_options(self) -> dict[str, str]:
        """Give the settings that make another Spark session mean the same."""
        return {ZONE: self.zone, ANSI: str(self.ansi).lower()}

    @property
    def is_utc(self) -> bool:
        """Say whether the session's wall clock is UTC."""
        return self.zone.lower() in _UTC

    def means(self, other: SparkSettings) -> bool:
        """Say whether expressions mean the same in another session."""
        same_zone = self.zone == other.zone or (self.is_utc and other.is_utc)
        return same_zone and self.ansi == other.ansi


def refuse_other(made: SparkSettings, now: SparkSettings, state: str) -> None:
    """Refuse to go on with a state in a session in which its expressions would mean something else."""
    if made.means(now):
        return
    name, was, found = (
        (ZONE, made.zone, now.zone)
        if made.zone != now.zone
        else (ANSI, str(made.ansi).lower(), str(now.ansi).lower())
    )
    raise InputError(
        f"state {state} was made with {name} = {was!r}, and this session has {found!r}: its rows and results would "
        f"mean something else from here on. SET {name} = '{was}', or give a new state and new output paths"
    )


@cache
def has_fixed_offset(zone: str) -> bool:
    """Say whether a zone's clock is never put forward or back, as far as that can be told.

    >>> has_fixed_offset("UTC"), has_fixed_offset("+05:30"), has_fixed_offset("Europe/Oslo")
    (True, True, False)
    """
    if zone.lower() in _UTC or zone[:1] in {"+", "-"}:
        return True
    try:
        found = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        return False
    return found.key.startswith("Etc/")
