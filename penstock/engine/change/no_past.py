"""Why rows that are held are no past for a new query.

In:  a log, a query that reads it from now on, and the ledger.
Out: the reason, as part of a sentence; empty where the rows held are its past.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.plan.group import Member
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Side
    from penstock.state.ledger import Ledger


def why_no_past(log: LogPlan, member: Member, side: Side, ledger: Ledger, *, kept: bool) -> str:
    """Say why the rows held of a log are no past for a query.

    `kept` says whether the log has kept all rows that the query accepts, back to some event time.
    """
    used = {each.layout for each in ledger.segments(log.id)}
    layouts = [layout for number, layout in ledger.layouts.get(log.id, {}).items() if number in used]
    for layout in layouts:
        if columns := sorted(member.reads(side) - set(layout.columns)):
            names = f"column {columns[0]}" if len(columns) == 1 else f"columns {', '.join(columns)}"
            were = "was" if len(columns) == 1 else "were"
            return f"{names} of {log.stream} {were} not stored before"
        if predicates := [each for each in member.predicates(side) if each not in layout.predicates]:
            return f"{' and '.join(predicates)} was not evaluated before on rows of {log.stream}"
    return "" if kept else f"rows of {log.stream} that it accepts were not all kept before"
