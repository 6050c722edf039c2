"""Release: give results their turn, where a query wants them in order.

The time of a pair is the later of its two rows' event times.  A pair still to be found has a row still to be joined,
which is not older than its stream's watermark at the group's cursor.  So below the *horizon*, the lower of the two,
every pair is there: those are released, sorted, and the rest stays held (`penstock.state.hold`)::

    watermarks     left ----------------------o 40
                   right ---------------o 31                  H = 31
    pairs          ...  22  25  27  30 |  33  38  41          released | held

The sequence that a query gets is therefore that of its sorted result, whatever the batches, the chain and the other
queries.  Two things end a sequence early and begin a new one: the end of a run over all input that is there, and a new
definition of the query; what is held is released then, since nothing would be waited for any more.

In:  the plan and the ledger.  Out: `Release`, one task each, and the ``release`` commit made of what they report.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.engine.runners.runner import Job, counted
from penstock.engine.sinks.notes import Buffers
from penstock.engine.sinks.sinks import (
    SPOOLED,
    kept_files,
    publications,
    results_folder,
    sink_root,
)
from penstock.engine.tasks.release import RELEASE, Release, ReleaseReport
from penstock.engine.views.horizon import horizon
from penstock.engine.views.waiting import lag_rows
from penstock.state.commits import Output, Released
from penstock.state.hold import (
    choose_merges,
)
from penstock.state.recent import delays_of

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from penstock.engine.stages.turn_context import TurnContext
    from penstock.engine.views.idle import IdleClock
    from penstock.plan.build import Plan
    from penstock.sql.query import Query
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger


def choose_releases(
    plan: Plan, ledger: Ledger, files: Files, silence: IdleClock | None = None
) -> list[Release]:
    """List what can be released, or should be merged, by now."""
    releases = []
    for query in plan.queries:
        held = ledger.hold(query.name).files
        if held:
            until = horizon(plan, ledger, query.name, silence)
            first, last = min(each.min_t for each in held), max(each.max_t for each in held)
            until = first if until is None else min(until, last + 1)
            releases.append(_release(plan, ledger, files, query, until))
    return [each for each in releases if each.due or each.merges]


def last_releases(
    plan: Plan, ledger: Ledger, files: Files, only: Container[str] | None = None
) -> list[Release]:
    """List everything that is held, of all queries or of some: their sequences end here."""
    return [
        replace(_release(plan, ledger, files, query, 1 + max(each.max_t for each in held)), last=True)
        for query in plan.queries
        if (held := ledger.hold(query.name).files) and (only is None or query.name in only)
    ]


def is_due(plan: Plan, ledger: Ledger, silence: IdleClock | None = None) -> bool:
    """Say whether something is held whose turn it is."""
    return any(
        each.min_t < until
        for query in plan.queries
        if (held := ledger.hold(query.name).files)
        and (until := horizon(plan, ledger, query.name, silence)) is not None
        for each in held
    )


def _release(plan: Plan, ledger: Ledger, files: Files, query: Query, until: int) -> Release:
    """Describe one query's release."""
    hold = ledger.hold(query.name)
    waiting = max(lag_rows(group, ledger, query.name) for group, _, _ in plan.groups_of(query.name))
    return Release(
        query=query.name,
        until=until,
        due=tuple(each for each in hold.files if each.min_t < until),
        merges=tuple(choose_merges(each for each in hold.files if each.max_t >= until)),
        root=sink_root(query, files),
        final=f"released-{ledger.releases:012d}",
        compression=query.sink.option("compression", "snappy"),
        spooled=query.sink.kind in SPOOLED,
        kept=results_folder(query.name) if query.sink.kind == "table" else "",
        released=hold.until,
        unit=f"{RELEASE}{ledger.releases:012d}",
        buffers=Buffers(waiting, hold.rows, ledger.undelivered.get(query.name, 0)),
    )


def release_job(releases: Sequence[Release]) -> Job:
    """Describe the job that releases results."""
    return Job("release", f"release results in order, {counted(len(releases), 'query', 'queries')}")


def release_commit(releases: Sequence[Release], reports: Sequence[ReleaseReport]) -> Released:
    """Say what was released, what is still held, and what there is to publish."""
    done = [(each.query, report) for each, report in zip(releases, reports, strict=True)]
    ends = [None if each.last else report.newest for each, report in zip(releases, reports, strict=True)]
    return Released(
        gone={query: report.gone for query, report in done},
        until={each.query: end for each, end in zip(releases, ends, strict=True) if each.due},
        disordered={query: report.disordered for query, report in done if report.disordered},
        output=_output(releases, done),
    )


def _output(releases: Sequence[Release], done: Sequence[tuple[str, ReleaseReport]]) -> Output:
    """Say what is to be published, kept and held of what was released."""
    written = [file for _, report in done for file in report.files]
    spooled = {each.query for each in releases if each.spooled}
    return Output(
        results={query: report.results for query, report in done if report.results},
        delays={query: tuple(delays_of(report.arrivals, time.time())) for query, report in done},
        held={query: report.held for query, report in done},
        publish=publications(releases[0].unit, written, spooled),
        kept=kept_files(written),
    )


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
