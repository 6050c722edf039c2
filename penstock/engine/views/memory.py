"""The memory of a join without a window: its strategy, what that takes, and which rows have no room.

Memory is counted as the bytes of the segments that a unit maps: those with kept rows and those that it joins.  Tasks on
one machine share them.  One unit runs at a time, so every join has the whole budget::

    memory     |------------------------- budget --------------------------|
               | kept rows                    |  a quarter  |  the batch    |
               |                              |  for unused |  that is new  |
               |                              |  rows       |               |

`penstock.plan.buffers` computes what each strategy takes, by what is known of the streams.  The strategy that delays
results least and fits is chosen.  A thriftier strategy is taken up at once, a less thrifty one only if it leaves a
quarter of its room free.  If none fits, the smallest is taken, and

* if the scrambling of every stream is declared, and holds, no result is lost: more than the budget is mapped;
* else the oldest kept rows are removed, of every stream in proportion, and missed results are reported like those of
  late rows.  A unit may still exceed the budget by one batch of each stream.

In:  settings, queries, and the ledger.  Out: the strategy in force, and figures for `status`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from penstock import limits
from penstock.engine.views.advance_limit import SORTING, views
from penstock.engine.views.buffers import (
    characteristics,
    lags_at_most,
    orders_now,
)
from penstock.errors import InputError
from penstock.plan.buffers import PLAIN, STRATEGIES, need
from penstock.sql.options import budget_of, buffers_of, check_value
from penstock.sql.units import show_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.state.ledger import Ledger
    from penstock.state.segment import Segment
    from penstock.state.watch import GroupWatch, LogWatch, MemoryWatch


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """Settings: the bytes that a unit of a join without a window may map, and the strategy to save them."""

    budget: int | None = None
    strategy: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> MemoryPolicy:
        """Read the policy from settings."""
        budget = budget_of(settings)
        if "buffers" in settings:
            check_value("buffers", settings["buffers"])
        return cls(None if budget is None else int(budget), buffers_of(settings))

    def asked(self, group: Group) -> str:
        """Return the strategy that queries or settings name, the thriftiest if queries differ; empty if none does."""
        asked = {dict(member.query.options).get("buffers", "") for member in group.members} - {""}
        return max(asked, key=STRATEGIES.index, default=self.strategy)


def strategy_in_force(group: Group, ledger: Ledger, policy: MemoryPolicy) -> str:
    """Return the strategy by which a join without a window advances."""
    if asked := policy.asked(group):
        return asked
    known = ledger.buffers.get(group.id)
    return known.memory.strategy if known and policy.budget is not None else PLAIN


@dataclass(frozen=True, slots=True)
class Room:
    """What a join maps: bytes of a row and of the largest batch of each input, and of the next batch to join."""

    widths: tuple[float, ...]
    batches: tuple[int, ...]
    next_batches: tuple[int, ...]

    @classmethod
    def of(cls, plan: Plan, group: Group, ledger: Ledger) -> Room:
        """Measure it by the segments that are there; if no batch waits, the next one is assumed to be like the last."""
        logs = [ledger.segments(log.id) for log in group.logs]
        sizes = [_batch_sizes(filter(_is_as_it_came, log)) for log in logs]
        ahead = [view.waiting[0].bytes if view.waiting else None for view in views(plan, group, ledger)]
        return cls(
            tuple(map(_width, logs)),
            tuple(max(size.values(), default=0) for size in sizes),
            tuple(
                size[max(size)] if next_one is None and size else next_one or 0
                for size, next_one in zip(sizes, ahead, strict=True)
            ),
        )

    def beside_rows(self, strategy: str) -> int:
        """Return the bytes beside kept rows: the new batch, or, if the strategy sorts, one of each stream."""
        return sum(self.batches) if strategy in SORTING else max(self.batches)

    def for_rows(self, budget: int, strategy: str) -> float:
        """Return how many bytes kept rows may take in the next unit."""
        beside = sum(self.next_batches) if strategy in SORTING else max(self.next_batches)
        return max(1.0, limits.KEPT_ROWS_BUDGET_SHARE * (budget - beside))

    def taken(self, rows: Sequence[int]) -> float:
        """Return how many bytes so many rows of each input take."""
        return sum(count * width for count, width in zip(rows, self.widths, strict=True))


def _width(segments: Sequence[Segment]) -> float:
    return sum(segment.bytes for segment in segments) / max(1, sum(segment.rows for segment in segments))


def _batch_sizes(segments: Iterable[Segment]) -> dict[int, int]:
    """Add up the bytes of segments by their last batch."""
    sizes: dict[int, int] = {}
    for segment in segments:
        sizes[segment.last] = sizes.get(segment.last, 0) + segment.bytes
    return sizes


def _is_as_it_came(segment: Segment) -> bool:
    """Return whether a segment is of one batch, and was not merged."""
    return segment.first == segment.last and not segment.generation


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """The chosen strategy, and the memory that it needs."""

    strategy: str
    needed: int
    fits: bool


def choose_strategy(
    plan: Plan,
    group: Group,
    ledger: Ledger,
    policy: MemoryPolicy,
    watches: Sequence[LogWatch],
) -> MemoryChoice:
    """Choose how a join saves memory; `watches` are what is known of its inputs' rows."""
    if policy.budget is None:
        return MemoryChoice(policy.asked(group) or PLAIN, 0, fits=True)
    room, before = Room.of(plan, group, ledger), strategy_in_force(group, ledger, policy)
    alike, orders = characteristics(plan, group, watches, ledger), orders_now(group, ledger)
    lags = lags_at_most(orders, alike)
    widths = [max(1, round(width)) for width in room.widths]
    takes = {
        strategy: ceil(
            (need(strategy, alike, lags).bytes(widths) + room.beside_rows(strategy))
            / limits.KEPT_ROWS_BUDGET_SHARE
        )
        for strategy in STRATEGIES
    }
    strategy = policy.asked(group) or _chosen(takes, policy.budget, before)
    return MemoryChoice(strategy, takes[strategy], fits=takes[strategy] <= policy.budget)


def _chosen(takes: Mapping[str, int], budget: int, before: str) -> str:
    """Choose the strategy that delays results least among those that fit; go back only to one that fits easily.

    >>> takes = {"plain": 90, "dbf": 50, "msf": 95, "hybrid": 30}
    >>> [_chosen(takes, budget, "plain") for budget in (100, 60, 40, 20)]
    ['plain', 'dbf', 'hybrid', 'hybrid']
    >>> _chosen(takes, 100, "dbf")
    'dbf'
    """
    fitting = [strategy for strategy in STRATEGIES if takes[strategy] <= budget]
    if not fitting:
        return min(takes, key=takes.__getitem__)
    easy = [strategy for strategy in STRATEGIES if takes[strategy] <= limits.STRATEGY_RETURN_SHARE * budget]
    stays = min(before, *easy[:1], key=STRATEGIES.index) if easy else before
    return max(fitting[0], stays, key=STRATEGIES.index) if stays in fitting else fitting[0]


def rows_without_room(room: Room, memory: MemoryWatch, kept: Sequence[int]) -> tuple[int, ...]:
    """Return by input how many of its kept rows, the oldest, have no room.

    >>> from penstock.state.watch import MemoryWatch
    >>> rows_without_room(Room((10.0, 20.0), (100, 80), (100, 80)), MemoryWatch(budget=2000), (50, 50))
    (3, 3)
    """
    taken = room.taken(kept)
    part = min(1.0, room.for_rows(memory.budget, memory.strategy) / taken) if taken and memory.budget else 1.0
    return tuple(count - int(count * part) for count in kept)


def is_tight(plan: Plan, log: str, ledger: Ledger, policy: MemoryPolicy) -> bool:
    """Return whether the segments of a join without a window that reads a log take more than half of the budget."""
    if policy.budget is None:
        return False
    groups = (group for group, _ in plan.uses(log) if group.oblivious)
    return any(2 * sum(view.kept for view in views(plan, group, ledger)) > policy.budget for group in groups)


def refuse_large_batch(group: Group, new: Collection[str], ledger: Ledger, budget: int | None) -> None:
    """Refuse a budget that is smaller than one batch to join: a unit maps whole batches."""
    if budget is None:
        return
    for log in group.logs:
        sizes = _batch_sizes(segment for segment in ledger.segments(log.id) if segment.name in new)
        for batch, size in sizes.items():
            if size > budget:
                raise InputError(
                    f"memory = '{show_size(budget)}' has no room for one batch: batch {batch} of {log.stream} takes "
                    f"{show_size(size)}, and a unit maps whole batches. SET memory to twice that or more, or make "
                    "batches smaller (maxFilesPerTrigger, maxBytesPerTrigger)"
                )


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """How a join without a window saves memory, and what that costs."""

    strategy: str
    """How it saves memory: plain, dbf, msf or hybrid."""
    budget: int | None
    """Bytes that it may map; null without a budget."""
    mapped: int
    """Bytes of the segments that its last unit mapped: no task has more of them in memory."""
    most_mapped: int
    """The most that a unit of it has mapped since the plan changed."""
    needed: int
    """Bytes that the strategy needs, by what is known of the streams; 0 without a budget."""
    fits: bool
    """Whether that is within the budget."""
    waiting_rows: int
    """Rows that are on disk and not joined; of a batch that is joined in part, all rows count."""
    waiting_seconds: float
    """Time between the arrival of the oldest of them and of the newest batch of any of its streams."""
    dropped: int
    """Rows that were removed early because there was no room for them."""


def memory_figures(plan: Plan, group: Group, ledger: Ledger, watch: GroupWatch) -> MemoryFigures:
    """Return what a join without a window takes, and what waits for it."""
    state, waiting = ledger.groups[group.id], [w for view in views(plan, group, ledger) for w in view.waiting]
    seen = [ledger.watches[log.id] for log in group.logs if log.id in ledger.watches]
    newest = max((watch.newest_arrival for watch in seen), default=0.0)
    oldest = min((batch.arrived for batch in waiting if batch.arrived), default=newest)
    known = watch.memory
    return MemoryFigures(
        known.strategy,
        known.budget,
        state.mapped_bytes,
        state.peak_mapped_bytes,
        known.needed,
        known.fits,
        sum(batch.rows for batch in waiting),
        max(0.0, newest - oldest),
        known.dropped,
    )
