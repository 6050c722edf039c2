"""How far a join without a window may advance: to the newest batch, or less to save memory (paper 5, section 4).

Ingested rows that are not joined are on disk, and no task maps them.  Ingest has looked at every batch, so it is known
exactly which rows may wait: the lowest and highest value of each batch, and how far its stream is out of order::

    S1   joined ...| 57..60 | 59..66 | 64..70 |       highest of S2: 58       58 may still come in the first batch only,
    S2   joined ............| 51..58 |                                        the other two wait: dbf

    plain    join all that was ingested
    dbf      Disk-Buffer First: batches whose rows, and all later ones, are above what some partner has reached wait:
             no row of them has a result yet, so no result is late
    msf      Memory-Sort First: rows wait until no smaller one is to come, k rows later, and are joined in order
    hybrid   both: rows wait until no smaller one is to come of any stream

Order is by value, so a batch may be joined in part: its rows up to a value (`penstock.state.values.Sorter`).  When the
input has ended, only rows that are above all rows of some partner wait.

With a memory budget, a unit advances no further than its tasks may map, but at least by one batch.

In:  a group, its strategy and budget, and the ledger.  Out: the cursor that it may advance to.
True: with plain and dbf, a waiting row has no result among the rows that are there; with msf and hybrid, a row that
comes too late for its sorter is joined at once.
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
    """A batch with rows that are not joined yet: its lowest and highest value, and the bytes of its segments."""

    number: int
    lowest: int
    highest: int
    bytes: int = 0
    rows: int = 0
    arrived: float = 0.0
    watched: bool = True
    """Whether its values were looked at; if not, it is joined as it came."""


@dataclass(frozen=True, slots=True)
class InputView:
    """One input of a join without a window: how far it is joined, and which batches wait."""

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
    """A value that all rows still to be ingested are above, if the assumed scrambling holds."""

    @property
    def passed(self) -> int | None:
        """Return a value that all rows still to be joined, ingested or not, are above; None if none is known."""
        if self.sure is None:
            return None
        least = min([_unjoined_from(batch, self.sorter) for batch in self.waiting] + [self.sure + 1])
        return least - 1 if least > LOWEST else None

    def next_after(self, number: int) -> int:
        """Return the cursor behind a batch: behind batches without rows too."""
        return next((batch.number for batch in self.waiting if batch.number > number), self.end)


def _unjoined_from(batch: WaitingBatch, sorter: Sorter | None) -> int:
    """Return a lower bound of the rows of a batch that are still to be joined."""
    if sorter is None or batch.number >= sorter.until:
        return batch.lowest
    return max(batch.lowest, sorter.value + 1)


def views(plan: Plan, group: Group, ledger: Ledger, watch: GroupWatch | None = None) -> tuple[InputView, ...]:
    """Return the inputs of a join without a window, by the scrambling that it assumes."""
    state, known = ledger.groups[group.id], (watch or buffer_of(group, ledger)).scrambling
    cursor = state.all_stations[-1][0]
    declared = [known_scrambling(plan.stream(log.stream)) or 0 for log in group.logs]
    sorters = cursor.sorters or (None,) * len(known)
    parts = zip(group.logs, cursor.batches, sorters, map(max, known, declared), strict=True)
    return tuple(
        _view(log, (batch, sorter), _sure(plan, log, apart, ledger), ledger)
        for log, batch, sorter, apart in parts
    )


def _view(log: LogPlan, reached: tuple[int, Sorter | None], sure: int | None, ledger: Ledger) -> InputView:
    watch, (batch, sorter) = ledger.watches.get(log.id, LogWatch()), reached
    return InputView(
        batch,
        ledger.stream(log.stream).batches,
        sorter,
        _waiting(log.id, batch, watch, ledger),
        watch.front_before(0),
        sum(segment.bytes for segment in ledger.segments(log.id) if segment.last < batch),
        sure,
    )


def _sure(plan: Plan, log: LogPlan, apart: int, ledger: Ledger) -> int | None:
    """Return a value that all rows of a log still to be ingested are above; None if none is known.

    Of a stream it follows from its order.  Of the results of a query it follows from the rows that this query is still
    to join; while results wait to be fed, it is the bound that came with the last fed results.
    """
    watch = ledger.watches.get(log.id, LogWatch())
    if plan.stream(log.stream).results is not None:
        return watch.above if log.stream in ledger.fed else results_above(plan, log.stream, ledger)
    sure = watch.front_before(apart)
    return sure - 1 if sure is not None and is_rounded(log) else sure


def _waiting(log: str, since: int, watch: LogWatch, ledger: Ledger) -> tuple[WaitingBatch, ...]:
    """List the batches with rows from a cursor on, in their order."""
    sizes: dict[int, tuple[int, int]] = {}
    for segment in ledger.segments(log):
        if segment.last >= since:
            rows, size = sizes.get(segment.last, (0, 0))
            sizes[segment.last] = rows + segment.rows, size + segment.bytes
    pieces = {piece.batch: piece for piece in watch.pieces}
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
    """Return how far a join without a window may advance; `ended`: no more rows are to come."""
    if strategy in SORTING:
        return _sorted_goal(_release_values(strategy, inputs, ended=ended), inputs, below)
    if strategy == DBF:
        return Cursor(tuple(_near(number, inputs) for number in range(len(inputs))), below)
    return Cursor(tuple(part.end for part in inputs), below)


def _near(number: int, inputs: Sequence[InputView]) -> int:
    """Return the batch before which an input is joined: behind the last one whose values all partners have reached."""
    own = inputs[number]
    bound = lowest_of(part.highest for place, part in enumerate(inputs) if place != number)
    behind = own.sorter.until if own.sorter else own.reached  # what was joined in part is joined whole
    wanted = [
        waiting.number
        for waiting in own.waiting
        if waiting.number < behind or not waiting.watched or (bound is not None and waiting.lowest <= bound)
    ]
    return own.next_after(max(wanted)) if wanted else own.next_after(own.reached - 1)


def _release_values(strategy: str, inputs: Sequence[InputView], *, ended: bool) -> list[int | None]:
    """Return by input the value up to which its rows are in order and may be joined."""
    values = [part.sure for part in inputs]
    if strategy == HYBRID:
        values = [lowest_of(values)] * len(inputs)
    everyone = lowest_of(part.highest for part in inputs) if ended else None
    return [_highest_of(value, everyone) for value in values]


def _highest_of(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _sorted_goal(values: Sequence[int | None], inputs: Sequence[InputView], below: int) -> Cursor:
    """Return the cursor at which all rows of each input up to its value are joined."""
    reached = [_sorted_reach(value, part) for value, part in zip(values, inputs, strict=True)]
    return Cursor(tuple(reach for reach, _ in reached), below, tuple(reach for _, reach in reached))


def _sorted_reach(value: int | None, own: InputView) -> tuple[int, Sorter]:
    """Return before which batch an input is joined wholly, and up to which batch and value in part."""
    before = own.sorter or Sorter(own.reached, LOWEST)
    upto = max(before.value, LOWEST if value is None else value)
    whole = max((waiting.number + 1 for waiting in own.waiting if not waiting.watched), default=own.reached)
    rest = [waiting for waiting in own.waiting if waiting.number >= whole]
    if value is None and own.sorter is None:
        rest_from = rest[0].number if rest else own.end
        return rest_from, Sorter(rest_from, LOWEST)
    batch = next((waiting.number for waiting in rest if waiting.highest > upto), own.end)
    taken = [waiting.number + 1 for waiting in rest if waiting.lowest <= upto]
    return batch, Sorter(max([before.until, batch, *taken]), upto)


def results_wait(inputs: Sequence[InputView]) -> bool:
    """Return whether some row that is not joined may have a result among the rows that are there."""
    everyone = lowest_of(part.highest for part in inputs)
    return everyone is not None and any(
        _unjoined_from(batch, part.sorter) <= everyone for part in inputs for batch in part.waiting
    )


def reach_of(
    plan: Plan, ledger: Ledger, group: Group, plan_by: tuple[str, int | None], *, ended: bool = False
) -> Station:
    """Return how far a join without a window may advance, by a strategy and within a budget."""
    (strategy, budget), (reached, passed) = plan_by, ledger.groups[group.id].all_stations[-1]
    inputs = views(plan, group, ledger)
    cursor = goal_without_window(strategy, inputs, reached.below, ended=ended)
    if budget is not None:
        cursor = _by_value(cursor, inputs, budget) if cursor.sorters else _by_batch(cursor, inputs, budget)
    marks = [ledger.stream(log.stream).watermark for log in group.logs]
    return cursor, tuple(
        mark if batch == own.end else before
        for mark, batch, own, before in zip(marks, cursor.batches, inputs, passed, strict=True)
    )


# --- within a budget -----------------------------------------------------------------------------------------------


def _by_batch(goal: Cursor, inputs: Sequence[InputView], budget: int) -> Cursor:
    """Advance towards a goal only as far as a unit may map: the lowest batches first, one at least."""
    ahead = [
        [waiting for waiting in own.waiting if waiting.number < batch]
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
    """List batches of several inputs, each in its order: the input whose next batch has the lowest value first."""
    numbers = [0] * len(ahead)
    while left := [place for place, number in enumerate(numbers) if number < len(ahead[place])]:
        place = min(left, key=lambda place: ahead[place][numbers[place]].lowest)
        yield place, numbers[place]
        numbers[place] += 1


def _by_value(goal: Cursor, inputs: Sequence[InputView], budget: int) -> Cursor:
    """Advance up to a value such that a unit may map the batches with rows up to it; one batch at least."""
    most = max(sorter.value for sorter in goal.sorters)
    steps = sorted({batch.highest for own in inputs for batch in own.waiting if batch.highest < most})

    def upto(value: int) -> Cursor:
        values = [min(sorter.value, value) for sorter in goal.sorters]
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
    """Return the bytes of waiting batches that a unit maps to reach a cursor."""
    return sum(
        batch.bytes
        for own, sorter in zip(inputs, cursor.sorters, strict=True)
        for batch in own.waiting
        if batch.number < sorter.until
    )
