"""What batches and units have been like lately: sums in which the past fades, so that they follow the streams.

Each new observation counts full, the one before it `FADE`, the one before that `FADE` squared, and so on; after about
twenty nothing is left of a stream that has changed.  The sums are part of the ledger, so they survive a restart.

In:  what a commit reports.  Out: rates, shares and averages, for `penstock.engine.measure`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

FADE = 0.9
"""How much an observation counts when the next one comes."""

MOST_PATTERNS = 64
"""Patterns of predicate bits that are told apart; rarer ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """A log's input lately: rows, the event time they span (µs), and how many had each pattern of predicate bits.

    `layout` says what the bits mean; under another one counting begins anew.  `holds` counts the rows that satisfy each
    predicate, exactly, also where there are more patterns than are told apart.
    """

    layout: int
    rows: float = 0.0
    micros: float = 0.0
    patterns: tuple[tuple[int, float], ...] = ()
    holds: tuple[float, ...] = ()

    def then(self, batch: Mapping[str, Any]) -> Traffic:
        """Add a batch, given as in its commit: rows, micros, patterns, holds."""
        if batch["layout"] != self.layout:
            return Traffic(batch["layout"]).then(batch)
        counts = {bits: FADE * rows for bits, rows in self.patterns}
        for bits, rows in batch["patterns"]:
            counts[bits] = counts.get(bits, 0.0) + rows
        before = self.holds or (0.0,) * len(batch["holds"])
        often = sorted(counts.items(), key=lambda each: -each[1])[:MOST_PATTERNS]
        return replace(
            self,
            rows=FADE * self.rows + batch["rows"],
            micros=FADE * self.micros + batch["micros"],
            patterns=tuple(often),
            holds=tuple(FADE * old + new for old, new in zip(before, batch["holds"], strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Effort:
    """What a group's units did and took lately: event time (µs), input rows, pairs, and seconds.

    `units` is their faded number.
    """

    units: float = 0.0
    micros: float = 0.0
    rows: float = 0.0
    pairs: float = 0.0
    seconds: float = 0.0

    def then(self, micros: float, rows: int, pairs: int, seconds: float) -> Effort:
        """Add a unit."""
        return Effort(
            FADE * self.units + 1,
            FADE * self.micros + micros,
            FADE * self.rows + rows,
            FADE * self.pairs + pairs,
            FADE * self.seconds + seconds,
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """The sums of a least-squares fit: seconds as a price for each thing that was counted.

    `squares` is the matrix of sums of products of the counts, row by row; `products` the sums of count times seconds.
    """

    squares: tuple[float, ...] = ()
    products: tuple[float, ...] = ()
    seen: float = 0.0
    """How many observations there are, faded like their sums."""

    def then(self, counts: Iterable[float], seconds: float) -> Fit:
        """Add an observation: so many of each thing took so many seconds."""
        mine = tuple(counts)
        squares = self.squares or (0.0,) * len(mine) ** 2
        products = self.products or (0.0,) * len(mine)
        return Fit(
            tuple(FADE * old + a * b for old, (a, b) in zip(squares, _pairs(mine), strict=True)),
            tuple(FADE * old + a * seconds for old, a in zip(products, mine, strict=True)),
            FADE * self.seen + 1,
        )


def _pairs(counts: tuple[float, ...]) -> list[tuple[float, float]]:
    """List every two of the counts."""
    return [(a, b) for a in counts for b in counts]
