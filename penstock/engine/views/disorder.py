"""Streams whose rows do not arrive in the order that their declaration names.

A join without a window keeps as many rows as its streams are out of order.  Where that is nearly all rows that ever
arrived, the stream does not follow the column, and no buffer is large enough for it.

In:  the plan, a query and the ledger.  Out: a sentence for each such stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.views.buffers import is_rounded, orders_now
from penstock.sql.bind.arrival import known_scrambling

if TYPE_CHECKING:
    from penstock.kernels.order_watch import Order
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Query, Stream
    from penstock.state.ledger import Ledger

LEAST_ROWS = 10_000
"""Rows of a stream before which nothing is concluded from their order."""

MOST_SHARE = 3 / 4
"""The share of a stream's rows by which a row may be out of order while the stream still counts as ordered."""


def disorder(plan: Plan, query: Query, ledger: Ledger) -> tuple[str, ...]:
    """Return a sentence for each stream of a query whose rows are not in the order that the stream declares."""
    said = (
        each for group, _, _ in plan.groups_of(query.name) for each in group_disorder(plan, group, ledger)
    )
    return tuple(dict.fromkeys(said))


def group_disorder(plan: Plan, group: Group, ledger: Ledger) -> list[str]:
    """Return the same for the streams of a join."""
    orders = zip(group.logs, orders_now(group, ledger), strict=True)
    return [
        _sentence(log.stream, log.key[0].expression, order)
        for log, order in orders
        if not is_rounded(log) and _contradicts(plan.stream(log.stream), order)
    ]


def _sentence(stream: str, column: str, order: Order) -> str:
    return (
        f"stream {stream} does not follow {column} in order: of {order.rows:,} rows, one arrived {order.scrambling:,} "
        f"positions late. Give the queries that join it on {column} a WINDOW, or [UNBOUNDED] after each stream"
    )


def _contradicts(stream: Stream, order: Order) -> bool:
    """Check whether a stream is out of order by nearly all of its rows, and by more than it declares."""
    most = max(MOST_SHARE * order.rows, known_scrambling(stream) or 0)
    return stream.results is None and order.rows >= LEAST_ROWS and order.scrambling > most
