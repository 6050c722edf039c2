"""A turn: the engine on one screen.

Each stage reads the ledger and changes it by commits only, so a turn can end after any stage::

    seal                    windows that count rows: number the rows that watermarks have passed         ──▶ commit
    join                    backfill new queries, then advance slices by one unit per group              ──▶ commit
    watch                   joins without a window: find rows that no partner needs, and missed results  ──▶ commit
    feed                    queries that read others: their results become input rows                    ──▶ commit
    choose_order_policies   adaptive queries: the input waits, or the results                            ──▶ commit
    release                 ordered queries: results that no earlier result can precede                  ──▶ commit
    answer                  aggregates: complete instants and groups, and changed groups                 ──▶ commit
    propagate               punctuations: values that no more results will have                          ──▶ commit
    publish                 committed output becomes visible in its sinks                                ──▶ commit
    expire                  drop or rewrite segments whose rows have no claim left                       ──▶ commit
    compact                 merge small files of results                                                 ──▶ commit
    recut_chains            cut chains elsewhere if measurements say so                                  ──▶ commit

In:  the context of turns.  Out: commits, and files in sinks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.stages.adapt import choose_order_policies, recut_chains
from penstock.engine.stages.answer import answer
from penstock.engine.stages.compact import compact
from penstock.engine.stages.expire import expire
from penstock.engine.stages.feed import feed
from penstock.engine.stages.join import join
from penstock.engine.stages.propagate import propagate
from penstock.engine.stages.publish import publish
from penstock.engine.stages.release import release
from penstock.engine.stages.seal import seal
from penstock.engine.stages.watch import watch

if TYPE_CHECKING:
    from penstock.engine.stages.turn_context import TurnContext

STAGES = (
    seal,
    join,
    watch,
    feed,
    choose_order_policies,
    release,
    answer,
    propagate,
    publish,
    expire,
    compact,
    recut_chains,
)


def take_turn(context: TurnContext) -> None:
    """Run each stage once; stop early if a change of plan waits for the end of the turn."""
    for stage in STAGES:
        stage(context)
        if context.is_wanted():
            return
