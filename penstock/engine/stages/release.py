"""Release: deliver ordered results once no earlier result can come.

The time of a pair is the later event time of its two rows.  A pair still to be found has a row still to be joined, and
that row is not older than its stream's watermark at the group's cursor.  So all pairs below the *horizon*, the lower
watermark, are there.  They are released, sorted, and the others stay held (`penstock.state.hold`)::

    watermarks     left ----------------------o 40
                   right ---------------o 31                  H = 31
    pairs          ...  22  25  27  30 |  33  38  41          released | held

So the sequence of a query is that of its sorted result, whatever the batches, the chain and the other queries.  Two
events end a sequence and begin a new one: the end of the input, and a new definition of the query.  All held results
are released then.

In:  the plan and the ledger.  Out: `ReleaseTask`, one task per query, and the ``release`` commit of their reports.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.engine.runners.runner import Job, counted
from penstock.engine.sinks.notes import Buffers
from penstock.engine.sinks.publication import kept_files, publications
from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.tasks.release import RELEASE, ReleaseReport, ReleaseTask
from penstock.engine.views.horizon import horizon
from penstock.engine.views.waiting import lag_rows
from penstock.state.commits import CommitOutput, Released
from penstock.state.hold import choose_merges
from penstock.state.recent import delays_of

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from penstock.engine.stages.turn_context import TurnContext
    from penstock.engine.views.horizon import IdleClock
    from penstock.plan.build import Plan
    from penstock.sql.query import Query
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger


def choose_releases(
    plan: Plan, ledger: Ledger, files: Files, idle: IdleClock | None = None
) -> list[ReleaseTask]:
    """List what can be released or merged now."""
    releases = []
    for query in plan.queries:
        held = ledger.hold(query.name).files
        if held:
            until = horizon(plan, ledger, query.name, idle)
            first, last = min(file.min_t for file in held), max(file.max_t for file in held)
            until = first if until is None else min(until, last + 1)
            releases.append(_release(plan, ledger, files, query, until))
    return [release for release in releases if release.due or release.merges]


def last_releases(
    plan: Plan, ledger: Ledger, files: Files, only: Container[str] | None = None
) -> list[ReleaseTask]:
    """List all held results, of all queries or of some: their sequences end here."""
    return [
        replace(_release(plan, ledger, files, query, 1 + max(file.max_t for file in held)), last=True)
        for query in plan.queries
        if (held := ledger.hold(query.name).files) and (only is None or query.name in only)
    ]


def is_due(plan: Plan, ledger: Ledger, idle: IdleClock | None = None) -> bool:
    """Return whether some held result can be released."""
    return any(
        file.min_t < until
        for query in plan.queries
        if (held := ledger.hold(query.name).files)
        and (until := horizon(plan, ledger, query.name, idle)) is not None
        for file in held
    )


def _release(plan: Plan, ledger: Ledger, files: Files, query: Query, until: int) -> ReleaseTask:
    hold = ledger.hold(query.name)
    waiting = max(lag_rows(group, ledger, query.name) for group, _, _ in plan.groups_of(query.name))
    return ReleaseTask(
        query=query.name,
        until=until,
        due=tuple(file for file in hold.files if file.min_t < until),
        merges=tuple(choose_merges(file for file in hold.files if file.max_t >= until)),
        destination=sink_of(query).destination(files),
        name=f"released-{ledger.releases:012d}",
        released=hold.until,
        unit=f"{RELEASE}{ledger.releases:012d}",
        buffers=Buffers(waiting, hold.rows, ledger.unpublished.get(query.name, 0)),
    )


def release_job(releases: Sequence[ReleaseTask]) -> Job:
    """Describe the job that releases results."""
    return Job("release", f"release results in order, {counted(len(releases), 'query', 'queries')}")


def release_commit(releases: Sequence[ReleaseTask], reports: Sequence[ReleaseReport]) -> Released:
    """Return the commit of a release: what was released, what is still held, and what to publish."""
    done = [(release.query, report) for release, report in zip(releases, reports, strict=True)]
    ends = [
        None if release.last else report.newest for release, report in zip(releases, reports, strict=True)
    ]
    return Released(
        released_files={query: report.gone for query, report in done},
        until={release.query: end for release, end in zip(releases, ends, strict=True) if release.due},
        disordered={query: report.disordered for query, report in done if report.disordered},
        output=_output(releases, done),
    )


def _output(releases: Sequence[ReleaseTask], done: Sequence[tuple[str, ReleaseReport]]) -> CommitOutput:
    written = [file for _, report in done for file in report.files]
    handed_over = {
        release.query for release in releases if release.destination and release.destination.handed_over
    }
    return CommitOutput(
        results={query: report.results for query, report in done if report.results},
        delays={query: tuple(delays_of(report.arrivals, time.time())) for query, report in done},
        held={query: report.held for query, report in done},
        publish=publications(releases[0].unit, written, handed_over),
        kept=kept_files(written),
    )


def release(context: TurnContext) -> None:
    """Release ordered results below the horizon; when the input has ended and all is joined, release all."""
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
