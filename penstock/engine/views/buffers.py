"""Joins without a window: the order of their streams, the rows that partners may still need, and their accuracy.

A row still to come from S_j is above all but the last k_j rows of S_j.  So no partner needs the rows of S_i before the
first one that is above what S_j had reached k_j rows ago (`penstock.kernels.order_watch`), or that is not below the
lowest row of S_j that is ingested and not joined (`penstock.engine.views.advance_limit`).  Of S_i, joined rows count.

Results of another join may be an input.  A result still to come has a row still to come of some stream of that join,
so it is above the least of the bounds of those streams::

    S1   to come: above 57 ─┐
                            ├─ q1   to come: above 52 ─┐
    S2   to come: above 52 ─┘                          ├─ q2   to come: above 49
    S3   to come: above 49 ────────────────────────────┘

In:  a group, the plan and the ledger.  Out: how many rows of each stream are of no more use, and what streams are like.
True: if the scrambling of every stream is as assumed, no row that a partner may meet is removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import TYPE_CHECKING

from penstock import limits
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
    from penstock.sql.query import Query
    from penstock.state.ledger import Ledger


def reached(group: Group, ledger: Ledger) -> tuple[int, ...]:
    """Return by input the batch before which every slice of a group has joined all rows."""
    cursors = ledger.groups[group.id].cursors
    return tuple(min(cursor.batches[number] for cursor in cursors) for number in range(len(group.inputs)))


def buffer_of(group: Group, ledger: Ledger) -> GroupWatch:
    """Return what a join without a window knows; a new one has removed no rows yet."""
    known = ledger.buffers.get(group.id)
    if known is not None:
        return known
    nothing, here = (0,) * len(group.inputs), reached(group, ledger)
    since = tuple(
        ledger.watches[log.id].until if log.id in ledger.watches else batch
        for log, batch in zip(group.logs, here, strict=True)
    )
    return GroupWatch(since, nothing, nothing, AccuracySketch(len(group.inputs)))


def watch_at(log: str, until: int, ledger: Ledger) -> LogWatch:
    """Return what is known of a log's rows before a batch."""
    return ledger.watches.get(log, LogWatch()).settled(until)


# --- the order of streams -------------------------------------------------------------------------------------------


def scramblings(plan: Plan, group: Group, orders: Sequence[Order]) -> tuple[int, ...]:
    """Return the scrambling to assume: the declared one, or the expected one if more or nothing was declared."""
    declared = [known_scrambling(plan.stream(log.stream)) for log in group.logs]
    return tuple(
        known if known is not None and known >= order.scrambling else order.expected()
        for known, order in zip(declared, orders, strict=True)
    )


def holds(declared: int, assumed: int) -> bool:
    """Return whether a declared scrambling holds, by the assumed one.

    A measurement may exceed the truth by a sixteenth, and an eighth is added to it.

    >>> holds(100, 100), holds(100, 119), holds(100, 200)
    (True, True, False)
    """
    return assumed <= (1 + HEADROOM) * ((1 + PRECISION) * declared + 1)


def is_known(plan: Plan, group: Group, scrambling: Sequence[int], ledger: Ledger) -> bool:
    """Return whether the scrambling of every input was declared, and holds."""
    return all(
        is_scrambling_known(plan, log, assumed, ledger)
        for log, assumed in zip(group.logs, scrambling, strict=True)
    )


def is_scrambling_known(plan: Plan, log: LogPlan, assumed: int, ledger: Ledger) -> bool:
    """Return whether a stream's scrambling was declared, and holds; of results, that of all streams below them.

    Rounded values look out of order although they are not; then the declaration counts.
    """
    if plan.stream(log.stream).results is not None:
        below = (group for group, _, _ in plan.groups_of(log.stream))
        return all(is_known(plan, group, buffer_of(group, ledger).scrambling, ledger) for group in below)
    declared = known_scrambling(plan.stream(log.stream))
    return declared is not None and (is_rounded(log) or holds(declared, assumed))


def is_rounded(log: LogPlan) -> bool:
    """Return whether two values of a log's key may be watched as one: decimals of too many digits."""
    kind = log.key[0].type
    return kind.startswith("decimal") and int(kind[len("decimal(") :].split(",")[0]) > MOST_DIGITS


def orders_now(group: Group, ledger: Ledger) -> list[Order]:
    """Return the order of all that was ingested of each input."""
    watches = [ledger.watches.get(log.id, LogWatch()) for log in group.logs]
    return [reduce(Order.merged, (piece.order for piece in watch.pieces), watch.order) for watch in watches]


def disorder(plan: Plan, query: Query, ledger: Ledger) -> tuple[str, ...]:
    """Describe each stream of a query whose rows are not in the order that the stream declares."""
    sentences = (
        sentence
        for group, _, _ in plan.groups_of(query.name)
        for sentence in group_disorder(plan, group, ledger)
    )
    return tuple(dict.fromkeys(sentences))


def group_disorder(plan: Plan, group: Group, ledger: Ledger) -> list[str]:
    """Describe each stream of a join that is out of order by nearly all of its rows: no buffer is large enough."""
    sentences = []
    for log, order in zip(group.logs, orders_now(group, ledger), strict=True):
        stream, column = plan.stream(log.stream), log.key[0].expression
        most = max(limits.MAX_ORDERED_SHARE * order.rows, known_scrambling(stream) or 0)
        if stream.results is not None or is_rounded(log):
            continue
        if order.rows >= limits.MIN_ROWS_TO_JUDGE_ORDER and order.scrambling > most:
            sentences.append(
                f"stream {log.stream} does not follow {column} in order: of {order.rows:,} rows, one arrived "
                f"{order.scrambling:,} positions late. Give the queries that join it on {column} a WINDOW, or "
                "[UNBOUNDED] after each stream"
            )
    return sentences


# --- rows that partners may still need ------------------------------------------------------------------------------


def results_above(plan: Plan, query: str, ledger: Ledger) -> int | None:
    """Return a value that all results still to come of a query are above; None if none is known."""
    groups = [group.id for group, _, _ in plan.groups_of(query)]
    if ledger.query(query).backfill is not None or not all(group in ledger.buffers for group in groups):
        return None
    return lowest_of(ledger.buffers[group].above for group in groups)


def lowest_of(values: Iterable[int | None]) -> int | None:
    """Return the lowest of some values; None if one of them is not known."""
    known = list(values)
    return min((value for value in known if value is not None), default=None) if None not in known else None


def rows_let_go(watches: Sequence[LogWatch], passed: Sequence[int | None]) -> tuple[int, ...]:
    """Return by input how many of its first joined rows no partner can meet any more.

    All rows of an input that are still to be joined are above its value in `passed`.
    """
    done = rows_below([watch.order for watch in watches], passed)
    return tuple(watch.first + rows if rows else 0 for watch, rows in zip(watches, done, strict=True))


# --- what streams are like ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BufferFigures:
    """One stream of a join without a window: its kept rows and its characteristics."""

    stream: str
    """The stream."""
    rows: int
    """Rows that were joined and are kept for partners to come."""
    needed: int
    """Rows that the model asks for, with measured rates and the largest possible lags."""
    scrambling: int
    """The maximum number of positions a row may be out of order: as declared, or as measured where that is more."""
    multiplicity: int
    """The maximum number of rows with one value: as declared, or as measured where that is more."""
    rate: float
    """Rows per second, as measured lately."""
    lag: int
    """The maximum number of rows that it is ahead of a partner."""
    is_known: bool
    """Whether its scrambling was declared, and holds."""


def figures(plan: Plan, group: Group, ledger: Ledger) -> tuple[BufferFigures, ...]:
    """Return the figures of each stream of a join without a window."""
    buffer = buffer_of(group, ledger)
    watches = [watch_at(log.id, until, ledger) for log, until in zip(group.logs, buffer.until, strict=True)]
    streams = characteristics(plan, group, watches, ledger)
    lags = lags_at_most([watch.order for watch in watches], streams)
    needed = buffer_rows(streams, lags)
    return tuple(
        BufferFigures(
            log.stream,
            max(0, watch.first + watch.order.rows - gone),
            need,
            stream.scrambling,
            stream.multiplicity,
            watch.pace.rate,
            max(lag),
            is_scrambling_known(plan, log, stream.scrambling, ledger),
        )
        for log, watch, gone, need, stream, lag in zip(
            group.logs, watches, buffer.gone, needed, streams, lags, strict=True
        )
    )


def lags_at_most(orders: Sequence[Order], alike: Sequence[Characteristics]) -> list[list[int]]:
    """Return an upper bound on the rows by which each stream is ahead of each other one."""
    return [
        [0 if i == j else lag_at_most(own, other, alike[j].scrambling) for j, other in enumerate(orders)]
        for i, own in enumerate(orders)
    ]


def characteristics(
    plan: Plan, group: Group, watches: Sequence[LogWatch], ledger: Ledger
) -> list[Characteristics]:
    """Return what the model needs of each stream: as declared, or as measured where that is more.

    Results of a query are bounded by Theorem 3.1, or by measurement if that is more: a unit's results have no order.
    """
    scrambling = scramblings(plan, group, [watch.order for watch in watches])
    made = []
    for log, watch, assumed in zip(group.logs, watches, scrambling, strict=True):
        stream = plan.stream(log.stream)
        bound = expected_results(plan, log.stream, ledger) if stream.results else None
        known = bound.multiplicity if bound else known_multiplicity(stream) or 1
        copies = max(watch.copies.multiplicity, known)
        rate = watch.pace.rate or float(max(1, watch.order.rows))
        apart = max(assumed, copies - 1, bound.scrambling if bound else 0)
        made.append(Characteristics(apart, copies, rate))
    return made


def expected_results(plan: Plan, query: str, ledger: Ledger) -> Characteristics:
    """Bound the characteristics of a query's results by the streams that it joins (Theorem 3.1)."""
    group = plan.find(query)[0]
    until = buffer_of(group, ledger).until
    watches = [watch_at(log.id, batch, ledger) for log, batch in zip(group.logs, until, strict=True)]
    return joined(characteristics(plan, group, watches, ledger))


# --- accuracy -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The share of results found, an estimate of missed results, and two standard errors of that."""

    share: float
    missed: float
    error: float


def accuracy_of(plan: Plan, query: str, ledger: Ledger) -> Accuracy:
    """Estimate how many results a query without a window has found and missed, over all rows that have arrived.

    A join's sketch counts what the join itself has missed, rows that were set aside included.  Results missed by a
    query below are missing in its readers in proportion, as if each input row had equally many results::

        q1   90 of 100 results found        accuracy 0.9
        q2   joins q1: found 180, missed 0  accuracy 1.0 x 0.9, about 20 missed
    """
    groups = [group for group, _, _ in plan.groups_of(query)]
    sketches = [buffer_of(group, ledger).sketch for group in groups]
    found = sum(sketch.results_found for sketch in sketches)
    lost = sum(sketch.lost for sketch in sketches)
    inputs = [stream for stream in groups[0].streams if plan.stream(stream).results is not None]
    below = prod(accuracy_of(plan, stream, ledger).share for stream in inputs)
    own = found / (found + lost) if lost else 1.0
    exist = (found + lost) / below if below else found + lost
    error = sum(sketch.error for sketch in sketches)
    return Accuracy(own * below, exist - found, error + exist - found - lost)
