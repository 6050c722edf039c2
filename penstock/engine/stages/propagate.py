"""Propagate: deliver punctuations of a result, the values of the join's key that no more results will have.

A value that is finished for a query (`penstock.engine.views.finished`) is delivered once, after all results that have
it: this stage runs after those that deliver results, and its output is published with them or later::

    results        ... (k = 7) ... (k = 9) ... (k = 7)
    punctuations                                       7         no result with k = 7 after this

A parquet sink with ``punctuations = 'true'`` gets them as files below ``_punctuations``, which Spark does not read as
results.  Delivered values are kept like promises, sorted by the hash of the key, so that none is delivered twice.

In:  the plan and the ledger.  Out: a `PropagationTask` for each query, and the ``propagate`` commit of their reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.engine.outputs.key_columns import key_columns
from penstock.engine.runners.runner import Job
from penstock.engine.sinks.parquet import PUNCTUATIONS
from penstock.engine.sinks.publication import publications
from penstock.engine.tasks.propagate import PropagationReport, PropagationTask
from penstock.engine.views.finished import FinishedKeys, finished_keys
from penstock.errors import InputError
from penstock.plan.promises import finishing_of, promised_sides, tells, told_index
from penstock.state.commits import CommitOutput, Propagated
from penstock.state.promises import PromiseFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.backend import Backend
    from penstock.engine.stages.turn_context import TurnContext
    from penstock.plan.build import Plan
    from penstock.sql.query import Query
    from penstock.state.ledger import Ledger


def choose_propagations(
    plan: Plan, ledger: Ledger, backend: Backend[Any], least: int | None = None
) -> list[PropagationTask]:
    """List the queries that may have finished values now, if at least `least` promises have taken effect since."""
    asking = [query for query in plan.queries if tells(query)]
    return [task for query in asking if (task := _due(plan, ledger, query, backend, least))]


def _due(
    plan: Plan, ledger: Ledger, query: Query, backend: Backend[Any], least: int | None
) -> PropagationTask | None:
    finishing, index = finished_keys(plan, ledger, query), told_index(query)
    if finishing is None or not _is_answered(ledger, query, finishing):
        return None
    known = finishing.left.known.rows + finishing.right.known.rows
    enough = least or max(1, known // limits.PROMISES_PER_PROPAGATION)
    if finishing.spoken - ledger.propagated.get(index, 0.0) < enough:
        return None
    return PropagationTask(
        query=query.name,
        index=index,
        finishing=finishing.bare(),
        columns=key_columns(plan, query, backend),
        told=ledger.promises.get(index, PromiseFiles()).bare(),
        root=query.sink.option("path"),
        final=f"{PUNCTUATIONS}/told-{ledger.propagations:012d}.parquet",
        compression=query.sink.option("compression", "snappy"),
        seen=finishing.spoken,
    )


def _is_answered(ledger: Ledger, query: Query, finishing: FinishedKeys) -> bool:
    """Return whether a query has all answers with values that are finished so far."""
    state = next((panes for panes in ledger.panes.values() if query.name in panes.panes.readers), None)
    if state is None or not state.files:
        return True
    if state.panes.emit == "changes":
        return all(file.folded for file in state.files)  # an answer needs folded files
    return state.promises_seen >= finishing.spoken


def check_propagation(plan: Plan) -> None:
    """Refuse punctuations of queries whose results may still follow them."""
    for query in plan.queries:
        if tells(query):
            _refuse_unfinished(plan, query)


def _refuse_unfinished(plan: Plan, query: Query) -> None:
    if promised_sides(plan, query) is None:
        raise InputError(
            f"query {query.name} cannot have punctuations: no stream makes promises about its join columns. "
            "Declare punctuates or unique on one of them"
        )
    emit = query.aggregation.emit if query.aggregation else "changes"
    if emit == "sliding" or (emit == "final" and not finishing_of(plan, query)):
        raise InputError(
            f"query {query.name} cannot have punctuations: its answers continue after the last pair. Use "
            "emit = 'final' grouped by the join columns, or emit = 'changes'"
        )


def finished_now(plan: Plan, ledger: Ledger, query: Query, backend: Backend[Any]) -> PropagationTask | None:
    """Return the task that finds all finished values of a query; None if there can be none."""
    _refuse_unfinished(plan, query)
    finishing = finished_keys(plan, ledger, query)
    if finishing is None or not _is_answered(ledger, query, finishing):
        return None
    return PropagationTask(query.name, "", finishing.bare(), key_columns(plan, query, backend))


def propagate_commit(
    tasks: Sequence[PropagationTask], reports: Sequence[PropagationReport], number: int
) -> Propagated:
    """Return the commit of delivered punctuations, with the files to publish."""
    done = list(zip(tasks, reports, strict=True))
    written = [report.file for _, report in done if report.file]
    return Propagated(
        finished_values={task.index: PromiseFiles((report.told,)) for task, report in done if report.told},
        promises_seen={task.index: task.seen for task, _ in done},
        output=CommitOutput(publish=publications(f"told-{number:012d}", written)),
    )


def propagate(context: TurnContext) -> None:
    """Deliver new punctuations to the sinks that want them."""
    ledger = context.ledger
    least = 1 if context.input_ended else None
    tasks = choose_propagations(context.plan, ledger, context.backend, least) if ledger.promises else []
    if not tasks:
        return
    job = Job("propagate", f"propagate punctuations of {', '.join(task.query for task in tasks)}")
    context.store.commit(propagate_commit(tasks, context.runner.map(tasks, job), ledger.propagations))
