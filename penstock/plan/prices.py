"""The cost of the engine's work in seconds: the paper's coefficients, measured instead of guessed (5.2).

The paper weighs all comparisons alike and guesses one number, C_sys.  An engine has other costs.  A unit is a Spark
job, which takes time before it joins anything.  A new row is looked up once per unit.  A pair that is found is written,
and tested at each bound inside a slice and by each condition.  A segment is rewritten when many of its rows have ended.

`Prices` hold these numbers.  They are measured by `penstock calibrate`, and follow the times of real units (`updated`).
The defaults were measured on a small machine.

In:  prices, and statistics of the streams.  Out: `Coefficients` for `penstock.plan.cost`, and `seconds` of a plan.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import InputError
from penstock.plan.cost import Coefficients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.cost import Cost
    from penstock.plan.facts import Statistics


@dataclass(frozen=True, slots=True)
class Prices:
    """The seconds that each kind of work takes."""

    unit: float = 0.12
    """A unit: a Spark job, before it joins anything."""
    row: float = 3e-7
    """A new row of either stream: mapped and looked up."""
    pair: float = 4e-8
    """A pair: its columns gathered, its level determined."""
    route: float = 1e-9
    """A pair compared with one more bound."""
    filter: float = 6e-9
    """A pair tested by the conditions of queries."""
    slice: float = 0.0
    """A new row in one more slice."""
    store: float = 2e-7
    """A row sorted and written into a log."""
    rewrite: float = 2e-7
    """A row written again when a segment is merged or rewritten without rows that are not needed."""
    byte: float = 0.0
    """A byte held for a second; 0, unless the user gives memory a price."""

    def __post_init__(self) -> None:
        """Refuse a negative price."""
        for name, price in asdict(self).items():
            if price < 0:
                raise InputError(f"the price of a {name} is {price}: it must be 0 or more")

    def weigh(self, statistics: Statistics) -> Coefficients:
        """Turn prices into the paper's coefficients; a comparison costs as much as the pairs that it finds."""
        return Coefficients(
            probe=self.pair * statistics.join,
            purge=0.0,
            route=self.route,
            filter=self.filter,
            union=0.0,
            overhead=self.slice,
            rewrite=self.rewrite,
            state_byte=self.byte,
        )

    def to_json(self) -> dict[str, float]:
        """Write as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ArrivalPace:
    """How work arrives: rows a second of both streams together, and the rows that one unit takes."""

    rows: float
    rows_per_unit: float

    @property
    def units(self) -> float:
        """Return the units a second that one join runs."""
        return self.rows / max(1.0, self.rows_per_unit)


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows per second: the number of joins, the rows that go into all of them, and the rows that go into logs."""

    joins: int
    joined: float
    stored: float


def seconds(cost: Cost, statistics: Statistics, prices: Prices, pace: ArrivalPace, flow: Flow) -> float:
    """Return the seconds of work per second of the streams: above the number of cores a plan cannot keep up."""
    return (
        cost.cpu(prices.weigh(statistics))
        + flow.joins * pace.units * prices.unit
        + flow.joined * prices.row
        + flow.stored * prices.store
    )


PRIOR_WEIGHT = 0.5
"""The weight of the earlier price, in observations; the sums of a fit hold about ten."""

LEAST_PRICE_SHARE = 0.01
"""A fit lowers no price below this share of the earlier one."""


def updated(prices: Prices, unit_fit: _Sums, rewrite_fit: _Sums) -> Prices:
    """Fit prices to the measured times of units and rewrites, by least squares drawn towards the earlier prices."""
    unit, row, pair = _solve(unit_fit, (prices.unit, prices.row, prices.pair))
    _, rewrite = _solve(rewrite_fit, (prices.unit, prices.rewrite))
    return replace(prices, unit=unit, row=row, pair=pair, rewrite=rewrite)


def _solve(sums: _Sums, before: Sequence[float]) -> tuple[float, ...]:
    """Fit prices to sums of observations; the more observations, the less each is drawn to the earlier price.

    This minimises Σ (seconds - price · counts)² + Σ λ_i (price_i - before_i)², where λ_i is a share of the average
    square of that count.  A price that would fall below `LEAST_PRICE_SHARE` is held there, and the others are fitted
    again.
    """
    if not sums.seen:
        return tuple(before)
    size, prior = len(before), np.array(before)
    squares = np.array(sums.squares).reshape(size, size)
    pull = np.diag(PRIOR_WEIGHT * squares.diagonal() / sums.seen + 1e-12)
    matrix, wanted = squares + pull, np.array(sums.products) + pull @ prior
    least, free = prior * LEAST_PRICE_SHARE, np.ones(size, np.bool_)
    fitted = least.copy()
    while free.any():
        held = matrix[free][:, ~free] @ least[~free]
        fitted[free] = np.linalg.solve(matrix[free][:, free], wanted[free] - held)
        low = free & (fitted < least)
        if not low.any():
            break
        fitted[low] = least[low]
        free &= ~low
    return tuple(map(float, fitted))


if TYPE_CHECKING:
    from typing import Protocol

    class _Sums(Protocol):
        """The sums of a fit: see `penstock.state.recent.Fit`."""

        @property
        def squares(self) -> tuple[float, ...]: ...
        @property
        def products(self) -> tuple[float, ...]: ...
        @property
        def seen(self) -> float: ...
