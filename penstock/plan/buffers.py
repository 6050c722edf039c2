"""How many rows a join without a window has to remember (paper 5), and four strategies that take less memory.

Rows are numbered as they arrive; sorted by the ordered attribute they would be numbered otherwise::

    arrival    1    2    3    4    5    6          scrambling   3: value 3 comes three positions after the larger 4,
    value      1    4    2    2    3    5                          and no row comes farther after a larger one
                    └─────────────┘                multiplicity 2: no value has more than two rows

The *scrambling* k (Definition 2.2) is the least number such that of two rows with ``x.A <= y.A`` the first comes at
most k positions after the second.  Rows with one value count as out of order, so a multiplicity of m goes with a
scrambling of at least m - 1.  Section 3.2 of the paper counts from 1 instead: k >= m.

When the last row of a result arrives from S_j, how many rows ago did its row of S_i arrive?

                       position of s_i      F: rows of S_i that are not larger, once all are there
    S_i   ------------------x----|----------|------------------------|        now
                            └ k_i at most ──┘                        |
                                            └ lag when ──┘           |
    S_j   ---------------------------------- v's turn ---|-- y ------|
                                                         └ k_j at most: r_i · k_j / r_j rows of S_i

* `s_i` is at most k_i rows before its place in order (Theorem 2.1);
* when the row came that stood where y belongs in order, S_i was *lag* rows ahead of that place (Definition 2.6);
* y itself is at most k_j rows of S_j late, and meanwhile r_i · k_j / r_j rows of S_i came.

So s_i is at most ``k_i + r_i · k_j / r_j + lag`` positions back, and a buffer of one row more still holds it: the
newest row is 0 positions back.  **The paper prints the formula without that one row** (Eq. 6, 7), and then loses
results when k is as Definition 2.2 has it.  `tests/plan/test_buffers.py` shows that the formula here misses no result,
and that a buffer with one row less does.  Of many partners, the neediest decides (Eq. 8).

The strategies under a memory budget (section 4):

    plain    rows are joined as they come
    msf      Memory-Sort First: k rows wait in a sorter, then k is m - 1; results wait with them
    dbf      Disk-Buffer First: rows that are ahead by more than `ahead` stay on disk until their partners are near
    hybrid   both

A sorter also shifts its stream by k rows, which the paper's formula for msf leaves out.  With the shift, sorting saves
S_i its own k rows less the multiplicities, whatever the other streams' k.

In:  `Characteristics`, declared or measured, and the lags if they are known better than by delays.  Out: `Need`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite, prod
from typing import TYPE_CHECKING

from penstock.errors import InputError, did_you_mean
from penstock.sql.options import BUFFERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    Lags = Sequence[Sequence[int]]

PLAIN, DBF, MSF, HYBRID = STRATEGIES = BUFFERS
"""From the one that delays results least to the one that delays them most."""

DEFAULT_AHEAD = 64
"""Rows of a leading stream that are read from disk before a partner asks for them: the paper's C."""

ROUNDING_SHARE = 1e-9
"""How far above a whole number of rows a product of floats may be and still mean that number."""


def whole_rows(rows: float) -> int:
    """Round up to whole rows.

    >>> whole_rows(2.2), whole_rows(0.1 * 3 / 0.1)
    (3, 3)
    """
    return ceil(rows - ROUNDING_SHARE * max(1.0, abs(rows)))


@dataclass(frozen=True, slots=True)
class Characteristics:
    """A stream's scrambling and multiplicity in rows, its rate in rows a second, and its delay in seconds.

    `disorder` is the time in seconds by which a row may come after a larger one: the time of `scrambling` rows,
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
        """Refuse values that contradict each other."""
        if self.scrambling < 0:
            raise InputError(f"a scrambling of {self.scrambling}: it is a number of rows, 0 or more")
        if self.multiplicity < 1:
            raise InputError(f"a multiplicity of {self.multiplicity}: it is a number of rows, 1 or more")
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
        """Return the stream as a sorter delivers it: later by the time of its scrambling."""
        return Characteristics(
            self.multiplicity - 1, self.multiplicity, self.rate, self.delay + self.disorder
        )

    def lag(self, other: Characteristics) -> int:
        """Return how many rows this stream is ahead of another one by their delays; negative if it is behind.

        >>> Characteristics(0, rate=50).lag(Characteristics(0, rate=20, delay=2.5))
        125
        """
        return whole_rows(self.rate * (other.delay - self.delay))


def joined(inputs: Sequence[Characteristics]) -> Characteristics:
    """Bound the results of a join on the ordered attribute (Theorem 3.1).

    A row meets at most the product of the other streams' multiplicities, which bounds rate and scrambling (Eq. 9, 10).
    For the disorder the paper takes k / r of these bounds, but a quotient of two upper bounds is no bound.  A result
    is late for as long as one of its rows is, so the largest disorder of the inputs is the bound.

    >>> slow, fast = Characteristics(9, 2, rate=1), Characteristics(1, 2, rate=10)
    >>> both = joined([slow, fast])
    >>> both.scrambling, both.multiplicity, both.rate, both.disorder
    (20, 4, 22, 9.0)
    """
    if not inputs:
        raise InputError("a join of no streams has no result")
    alike = prod(stream.multiplicity for stream in inputs)
    met = [alike // stream.multiplicity for stream in inputs]
    return Characteristics(
        sum(stream.scrambling * others for stream, others in zip(inputs, met, strict=True)),
        alike,
        sum(stream.rate * others for stream, others in zip(inputs, met, strict=True)),
        max(stream.delay for stream in inputs),
        max(stream.disorder for stream in inputs),
    )


def rows_needed(own: Characteristics, partner: Characteristics, lag: int) -> int:
    """Return how many rows of a stream to remember for one partner (Eq. 7, and Eq. 6 if the lag is 0).

    A stream that is far behind needs none; the paper keeps one, and so does this.

    >>> k = Characteristics(scrambling=100, rate=50)
    >>> rows_needed(k, Characteristics(scrambling=30, rate=10), lag=0)
    251
    >>> rows_needed(k, k, lag=-500)
    1
    """
    early = max(own.scrambling, whole_rows(own.rate * own.disorder))  # the same, but for results of a join
    return max(1, early + whole_rows(own.rate * partner.disorder) + lag + 1)


def lags_by_delay(inputs: Sequence[Characteristics]) -> tuple[tuple[int, ...], ...]:
    """Return how many rows each stream is ahead of each other one, by rates and delays."""
    return tuple(tuple(own.lag(other) for other in inputs) for own in inputs)


def buffer_rows(inputs: Sequence[Characteristics], lags: Lags | None = None) -> tuple[int, ...]:
    """Return how many rows to remember of each stream (Eq. 8); ``lags[i][j]`` is that of the i-th to the j-th.

    >>> buffer_rows([Characteristics(10), Characteristics(20), Characteristics(5, delay=100)])
    (116, 126, 1)
    """
    _check_join(inputs)
    lags = lags_by_delay(inputs) if lags is None else lags
    return tuple(
        max(rows_needed(own, other, lags[i][j]) for j, other in enumerate(inputs) if j != i)
        for i, own in enumerate(inputs)
    )


def _check_join(inputs: Sequence[Characteristics]) -> None:
    if len(inputs) < 2:  # noqa: PLR2004  (two is what a join is)
        raise InputError(f"a join of {len(inputs)} stream: name at least two in FROM")


@dataclass(frozen=True, slots=True)
class Need:
    """The rows of each input that a strategy keeps in its sorter, in its join buffer and on disk.

    `delay` is the time in seconds that results wait for sorters.  Reading from disk adds to it.
    """

    strategy: str
    sorter: tuple[int, ...]
    buffer: tuple[int, ...]
    disk: tuple[int, ...]
    delay: float

    @property
    def rows(self) -> int:
        """Count the rows in memory."""
        return sum(self.sorter) + sum(self.buffer)

    def bytes(self, widths: Sequence[int]) -> int:
        """Count the bytes in memory, from the bytes of a row of each input."""
        return sum(
            width * (sorter + buffer)
            for width, sorter, buffer in zip(widths, self.sorter, self.buffer, strict=True)
        )

    def __str__(self) -> str:
        parts = [f"{self.strategy}: {self.rows:,} rows"]
        parts += [f"{sum(self.sorter):,} in sorters"] if any(self.sorter) else []
        parts += [f"{sum(self.disk):,} on disk"] if any(self.disk) else []
        parts += [f"results {self.delay:.3g} s later"] if self.delay else []
        return ", ".join(parts)


def need(
    strategy: str,
    inputs: Sequence[Characteristics],
    lags: Lags | None = None,
    *,
    ahead: int = DEFAULT_AHEAD,
) -> Need:
    """Return the memory that a strategy takes for one join.

    >>> inputs = [Characteristics(100, 2, rate=50), Characteristics(300, 2, rate=50, delay=60)]
    >>> for strategy in STRATEGIES:
    ...     print(need(strategy, inputs))
    plain: 3,402 rows
    dbf: 866 rows, 2,936 on disk
    msf: 3,604 rows, 400 in sorters, results 6 s later
    hybrid: 470 rows, 400 in sorters, 3,136 on disk, results 6 s later
    """
    if strategy not in STRATEGIES:
        raise InputError(f"there is no strategy {strategy}: {did_you_mean(strategy, STRATEGIES)}")
    _check_join(inputs)
    count, is_sorted = len(inputs), strategy in {MSF, HYBRID}
    lags = lags_by_delay(inputs) if lags is None else lags
    sorter, delay, joins = (0,) * count, 0.0, list(inputs)
    if is_sorted:
        sorter = tuple(stream.scrambling for stream in inputs)
        delay = max(stream.disorder for stream in inputs)
        joins = [stream.in_order for stream in inputs]
        # A sorter holds S_i back by its k rows, and S_j by the time of its own.
        lags = [
            [lags[i][j] - sorter[i] + whole_rows(own.rate * inputs[j].disorder) for j in range(count)]
            for i, own in enumerate(inputs)
        ]
    disk = (0,) * count
    if strategy in {DBF, HYBRID}:
        disk = tuple(max(0, *(lags[i][j] - ahead for j in range(count) if j != i)) for i in range(count))
        lags = [[_held_back(lags[i][j], lags[j][i], ahead) for j in range(count)] for i in range(count)]
    return Need(strategy, sorter, buffer_rows(joins, lags), disk, delay)


def _held_back(lag: int, back: int, ahead: int) -> int:
    """Return the lag if leading streams stay on disk: a partner that is held back is not ahead either."""
    return ahead if lag > ahead else max(lag, 0) if back > ahead else lag
