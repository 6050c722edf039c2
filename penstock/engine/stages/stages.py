"""The smaller stages of a turn: each looks at the ledger, has a job run if there is something to do, and commits it.

In:  what stages share (`penstock.engine.stages.turn_context`).
Out: ``seal``, ``order``, ``release``, ``answer``, ``propagate``, ``published`` and ``compact`` commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.aggregate.answers import answer_commit, blame_for_answers, choose_answers, run_answers
from penstock.engine.runners.runner import Job, counted
from penstock.engine.sinks.sinks import delete_spooled, publish_files
from penstock.engine.stages.compact import choose_steps, compact_commit
from penstock.engine.stages.propagate import choose_propagations, propagate_commit
from penstock.engine.stages.release import choose_releases, last_releases, release_commit, release_job
from penstock.engine.stages.seal import choose_sealings, seal_commit
from penstock.engine.tasks.merge import CONFLICT, MergeTask
from penstock.engine.views.waiting import switch_commit
from penstock.reporting import Logger
from penstock.state.commits import Published

if TYPE_CHECKING:
    from penstock.engine.stages.turn_context import TurnContext

_log = Logger(__name__)


def seal(context: TurnContext) -> None:
    """Give the rows that the watermarks have passed their final positions, where windows count rows."""
    sealings = choose_sealings(context.plan, context.ledger, everything=context.input_ended)
    if not sealings:
        return
    any_rows = any(each.waiting for each in sealings)
    job = Job("seal", f"count rows of {', '.join(each.stream for each in sealings)}")
    made = context.runner.map(sealings, job) if any_rows else [None] * len(sealings)
    commit = seal_commit(sealings, made)
    context.store.commit(commit)
    for name in commit.remove:
        context.store.let_go(name)


def choose_what_waits(context: TurnContext) -> None:
    """Let adaptive queries go by what was measured: the input waits, or the results."""
    for group in context.plan.groups:
        if commit := switch_commit(context.plan, context.ledger, group):
            context.store.commit(commit)
            _log.info("%s: %s from here on: %s", ", ".join(commit.groups), commit.mode, commit.reason)


def release(context: TurnContext) -> None:
    """Release the results whose turn it is; at the end of the input, once all of it is joined, everything."""
    ledger, files = context.ledger, context.store.files
    releases = (
        last_releases(context.plan, ledger, files)
        if context.input_ended and not context.is_joining()
        else choose_releases(context.plan, ledger, files, context.idle)
    )
    if not releases:
        return
    context.store.commit(release_commit(releases, context.runner.map(releases, release_job(releases))))
    for name in ledger.files() - context.ledger.files():
        context.store.let_go(name)


def answer(context: TurnContext) -> None:
    """Answer aggregate queries as far as can be; at the end of the input, once all of it is joined, to the end."""
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


def propagate(context: TurnContext) -> None:
    """Tell sinks that ask for it which values have no more results."""
    ledger = context.ledger
    least = 1 if context.input_ended else None
    tasks = choose_propagations(context.plan, ledger, context.backend, least) if ledger.promises else []
    if not tasks:
        return
    job = Job("propagate", f"propagate punctuations of {', '.join(each.query for each in tasks)}")
    context.store.commit(propagate_commit(tasks, context.runner.map(tasks, job), ledger.tellings))


def publish(context: TurnContext) -> None:
    """Bring committed output to its sinks, then forget it."""
    pending = context.ledger.pending
    for publication in pending:
        publish_files(publication, context.store.files)
        if publication.query:
            context.hand_over(publication)
    if pending:
        context.store.commit(Published(tuple((each.unit, each.query) for each in pending)))
    for publication in pending:
        if publication.query:
            delete_spooled(publication)


def compact(context: TurnContext) -> None:
    """Merge files of results, a few at a time; `untidy` says whether there is more to merge."""
    ledger, store = context.ledger, context.store
    context.attic.clear(store.let_go)
    tasks = context.runner.parallelism
    busy = context.any_behind() or context.input_ended  # who waits for the end need not wait for this
    chosen = choose_steps(ledger, tasks, busy=busy, excluded=context.unmergeable)
    context.untidy = bool(chosen.steps)
    if not chosen.steps and not chosen.begun:
        return
    job = Job(
        "compact",
        f"merge {counted(sum(len(each.names) for each in chosen.steps), 'file', 'files')} of results",
    )
    made = context.runner.map([MergeTask(each.merge) for each in chosen.steps], job)
    context.unmergeable |= {
        frozenset(step.names) for step, file in zip(chosen.steps, made, strict=True) if file == CONFLICT
    }
    store.commit(compact_commit(chosen, made))
    context.attic.take(ledger.files() - context.ledger.files())
    context.attic.clear(store.let_go)


def reconsider(context: TurnContext) -> None:
    """Go on with this plan, or with one whose chains are cut elsewhere."""
    context.plan = context.reconsider(context.plan)
