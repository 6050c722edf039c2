"""Schedulers: which rows are joined next, and how far (paper 2).

The windows of one chain are nested *rings* around a new row's own time.  Rows scan the rings from the inside outwards,
in order of arrival.  So rows in front of an outer ring are older than rows in front of an inner one::

    ring            0        1            2                  3
    window    |-- 1 s --|-- 5 s ----|---- 60 s ----------|------ 600 s --------|
    waiting        t9        t7,t8                                t3

    LWO   the oldest rows scan all rings that are left: a small window waits for the largest one
    SWF   the rows in front of the innermost ring scan that ring
    MQT   the rows that serve the most queries per unit of time scan the rings up to those queries' windows.  Rows in
          front of ring i, with older rows in front of ring j, can scan the rings i to k - 1 for any k <= j

A step has a cost of its own (`overhead`: a Spark job).  Where that cost is high, MQT scans several rings in one step.

To add a scheduler, write a subclass of `Scheduler` with a name, and add it to `SCHEDULERS`.

In:  how many queries end in each ring, what a ring costs, and where rows wait.  Out: `ScanStep`s.
The engine and the virtual time of `papers` run this same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

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
    """The rings of a chain from the inside: the number of queries whose window ends there, and the cost of a scan.

    >>> rings = Rings((1, 1, 1), (2.0, 1.0, 3.0))
    >>> rings.throughput(0, 2)
    (0.6666666666666666, 2)
    """

    queries: tuple[int, ...]
    costs: tuple[float, ...]
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Refuse rings with a missing or negative cost."""
        if not self.queries or len(self.queries) != len(self.costs):
            raise InputError(f"{len(self.queries)} rings have queries and {len(self.costs)} have costs")
        if min(self.costs) < 0 or self.overhead < 0:
            raise InputError(f"a cost of a ring is negative: {self.costs}, overhead {self.overhead}")

    def __len__(self) -> int:
        """Count the rings."""
        return len(self.queries)

    def throughput(self, first: int, before: int, rows: float = 1) -> tuple[float, int]:
        """Return the most queries per unit of time that `rows` in front of ring `first` can serve, and that step's end.

        Older rows wait in front of ring `before`, and must not be overtaken.
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
        """Return the cost of a step for a number of rows.

        >>> Rings((1, 1), (2.0, 3.0), overhead=1.0).cost(ScanStep(0, 2), 10)
        51.0
        """
        return self.overhead + rows * sum(self.costs[step.first : step.last])


@dataclass(frozen=True, slots=True)
class Scheduler(ABC):
    """A policy over some rings; made anew when queries come or go."""

    name: ClassVar[str]
    advances_together: ClassVar[bool] = False
    """Whether all windows of a chain are always joined equally far."""

    rings: Rings

    def choose(self, waiting: Sequence[float]) -> ScanStep | None:
        """Choose the next step from the number of rows in front of each ring; None if there are none."""
        if len(waiting) != len(self.rings):
            raise InputError(f"{len(waiting)} numbers of waiting rows are given for {len(self.rings)} rings")
        fronts = [ring for ring, rows in enumerate(waiting) if rows]
        return self.choose_among(fronts, waiting) if fronts else None

    @abstractmethod
    def choose_among(self, fronts: Sequence[int], waiting: Sequence[float]) -> ScanStep:
        """Choose one of the rings in front of which rows wait, and how far these rows go."""


class LargestWindowOnly(Scheduler):
    """LWO: the oldest rows, which wait farthest outside, scan to the end.

    >>> LargestWindowOnly(Rings((1, 1), (1.0, 9.0))).choose([True, False])
    ScanStep(first=0, last=2)
    """

    name = "lwo"
    advances_together = True

    def choose_among(self, fronts: Sequence[int], waiting: Sequence[float]) -> ScanStep:  # noqa: ARG002
        """Choose the outermost ring."""
        return ScanStep(fronts[-1], len(self.rings))


class SmallestWindowFirst(Scheduler):
    """SWF: one ring at a time, the innermost first.

    >>> SmallestWindowFirst(Rings((1, 1), (1.0, 9.0))).choose([True, True])
    ScanStep(first=0, last=1)
    """

    name = "swf"

    def choose_among(self, fronts: Sequence[int], waiting: Sequence[float]) -> ScanStep:  # noqa: ARG002
        """Choose the innermost ring."""
        return ScanStep(fronts[0], fronts[0] + 1)


@dataclass(frozen=True, slots=True)
class MaximumQueryThroughput(Scheduler):
    """MQT: the step with the most served queries per unit of time; of equal steps the outermost.

    >>> MaximumQueryThroughput(Rings((1, 1), (1.0, 9.0))).choose([True, False])
    ScanStep(first=0, last=1)
    """

    name = "mqt"

    matrix: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict, compare=False)
    """The paper's matrix, filled on demand: for one row, the throughput of each partial window and its end."""

    def choose_among(self, fronts: Sequence[int], waiting: Sequence[float]) -> ScanStep:
        """Compare the best step of the rows in front of each ring."""
        best = (-1.0, 0, 0)
        for first, before in zip(fronts, [*fronts[1:], len(self.rings)], strict=True):
            rate, last = self._throughput(first, before, waiting[first])
            best = max(best, (rate, first, last))
        return ScanStep(*best[1:])

    def _throughput(self, first: int, before: int, rows: float) -> tuple[float, int]:
        if rows != 1:
            return self.rings.throughput(first, before, rows)
        if (first, before) not in self.matrix:
            self.matrix[first, before] = self.rings.throughput(first, before)
        return self.matrix[first, before]


SCHEDULERS: dict[str, type[Scheduler]] = {
    scheduler.name: scheduler
    for scheduler in (LargestWindowOnly, SmallestWindowFirst, MaximumQueryThroughput)
}
"""Every scheduler by the name that ``SET scheduler`` takes."""

DEFAULT_SCHEDULER = LargestWindowOnly.name


def make_scheduler(name: str, rings: Rings) -> Scheduler:
    """Make the scheduler of that name."""
    if name not in SCHEDULERS:
        raise InputError(f"there is no scheduler {name}: {did_you_mean(name, SCHEDULERS)}")
    return SCHEDULERS[name](rings)
