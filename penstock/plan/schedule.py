"""Schedulers: which rows are joined next, and how far (paper 2).

Windows of one chain are nested *rings* around a new row's own time.  Rows scan them from the inside outwards, in order
of arrival, so that at any moment rows wait in front of some rings, older rows never behind younger ones::

    ring            0        1            2                  3
    window    |-- 1 s --|-- 5 s ----|---- 60 s ----------|------ 600 s --------|
    waiting        t9        t7,t8                                t3

    LWO   the oldest row, all rings at once: a small window waits for the largest one
    SWF   the innermost ring that has rows waiting
    MQT   the rows that serve the most queries per unit of time, by the matrix of paper 2: rows in front of ring i, with
          older ones in front of ring j, may serve the C queries whose windows end in rings i to k - 1, k <= j,
          at the cost of those rings

A step that takes time of its own (`overhead`: a Spark job) counts with the rings it scans; so where steps are dear, MQT
joins rings by itself.

In:  how many queries end in each ring, what a ring costs, and where rows wait.  Out: `ScanStep`s.
The virtual time of `papers` and the joiner of `penstock.engine` run this very code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class ScanStep:
    """Let the rows that wait in front of ring `first` scan the rings up to, not including, `last`."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Rings:
    """The rings of a chain from the inside: queries whose window ends there, and what scanning one costs.

    >>> rings = Rings((1, 1, 1), (2.0, 1.0, 3.0))
    >>> rings.throughput(0, 2)
    (0.6666666666666666, 2)
    """

    queries: tuple[int, ...]
    costs: tuple[float, ...]
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Refuse rings with a cost missing, or a negative one."""
        if not self.queries or len(self.queries) != len(self.costs):
            raise InputError(f"{len(self.queries)} rings of queries and {len(self.costs)} of costs")
        if min(self.costs) < 0 or self.overhead < 0:
            raise InputError(f"a ring cannot cost less than nothing: {self.costs}, {self.overhead}")

    def __len__(self) -> int:
        """Count the rings."""
        return len(self.queries)

    def throughput(self, first: int, before: int, rows: float = 1) -> tuple[float, int]:
        """Give the most queries per unit of time that so many rows before a ring can serve, and the end of that step.

        `before` is the ring in front of which older rows wait: these rows may not overtake them.
        """
        best, end = -1.0, first + 1
        served, cost = 0, self.overhead
        for last in range(first + 1, before + 1):
            served += self.queries[last - 1]
            cost += rows * self.costs[last - 1]
            rate = served / cost if cost else float("inf") if served else 0.0
            if rate > best:
                best, end = rate, last
        return best, end

    def cost(self, step: ScanStep, rows: float = 1) -> float:
        """Give what a step of so many rows costs.

        >>> Rings((1, 1), (2.0, 3.0), overhead=1.0).cost(ScanStep(0, 2), 10)
        51.0
        """
        return self.overhead + rows * sum(self.costs[step.first : step.last])


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A policy over some rings, made anew when queries come or go."""

    policy: str
    rings: Rings
    matrix: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict, compare=False)
    """MQT's matrix: the throughput of each partial window, and where it ends, as far as it was asked for."""

    def __post_init__(self) -> None:
        """Refuse an unknown policy."""
        if self.policy not in POLICIES:
            raise InputError(f"there is no scheduler {self.policy}: {did_you_mean(self.policy, POLICIES)}")

    def choose(self, waiting: Sequence[float]) -> ScanStep | None:
        """Choose the next step, given how many rows wait in front of each ring; None if none waits.

        A row at a time, MQT goes by its matrix; many rows at a time, by what all of them cost.

        >>> Scheduler("swf", Rings((1, 1), (1.0, 9.0))).choose([True, True])
        ScanStep(first=0, last=1)
        >>> Scheduler("lwo", Rings((1, 1), (1.0, 9.0))).choose([True, False])
        ScanStep(first=0, last=2)
        """
        if len(waiting) != len(self.rings):
            raise InputError(f"rows wait in front of {len(waiting)} rings, and there are {len(self.rings)}")
        fronts = [ring for ring, some in enumerate(waiting) if some]
        if not fronts:
            return None
        ends = [*fronts[1:], len(self.rings)]
        if self.policy == "swf":
            return ScanStep(fronts[0], fronts[0] + 1)
        if self.policy == "lwo":  # the oldest rows wait farthest out, and are brought to the end first
            return ScanStep(fronts[-1], len(self.rings))
        offers = {each: self._offer(*each, waiting[each[0]]) for each in zip(fronts, ends, strict=True)}
        (first, _), (_, last) = max(offers.items(), key=lambda each: (each[1][0], each[0][0]))
        return ScanStep(first, last)

    def _offer(self, first: int, before: int, rows: float) -> tuple[float, int]:
        """Give the throughput of the rows in front of a ring, and where their step would end."""
        if rows != 1:
            return self.rings.throughput(first, before, rows)
        if (first, before) not in self.matrix:
            self.matrix[first, before] = self.rings.throughput(first, before)
        return self.matrix[first, before]


POLICIES = ("lwo", "swf", "mqt")
