"""What a stream without a window is like: how far out of order, how many alike, how fast, how far behind (paper 5).

Rows are numbered as they arrive; sorted by the ordered attribute they would be numbered otherwise::

    arrival    1    2    3    4    5    6          scrambling   3: the 3 comes three positions after the 4, which is
    value      1    4    2    2    3    5                          larger, and no row comes farther after such a one
                    └─────────────┘                multiplicity 2: no value has more than two rows

The *scrambling* k (Definition 2.2) is the least number such that of two rows with ``x.A <= y.A`` the first comes at
most k positions after the second.  Rows with one value count as out of order, so a stream whose values have m rows each
has k >= m - 1, and exactly that once it is sorted.  Section 3.2 of the paper says k >= m: that is another way to
count, by one, and `penstock.plan.buffers` says what follows from either.

What a join of such streams gives is a stream again, and Theorem 3.1 bounds it (`joined`).

In:  what users declare, or `penstock.kernels` measures.  Out: values for `penstock.plan.buffers`.
True always: a multiplicity of m goes with a scrambling of at least m - 1.  Rates are rows a second; times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite, prod
from typing import TYPE_CHECKING

from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDING = 1e-9
"""How far above a whole number of rows a product of floats may be and still mean that number."""


def whole_rows(rows: float) -> int:
    """Round up to whole rows.

    >>> whole_rows(2.2), whole_rows(0.1 * 3 / 0.1)
    (3, 3)
    """
    return ceil(rows - ROUNDING * max(1.0, abs(rows)))


@dataclass(frozen=True, slots=True)
class Characteristics:
    """A stream's scrambling and multiplicity in rows, its rate in rows a second, and by how many seconds it is behind.

    `disorder` is how long a row may come after one that is not smaller, in seconds: the time of `scrambling` rows,
    unless a join made the stream.

    >>> Characteristics(scrambling=500, multiplicity=2, rate=50).disorder
    10.0
    """

    scrambling: int
    multiplicity: int = 1
    rate: float = 1.0
    delay: float = 0.0
    disorder: float = -1.0

    def __post_init__(self) -> None:
        """Refuse what no stream can be like."""
        if self.scrambling < 0:
            raise InputError(f"a scrambling of {self.scrambling}: it is a number of rows, 0 or more")
        if self.multiplicity < 1:
            raise InputError(
                f"a multiplicity of {self.multiplicity}: every value there is has a row, so 1 or more"
            )
        if self.multiplicity > self.scrambling + 1:
            raise InputError(
                f"a multiplicity of {self.multiplicity} and a scrambling of {self.scrambling} contradict each other: "
                f"rows with one value count as out of order; the scrambling is {self.multiplicity - 1} or more"
            )
        if not (self.rate > 0 and isfinite(self.rate)):
            raise InputError(f"a rate of {self.rate:g} rows a second: it must be positive")
        if self.disorder < 0:
            object.__setattr__(self, "disorder", self.scrambling / self.rate)

    @property
    def in_order(self) -> Characteristics:
        """Say what the stream is like once it was sorted: that takes as many rows as its scrambling, and their time."""
        return Characteristics(
            self.multiplicity - 1, self.multiplicity, self.rate, self.delay + self.disorder
        )

    def lag(self, other: Characteristics) -> int:
        """Give the rows that this stream is ahead of another one, by their delays; less than 0 where it is behind.

        >>> Characteristics(0, rate=50).lag(Characteristics(0, rate=20, delay=2.5))
        125
        """
        return whole_rows(self.rate * (other.delay - self.delay))


def joined(inputs: Sequence[Characteristics]) -> Characteristics:
    """Bound what a join of streams on their ordered attribute gives (Theorem 3.1).

    A row meets at most the product of the other streams' multiplicities, which bounds rate and scrambling (Eq. 9 and
    10), and waits for the stream that is farthest behind.  The paper takes k / r of these bounds for the time by which
    results are out of order; but a quotient of two upper bounds is none: it is the weighted mean of the inputs' k / r.
    A result is behind a larger one for as long as one of its rows is, so the largest of them is the bound.

    >>> slow, fast = Characteristics(9, 2, rate=1), Characteristics(1, 2, rate=10)
    >>> both = joined([slow, fast])
    >>> both.scrambling, both.multiplicity, both.rate, both.disorder
    (20, 4, 22, 9.0)
    """
    if not inputs:
        raise InputError("a join of no streams has no result")
    alike = prod(each.multiplicity for each in inputs)
    met = [alike // each.multiplicity for each in inputs]
    return Characteristics(
        sum(each.scrambling * others for each, others in zip(inputs, met, strict=True)),
        alike,
        sum(each.rate * others for each, others in zip(inputs, met, strict=True)),
        max(each.delay for each in inputs),
        max(each.disorder for each in inputs),
    )
