"""Describe a unit: the rows that it joins, and where the pairs go.

In:  the plan and one version of the ledger.  Out: a `UnitSpec`, a `Delivery` and the expressions on pairs, for one job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.engine.aggregate.fold_spec import FoldRoute, FoldSpec
from penstock.engine.aggregate.pane_fold import folds_of
from penstock.engine.outputs.pair_columns import (
    PairExpressions,
    carries_times,
    computed_for,
    computed_together,
    pair_columns,
)
from penstock.engine.outputs.pair_sql import is_computed
from penstock.engine.sinks.destination import Destination
from penstock.engine.sinks.notes import Buffers
from penstock.engine.sinks.pair_batch import Delivery, Target
from penstock.engine.sinks.routes import FeedRoute, TableRoute, feed_folder, route_of
from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.sinks.table import pairs_folder
from penstock.engine.stages.many_plan import (
    is_divided_by_key,
    is_sample_due,
    link_keys,
    probe_orders,
    uneven_limits,
    widest_limits,
)
from penstock.engine.tasks.fanout_sample import sample_fanouts
from penstock.engine.tasks.join import SegmentRange, UnitInput, UnitSpec
from penstock.engine.tasks.join_many import ManySpec
from penstock.engine.tasks.row_windows import Counting
from penstock.engine.views.buffers import accuracy_of
from penstock.engine.views.waiting import waiting_rows
from penstock.plan.panes import alike, set_of
from penstock.sql.bind.safety import Constancy, constancy_of
from penstock.state.joined import ALL_VALUES, SegmentPart, joined_before, joined_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.backend import Backend
    from penstock.engine.sinks.routes import Route
    from penstock.plan.build import Plan
    from penstock.plan.group import Group, GroupInput
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Query, Side, Stream
    from penstock.state.files import Files
    from penstock.state.ledger import Ledger
    from penstock.state.tables import StoredTable
    from penstock.state.values import Cursor


@dataclass(frozen=True, slots=True)
class UnitPlanner:
    """Describes units of a plan; nothing is delivered for queries in `without`, which have failed."""

    plan: Plan
    ledger: Ledger
    files: Files
    backend: Backend[Any]
    without: frozenset[str] = field(default=frozenset())

    def streams(self, group: Group) -> tuple[Stream, ...]:
        """Return the streams of a group's inputs."""
        return tuple(self.plan.stream(name) for name in group.streams)

    # --- its input ------------------------------------------------------------------------------------------------

    def task(
        self, group: Group, since: Sequence[Cursor], until: Cursor, horizons: tuple[int | None, int | None]
    ) -> UnitSpec:
        """Describe a unit's input: for each stream, which segments are old and which new, by batch or by position.

        `since` is the end of each input's old rows; a unit of slices that advance has one cursor for all inputs.
        """
        counting = Counting.of(group, self.ledger, *horizons) if group.signature.counted else None
        if not group.is_pair:
            return self._many(group, since, until, counting)
        inputs = tuple(
            self._input(group, part, part.log, (start, until), counting)
            for part, start in zip(group.inputs, since, strict=True)
        )
        return UnitSpec(inputs=inputs, counting=counting, **self._common(group))

    def _many(
        self, group: Group, since: Sequence[Cursor], until: Cursor, counting: Counting | None
    ) -> ManySpec:
        inputs = [
            [self._input(group, part, log, (start, until), counting) for log in part.logs]
            for part, start in zip(group.inputs, since, strict=True)
        ]
        return ManySpec(
            inputs=tuple(logs[0] for logs in inputs),
            others=tuple(tuple(logs[1:]) for logs in inputs),
            keys=tuple(link_keys(group)),
            orders=probe_orders(group, self.ledger),
            limits=widest_limits(group),
            uneven=uneven_limits(group),
            counting=counting,
            **self._common(group),
        )

    def _common(self, group: Group) -> dict[str, Any]:
        """Return the arguments that tasks of two and of many streams have in common."""
        ordered = any(member.query.ordered for member in group.members)
        writing = {member.levels for member in group.members if self._shares_files(member.query)}
        return {
            "cuts": group.chain.bounds,
            "level_sets": tuple(group.level_sets()),
            "queries": len(group.members),
            "selective": group.selective,
            "parts": self.backend.runner.parallelism,
            "narrow": not group.filter_last,
            "keyed": is_divided_by_key(group),
            "comparisons": tuple(group.comparisons().items()),
            "by_level": len(writing) > 1 and not group.selective and group.is_pair,
            "timed": carries_times(group) if passes_spark(group) else ordered,
        }

    def _input(
        self,
        group: Group,
        part: GroupInput,
        log: LogPlan,
        reach: tuple[Cursor, Cursor],
        counting: Counting | None,
    ) -> UnitInput:
        """Describe one stream's part in a unit, by one of its logs."""
        (since, until), side, index = reach, part.side, group.index(part.side)
        segments = self.ledger.segments(log.id)
        if counting is not None:
            sealed = [segment for segment in segments if segment.last < until.batches[index]]
            old, new = counting.old(sealed), counting.new(sealed)
        else:
            old = joined_before(segments, index, since)
            new = joined_between(segments, index, since, until)
        types = self.backend.arrow_types(self.plan.stream(log.stream))
        layouts = {
            number: self.ledger.layouts[log.id][number]
            for number in {rows.segment.layout for rows in old + new}
        }
        return UnitInput(
            old=tuple(map(_range, old)),
            new=tuple(map(_range, new)),
            columns=tuple(
                (name, types[name]) for name in pair_columns(group, side, gathered=not passes_spark(group))
            ),
            masks={
                number: group.masks_under(side, layout.columns, layout.predicates)
                for number, layout in layouts.items()
            },
            excluded_masks={
                number: group.excluded_under(side, layout.predicates) for number, layout in layouts.items()
            },
        )

    # --- its output -----------------------------------------------------------------------------------------------

    def delivery(
        self, group: Group, unit: str, table: StoredTable | None, task: UnitSpec | None = None
    ) -> Delivery:
        """Describe a unit's output: the sinks of each query; `table` names the queries that read pairs from it."""
        is_due = isinstance(task, ManySpec) and is_sample_due(self.ledger.groups[group.id])
        targets = tuple(
            self._target(group, number, in_table=table is not None and member.query.name in table.members)
            for number, member in enumerate(group.members)
            if member.query.name not in self.without
        )
        return Delivery(
            unit,
            len(group.members),
            targets,
            pairs_folder(group.id) if any(target.in_table for target in targets) else "",
            table.selective if table else False,
            self.files.root,
            buffers=self._buffers(group, targets),
            survey=partial(sample_fanouts, self.files, task)
            if is_due and isinstance(task, ManySpec)
            else None,
        )

    def _target(self, group: Group, number: int, *, in_table: bool) -> Target:
        member = group.members[number]
        query, route = member.query, self._route(group, member.query, in_table=in_table)
        decided_only = in_table and not isinstance(route, FeedRoute)
        return Target(
            number=number,
            query=query.name,
            levels=member.levels,
            route=route,
            columns=tuple((output.name, *output.column) for output in query.outputs if output.column),
            computed=bool(query.residual) if decided_only else is_computed(query),
            types=self.backend.result_types(group, number, self.streams(group)) if route.makes_rows else "",
        )

    def _route(self, group: Group, query: Query, *, in_table: bool) -> Route:
        """Choose the route of a query's pairs: to its sink, to its readers, or into its panes."""
        if query.aggregation is None:
            way = route_of(query, self.files, in_table=in_table)
            is_read = any(stream.name == query.name for stream in self.plan.results)
            if not is_read:
                return way
            return FeedRoute(way, Destination(self.files.root, folder=feed_folder(query.name)))
        panes = set_of(query.name, {name: state.panes for name, state in self.ledger.panes.items()})
        assert panes is not None  # noqa: S101 - the plan's commit gave it one
        types = {
            side: self.backend.arrow_types(stream)
            for side, stream in zip(group.sides, self.streams(group), strict=True)
        }
        spec = FoldSpec.of(panes, query, types, group)
        bits = alike(query, (member.query for member in group.members), panes)
        if not panes.by_rows:
            return FoldRoute(spec, bits)
        return FoldRoute(spec, bits, tuple(self._folds_side(group, query, side) for side in group.sides))

    def _shares_files(self, query: Query) -> bool:
        """Return whether a query's files may be other queries' too: a result is some columns of its pair."""
        if query.aggregation is not None or query.ordered or is_computed(query):
            return False
        destination = sink_of(query).destination(self.files)
        return destination is not None and destination.shared

    def _folds_side(self, group: Group, query: Query, side: Side) -> bool:
        """Return whether a group folds the rows of its part of a side: the first of a query's groups with it does."""
        alike = [
            other.id
            for other, _, _ in self.plan.groups_of(query.name)
            if other.part(side) == group.part(side)
        ]
        return alike[0] == group.id

    def _buffers(self, group: Group, targets: Sequence[Target]) -> dict[str, Buffers]:
        """Return what waits, for each query whose results go into files of the unit."""
        names = [
            target.query
            for target in targets
            if target.route.at_once and (target.route.makes_rows or target.in_table)
        ]
        if not names:
            return {}
        waiting = waiting_rows(group, self.ledger, self.ledger.groups[group.id].cursors)
        buffers = {}
        for name in names:
            accuracy = accuracy_of(self.plan, name, self.ledger) if group.oblivious else None
            known = (accuracy.share, accuracy.missed) if accuracy else (None, None)
            buffers[name] = Buffers(waiting, 0, self.ledger.unpublished.get(name, 0), *known)
        return buffers

    def expressions(self, group: Group, delivery: Delivery) -> PairExpressions | None:
        """Return what is computed of the pairs for the targets of a delivery; None if nothing is."""
        streams = self.streams(group)
        asked = [target for target in delivery.targets if target.computed]
        if not asked:
            return None
        members = [group.members[target.number] for target in asked]
        alone = (
            computed_for(group, target.number, member, in_table=isinstance(target.route, TableRoute))
            for target, member in zip(asked, members, strict=True)
            if not target.is_folded
        )
        shared = (
            computed_together(group, sorted(target.number for target in fold.targets))
            for fold in folds_of(asked)
        )
        return PairExpressions(
            group,
            streams,
            (*alone, *shared),
            fleeting=any(constancy_of(member.query, streams) == Constancy.ONCE for member in members),
        )


def passes_spark(group: Group) -> bool:
    """Return whether the pairs of a group's units pass through Spark SQL."""
    return any(is_computed(member.query) for member in group.members)


def _range(part: SegmentPart) -> SegmentRange:
    """Describe the rows of a segment that take part."""
    segment, first, last = part.segment, part.min_t, part.max_t
    cut = (first, last) != (segment.min_t, segment.max_t)
    return SegmentRange(
        segment.name,
        first,
        last,
        segment.layout,
        segment.rows_between(first, last),
        segment.arrived,
        cut,
        segment.checksum,
        None if part.values == ALL_VALUES else part.values,
        segment.bytes,
    )
