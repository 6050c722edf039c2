"""Conditions that imply each other: a second model of dependence, beside that of `penstock.plan.facts`."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Nested:
    """Conditions each of which implies every less selective one: ``v > 50`` implies ``v > 30``."""

    shares: Mapping[str, float] = field(default_factory=dict)

    def any_of(self, conditions: Collection[str]) -> float:
        """Return the share of rows that satisfy at least one; every row satisfies ''."""
        return max((1.0 if name == "" else self.shares[name] for name in conditions), default=0.0)

    def patterns(self, conditions: Collection[str]) -> Iterator[tuple[frozenset[str], float]]:
        """Divide the rows into rings: all conditions, all but the narrowest, ..., none."""
        names = sorted(set(conditions) - {""}, key=lambda name: (self.shares[name], name))
        inside = [0.0, *(self.shares[name] for name in names), 1.0]
        for ring, (inner, outer) in enumerate(pairwise(inside)):
            yield frozenset(names[ring:]), outer - inner
