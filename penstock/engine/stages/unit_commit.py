"""What a unit's tasks report, as the output of one commit.

In:  the reports of all tasks of a unit.  Out: an `Output`: results counted, files to publish, to keep and to hold.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from penstock.engine.sinks.sinks import SPOOLED, kept_files, publications
from penstock.state.commits import Output
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
) -> Output:
    """Say what output a unit made: results, files to publish or to keep, and files of results that are held."""
    spooled = {each.query.name for each in group.members if each.query.sink.kind in SPOOLED}
    written = [file for report in reports for file in report.files]
    results = {
        member.query.name: count
        for number, member in enumerate(group.members)
        if (count := sum(report.results[number] for report in reports)) and member.query.name not in without
    }
    kept = kept_files(written)
    stored = kept.pop("", ())
    return Output(
        results=results,
        publish=publications(unit, written, spooled),
        stored={group.id: {table.id: stored}} if table and stored else {},
        kept=kept,
        held=by_name(report.held for report in reports),
        panes=by_name(report.panes for report in reports),
        fed=unit_fed(reports, 0.0),
    )


def unit_fed(reports: Sequence[UnitReport], arrived: float) -> dict[str, Fed]:
    """Name the files of results that other queries read, and say when the last of their rows arrived."""
    return {query: Fed(files, arrived) for query, files in by_name(each.fed for each in reports).items()}


def unit_delays(group: Group, reports: Sequence[UnitReport]) -> dict[str, tuple[tuple[float, int], ...]]:
    """Say how long each query's results of a unit took; those that are held are counted when they are released."""
    now = time.time()
    delays = {}
    for number, member in enumerate(group.members):
        arrivals = [(at, counts[number]) for report in reports for at, counts in report.arrivals]
        if waited := delays_of(arrivals, now):
            delays[member.query.name] = tuple(waited)
    return delays


def together(outputs: Sequence[Output]) -> Output:
    """Make one of the output of several units; a query may have got something from each."""
    results = sum((Counter(each.results) for each in outputs), Counter[str]())
    return Output(
        results=dict(results),
        publish=tuple(file for each in outputs for file in each.publish),
        stored={group: files for each in outputs for group, files in each.stored.items()},
        kept=by_name(each.kept for each in outputs),
        held=by_name(each.held for each in outputs),
        panes=by_name(each.panes for each in outputs),
        fed={query: _fed(query, outputs) for each in outputs for query in each.fed},
    )


def _fed(query: str, outputs: Sequence[Output]) -> Fed:
    """Bring together the results of one query that others read."""
    found = [each.fed[query] for each in outputs if query in each.fed]
    return Fed(tuple(file for each in found for file in each.files), max(each.arrived for each in found))
