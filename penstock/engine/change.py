"""A change of plan: from one set of queries to another, as one commit.

Nothing is moved.  A chain is cut anew where the windows end now; its cursor stays where it is; segments stay as they
are and keep saying by which *layout* they were written.  What a new query gets of the past is what is held::

                       held in the log                 cursor
    ---(let go)---|=====================================|---------- rows to come ------->
                  floor                                 |
    new query      <------ backfill: one unit ---------> <------ the chain, like everyone ----->

`floor` is the event time from which on every row that the new query accepts is known to be held: because some other
query that accepts at least those rows needed them.  A query is complete from the later of its two floors.

In:  the ledger, and the plan to come.  Out: the ``plan`` commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.engine.claims import in_time
from penstock.engine.ordering import is_waiting, lag_rows
from penstock.engine.shape import table_schema
from penstock.engine.sinks import is_view
from penstock.errors import InputError
from penstock.log.commits import PlanServed
from penstock.log.ledger import fold
from penstock.log.tables import Definition, StoredTable
from penstock.log.values import Cursor, GroupState, Layout, QueryState, ServedPlan
from penstock.plan.build import Plan, build_plan
from penstock.plan.group import Group, subgroup
from penstock.plan.stored import retention
from penstock.sql.query import FOREVER, SIDES
from penstock.sql.source_options import without_stream_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.log.commits import Released
    from penstock.log.ledger import Ledger
    from penstock.log.values import Replacement, Watermarks
    from penstock.plan.build import Shape, Stopped
    from penstock.plan.group import Member
    from penstock.plan.spark_settings import SparkSettings
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Query, Side, Signature, Stream


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the queries: those that are new, gone, and differently defined under their old name.

    `moved` are those that stay as they are and get state of their own, or share again: what is held does not go with
    them.  `failed` are those that are stopped because they cannot be evaluated, with the reason; `resumed` those that
    had been, and are defined otherwise now.  `strategy` is the new one, if it is another; `cuts` says why chains are
    cut elsewhere, if they are.
    """

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    resumed: tuple[str, ...] = ()
    strategy: str = ""
    cuts: str = ""

    def __bool__(self) -> bool:
        """Say whether anything changes."""
        queries = self.added or self.dropped or self.altered or self.failed or self.resumed
        return bool(queries or self.strategy or self.cuts)

    def __str__(self) -> str:
        """Say what changes, in a few words."""
        words = (
            ("add", self.added), ("drop", self.dropped), ("alter", self.altered), ("resume", self.resumed),
        )  # fmt: skip
        parts = [f"{word} {', '.join(names)}" for word, names in words if names]
        parts += [f"{name} failed: {reason}" for name, reason in self.failed.items()]
        parts += [f"strategy {self.strategy}"] if self.strategy else []
        return "; ".join(parts + ([self.cuts] if self.cuts else [])) or "nothing"


def find_change(before: Plan | None, after: Plan, why: str = "") -> Change:
    """Compare two plans: queries by name and by meaning, then how they are shared; `why` the chains are cut anew."""
    if before is None:
        return Change(added=tuple(query.name for query in after.queries))
    old, new = ({query.name: meaning(query) for query in plan.queries} for plan in (before, after))
    stopped, failed = ({each.query.name: each.reason for each in plan.stopped} for plan in (before, after))
    altered = tuple(name for name in new if name in old and new[name] != old[name])
    stay = [name for name in new if name in old and name not in altered]
    recut = before.strategy == after.strategy and _cuts(before, stay) != _cuts(after, stay)
    return Change(
        added=tuple(name for name in new if name not in old and name not in stopped),
        dropped=tuple(name for name in (*old, *stopped) if name not in new and name not in failed),
        altered=altered,
        moved=tuple(name for name in stay if _logs(before, name) != _logs(after, name)),
        failed={name: reason for name, reason in failed.items() if name in old},
        resumed=tuple(name for name in new if name in stopped),
        strategy=after.strategy if after.strategy != before.strategy else "",
        cuts=why if recut else "",
    )


def meaning(query: Query) -> Query:
    """Leave out of a query what only shows it, or follows from the rest of it."""
    return replace(query, text="", comparisons=())


def _cuts(plan: Plan, queries: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Say where the chains are cut that serve some queries."""
    names = set(queries)
    return {
        group.id: group.chain.cuts
        for group in plan.groups
        if any(member.query.name in names for member in group.members)
    }


def _logs(plan: Plan, query: str) -> set[str]:
    """List the logs that a query reads."""
    return {group.log(side).id for group, _, _ in plan.places(query) for side in SIDES}


def losses(change: Change, before: Plan | None, plan: Plan, ledger: Ledger) -> list[str]:
    """Say what a change would lose that nobody asked to lose, one sentence each."""
    lost = [
        f"query {name} is not among the queries any more, and its {count:,} results in the state's table could not be "
        "read again"
        for name in change.dropped
        if before and before.query(name).sink.kind == "table" and (count := ledger.query(name).results)
    ]
    lost += [
        f"query {name} would leave the state's table, and its {count:,} results there could not be read again"
        for name in change.altered + change.resumed
        if before
        and before.query(name).sink.kind == "table"
        and plan.query(name).sink.kind != "table"
        and (count := ledger.query(name).results)
    ]
    lost += [
        f"query {name} is not among the queries any more, and {held:,} results that are held until it is their turn "
        "would never be delivered"
        for name in change.dropped
        if (held := ledger.hold(name).rows)
    ]
    lost += [
        f"query {name} is not among the queries any more, and {rows:,} rows that wait until it is their turn would "
        "never be joined for it"
        for name in change.dropped
        if before
        and any(before.places(name))
        and is_waiting(before, ledger, group := before.find(name)[0])
        and (rows := lag_rows(group, ledger, name))
    ]
    if change.moved:
        lost.append(
            f"{', '.join(change.moved)} would go over to other state ({change.strategy}), and miss the pairs of rows "
            "held now with rows to come"
        )
    return lost


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
    return replace(plan, groups=tuple(replace(each, mixed=_is_mixed(each, ledger)) for each in plan.groups))


def current_plan(ledger: Ledger) -> Plan:
    """Give the plan that is true: its queries in the order, and its groups with the numbering, that was committed."""
    known = ledger.plan or ServedPlan()
    plan = build_plan(
        {each.name: ledger.declared[each.name] for each in known.streams},
        known.queries,
        _stored(ledger),
        strategy=known.strategy,
        cuts=known.cuts,
        stopped=known.stopped,
    )
    return replace(
        plan,
        groups=tuple(replace(each, mixed=ledger.groups[each.id].mixed) for each in plan.groups),
        spark_settings=made_under(ledger) or plan.spark_settings,
    )


def made_under(ledger: Ledger) -> SparkSettings | None:
    """Give the settings of Spark that a state was made under; None if nobody noted them."""
    return ledger.plan.spark_settings if ledger.plan else None


def stopped_queries(ledger: Ledger) -> tuple[Stopped, ...]:
    """List the queries that could not be evaluated, and have not been defined anew since."""
    return ledger.plan.stopped if ledger.plan else ()


def standing_plan(ledger: Ledger) -> Plan | None:
    """Give the plan that is true, None before the first one."""
    return current_plan(ledger) if ledger.plan else None


def _stored(ledger: Ledger) -> dict[str, Shape]:
    """Say what each log stores now."""
    current = {log: layouts[max(layouts)] for log, layouts in ledger.layouts.items()}
    return {log: (layout.columns, layout.predicates) for log, layout in current.items()}


def _still_stored(ledger: Ledger, queries: Iterable[Query], stopped: Iterable[Stopped]) -> dict[str, Shape]:
    """Leave out the logs that evaluate a predicate which only failed queries ask for: they must not go on so."""
    wanted = {each for query in queries for side in SIDES for each in query.predicates(side)}
    failed = {each for one in stopped for side in SIDES for each in one.query.predicates(side)} - wanted
    return {log: shape for log, shape in _stored(ledger).items() if not failed & set(shape[1])}


def _is_mixed(group: Group, ledger: Ledger) -> bool:
    """Say whether some segment held lacks what some query of a group reads."""
    return any(
        not member.reads_under(side, layout.columns, layout.predicates)
        for side in SIDES
        for number, layout in ledger.layouts.get(group.log(side).id, {}).items()
        if any(each.layout == number for each in ledger.segments(group.log(side).id))
        for member in group.members
    )


Upgrades = Mapping[str, "Replacement"]
"""By log: the segments that are replaced, and the same rows under the log's new layout."""


def upgraded(ledger: Ledger, plan: Plan, upgrades: Upgrades) -> Ledger:
    """Give the ledger as it will be when the logs have their new layouts and the upgraded segments."""
    layouts, logs = dict(ledger.layouts), dict(ledger.logs)
    for log in new_layouts(plan, ledger):
        fresh = {ledger.layout(log.id) + 1: Layout(log.columns, log.predicates)}
        layouts[log.id] = {**layouts.get(log.id, {}), **fresh}
    for name, new in upgrades.items():
        rest = (each for each in ledger.segments(name) if each.name not in set(new.removed))
        logs[name] = (*new.added, *rest)
    return replace(ledger, layouts=layouts, logs=logs)


def plan_commit(
    plan: Plan,
    before: Plan | None,
    change: Change,
    ledger: Ledger,
    upgrades: Upgrades | None = None,
    *,
    release: Released | None = None,
) -> PlanServed:
    """Write the commit that makes a plan true.

    `release` ends the sequences of queries that are defined anew.  It becomes true with the plan or not at all:
    a query that keeps its old definition after a crash must not have got anything early.
    """
    if before is not None:
        _refuse_repeats(plan, before, change, ledger)
    ledger = ledger if release is None else fold(ledger, release)
    then = upgraded(ledger, plan, upgrades or {})
    starts = {
        name: _start(group, member, before, change, then)
        for name in change.added + change.altered + change.moved + change.resumed
        for group, _, member in [plan.find(name)]
    }
    lacking = [name for name, state in starts.items() if state.backfill]
    lacking += [each.name for each in plan.queries if ledger.query(each.name).backfill]
    return PlanServed(
        plan=served(plan),
        reason=str(change) if before else "start",
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        logs=tuple(log.id for log in plan.logs),
        rolls={stream: _after(stream, ledger) for stream in plan.counted},
        births={log.id: _after(log.stream, ledger) for log in plan.logs if log.id not in ledger.layouts},
        layouts={log.id: Layout(log.columns, log.predicates) for log in new_layouts(plan, ledger)},
        upgrades=dict(upgrades or {}),
        groups={group.id: _group_state(group, ledger, before) for group in plan.groups},
        queries=starts,
        release=release,
        ordered={
            query.name: ledger.version + 1 if query.name in starts else ledger.hold(query.name).era
            for query in plan.queries
            if query.ordered
        },
        tables={group.id: _tables(group, plan, ledger, lacking) for group in plan.groups},
        writes={group.id: _written(group, plan, ledger) for group in plan.groups},
        adopted=before is None,
    )


def served(plan: Plan) -> ServedPlan:
    """Say what a state serves by a plan, without the secrets of its sources."""
    return ServedPlan(
        streams=tuple(map(without_stream_secrets, plan.streams)),
        queries=plan.queries,
        strategy=plan.strategy,
        cuts=plan.cuts,
        stopped=plan.stopped,
        spark_settings=plan.spark_settings,
    )


def _tables(group: Group, plan: Plan, ledger: Ledger, lacking: Iterable[str]) -> tuple[StoredTable, ...]:
    """Say how to read the pairs that a group stores from now on: nothing new if it goes on as it was.

    Pairs that new queries get of the past are kept apart, and numbered by those queries alone.
    """
    now = _table(group, plan, ledger.version + 1)
    tables = [now] if _written(group, plan, ledger) == now.id else []
    if set(lacking) & {member.query.name for member in group.members}:
        tables.append(_table(subgroup(group, lacking), plan, ledger.version + 1, "-past"))
    return tuple(each for each in tables if each.members)


def _written(group: Group, plan: Plan, ledger: Ledger) -> str:
    """Name the table that a group's units write to under a plan: the one there is if it does; none for no reader."""
    now, current = _table(group, plan, ledger.version + 1), ledger.table(group.id)
    if current is not None and current.same_reading(now):
        return current.id
    return now.id if now.members else ""


def is_stored_anew(plan: Plan, ledger: Ledger) -> bool:
    """Say whether a group would keep its pairs in another way than it does: an earlier version may have begun it."""
    return any(_written(group, plan, ledger) != ledger.writes.get(group.id, "") for group in plan.groups)


def _refuse_repeats(plan: Plan, before: Plan, change: Change, ledger: Ledger) -> None:
    """Refuse to let a query go over from time to rows where rows that it has joined wait to be counted for others."""
    for name in change.altered:
        group = plan.find(name)[0]
        known = ledger.groups.get(group.id)
        if before.find(name)[0].signature.counted or not group.signature.counted or known is None:
            continue
        horizon = known.watermarks[0]
        segments = [each for log in group.logs for each in ledger.segments(log.id)]
        if any(horizon is None or each.max_t >= horizon for each in segments):
            raise InputError(
                f"query {name} cannot go over to counting rows now: others that count them still wait for rows it has "
                "joined by time, and it would get some pairs twice; drop it and create it again"
            )


def new_layouts(plan: Plan, ledger: Ledger) -> list[LogPlan]:
    """List the logs that store something else from now on."""
    stored = _stored(ledger)
    return [log for log in plan.logs if stored.get(log.id) != (log.columns, log.predicates)]


def forebears(group: Group, before: Plan | None) -> list[Group]:
    """List the groups of the plan before whose pairs a group goes on with: itself, or those that joined its logs.

    Where rows are divided among joins in another way than before, several may go over into one, or one into several.
    """
    known = before.groups if before else ()
    same = [each for each in known if each.id == group.id]
    return same or [
        each
        for each in known
        if each.signature == group.signature and all(each.log(s).id == group.log(s).id for s in SIDES)
    ]


def is_in_step(plan: Plan, before: Plan | None, ledger: Ledger) -> bool:
    """Say whether the plan can be changed here: if not, the groups before must catch up first.

    All slices of a chain must be together, because the next chain may be cut elsewhere.  Joins that divide the rows of
    one log must be equally far, because a change may take a row from one to another, and what one of them holds is
    vouched for by all.  A query that gets other state must have joined all that came, and so must one that is defined
    anew where input waits: whatever its order policy, what has come counts by the old definition.
    """
    if before is None:
        return True
    places: dict[tuple[Signature, str, str], set[object]] = {}
    changed = bool(find_change(before, plan)) or plan.cuts != before.cuts
    if changed and any(ledger.groups[group.id].apart for group in before.groups):
        return False
    for group in before.groups:
        divided = places.setdefault((group.signature, group.left.id, group.right.id), set())
        divided.add(_place(group, ledger))
    change = find_change(before, plan)
    waiting = any(is_waiting(before, ledger, before.find(name)[0]) for name in change.altered)
    return all(len(each) <= 1 for each in places.values()) and not change.moved and not waiting


def _place(group: Group, ledger: Ledger) -> tuple[Cursor, int | None]:
    """Say where a group is: its cursor, and its horizon where it counts rows.

    Where all that came is joined it does not matter up to which time it was joined out of turn.
    """
    state = ledger.groups[group.id]
    cursor, ends = state.cursors[0], tuple(ledger.stream(log.stream).batches for log in group.logs)
    place = Cursor(*ends) if cursor[:2] == ends else cursor
    return place, state.watermarks[0] if group.signature.counted else None


def _group_state(group: Group, ledger: Ledger, before: Plan | None) -> GroupState:
    """Put a group's chain where its forebears are; a new group begins with what is there now, as backfill."""
    known = [ledger.groups[each.id] for each in forebears(group, before)]
    left, right = (ledger.stream(group.log(side).stream) for side in SIDES)
    cursor = known[0].cursors[0] if known else Cursor(left.batches, right.batches)
    starts = _horizons(group, ledger) if group.signature.counted else (left.watermark, right.watermark)
    own = ledger.groups.get(group.id)
    return GroupState(
        cursors=(cursor,) * len(group.chain.readers),
        watermarks=known[0].watermarks if known else starts,
        units=own.units if own else 0,
        pairs=own.pairs if own else 0,
        mixed=group.mixed,
        spans=known[0].spans if known else ({}, {}),
        mode=known[0].mode if known else "",
    )


def _horizons(group: Group, ledger: Ledger) -> Watermarks:
    """Say up to where a new group that counts rows takes them as joined: both streams are sealed, or begin, there."""
    found = [
        ledger.rolls[log.stream].horizon if log.stream in ledger.rolls else _after(log.stream, ledger)
        for log in group.logs
    ]
    horizon = None if None in found else min(each for each in found if each is not None)
    return horizon, horizon


def _start(group: Group, member: Member, before: Plan | None, change: Change, ledger: Ledger) -> QueryState:
    """Say what a query starts with: what it still has to get of the past, and from when on it is complete."""
    left, right = (_floor(group, member, side, before, ledger) if before else None for side in SIDES)
    if member.query.name in change.altered + change.moved + change.resumed:
        known = ledger.query(member.query.name)
        if before and member.query.name in change.altered and _is_as_before(group, member, before):
            again = _go_on(group, known.floors, known, ledger)
            return replace(again, complete_from=known.complete_from)
        return _go_on(group, (left, right), known, ledger)
    held = before is not None and any(ledger.segments(group.log(side).id) for side in SIDES)
    return QueryState(
        backfill=_group_state(group, ledger, before).cursors[0] if held else None,
        floors=(left, right),
        complete_from=_later((left, right)),
        born=ledger.version + 1,
    )


def _is_as_before(group: Group, member: Member, before: Plan) -> bool:
    """Say whether only an altered query's options are others: then it has missed nothing."""
    then, _, known = before.find(member.query.name)
    same = meaning(replace(known.query, options=())) == meaning(replace(member.query, options=()))
    return same and [log.id for log in then.logs] == [log.id for log in group.logs]


def _go_on(group: Group, floors: Watermarks, known: QueryState, ledger: Ledger) -> QueryState:
    """Say how an altered query goes on: by its new definition for rows to come, and for a past it has not got yet."""
    coming = [_after(group.log(side).stream, ledger) for side in SIDES]
    return QueryState(
        results=known.results,
        backfill=known.backfill,
        floors=floors,
        complete_from=_later(floors if known.backfill else coming),
        born=known.born,
    )


def _later(moments: Iterable[int | None]) -> int | None:
    """Give the latest of some moments; None if none is given."""
    return max((each for each in moments if each is not None), default=None)


def _after(stream: str, ledger: Ledger) -> int | None:
    """Give the event time after all that a stream has sent; None if it has sent nothing."""
    newest = ledger.stream(stream).newest
    return None if newest is None else newest + 1


def _floor(group: Group, member: Member, side: Side, before: Plan | None, ledger: Ledger) -> int | None:
    """Find the event time from which on every row of one side that a query accepts is held."""
    log = group.log(side)
    stream = ledger.stream(log.stream)
    coming = _after(log.stream, ledger)
    if coming is None:
        return None  # the stream has sent nothing yet
    uses = list(before.uses(log.id)) if before else []
    floors = [
        _held_since(other, their, witness, ledger)
        for other, their in uses
        for witness in other.members
        if set(witness.predicates(their)) <= set(member.predicates(side))
    ]
    if before and uses and stream.watermark is not None:
        retained = retention(before.stream(log.stream))
        since = [ledger.births.get(log.id), stream.watermark - (retained or 0) + 1]
        floors += [] if retained is None else [_later(since)]
    whole = all(
        member.reads_under(side, layout.columns, layout.predicates)
        for number, layout in ledger.layouts.get(log.id, {}).items()
        if any(each.layout == number for each in ledger.segments(log.id))
    )
    if not floors or not whole:
        return coming
    return None if None in floors else min(each for each in floors if each is not None)


def _held_since(group: Group, side: Side, witness: Member, ledger: Ledger) -> int | None:
    """Say from which event time on a query that is there already has kept all rows it accepts."""
    place = 0 if side == "l" else 1
    own = ledger.query(witness.query.name).floors[place]
    watermark = ledger.groups[group.id].watermarks[1 - place]
    (far,) = in_time(group, side, ledger, [witness.reach(side)])
    let_go = None if watermark is None or far >= FOREVER else watermark - far + 1
    return _later([own, let_go])


def _table(group: Group, plan: Plan, version: int, suffix: str = "") -> StoredTable:
    """Say how to read the pairs that a group stores under this plan.

    Where Spark SQL decides about pairs they are kept with the set of their readers: that is settled then.
    """
    left, right = (plan.stream(group.log(side).stream) for side in SIDES)
    views = {
        member.query.name: Definition(
            number,
            member.levels,
            tuple((each.name, each.expression) for each in member.query.outputs),
            version,
        )
        for number, member in enumerate(group.members)
        if is_view(member.query, left, right)
    }
    decided = any(member.query.residual for member in group.members if member.query.name in views)
    with_sets = group.selective or decided
    return StoredTable(
        f"v{version}{suffix}",
        version,
        table_schema(group, left, right, with_sets=with_sets),
        with_sets,
        {name: (definition,) for name, definition in views.items()},
    )
