"""How many rows a join without a window has to remember (paper 5, Eq. 6 to 8), and four ways to do it in less memory.

A row of S_j arrives, the last of a result.  Which row of S_i can be in it, and how many rows ago did that one arrive?

                       position of s_i      F: rows of S_i that are not larger, once all are there
    S_i   ------------------x----|----------|------------------------|        now
                            └ k_i at most ──┘                        |
                                            └ lag when ──┘           |
    S_j   ---------------------------------- v's turn ---|-- y ------|
                                                         └ k_j at most: r_i · k_j / r_j rows of S_i

* `s_i` is at most k_i rows before its place in order (Theorem 2.1);
* when the row came that stood where y belongs in order, S_i was *lag* rows ahead of that place (Definition 2.6);
* y itself is at most k_j rows of S_j late, and meanwhile r_i · k_j / r_j rows of S_i came.

So s_i is at most ``k_i + r_i · k_j / r_j + lag`` positions back, and is still there if the buffer has one row more: the
newest row is 0 positions back.  **The paper prints it without that one** (Eq. 6, 7).  With k as Definition 2.2 has it
that loses results, also for streams that are synchronized by its Eq. 3 (a lag of 0 or 1); with k as section 3.2 speaks
of it (at least the multiplicity, so one more than the definition's) it suffices, and is r_i / r_j rows too many.  Here
k is the definition's, and the one row is added: `tests/plan/test_buffers.py` shows that nothing is missed, and that a
result is missed somewhere with a row less.

Of many streams, S_i keeps what the neediest partner asks for (Eq. 8).  Under a memory budget (section 4):

    plain    rows are joined as they come
    msf      Memory-Sort First: k rows wait in a sorter, then k is m - 1; results wait with them
    dbf      Disk-Buffer First: rows that are ahead by more than `ahead` are left on disk until partners are near
    hybrid   both

A sorter also shifts its stream by k rows.  The paper's formula for msf leaves that out; with it, sorting saves S_i just
its own k rows less the multiplicities, whatever the other streams' k: one that is in order gains nothing, and one that
is far behind, which needs no buffer, gets a sorter.

In:  `Characteristics`, and the lags where they are known better than by delays.  Out: `Need`, a `Choice`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import InputError, did_you_mean
from penstock.plan.characteristics import Characteristics, joined, whole_rows
from penstock.sql.options import BUFFERS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    Lags = Sequence[Sequence[int]]

PLAIN, DBF, MSF, HYBRID = STRATEGIES = BUFFERS
"""From the one that delays results least to the one that delays them most."""

DEFAULT_AHEAD = 64
"""Rows of a leading stream that are read from disk before a partner asks for them: the paper's C."""


def rows_needed(own: Characteristics, partner: Characteristics, lag: int) -> int:
    """Give the rows to remember of a stream for one partner (Eq. 7, and Eq. 6 where the lag is 0).

    A stream that is far behind finds its partners waiting and needs none; the paper keeps one, and so does this.

    >>> k = Characteristics(scrambling=100, rate=50)
    >>> rows_needed(k, Characteristics(scrambling=30, rate=10), lag=0)
    251
    >>> rows_needed(k, k, lag=-500)
    1
    """
    early = max(own.scrambling, whole_rows(own.rate * own.disorder))  # the same, but for results of a join
    return max(1, early + whole_rows(own.rate * partner.disorder) + lag + 1)


def lags_by_delay(inputs: Sequence[Characteristics]) -> tuple[tuple[int, ...], ...]:
    """Give how many rows each stream is ahead of each, by their rates and delays."""
    return tuple(tuple(own.lag(other) for other in inputs) for own in inputs)


def buffer_rows(inputs: Sequence[Characteristics], lags: Lags | None = None) -> tuple[int, ...]:
    """Give the rows to remember of each stream of a join (Eq. 8); ``lags[i][j]`` is that of the i-th to the j-th.

    >>> buffer_rows([Characteristics(10), Characteristics(20), Characteristics(5, delay=100)])
    (116, 126, 1)
    """
    check_inputs(inputs)
    lags = lags_by_delay(inputs) if lags is None else lags
    return tuple(
        max(rows_needed(own, other, lags[i][j]) for j, other in enumerate(inputs) if j != i)
        for i, own in enumerate(inputs)
    )


def check_inputs(inputs: Sequence[object]) -> None:
    """Refuse a join that has nobody to join with."""
    if len(inputs) < 2:  # noqa: PLR2004  (two is what a join is)
        raise InputError(f"a join of {len(inputs)} stream: name at least two in FROM")


@dataclass(frozen=True, slots=True)
class Need:
    """What a strategy takes: rows of each input in its sorter, in its join buffer and on disk, and seconds of delay.

    `delay` is what results wait in sorters; reading from disk comes on top of it where a strategy does.
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
        """Give the bytes in memory, by the bytes of a row of each input."""
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
    ordered: Collection[int] = (),
) -> Need:
    """Say what a strategy takes for one join.  Inputs numbered in `ordered` come in order and need no sorter.

    >>> inputs = [Characteristics(100, 2, rate=50), Characteristics(300, 2, rate=50, delay=60)]
    >>> for each in STRATEGIES:
    ...     print(need(each, inputs))
    plain: 3,402 rows
    dbf: 866 rows, 2,936 on disk
    msf: 3,604 rows, 400 in sorters, results 6 s later
    hybrid: 470 rows, 400 in sorters, 3,136 on disk, results 6 s later
    """
    if strategy not in STRATEGIES:
        raise InputError(f"there is no strategy {strategy}: {did_you_mean(strategy, STRATEGIES)}")
    check_inputs(inputs)
    count = len(inputs)
    lags = lags_by_delay(inputs) if lags is None else lags
    sorts = [strategy in {MSF, HYBRID} and i not in ordered for i in range(count)]
    sorter = tuple(each.scrambling if sorted_ else 0 for each, sorted_ in zip(inputs, sorts, strict=True))
    waits = [each.disorder if sorted_ else 0.0 for each, sorted_ in zip(inputs, sorts, strict=True)]
    # A sorter holds S_i back by its k rows, and S_j by the time of its own.
    lags = [
        [lags[i][j] - sorter[i] + whole_rows(inputs[i].rate * waits[j]) for j in range(count)]
        for i in range(count)
    ]
    joins = [each.in_order if sorted_ else each for each, sorted_ in zip(inputs, sorts, strict=True)]
    disk = (0,) * count
    if strategy in {DBF, HYBRID}:
        disk = tuple(max(0, *(lags[i][j] - ahead for j in range(count) if j != i)) for i in range(count))
        lags = [[_held_back(lags[i][j], lags[j][i], ahead) for j in range(count)] for i in range(count)]
    return Need(strategy, sorter, buffer_rows(joins, lags), disk, max(waits))


def _held_back(lag: int, back: int, ahead: int) -> int:
    """Give the lag to a partner where leading streams stay on disk: a partner that is held back is not ahead either."""
    return ahead if lag > ahead else max(lag, 0) if back > ahead else lag


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy that was chosen, the bytes it takes, and the budget; `fits` is False where none was small enough."""

    need: Need
    bytes: int
    budget: int

    @property
    def fits(self) -> bool:
        """Say whether the budget is kept with every result found."""
        return self.bytes <= self.budget

    def shares(self) -> tuple[int, ...]:
        """Give the rows of each join buffer that the budget has room for: all that are needed, or their part of it.

        Sorters come first, since a row that leaves one too early is out of order for good.
        """
        if self.fits:
            return self.need.buffer
        width = self.bytes / max(1, self.need.rows)
        room = max(0.0, self.budget / width - sum(self.need.sorter))
        part = room / sum(self.need.buffer)
        return tuple(max(1, int(rows * part)) for rows in self.need.buffer)


def choose(
    inputs: Sequence[Characteristics],
    widths: Sequence[int],
    budget: int,
    lags: Lags | None = None,
    *,
    ahead: int = DEFAULT_AHEAD,
) -> Choice:
    """Choose the strategy that delays results least among those that fit in a budget of bytes; else the smallest.

    >>> inputs = [Characteristics(100, 2, rate=50), Characteristics(300, 2, rate=50, delay=60)]
    >>> [choose(inputs, (24, 24), 1024 * kib).need.strategy for kib in (100, 50, 12, 1)]
    ['plain', 'dbf', 'hybrid', 'hybrid']
    >>> choose(inputs, (24, 24), 1024).fits
    False
    """
    if budget <= 0:
        raise InputError(f"a memory budget of {budget} bytes: it must be positive")
    choices = [
        Choice(each, each.bytes(widths), budget)
        for each in (need(strategy, inputs, lags, ahead=ahead) for strategy in STRATEGIES)
    ]
    fitting = [each for each in choices if each.fits]
    return fitting[0] if fitting else min(choices, key=lambda each: each.bytes)


@dataclass(frozen=True, slots=True)
class JoinTree:
    """A join whose inputs are streams or joins, such as Query 2 of Fig. 4."""

    inputs: tuple[Characteristics | JoinTree, ...]

    def __post_init__(self) -> None:
        """Refuse a join of one."""
        check_inputs(self.inputs)

    def given(self, strategy: str = PLAIN) -> tuple[Characteristics, ...]:
        """Say what the inputs are like, as this join gets them; below a sorter, results come in order."""
        return tuple(
            each if isinstance(each, Characteristics) else each.result(strategy) for each in self.inputs
        )

    def result(self, strategy: str = PLAIN) -> Characteristics:
        """Say what the join gives (Theorem 3.1): sorted inputs give sorted results."""
        if strategy not in {MSF, HYBRID}:
            return joined(self.given(strategy))
        leaves = zip(self.inputs, self.given(strategy), strict=True)
        return joined([each.in_order if each is leaf else each for leaf, each in leaves]).in_order

    def needs(self, strategy: str = PLAIN, *, ahead: int = DEFAULT_AHEAD) -> tuple[Need, ...]:
        """Say what each join takes, this one last.  Only streams are sorted: what comes of them is in order."""
        below = [each.needs(strategy, ahead=ahead) for each in self.inputs if isinstance(each, JoinTree)]
        results = [number for number, each in enumerate(self.inputs) if isinstance(each, JoinTree)]
        own = need(strategy, self.given(strategy), ahead=ahead, ordered=results)
        return (*(each for needs in below for each in needs), own)
