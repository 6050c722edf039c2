"""Take up a plan: make it true in the journal if it is not, and leave nothing behind that it does not need.

In:  the plan of what is registered now.  Out: the same plan over what is stored then; a ``plan`` commit if it changed.
Called while no unit and no batch is on its way, so the ledger does not move underneath.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.engine.change import (
    find_change,
    is_stored_anew,
    new_layouts,
    next_plan,
    plan_commit,
    standing_plan,
    upgraded,
)
from penstock.engine.complaints import short_message
from penstock.engine.jobs import release_job
from penstock.engine.release import last_releases, release_commit
from penstock.engine.upgrade import Upgrade, can_upgrade, upgrade_job
from penstock.engine.workload import stream_difference
from penstock.errors import InputError, PenstockError
from penstock.log.commits import Declared
from penstock.log.values import Replacement
from penstock.sql.source_options import without_stream_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from penstock.engine.change import Change
    from penstock.engine.store import Store
    from penstock.log.commits import Released
    from penstock.log.ledger import Ledger
    from penstock.log.segment import Segment
    from penstock.plan.build import Plan
    from penstock.sql.query import Query


def take_up(store: Store, spark: SparkSession, plan: Plan, why: str = "") -> Plan:
    """Go over to a plan, unless it is the one that is true already; `why` its chains are cut where they are."""
    ledger = store.ledger
    before = standing_plan(ledger)
    change = find_change(before, plan, why)
    if before is not None and not change and not is_stored_anew(before, ledger):
        _declare(store, plan)
        return (
            before  # with the numbering by which its tables are written, whatever the order of registration
        )
    upgrades = _upgrade(store, spark, plan)
    then = upgraded(ledger, plan, upgrades)
    streams = {each.name: each for each in plan.streams}
    settings = plan.spark_settings
    plan = next_plan(
        streams, plan.queries, then, strategy=plan.strategy, cuts=plan.cuts, stopped=plan.stopped
    )
    plan = replace(plan, spark_settings=settings)
    release = _last_release(store, spark, before, change)
    store.commit(plan_commit(plan, before, change, ledger, upgrades, release=release))
    for name in ledger.files() - store.ledger.files():
        store.let_go(name)
    return plan


def refuse_loss(lost: Sequence[str], state: str) -> None:
    """Refuse a change by which results would be lost (`penstock.engine.change.losses`) that nobody asked to lose."""
    if lost:
        raise InputError(
            f"state {state} would lose results: {'; '.join(lost)}. Put things back as they were, use another state, "
            "or accept it (--accept-loss, start(accept_loss=True))"
        )


def refuse_move(change: Change, plan: Plan) -> None:
    """Refuse to give running queries other state: they would miss pairs without anybody having accepted it."""
    if moved := change.moved:
        raise InputError(
            f"strategy cannot become {plan.strategy} while the engine runs: {', '.join(moved)} would go over to other "
            "state and miss pairs. Stop the engine, set it in the script, and start with --accept-loss"
        )


def farewells(ledger: Ledger, plan: Plan) -> dict[str, str]:
    """Say what becomes of the results of each query that a plan does without, by its name in lower case."""
    before = standing_plan(ledger)
    dropped = find_change(before, plan).dropped if before else ()
    return {name.lower(): _farewell(before.query(name), ledger) for name in dropped if before}


def _farewell(query: Query, ledger: Ledger) -> str:
    """Say what becomes of a query's results when it goes."""
    count, held = ledger.query(query.name).results, ledger.hold(query.name).rows
    said = f"its {count:,} results stay where they are"
    if query.sink.kind == "table":
        said = f"its {count:,} results were in the state's table and cannot be read any more"
    elif query.sink.kind != "parquet":
        said = f"its {count:,} results were handed over, and none is kept"
    return f"{said}; {held:,} that were held until it was their turn are not delivered" if held else said


def refuse_other_streams(plan: Plan, ledger: Ledger, state: str) -> None:
    """Refuse a plan that takes a stream for another than it was, also one that no query has read for a while."""
    if (difference := stream_difference(ledger.declared.values(), plan.streams)) is not None:
        raise InputError(
            f"state {state} was made by another script: {difference}. "
            "Declare the stream as it was, give it another name, or give a new directory (--state)"
        )


def _declare(store: Store, plan: Plan) -> None:
    """Note the options that streams are read with from now on, if they are others than before."""
    known = store.ledger.declared
    fresh = tuple(each for each in map(without_stream_secrets, plan.streams) if known.get(each.name) != each)
    if fresh:
        store.commit(Declared(fresh))


def _last_release(store: Store, spark: SparkSession, before: Plan | None, change: Change) -> Released | None:
    """Write out what is held of queries that are defined anew or stopped: their sequences end here."""
    ledger, files = store.ledger, store.files
    ended = (*change.altered, *change.failed)
    last = last_releases(before, ledger, files, only=ended) if before else []
    return release_commit(last, release_job(spark, files, last)) if last else None


def _upgraded(spark: SparkSession, store: Store, upgrade: Upgrade) -> list[Segment]:
    """Write segments again for a new plan; a predicate that fails on rows that are held is refused with the plan."""
    try:
        return upgrade_job(spark, store.files, upgrade)
    except PenstockError:
        raise
    except Exception as error:
        asked = [each for each in upgrade.log.predicates if each not in upgrade.old.predicates]
        raise InputError(
            f"the change cannot be made: {' or '.join(asked)} cannot be evaluated on rows of stream "
            f"{upgrade.stream.name} that are held: {short_message(error)}. Guard it, or mend the query"
        ) from error


def _upgrade(store: Store, spark: SparkSession, plan: Plan) -> dict[str, Replacement]:
    """Evaluate new predicates over the rows held, wherever what is stored allows it."""
    ledger = store.ledger
    upgrades: dict[str, Replacement] = {}
    for log in new_layouts(plan, ledger):
        stream, fresh = plan.stream(log.stream), ledger.layout(log.id) + 1
        for number, old in ledger.layouts.get(log.id, {}).items():
            mine = [each for each in ledger.segments(log.id) if each.layout == number]
            if mine and can_upgrade(spark, stream, log, old):
                made = _upgraded(spark, store, Upgrade(stream, log, old, mine, fresh))
                before = upgrades.get(log.id, Replacement((), ()))
                removed = (*before.removed, *(each.name for each in mine))
                upgrades[log.id] = Replacement(removed, (*before.added, *made))
    return upgrades
