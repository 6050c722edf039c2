"""Feed: results of queries become input rows of the queries that read them, in the order of commits.

Queries at the bottom of a tree are fed first.  What is joined of their results is fed a turn later::

    turn 1    q1 ── unit ──▶ results ── feed ──▶ rows of q1
    turn 2    q1 ── unit ──▶ results ── feed ──▶ rows of q1
              q2 ── unit, of the rows before ──▶ results ── feed ──▶ rows of q2 …

In:  the context of turns.  Out: ``batch`` commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.sources.batch_ingest import ResultIngest
from penstock.engine.views.buffers import results_above
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.engine.stages.turn_context import TurnContext
    from penstock.sql.query import Stream


def feed(context: TurnContext) -> None:
    """Write the results that wait into the logs of the queries that read them."""
    if not context.ledger.fed:
        return
    for stream in context.plan.results:
        if stream.name in context.ledger.fed and not _feed(context, stream):
            return


def _feed(context: TurnContext, stream: Stream) -> bool:
    """Make one batch of the waiting results of a query; return False if the plan has changed."""
    plan = context.plan
    batch = ResultIngest(context.store, context.backend, plan, stream)
    try:
        batch.take(results_above(plan, stream.name, context.ledger))
    except PenstockError:
        raise
    except Exception as error:
        failures = context.backend.failures(batch.rows(), stream, plan)
        if not failures:
            raise
        context.go_on_without(failures, error)
        return False
    return True
