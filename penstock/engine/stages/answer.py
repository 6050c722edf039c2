"""Answer: compute the answers of aggregate queries that are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.aggregate.answers import answer_commit, blame_for_answers, choose_answers, run_answers

if TYPE_CHECKING:
    from penstock.engine.stages.turn_context import TurnContext


def answer(context: TurnContext) -> None:
    """Answer aggregate queries as far as possible; when the input has ended and all is joined, to the end."""
    ledger, files = context.ledger, context.store.files
    if not ledger.panes:
        return
    everything = context.input_ended and not context.is_joining()
    jobs = choose_answers(
        context.plan,
        ledger,
        files,
        context.backend,
        context.idle,
        everything=everything,
        together=context.answers_together,
    )
    if not jobs:
        return
    try:
        reports = run_answers(jobs, context.backend)
    except Exception as error:
        failures = blame_for_answers(jobs, context.backend)
        if not failures:
            raise
        context.go_on_without(failures, error)
        return
    context.store.commit(answer_commit(jobs, reports, ledger.answers))
    for name in ledger.files() - context.ledger.files():
        context.store.let_go(name)
