"""The settings of Spark that decide what an expression means: under others, the same text gives other values.

Predicate bits, keys and event times are worked out when a row arrives, outputs when a pair is found.  A state that was
made under one time zone and goes on under another would hold both, and nobody could tell which row is which.

In:  what a Spark session is set to.  Out: a `SparkSettings`, kept with the plan and compared at every start.
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
    """The time zone in which times are read and written, and whether what goes wrong is an error (ANSI) or null."""

    zone: str = "UTC"
    ansi: bool = True

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> SparkSettings:
        """Read the settings of a Spark session; what is not set is as Penstock's own session has it."""
        return cls(settings.get(ZONE, "UTC"), settings.get(ANSI, "true").lower() == "true")

    def __str__(self) -> str:
        """Write the settings as they are set."""
        return ", ".join(f"{name} = {value!r}" for name, value in self.as_options().items())

    def as_options(self) -> dict[str, str]:
        """Give the settings that make another Spark session mean the same."""
        return {ZONE: self.zone, ANSI: str(self.ansi).lower()}

    @property
    def is_utc(self) -> bool:
        """Say whether the session's wall clock is UTC."""
        return is_utc(self.zone)

    def means(self, other: SparkSettings) -> bool:
        """Say whether expressions mean the same in another session."""
        same_zone = self.zone == other.zone or (self.is_utc and other.is_utc)
        return same_zone and self.ansi == other.ansi


def refuse_other(made: SparkSettings, now: SparkSettings, state: str) -> None:
    """Refuse to go on with a state in a session in which its expressions would mean something else."""
    if made.means(now):
        return
    name, was, is_now = (
        (ZONE, made.zone, now.zone)
        if made.zone != now.zone
        else (ANSI, str(made.ansi).lower(), str(now.ansi).lower())
    )
    raise InputError(
        f"state {state} was made with {name} = {was!r}, and this session has {is_now!r}: its rows and results would "
        f"mean something else from here on. SET {name} = '{was}', or give a new state and new output paths"
    )
