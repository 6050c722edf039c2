"""Plans over what a state stores: the plan in force, and the next one for other queries.

In:  the ledger, and the queries to come.  Out: a `Plan` whose groups know which columns and predicates segments lack.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.plan.build import Plan, Stopped, build_plan
from penstock.sql.bind.result_streams import readers_of
from penstock.state.values import ServedPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.plan.build import Shape
    from penstock.plan.group import Group
    from penstock.plan.spark_settings import SparkSettings
    from penstock.sql.query import Query, Stream
    from penstock.state.ledger import Ledger


def next_plan(
    streams: Mapping[str, Stream],
    queries: Iterable[Query],
    ledger: Ledger,
    *,
    strategy: str = "mem-opt",
    cuts: Mapping[str, Iterable[int]] | None = None,
    stopped: Iterable[Stopped] = (),
) -> Plan:
    """Plan the queries over what the state stores already."""
    asked, refused = tuple(queries), tuple(stopped)
    stored = _still_stored(ledger, asked, refused)
    plan = build_plan(streams, asked, stored, strategy=strategy, cuts=cuts, stopped=refused)
    return replace(
        plan, groups=tuple(replace(group, mixed_layouts=_is_mixed(group, ledger)) for group in plan.groups)
    )


def current_plan(ledger: Ledger) -> Plan:
    """Return the plan in force, with the order of queries and the numbers that were committed."""
    known = ledger.plan or ServedPlan()
    plan = build_plan(
        {stream.name: ledger.declared[stream.name] for stream in known.streams},
        known.queries,
        stored_shapes(ledger),
        strategy=known.strategy,
        cuts=known.cuts,
        stopped=known.stopped,
    )
    return replace(
        plan,
        groups=tuple(
            replace(group, mixed_layouts=ledger.groups[group.id].mixed_layouts) for group in plan.groups
        ),
        spark_settings=made_under(ledger) or plan.spark_settings,
    )


def made_under(ledger: Ledger) -> SparkSettings | None:
    """Return the Spark settings that a state was made under; None if there are none."""
    return ledger.plan.spark_settings if ledger.plan else None


def stopped_queries(ledger: Ledger) -> tuple[Stopped, ...]:
    """List the queries that could not be evaluated, and have not been defined anew since."""
    return ledger.plan.stopped if ledger.plan else ()


def stopped_with_readers(plan: Plan, failures: Mapping[str, str], at: str) -> list[Stopped]:
    """List the queries that stop because they cannot be evaluated, and those that read their results."""
    stopped = [Stopped(query, failures[query.name], at) for query in plan.queries if query.name in failures]
    names = {stream.name for stream in plan.results}
    sources = {stream.name.lower() for stream in plan.sources}
    for name in failures.keys() & names:
        known = {stop.query.name for stop in stopped}
        why = f"it reads {name}, which failed: {failures[name]}"
        readers = set(readers_of(name, plan.queries, deep=True, hidden=sources)) - known
        stopped += [Stopped(query, why, at, name) for query in plan.queries if query.name in readers]
    return stopped


def standing_plan(ledger: Ledger) -> Plan | None:
    """Return the plan in force; None before the first one."""
    return current_plan(ledger) if ledger.plan else None


def stored_shapes(ledger: Ledger) -> dict[str, Shape]:
    """Return by log what it stores now."""
    current = {log: layouts[max(layouts)] for log, layouts in ledger.layouts.items()}
    return {log: (layout.columns, layout.predicates) for log, layout in current.items()}


def _still_stored(ledger: Ledger, queries: Iterable[Query], stopped: Iterable[Stopped]) -> dict[str, Shape]:
    """Leave out logs with a predicate that only failed queries need: it must not be evaluated any more."""
    wanted = {predicate for query in queries for side in query.sides for predicate in query.predicates(side)}
    failed = {
        predicate for one in stopped for side in one.query.sides for predicate in one.query.predicates(side)
    } - wanted
    return {log: shape for log, shape in stored_shapes(ledger).items() if not failed & set(shape[1])}


def _is_mixed(group: Group, ledger: Ledger) -> bool:
    """Return whether some segment lacks what some query of a group reads."""
    return any(
        not member.reads_under(part.side, layout.columns, layout.predicates)
        for part in group.inputs
        for log in part.logs
        for number, layout in ledger.layouts.get(log.id, {}).items()
        if any(segment.layout == number for segment in ledger.segments(log.id))
        for member in group.members
    )
