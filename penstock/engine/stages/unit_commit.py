"""The output of a unit, for its commit.

In:  the reports of all tasks of a unit.  Out: a `CommitOutput`: results counted, files to publish, keep and hold.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from penstock.engine.sinks.publication import kept_files, publications
from penstock.engine.sinks.sink_kind import sink_of
from penstock.state.commits import CommitOutput
from penstock.state.recent import delays_of
from penstock.state.tables import Fed
from penstock.state.values import by_name

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from penstock.engine.tasks.route_pairs import UnitReport
    from penstock.plan.group import Group
    from penstock.state.tables import StoredTable


def unit_output(
    group: Group,
    unit: str,
    reports: Sequence[UnitReport],
    table: StoredTable | None,
    without: Container[str] = (),
    *,
    arrived: float = 0.0,
) -> CommitOutput:
    """Return the output of a unit; `arrived` is when the last of its rows came."""
    handed_over = {member.query.name for member in group.members if sink_of(member.query).hands_over}
    written = [file for report in reports for file in report.files]
    results = {
        member.query.name: count
        for number, member in enumerate(group.members)
        if (count := sum(report.results[number] for report in reports)) and member.query.name not in without
    }
    kept = kept_files(written)
    stored = kept.pop("", ())
    fed = by_name(report.fed for report in reports)
    return CommitOutput(
        results=results,
        publish=publications(unit, written, handed_over),
        stored={group.id: {table.id: stored}} if table and stored else {},
        kept=kept,
        held=by_name(report.held for report in reports),
        panes=by_name(report.panes for report in reports),
        delays=_delays(group, reports),
        fed={query: Fed(files, arrived) for query, files in fed.items()},
    )


def _delays(group: Group, reports: Sequence[UnitReport]) -> dict[str, tuple[tuple[float, int], ...]]:
    """Return by query the delays of its results; held results are counted when they are released."""
    now = time.time()
    delays = {}
    for number, member in enumerate(group.members):
        arrivals = [(at, counts[number]) for report in reports for at, counts in report.arrivals]
        if waited := delays_of(arrivals, now):
            delays[member.query.name] = tuple(waited)
    return delays


def merge_outputs(outputs: Sequence[CommitOutput]) -> CommitOutput:
    """Merge the outputs of units in several groups; a query may have results from each."""
    results = sum((Counter(output.results) for output in outputs), Counter[str]())
    return CommitOutput(
        results=dict(results),
        publish=tuple(file for output in outputs for file in output.publish),
        stored={group: files for output in outputs for group, files in output.stored.items()},
        kept=by_name(output.kept for output in outputs),
        held=by_name(output.held for output in outputs),
        panes=by_name(output.panes for output in outputs),
        fed={query: _merge_fed(query, outputs) for output in outputs for query in output.fed},
    )


def _merge_fed(query: str, outputs: Sequence[CommitOutput]) -> Fed:
    found = [output.fed[query] for output in outputs if query in output.fed]
    return Fed(tuple(file for fed in found for file in fed.files), max(fed.arrived for fed in found))
