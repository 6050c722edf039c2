"""What joins without a window know of their streams, by the ledger: order, characteristics, and the rows they need.

A row still to come from S_j is above all but the last k_j rows of S_j.  So of S_i nobody needs the rows before the
first that is above what S_j had reached k_j rows ago (`penstock.kernels.order_watch`), or that is not below the lowest
row of S_j that is ingested and waits to be joined (`penstock.engine.views.advance_limit`).  Of S_i, what was joined
counts.

Where the rows of S_j are the results of another join, what is still to come of them has a row that is still to come of
some stream of that join: it is above the least of what these are above::

    S1   to come: above 57 ─┐
                            ├─ q1   to come: above 52 ─┐
    S2   to come: above 52 ─┘                          ├─ q2   to come: above 49
    S3   to come: above 49 ────────────────────────────┘

In:  a group, the plan and the ledger.  Out: how many rows of each stream are of no more use, and what streams are like.
True: where the scrambling of every stream is what it is said to be, no row that a partner may meet is let go.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from penstock.kernels.accuracy_sketch import AccuracySketch
from penstock.kernels.order_watch import HEADROOM, PRECISION, Order, lag_at_most, rows_below
from penstock.kernels.ordered_values import MOST_DIGITS
from penstock.plan.buffers import Characteristics, buffer_rows, joined
from penstock.sql.bind.arrival import known_multiplicity, known_scrambling
from penstock.state.watch import GroupWatch, LogWatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.plan.stored import LogPlan
    from penstock.state.ledger import Ledger


def reached(group: Group, ledger: Ledger) -> tuple[int, ...]:
    """Say for each input before which batch every slice of a group has joined all."""
    cursors = ledger.groups[group.id].cursors
    return tuple(min(each.batches[number] for each in cursors) for number in range(len(group.inputs)))


def buffer_of(group: Group, ledger: Ledger) -> GroupWatch:
    """Give what a join without a window knows; one that has just begun has let go of nothing."""
    known = ledger.buffers.get(group.id)
    if known is not None:
        return known
    nothing, here = (0,) * len(group.inputs), reached(group, ledger)
    since = tuple(
        ledger.watches[log.id].until if log.id in ledger.watches else each
        for log, each in zip(group.logs, here, strict=True)
    )
    return GroupWatch(since, nothing, nothing, AccuracySketch(len(group.inputs)))


def watch_at(log: str, until: int, ledger: Ledger) -> LogWatch:
    """Give what is known of a log's rows before a batch."""
    return ledger.watches.get(log, LogWatch()).settled(until)


def scramblings(plan: Plan, group: Group, orders: Sequence[Order]) -> tuple[int, ...]:
    """Give the scrambling to reckon with: as it is declared; if more was measured, or it is not, what to expect."""
    declared = [known_scrambling(plan.stream(log.stream)) for log in group.logs]
    return tuple(
        known if known is not None and known >= order.scrambling else order.expected()
        for known, order in zip(declared, orders, strict=True)
    )


def holds(declared: int, reckoned: int) -> bool:
    """Say whether a scrambling that was declared holds, by the one that is reckoned with.

    What is measured may be a sixteenth above the truth, and then an eighth more is reckoned with.

    >>> holds(100, 100), holds(100, 119), holds(100, 200)
    (True, True, False)
    """
    return reckoned <= (1 + HEADROOM) * ((1 + PRECISION) * declared + 1)


def is_declared(plan: Plan, log: LogPlan, reckoned: int) -> bool:
    """Say whether a stream's scrambling was declared, and holds by the one that is reckoned with.

    Where values fall together as they are watched, rows look out of order that are not: there it is taken at its word.
    """
    known = known_scrambling(plan.stream(log.stream))
    return known is not None and (is_rounded(log) or holds(known, reckoned))


def orders_now(group: Group, ledger: Ledger) -> list[Order]:
    """Give the order of all that was ingested of each input."""
    watches = [ledger.watches.get(log.id, LogWatch()) for log in group.logs]
    return [reduce(Order.merged, (piece.order for piece in each.pieces), each.order) for each in watches]


def results_above(plan: Plan, query: str, ledger: Ledger) -> int | None:
    """Give what all results that a query is still to find are above; None if nobody knows."""
    groups = [group.id for group, _, _ in plan.groups_of(query)]
    if ledger.query(query).backfill is not None or not all(each in ledger.buffers for each in groups):
        return None
    return lowest_of(ledger.buffers[each].above for each in groups)


def lowest_of(values: Iterable[int | None]) -> int | None:
    """Give the lowest of some values; None if one is not known."""
    known = list(values)
    return min((each for each in known if each is not None), default=None) if None not in known else None


def rows_let_go(watches: Sequence[LogWatch], passed: Sequence[int | None]) -> tuple[int, ...]:
    """Say for each input how many of the first rows that it has joined no partner still to be joined can meet.

    `passed` are values, one for each input, that all rows of it still to be joined are above.
    """
    done = rows_below([each.order for each in watches], passed)
    return tuple(watch.first + rows if rows else 0 for watch, rows in zip(watches, done, strict=True))


def is_rounded(log: LogPlan) -> bool:
    """Say whether two values of a log's key may be one when they are watched: decimals of too many digits."""
    kind = log.key[0].type
    return kind.startswith("decimal") and int(kind[len("decimal(") :].split(",")[0]) > MOST_DIGITS


@dataclass(frozen=True, slots=True)
class BufferFigures:
    """One stream of a join without a window: its rows that are kept, and what it is like."""

    stream: str
    """The stream."""
    rows: int
    """Rows that were joined and are kept for partners to come."""
    needed: int
    """Rows that the model asks for, with rates as measured and the lags that there may be."""
    scrambling: int
    """The maximum number of positions a row may be out of order: as declared, or as measured where that is more."""
    multiplicity: int
    """The maximum number of rows with one value: as declared, or as measured where that is more."""
    rate: float
    """Rows per second, as measured lately."""
    lag: int
    """The most rows that it is ahead of a partner."""
    is_known: bool
    """Whether its scrambling was declared, and holds."""


def figures(plan: Plan, group: Group, ledger: Ledger) -> tuple[BufferFigures, ...]:
    """Say what each stream of a join without a window is like, and what is kept of it."""
    buffer = buffer_of(group, ledger)
    watches = [watch_at(log.id, until, ledger) for log, until in zip(group.logs, buffer.until, strict=True)]
    alike = characteristics(plan, group, watches, ledger)
    lags = lags_at_most([each.order for each in watches], alike)
    needed = buffer_rows(alike, lags)
    return tuple(
        BufferFigures(
            log.stream,
            max(0, watch.first + watch.order.rows - gone),
            need,
            each.scrambling,
            each.multiplicity,
            watch.pace.rate,
            max(lag),
            _is_known(plan, log, each.scrambling, ledger),
        )
        for log, watch, gone, need, each, lag in zip(
            group.logs, watches, buffer.gone, needed, alike, lags, strict=True
        )
    )


def lags_at_most(orders: Sequence[Order], alike: Sequence[Characteristics]) -> list[list[int]]:
    """Bound how many rows each stream is ahead of each."""
    return [
        [0 if i == j else lag_at_most(own, other, alike[j].scrambling) for j, other in enumerate(orders)]
        for i, own in enumerate(orders)
    ]


def _is_known(plan: Plan, log: LogPlan, reckoned: int, ledger: Ledger) -> bool:
    """Say whether a stream's scrambling was declared, and holds; of results, that of all that they are made of."""
    if plan.stream(log.stream).results is not None:
        return all(each.is_known for each in figures(plan, plan.find(log.stream)[0], ledger))
    return is_declared(plan, log, reckoned)


def characteristics(
    plan: Plan, group: Group, watches: Sequence[LogWatch], ledger: Ledger
) -> list[Characteristics]:
    """Give what the model takes of each stream: as declared, or as measured where that is more.

    Of the results of a query it is what Theorem 3.1 bounds them by, or more where that was measured: results of one
    unit come in no order.
    """
    scrambling = scramblings(plan, group, [each.order for each in watches])
    made = []
    for log, watch, apart in zip(group.logs, watches, scrambling, strict=True):
        told = expected_results(plan, log.stream, ledger) if plan.stream(log.stream).results else None
        known = told.multiplicity if told else known_multiplicity(plan.stream(log.stream)) or 1
        alike = max(watch.copies.multiplicity, known)
        rate = watch.pace.rate or float(max(1, watch.order.rows))
        made.append(Characteristics(max(apart, alike - 1, told.scrambling if told else 0), alike, rate))
    return made


def expected_results(plan: Plan, query: str, ledger: Ledger) -> Characteristics:
    """Bound what the results of a query are like by the streams that it joins (Theorem 3.1)."""
    group = plan.find(query)[0]
    until = buffer_of(group, ledger).until
    watches = [watch_at(log.id, each, ledger) for log, each in zip(group.logs, until, strict=True)]
    return joined(characteristics(plan, group, watches, ledger))
