"""Order policies: whether input or results wait, if streams arrive out of step (paper 4).

The time of a result is the latest of its rows' times.  The *trigger* is the lowest of the streams' watermarks.  No more
rows come below it.  Once all rows below it are joined, all results below it are complete::

    stream S     a1 ---------------- a6 |                       trigger = 6
    stream T     ---------- b4 ---------|----- b9 -- c10
                                        |
    sync-filter  b9 and c10 wait as input; joined when the trigger passes them, their results leave at once
    filter-order b9 and c10 are joined as they come; their results are held until the trigger passes them
    adaptive     filter-order while joining takes a large share of the time, which is then spent during the wait;
                 otherwise sync-filter

The share is c·w·λ1·λ2, with c the time of one join step (a row against a row of the window), w the window, and λ the
streams' rates.  By Eq. 7 filter-order answers sooner by share / (1 + share): at most a half if each stream has a
processor, and a third if one processor joins both.  After a switch back to sync-filter, new rows wait, and held
results leave as the trigger passes them.

In:  watermarks, and the measured load.  Out: the trigger, and a `Switch` when the policy changes.
Always true: the sequence of results is the same under every policy.
The engine and the virtual time of `papers` run this same code.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeVar

from penstock.sql.options import check_alpha

if TYPE_CHECKING:
    from collections.abc import Iterable

Time = TypeVar("Time", int, float)

SYNC, HOLD = "sync-filter", "filter-order"
"""The modes: the input waits, or the results wait."""

SWITCH_BACK_SHARE = 0.9
"""The part of alpha below which input waits again; at alpha itself the mode would switch back and forth."""

DEFAULT_ALPHA = 0.3
"""The share of the time from which on adaptive queries join at once, as in paper 4's experiments."""


def trigger(watermarks: Iterable[Time | None]) -> Time | None:
    """Return the time below which no more rows come; None while some stream has sent nothing.

    >>> trigger([10, 6, 8]), trigger([10, None])
    (6, None)
    """
    marks = list(watermarks)
    return None if None in marks else min(mark for mark in marks if mark is not None)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a join: the seconds of one join step, the window in seconds, and each stream's rows per second."""

    step: float
    window: float
    rates: tuple[float, ...]

    @property
    def share(self) -> float:
        """Return c·w·λ1·λ2; with more streams, a row meets w·λ rows of each of the others.

        >>> round(Load(0.0005, 60, (1, 10)).share, 3)
        0.3
        """
        return self.step * self.window ** (len(self.rates) - 1) * prod(self.rates)

    def __str__(self) -> str:
        rates = " · ".join(f"{rate:.4g}/s" for rate in self.rates)
        return f"c·w·λ = {self.step:.3g} s · {self.window:.4g} s · {rates} = {self.share:.3g}"


def gain(share: float) -> float:
    """Return the share of time by which filter-order answers sooner than sync-filter (Eq. 7).

    >>> round(gain(0.3), 2), gain(1.0)
    (0.23, 0.5)
    """
    return share / (1 + share)


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of the mode, and the reason."""

    mode: str
    reason: str


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Section 6: filter-order from ``c·w·λ1·λ2 >= alpha`` on, until it falls below `SWITCH_BACK_SHARE` of alpha."""

    alpha: float = DEFAULT_ALPHA

    def __post_init__(self) -> None:
        """Refuse an alpha outside [0, 1): from 1 on the join cannot keep up with its streams (Eq. 1)."""
        check_alpha(self.alpha)

    def choose(self, mode: str, load: Load) -> Switch | None:
        """Return a switch if the mode should change.

        >>> print(Adaptive(0.3).choose("sync-filter", Load(0.0006, 60, (1, 10))).mode)
        filter-order
        >>> Adaptive(0.3).choose("sync-filter", Load(0.0001, 60, (1, 10)))
        """
        if mode != HOLD and load.share >= self.alpha:
            return Switch(HOLD, f"{load}, at least alpha = {self.alpha:g}")
        if mode == HOLD and load.share < SWITCH_BACK_SHARE * self.alpha:
            return Switch(SYNC, f"{load}, less than {SWITCH_BACK_SHARE:g} of alpha = {self.alpha:g}")
        return None
