"""How far a join without a window may go: at once, or as far as it saves memory to wait (paper 5, section 4).

Rows that are ingested and not joined are on disk and no task maps them.  What may wait there is known exactly, because
ingest has looked at every batch: the lowest and the highest value of each, and how far its stream is in order::

    S1   joined ...| 57..60 | 59..66 | 64..70 |       highest of S2: 58       58 may still come in the first batch only,
    S2   joined ............| 51..58 |                                        the other two wait: dbf

    plain    all that was ingested
    dbf      Disk-Buffer First: the batches of a stream that, from there on, are above what some partner has reached,
             wait: no row of theirs is in a result yet.  Nothing comes later for it
    msf      Memory-Sort First: rows wait until no smaller one is to come, k rows later, and are joined in order
    hybrid   both: rows wait until no smaller one is to come of any stream

Order is by value, so that a batch may be joined in part: its rows up to a value (`penstock.state.values.Sorter`).  At
the end of the input nothing more is to come, and rows wait only if they are above all that some partner has.

With a memory budget a unit goes no farther at a time than it may map, but for one batch.

In:  a group, its strategy and budget, and the ledger.  Out: the cursor that it may go to.
True: a row that waits is in no result of the rows that are there, but for those that msf and hybrid sort; a row that
comes too late for a sorter is joined at once.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.views.buffers import buffer_of, is_rounded, lowest_of, results_above
from penstock.kernels.ordered_values import HIGHEST, LOWEST
from penstock.plan.buffers import DBF, HYBRID, MSF
from penstock.sql.bind.arrival import known_scrambling
from penstock.state.values import Cursor, Sorter
from penstock.state.watch import LogWatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import LogPlan
    from penstock.state.ledger import Ledger
    from penstock.state.values import Station
    from penstock.state.watch import GroupWatch

SORTING = frozenset({MSF, HYBRID})


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """A batch with rows that are not all joined: the lowest and highest value, and the bytes of its segments."""

    number: int
    lowest: int
    highest: int
    bytes: int = 0
    rows: int = 0
    arrived: float = 0.0
    watched: bool = True
    """Whether its values were looked at; one of before is joined as it comes."""


@dataclass(frozen=True, slots=True)
class InputView:
    """One input of a join without a window: how far it is joined, and what waits behind that."""

    reached: int
    """Batches before this are joined."""
    end: int
    """Batches before this were ingested."""
    sorter: Sorter | None
    waiting: tuple[WaitingBatch, ...]
    highest: int | None
    """The highest value so far; None before the first."""
    kept: int
    """Bytes of the segments whose rows are all joined."""
    sure: int | None
    """A value that all rows still to be ingested are above, if the scrambling is what it is taken for."""

    @property
    def passed(self) -> int | None:
        """Give a value that all rows still to be joined, ingested or not, are above; None if none is known."""
        if self.sure is None:
            return None
        least = min([_unjoined_from(each, self.sorter) for each in self.waiting] + [self.sure + 1])
        return least - 1 if least > LOWEST else None

    def next_after(self, number: int) -> int:
        """Give the cursor behind a batch: that and all before it are joined, and batches without rows behind it."""
        return next((each.number for each in self.waiting if each.number > number), self.end)


def _unjoined_from(batch: WaitingBatch, sorter: Sorter | None) -> int:
    """Give a value that no row of a batch still to be joined is below."""
    if sorter is None or batch.number >= sorter.until:
        return batch.lowest
    return max(batch.lowest, sorter.value + 1)


def views(plan: Plan, group: Group, ledger: Ledger, watch: GroupWatch | None = None) -> tuple[InputView, ...]:
    """Look at the inputs of a join without a window, with the scrambling that it goes by."""
    state, known = ledger.groups[group.id], (watch or buffer_of(group, ledger)).scrambling
    cursor = state.all_stations[-1][0]
    told = [known_scrambling(plan.stream(log.stream)) or 0 for log in group.logs]
    sorters = cursor.sorters or (None,) * len(known)
    parts = zip(group.logs, cursor.batches, sorters, map(max, known, told), strict=True)
    return tuple(
        _view(log, (batch, sorter), _sure(plan, log, apart, ledger), ledger)
        for log, batch, sorter, apart in parts
    )


def _view(log: LogPlan, reached: tuple[int, Sorter | None], sure: int | None, ledger: Ledger) -> InputView:
    """Look at one input that is joined so far, of which all rows still to be ingested are above a value."""
    watch, (batch, sorter) = ledger.watches.get(log.id, LogWatch()), reached
    return InputView(
        batch,
        ledger.stream(log.stream).batches,
        sorter,
        _waiting(log.id, batch, watch, ledger),
        watch.front_before(0),
        sum(each.bytes for each in ledger.segments(log.id) if each.last < batch),
        sure,
    )


def _sure(plan: Plan, log: LogPlan, apart: int, ledger: Ledger) -> int | None:
    """Give a value that all rows of a log still to be ingested are above; None if none is known.

    Of a stream it follows from its order.  Of the results of a query it follows from what this is still to join; while
    some that were found wait to be fed, it is what was known with the last that were.
    """
    watch = ledger.watches.get(log.id, LogWatch())
    if plan.stream(log.stream).results is not None:
        return watch.above if log.stream in ledger.fed else results_above(plan, log.stream, ledger)
    sure = watch.front_before(apart)
    return sure - 1 if sure is not None and is_rounded(log) else sure


def _waiting(log: str, since: int, watch: LogWatch, ledger: Ledger) -> tuple[WaitingBatch, ...]:
    """List the batches from a cursor on that have rows, in their order."""
    sizes: dict[int, tuple[int, int]] = {}
    for each in ledger.segments(log):
        if each.last >= since:
            rows, size = sizes.get(each.last, (0, 0))
            sizes[each.last] = rows + each.rows, size + each.bytes
    pieces = {each.batch: each for each in watch.pieces}
    return tuple(
        WaitingBatch(
            number,
            *(piece.order.ends if piece and piece.order.ends else (LOWEST, HIGHEST)),
            bytes=size,
            rows=rows,
            arrived=piece.arrived if piece else 0.0,
            watched=piece is not None and piece.order.ends is not None,
        )
        for number, (rows, size) in sorted(sizes.items())
        for piece in [pieces.get(number)]
    )


def goal_without_window(
    strategy: str, inputs: Sequence[InputView], below: int, *, ended: bool = False
) -> Cursor:
    """Say how far a join without a window may go; `ended`: no row is to come any more."""
    if strategy in SORTING:
        return _sorted_goal(_release_values(strategy, inputs, ended=ended), inputs, below)
    if strategy == DBF:
        return Cursor(tuple(_near(number, inputs) for number in range(len(inputs))), below)
    return Cursor(tuple(each.end for each in inputs), below)


def _near(number: int, inputs: Sequence[InputView]) -> int:
    """Say before which batch an input is joined: behind the last that all its partners may have a value of."""
    own = inputs[number]
    bound = lowest_of(each.highest for place, each in enumerate(inputs) if place != number)
    behind = own.sorter.until if own.sorter else own.reached  # what was joined in part is joined whole
    wanted = [
        each.number
        for each in own.waiting
        if each.number < behind or not each.watched or (bound is not None and each.lowest <= bound)
    ]
    return own.next_after(max(wanted)) if wanted else own.next_after(own.reached - 1)


def _release_values(strategy: str, inputs: Sequence[InputView], *, ended: bool) -> list[int | None]:
    """Say for each input up to which value its rows are in order, and may be joined."""
    values = [each.sure for each in inputs]
    if strategy == HYBRID:
        values = [lowest_of(values)] * len(inputs)
    everyone = lowest_of(each.highest for each in inputs) if ended else None
    return [_highest_of(each, everyone) for each in values]


def _highest_of(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _sorted_goal(values: Sequence[int | None], inputs: Sequence[InputView], below: int) -> Cursor:
    """Give the cursor at which of each input all rows up to a value are joined."""
    reached = [_sorted_reach(value, each) for value, each in zip(values, inputs, strict=True)]
    return Cursor(tuple(each for each, _ in reached), below, tuple(each for _, each in reached))


def _sorted_reach(value: int | None, own: InputView) -> tuple[int, Sorter]:
    """Say before which batch an input is joined wholly, and up to where and which value in part."""
    before = own.sorter or Sorter(own.reached, LOWEST)
    upto = max(before.value, LOWEST if value is None else value)
    whole = max((each.number + 1 for each in own.waiting if not each.watched), default=own.reached)
    rest = [each for each in own.waiting if each.number >= whole]
    if value is None and own.sorter is None:
        rest_from = rest[0].number if rest else own.end
        return rest_from, Sorter(rest_from, LOWEST)
    batch = next((each.number for each in rest if each.highest > upto), own.end)
    taken = [each.number + 1 for each in rest if each.lowest <= upto]
    return batch, Sorter(max([before.until, batch, *taken]), upto)


def results_wait(inputs: Sequence[InputView]) -> bool:
    """Say whether some row that is not joined may be in a result of the rows that are there."""
    everyone = lowest_of(each.highest for each in inputs)
    return everyone is not None and any(
        _unjoined_from(batch, each.sorter) <= everyone for each in inputs for batch in each.waiting
    )


def reach_of(
    plan: Plan, ledger: Ledger, group: Group, way: tuple[str, int | None], *, ended: bool = False
) -> Station:
    """Say how far a join without a window may go by a strategy, within a budget, and its streams' watermarks there."""
    (strategy, budget), (reached, passed) = way, ledger.groups[group.id].all_stations[-1]
    inputs = views(plan, group, ledger)
    cursor = goal_without_window(strategy, inputs, reached.below, ended=ended)
    if budget is not None:
        cursor = _by_value(cursor, inputs, budget) if cursor.sorters else _by_batch(cursor, inputs, budget)
    marks = [ledger.stream(log.stream).watermark for log in group.logs]
    return cursor, tuple(
        mark if batch == own.end else before
        for mark, batch, own, before in zip(marks, cursor.batches, inputs, passed, strict=True)
    )


# --- a step at a time ------------------------------------------------------------------------------------------


def _by_batch(goal: Cursor, inputs: Sequence[InputView], budget: int) -> Cursor:
    """Go only as far towards a goal as a unit may map: the lowest batches first, one at the least."""
    ahead = [
        [each for each in own.waiting if each.number < batch]
        for own, batch in zip(inputs, goal.batches, strict=True)
    ]
    if any(own.sorter for own in inputs) or not any(ahead):
        return goal
    room = budget - sum(own.kept for own in inputs)
    batches = [own.reached for own in inputs]
    for place, number in _lowest_first(ahead):
        batch = ahead[place][number]
        room -= batch.bytes
        if room < 0 and batches != [own.reached for own in inputs]:
            break
        is_last = number + 1 == len(ahead[place])
        batches[place] = goal.batches[place] if is_last else ahead[place][number + 1].number
    return Cursor(tuple(batches), goal.below)


def _lowest_first(ahead: Sequence[Sequence[WaitingBatch]]) -> Iterator[tuple[int, int]]:
    """Go through batches of several inputs, each in its order: the input whose next one has the lowest value first."""
    numbers = [0] * len(ahead)
    while left := [place for place, number in enumerate(numbers) if number < len(ahead[place])]:
        place = min(left, key=lambda each: ahead[each][numbers[each]].lowest)
        yield place, numbers[place]
        numbers[place] += 1


def _by_value(goal: Cursor, inputs: Sequence[InputView], budget: int) -> Cursor:
    """Go only up to a value such that a unit may map the batches that have rows up to it; one batch's at the least."""
    most = max(each.value for each in goal.sorters)
    steps = sorted({batch.highest for own in inputs for batch in own.waiting if batch.highest < most})

    def upto(value: int) -> Cursor:
        values = [min(each.value, value) for each in goal.sorters]
        return _sorted_goal(values, inputs, goal.below)

    room = budget - sum(own.kept for own in inputs)
    if _bytes_ahead(goal, inputs) <= room or not steps:
        return goal
    fitting = bisect_right(steps, room, key=lambda value: _bytes_ahead(upto(value), inputs))
    here = Cursor(
        tuple(own.reached for own in inputs),
        goal.below,
        tuple(own.sorter or Sorter(own.reached, LOWEST) for own in inputs),
    )
    for value in steps[max(0, fitting - 1) :]:
        if upto(value) != here:
            return upto(value)
    return goal


def _bytes_ahead(cursor: Cursor, inputs: Sequence[InputView]) -> int:
    """Say how many bytes of batches that wait a unit maps on its way to a cursor."""
    return sum(
        batch.bytes
        for own, sorter in zip(inputs, cursor.sorters, strict=True)
        for batch in own.waiting
        if batch.number < sorter.until
    )
