"""The smaller stages of a turn: each looks at the ledger, has a job run if there is something to do, and commits it.

In:  what stages share (`penstock.engine.units.joining`).
Out: ``seal``, ``order``, ``release``, ``answer``, ``propagate``, ``published`` and ``compact`` commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.out.answers import answer_commit, blame_for_answers, choose_answers, run_answers
from penstock.engine.out.compact import choose_steps, compact_commit
from penstock.engine.out.propagation import choose_propagations, propagate_commit
from penstock.engine.out.release import choose_releases, last_releases, release_commit, release_job
from penstock.engine.out.sinks import delete_spooled, publish_files
from penstock.engine.readings.waiting import switch_commit
from penstock.engine.runners.runner import Job, counted
from penstock.engine.units.sealing import choose_sealings, seal_commit
from penstock.log.commits import Published
from penstock.log.table_merge import CONFLICT, MergeTask
from penstock.reporting import Logger

if TYPE_CHECKING:
    from penstock.engine.units.joining import Joining

_log = Logger(__name__)


def seal(joining: Joining) -> None:
    """Give the rows that the watermarks have passed their final positions, where windows count rows."""
    sealings = choose_sealings(joining.plan, joining.ledger, everything=joining.input_ended)
    if not sealings:
        return
    any_rows = any(each.waiting for each in sealings)
    job = Job("seal", f"count rows of {', '.join(each.stream for each in sealings)}")
    made = joining.runner.map(sealings, job) if any_rows else [None] * len(sealings)
    commit = seal_commit(sealings, made)
    joining.store.commit(commit)
    for name in commit.remove:
        joining.store.let_go(name)


def choose_what_waits(joining: Joining) -> None:
    """Let adaptive queries go by what was measured: the input waits, or the results."""
    for group in joining.plan.groups:
        if commit := switch_commit(joining.plan, joining.ledger, group):
            joining.store.commit(commit)
            _log.info("%s: %s from here on: %s", ", ".join(commit.groups), commit.mode, commit.reason)


def release(joining: Joining) -> None:
    """Release the results whose turn it is; at the end of the input, once all of it is joined, everything."""
    ledger, files = joining.ledger, joining.store.files
    releases = (
        last_releases(joining.plan, ledger, files)
        if joining.input_ended and not joining.is_joining()
        else choose_releases(joining.plan, ledger, files, joining.idle)
    )
    if not releases:
        return
    joining.store.commit(release_commit(releases, joining.runner.map(releases, release_job(releases))))
    for name in ledger.files() - joining.ledger.files():
        joining.store.let_go(name)


def answer(joining: Joining) -> None:
    """Answer aggregate queries as far as can be; at the end of the input, once all of it is joined, to the end."""
    ledger, files = joining.ledger, joining.store.files
    if not ledger.panes:
        return
    everything = joining.input_ended and not joining.is_joining()
    jobs = choose_answers(
        joining.plan,
        ledger,
        files,
        joining.backend,
        joining.idle,
        everything=everything,
        together=joining.answers_together,
    )
    if not jobs:
        return
    try:
        reports = run_answers(jobs, joining.backend)
    except Exception as error:
        failures = blame_for_answers(jobs, joining.backend)
        if not failures:
            raise
        joining.go_on_without(failures, error)
        return
    joining.store.commit(answer_commit(jobs, reports, ledger.answers))
    for name in ledger.files() - joining.ledger.files():
        joining.store.let_go(name)


def propagate(joining: Joining) -> None:
    """Tell sinks that ask for it which values have no more results."""
    ledger = joining.ledger
    least = 1 if joining.input_ended else None
    tasks = choose_propagations(joining.plan, ledger, joining.backend, least) if ledger.promises else []
    if not tasks:
        return
    job = Job("propagate", f"propagate punctuations of {', '.join(each.query for each in tasks)}")
    joining.store.commit(propagate_commit(tasks, joining.runner.map(tasks, job), ledger.tellings))


def publish(joining: Joining) -> None:
    """Bring committed output to its sinks, then forget it."""
    pending = joining.ledger.pending
    for publication in pending:
        publish_files(publication, joining.store.files)
        if publication.query:
            joining.hand_over(publication)
    if pending:
        joining.store.commit(Published(tuple((each.unit, each.query) for each in pending)))
    for publication in pending:
        if publication.query:
            delete_spooled(publication)


def compact(joining: Joining) -> None:
    """Merge files of results, a few at a time; `untidy` says whether there is more to merge."""
    ledger, store = joining.ledger, joining.store
    joining.attic.clear(store.let_go)
    tasks = joining.runner.parallelism
    busy = joining.any_behind() or joining.input_ended  # who waits for the end need not wait for this
    chosen = choose_steps(ledger, tasks, busy=busy, excluded=joining.unmergeable)
    joining.untidy = bool(chosen.steps)
    if not chosen.steps and not chosen.begun:
        return
    job = Job(
        "compact",
        f"merge {counted(sum(len(each.names) for each in chosen.steps), 'file', 'files')} of results",
    )
    made = joining.runner.map([MergeTask(each.merge) for each in chosen.steps], job)
    joining.unmergeable |= {
        frozenset(step.names) for step, file in zip(chosen.steps, made, strict=True) if file == CONFLICT
    }
    store.commit(compact_commit(chosen, made))
    joining.attic.take(ledger.files() - joining.ledger.files())
    joining.attic.clear(store.let_go)


def reconsider(joining: Joining) -> None:
    """Go on with this plan, or with one whose chains are cut elsewhere."""
    joining.plan = joining.reconsider(joining.plan)
