"""A turn: the engine on one screen.

Each stage reads the ledger and changes nothing but by commits, so a turn may be cut off anywhere::

    seal                where windows count rows: rows the watermarks have passed get their positions  ──▶ commit
    join                new queries get their past; the slices whose turn it is advance by a unit      ──▶ commit
    watch               where there is no window: which rows meet nobody any more, and what was missed ──▶ commit
    feed                where queries read others: their results become rows of these                  ──▶ commit
    choose what waits   adaptive queries: the input, or the results                                    ──▶ commit
    release             where order was asked for: results that nothing can come before any more       ──▶ commit
    answer              aggregates: instants and groups that are complete, and groups that have changed      ──▶ commit
    propagate           where a sink asks for it: values that no more results will have                ──▶ commit
    publish             committed output becomes visible in its sinks                                  ──▶ commit
    expire              rows that no claim keeps go, with their segment or in a rewrite                ──▶ commit
    compact             small files of results become larger ones                                      ──▶ commit
    reconsider          chains are cut elsewhere if what was measured says so                          ──▶ commit

In:  what stages share.  Out: commits, and files in sinks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.stages.answer import answer
from penstock.engine.stages.choose_waiting import choose_what_waits
from penstock.engine.stages.compact import compact
from penstock.engine.stages.expire import expire
from penstock.engine.stages.feed import feed
from penstock.engine.stages.join import join
from penstock.engine.stages.propagate import propagate
from penstock.engine.stages.publish import publish
from penstock.engine.stages.reconsider import reconsider
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
    choose_what_waits,
    release,
    answer,
    propagate,
    publish,
    expire,
    compact,
    reconsider,
)


def take_turn(context: TurnContext) -> None:
    """Run each stage once; stop early if a change of plan waits for the turn to end."""
    for stage in STAGES:
        stage(context)
        if context.is_wanted():
            return
