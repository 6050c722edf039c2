"""Expiry: rows that no claim keeps go, a segment at a time or as their segment is rewritten.

What goes when a row goes is settled in the same commit: `Rewritten.output` may carry results that only the end of a
row's use brings about.  A join of pairs has none; it is what waits for a row's end that answers here.

In:  what stages share.  Out: ``rewrite`` commits, and files that are deleted after the next commit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.engine.readings.needs import common_layout, passed, settled_alike
from penstock.log.claims import is_ended
from penstock.log.commits import NumberedLayout, Rewritten
from penstock.log.retention import choose_rewrites

if TYPE_CHECKING:
    from penstock.engine.units.joining import Joining
    from penstock.log.segment import Segment
    from penstock.log.values import Layout


def expire(joining: Joining) -> None:
    """Let go of what has ended, and rewrite what is worth it; not while a new query still needs the past."""
    for log in joining.plan.logs:
        if not any(joining.lacking(group) for group in joining.plan.groups):
            expire_log(joining, log.id)


def expire_log(joining: Joining, log: str) -> None:
    """Let go of what has ended in one log; segments that hold the same for everyone can be merged with each other."""
    for shared, settled in settled_alike(joining.plan, log, joining.ledger).items():
        _expire_alike(joining, log, settled, shared)


def _expire_alike(joining: Joining, log: str, settled: list[Segment], shared: Layout) -> None:
    ledger = joining.ledger
    common = common_layout(joining.plan, log, ledger, settled, shared)
    ended = [each for each in settled if is_ended(each, common.claims[each.layout])]
    rest = [each for each in settled if each not in ended]
    claims = common.claims[settled[0].layout]
    runs = choose_rewrites(rest, claims, passed(joining.plan, log, ledger), common.claims)
    gone = [*ended, *(each for run in runs for each in run)]
    if not gone:
        return
    started = time.monotonic()
    onto = common if any(each.layout != common.layout for run in runs for each in run) else None
    made = joining.jobs.rewrite(log, runs, claims, onto) if runs else []
    added = tuple(each for each in made if each)
    is_new = added and common.layout not in ledger.layouts[log]
    joining.store.commit(
        Rewritten(
            log=log,
            remove=tuple(each.name for each in gone),
            add=added,
            layouts=(NumberedLayout(common.layout, shared),) if is_new else (),
            rows=sum(each.rows for run in runs for each in run),
            seconds=time.monotonic() - started,
        )
    )
    for each in gone:
        joining.store.let_go(each.name)
