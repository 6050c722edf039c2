"""The memory of a join without a window: which strategy it goes by, what that takes, and what there is no room for.

What counts are the bytes of the segments that a unit maps, those it keeps rows in and those it joins: tasks of one
machine share them, and none maps more.  One unit runs at a time, so every join has the whole budget::

    memory     |------------------------- budget --------------------------|
               | kept rows                    |  a quarter  |  the batch    |
               |                              |  for rows   |  that is new  |
               |                              |  of no use  |               |

By what is known of the streams, `penstock.plan.buffers` says what each strategy takes, and the first that fits is
chosen, from the one that delays results least.  A thriftier one is taken up at once, a less thrifty one only if it
leaves a quarter of its room free.  Where none fits, the smallest is taken, and then

* if the scrambling of every stream is declared, and holds, no result is given up: more is mapped than was asked for;
* else the oldest rows that are kept are let go, of every stream in proportion, and what that misses is told as what
  comes late is.  A unit may still pass the budget by a batch of each stream, which it takes as they came.

In:  what settings and queries say, and the ledger.  Out: the strategy in force, and figures for `status`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from penstock.engine.views.advance_limit import SORTING, views
from penstock.engine.views.buffers import (
    buffer_of,
    characteristics,
    is_declared,
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
    from penstock.plan.stored import LogPlan
    from penstock.state.ledger import Ledger
    from penstock.state.segment import Segment
    from penstock.state.watch import GroupWatch, LogWatch, MemoryWatch

FOR_ROWS = 3 / 4
"""The share of a budget that rows of use may take; the rest is for rows of no more use in the same segments."""

TO_GO_BACK = 3 / 4
"""The share of its room that a less thrifty strategy may take if it is to be taken up again."""


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """What settings say: bytes that a unit of a join without a window may map, and how it is to save them."""

    budget: int | None = None
    strategy: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> MemoryPolicy:
        """Read it from settings."""
        budget = budget_of(settings)
        if "buffers" in settings:
            check_value("buffers", settings["buffers"])
        return cls(None if budget is None else int(budget), buffers_of(settings))

    def asked(self, group: Group) -> str:
        """Give the strategy that somebody has asked for, the thriftiest if several have; empty: nobody."""
        asked = {dict(member.query.options).get("buffers", "") for member in group.members} - {""}
        return max(asked, key=STRATEGIES.index, default=self.strategy)


def strategy_in_force(group: Group, ledger: Ledger, policy: MemoryPolicy) -> str:
    """Say by which strategy a join without a window advances."""
    if asked := policy.asked(group):
        return asked
    known = ledger.buffers.get(group.id)
    return known.memory.strategy if known and policy.budget is not None else PLAIN


@dataclass(frozen=True, slots=True)
class Room:
    """What a join takes: bytes of a row of each input, and of a batch of each: the largest, and the next to join."""

    widths: tuple[float, ...]
    batches: tuple[int, ...]
    next_batches: tuple[int, ...]

    @classmethod
    def of(cls, plan: Plan, group: Group, ledger: Ledger) -> Room:
        """Measure it by the segments that are there; while no batch waits, the next one is taken to be as the last."""
        logs = [ledger.segments(log.id) for log in group.logs]
        sizes = [_batch_sizes(filter(_is_as_it_came, each)) for each in logs]
        ahead = [view.waiting[0].bytes if view.waiting else None for view in views(plan, group, ledger)]
        return cls(
            tuple(map(_width, logs)),
            tuple(max(each.values(), default=0) for each in sizes),
            tuple(
                each[max(each)] if next_one is None and each else next_one or 0
                for each, next_one in zip(sizes, ahead, strict=True)
            ),
        )

    def beside_rows(self, strategy: str) -> int:
        """Say what a unit takes beside rows of use: the batch that is new, or, if it sorts, one of each stream."""
        return sum(self.batches) if strategy in SORTING else max(self.batches)

    def for_rows(self, budget: int, strategy: str) -> float:
        """Say how many bytes rows may take now, with what is to be joined next."""
        beside = sum(self.next_batches) if strategy in SORTING else max(self.next_batches)
        return max(1.0, FOR_ROWS * (budget - beside))

    def taken(self, rows: Sequence[int]) -> float:
        """Say how many bytes so many rows of each input take."""
        return sum(count * width for count, width in zip(rows, self.widths, strict=True))


def _width(segments: Sequence[Segment]) -> float:
    return sum(each.bytes for each in segments) / max(1, sum(each.rows for each in segments))


def _batch_sizes(segments: Iterable[Segment]) -> dict[int, int]:
    """Add up the bytes of segments by the last batch that is in them."""
    sizes: dict[int, int] = {}
    for each in segments:
        sizes[each.last] = sizes.get(each.last, 0) + each.bytes
    return sizes


def _is_as_it_came(segment: Segment) -> bool:
    """Say whether a segment is of one batch, and was not made by merging."""
    return segment.first == segment.last and not segment.generation


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """The strategy that a join goes by, and the memory that it takes by what is known, with all that is beside rows."""

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
    widths = [max(1, round(each)) for each in room.widths]
    takes = {
        each: ceil((need(each, alike, lags).bytes(widths) + room.beside_rows(each)) / FOR_ROWS)
        for each in STRATEGIES
    }
    strategy = policy.asked(group) or _chosen(takes, policy.budget, before)
    return MemoryChoice(strategy, takes[strategy], fits=takes[strategy] <= policy.budget)


def _chosen(takes: Mapping[str, int], budget: int, before: str) -> str:
    """Choose the strategy that delays results least of those that fit, and goes back only to one that fits easily.

    >>> takes = {"plain": 90, "dbf": 50, "msf": 95, "hybrid": 30}
    >>> [_chosen(takes, budget, "plain") for budget in (100, 60, 40, 20)]
    ['plain', 'dbf', 'hybrid', 'hybrid']
    >>> _chosen(takes, 100, "dbf")
    'dbf'
    """
    fitting = [each for each in STRATEGIES if takes[each] <= budget]
    if not fitting:
        return min(takes, key=takes.__getitem__)
    easy = [each for each in STRATEGIES if takes[each] <= TO_GO_BACK * budget]
    stays = min(before, *easy[:1], key=STRATEGIES.index) if easy else before
    return max(fitting[0], stays, key=STRATEGIES.index) if stays in fitting else fitting[0]


def is_known(plan: Plan, group: Group, scrambling: Sequence[int], ledger: Ledger) -> bool:
    """Say whether every stream's scrambling was declared, and holds; of results, that of all they are made of."""
    return all(_is_known(plan, log, each, ledger) for log, each in zip(group.logs, scrambling, strict=True))


def _is_known(plan: Plan, log: LogPlan, scrambling: int, ledger: Ledger) -> bool:
    if plan.stream(log.stream).results is not None:
        below = (group for group, _, _ in plan.groups_of(log.stream))
        return all(is_known(plan, each, buffer_of(each, ledger).scrambling, ledger) for each in below)
    return is_declared(plan, log, scrambling)


def rows_without_room(room: Room, memory: MemoryWatch, kept: Sequence[int]) -> tuple[int, ...]:
    """Say how many of the rows that are kept of each input there is no room for; the oldest of them go.

    >>> from penstock.state.watch import MemoryWatch
    >>> rows_without_room(Room((10.0, 20.0), (100, 80), (100, 80)), MemoryWatch(budget=2000), (50, 50))
    (3, 3)
    """
    taken = room.taken(kept)
    part = min(1.0, room.for_rows(memory.budget, memory.strategy) / taken) if taken and memory.budget else 1.0
    return tuple(count - int(count * part) for count in kept)


def is_tight(plan: Plan, log: str, ledger: Ledger, policy: MemoryPolicy) -> bool:
    """Say whether the segments of a join without a window that reads a log take more than half of its memory."""
    if policy.budget is None:
        return False
    groups = (group for group, _ in plan.uses(log) if group.oblivious)
    return any(2 * sum(view.kept for view in views(plan, each, ledger)) > policy.budget for each in groups)


def refuse_large_batch(group: Group, new: Collection[str], ledger: Ledger, budget: int | None) -> None:
    """Refuse a budget that has no room for one batch of the segments to join: a unit maps batches as they came."""
    if budget is None:
        return
    for log in group.logs:
        sizes = _batch_sizes(each for each in ledger.segments(log.id) if each.name in new)
        for batch, size in sizes.items():
            if size > budget:
                raise InputError(
                    f"memory = '{show_size(budget)}' has no room for one batch: batch {batch} of {log.stream} takes "
                    f"{show_size(size)}, and a unit maps whole batches. SET memory to twice that or more, or let "
                    "smaller batches come (maxFilesPerTrigger, maxBytesPerTrigger)"
                )


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """What a join without a window does about memory, and what that costs."""

    strategy: str
    """How it saves memory: plain, dbf, msf or hybrid."""
    budget: int | None
    """Bytes that it may take; null without a budget."""
    mapped: int
    """Bytes of the segments that its last unit mapped: no task has more of them in memory."""
    most_mapped: int
    """The most that a unit of it has mapped since the plan changed."""
    needed: int
    """Bytes that it should have for the strategy, by what is known of the streams; 0 without a budget."""
    fits: bool
    """Whether that is within the budget."""
    waiting_rows: int
    """Rows that are on disk and not joined; those of a batch that is joined in part all count."""
    waiting_seconds: float
    """How much earlier than the newest batch of any of its streams the oldest of them came."""
    dropped: int
    """Rows that were let go early because there was no room for them."""


def memory_figures(plan: Plan, group: Group, ledger: Ledger, watch: GroupWatch) -> MemoryFigures:
    """Say what a join without a window takes, and what waits for it."""
    state, waiting = ledger.groups[group.id], [w for view in views(plan, group, ledger) for w in view.waiting]
    seen = [ledger.watches[log.id] for log in group.logs if log.id in ledger.watches]
    newest = max((each.newest_arrival for each in seen), default=0.0)
    oldest = min((each.arrived for each in waiting if each.arrived), default=newest)
    known = watch.memory
    return MemoryFigures(
        known.strategy,
        known.budget,
        state.mapped,
        state.most_mapped,
        known.needed,
        known.fits,
        sum(each.rows for each in waiting),
        max(0.0, newest - oldest),
        known.dropped,
    )
