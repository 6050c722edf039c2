"""The settings of Spark that change the value of an expression: the time zone, and ANSI mode.

Predicate bits, keys and event times are computed when a row arrives, outputs when a pair is found.  A state that
continued under another time zone would mix values of both.  So the settings are stored with the plan and compared at
every start.

In:  the settings of a Spark session.  Out: a `SparkSettings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import InputError
from penstock.sql.zones import ZONE, is_utc

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSI = "spark.sql.ansi.enabled"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The time zone in which times are read and written, and whether a failed expression is an error (ANSI) or null."""

    zone: str = "UTC"
    ansi: bool = True

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> SparkSettings:
        """Read the settings of a Spark session; the defaults are those of Penstock's own session."""
        return cls(settings.get(ZONE, "UTC"), settings.get(ANSI, "true").lower() == "true")

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value!r}" for name, value in self.as_options().items())

    def as_options(self) -> dict[str, str]:
        """Return the settings with which another Spark session computes the same values."""
        return {ZONE: self.zone, ANSI: str(self.ansi).lower()}

    @property
    def is_utc(self) -> bool:
        """Check whether the session's wall clock is UTC."""
        return is_utc(self.zone)

    def means(self, other: SparkSettings) -> bool:
        """Check whether expressions have the same values in another session."""
        same_zone = self.zone == other.zone or (self.is_utc and other.is_utc)
        return same_zone and self.ansi == other.ansi


def refuse_other(made: SparkSettings, now: SparkSettings, state: str) -> None:
    """Refuse a session in which the expressions of a state would have other values."""
    if made.means(now):
        return
    name, was, is_now = (
        (ZONE, made.zone, now.zone)
        if made.zone != now.zone
        else (ANSI, str(made.ansi).lower(), str(now.ansi).lower())
    )
    raise InputError(
        f"state {state} was made with {name} = {was!r}, and this session has {is_now!r}, under which the same "
        f"expressions have other values. SET {name} = '{was}', or give a new state and new output paths"
    )
