"""The joiner: one thread that turns new batches into committed, published output.

Beside it, Structured Streaming ingests in threads of its own; the two meet only in the journal.  Each turn:

    where windows count rows:            seal what the watermarks have passed ──▶ commit
    for each group behind its streams:   run a unit of the slices whose turn it is  ──▶ commit ──▶ publish
    where order was asked for:           release what nothing can come before any more ──▶ commit ──▶ publish
    for each log:                        drop what has ended, rewrite what is worth it ──▶ commit ──▶ delete files
    for results that the state keeps:    merge small files ──▶ commit ──▶ delete files, after a while

A turn reads the ledger once per step and changes nothing but by commits, so it may be cut off anywhere.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.engine.blame import QueriesFailedError, blame_for_unit
from penstock.engine.claims import common_layout, passed, settled_alike
from penstock.engine.compact import Attic, choose_steps, compact_commit
from penstock.engine.counting import Counting, sealed_until, spans
from penstock.engine.deliver import Buffers, Delivery, Target
from penstock.engine.jobs import compact_job, release_job, rewrite_job, seal_job, unit_job
from penstock.engine.ordering import Silence, goal_of, switch_commit, waiting_rows
from penstock.engine.pairs import computed_column, is_computed, wanted_column
from penstock.engine.release import choose_releases, is_due, last_releases, release_commit
from penstock.engine.scheduling import Advance, next_advance
from penstock.engine.sealing import choose_sealings, seal_commit
from penstock.engine.shape import carries_times, pair_columns, unit_schema
from penstock.engine.sinks import (
    SPOOLED,
    kept_files,
    let_go,
    pairs_folder,
    publications,
    publish,
    results_folder,
    sink_root,
)
from penstock.engine.sources import arrow_types
from penstock.engine.unit import SideTask, Stretch, UnitTask, joined_before, joined_between
from penstock.log.commits import Backfilled, NumberedLayout, Output, Published, Rewritten, UnitJoined
from penstock.log.hold import hold_folder
from penstock.log.keep import choose_rewrites, is_ended
from penstock.log.table_merge import CONFLICT
from penstock.log.tally import delays_of
from penstock.log.values import Cursor, by_name
from penstock.plan.group import subgroup
from penstock.sql.constancy import Constancy, constancy_of
from penstock.sql.options import DEFAULT_SCHEDULER
from penstock.sql.query import SIDES

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.engine.deliver import UnitReport
    from penstock.engine.store import Store
    from penstock.log.ledger import Ledger
    from penstock.log.segment import Segment
    from penstock.log.tables import StoredTable
    from penstock.log.values import Layout, Publication, Station
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Query, Side, Stream


_log = logging.getLogger(__name__)

LONGEST_PATIENCE = 1.0
"""Seconds that a batch waits at most for one of its partner, to be joined with it."""


@dataclass(frozen=True, slots=True)
class UnitDone:
    """What a unit did, for whoever watches.

    `rows` are the input rows of the group's streams that are joined now; `seconds` is what the unit took.
    """

    group: str
    unit: str
    rows: int
    pairs: int
    seconds: float


class Joiner(threading.Thread):
    """Runs units while there is something to join, and changes the plan between two units."""

    def __init__(
        self, spark: SparkSession, store: Store, plan: Plan, hand_over: Callable[[Publication], None]
    ) -> None:
        """Get ready; `hand_over` gives a query's new results to its console or callback."""
        super().__init__(name="penstock-joiner", daemon=True)
        self.spark, self.store, self.plan = spark, store, plan
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.reconsider: Callable[[Plan], Plan] = lambda plan: plan
        """Asked after each turn whether to go on with this plan."""
        self.on_their_way: Callable[[], set[str]] = set
        """Asked before a turn for the streams that have a batch between source and commit."""
        self.stop_queries: Callable[[Mapping[str, str]], Plan] | None = None
        """Told of queries that cannot be evaluated, and why; gives the plan of the others."""
        self.silence = Silence()
        """Asked for how long streams have sent nothing."""
        self.scheduler = DEFAULT_SCHEDULER
        """Which slices go first: lwo, swf or mqt."""
        self.watchers: list[Callable[[UnitDone], None]] = []
        self.arrow_types: Callable[[Stream], Mapping[str, pa.DataType]] = partial(arrow_types, spark)
        self.result_types: Callable[[Group, int, Stream, Stream], str] = lambda *_: ""
        """Asked for Spark's description of a query's results, where a file does not tell by itself."""
        self._hand_over = hand_over
        self._wake = threading.Condition()
        self._turning = threading.Lock()
        self._changing = 0
        self._stopping = False
        self._all_in = False
        self._news = True
        self._unit_seconds = 0.0
        self._overdue: dict[str, str] = {}
        self._bringing_up = False
        self._attic = Attic()
        self._unmergeable: set[frozenset[str]] = set()
        self._untidy = False
        self._without: frozenset[str] = frozenset()

    def notify(self) -> None:
        """Tell the joiner that there is something new."""
        with self._wake:
            self._news = True
            self._wake.notify_all()

    def finish_input(self) -> None:
        """Wait for no more rows: what is there is all, for windows that count rows and for results in order."""
        self._all_in = True
        self.notify()

    def finish(self) -> None:
        """Stop after the unit at hand."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self.is_alive():
            self.join()

    def drain(self) -> None:
        """Wait until everything committed so far is joined and published."""
        with self._wake:
            self._wake.wait_for(lambda: self.failure or self._stopping or not self._behind())

    @contextmanager
    def between_units(self) -> Iterator[None]:
        """Do something while no unit runs: the plan may be replaced here."""
        self._changing += 1  # the joiner lets it go first, however much there is to join
        try:
            with self._turning:
                yield
        finally:
            self._changing -= 1
            self.notify()

    def run(self) -> None:
        """Take turns until told to stop."""
        try:
            self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "units")
            while self._wait():
                self._turn()
        except BaseException as failure:  # noqa: BLE001 - handed to the thread that owns the engine
            self.failure = failure
            self.on_failure()
        finally:
            with self._wake:
                self._wake.notify_all()

    def _wait(self) -> bool:
        """Wait for news; say whether to go on."""
        with self._wake:
            self._wake.notify_all()
            idle = self.silence.until_idle(self.plan, self.store.ledger)
            self._wake.wait_for(lambda: self._stopping or self._news, timeout=0 if self._untidy else idle)
            patience = min(self._unit_seconds, LONGEST_PATIENCE)
            self._wake.wait_for(lambda: self._stopping or not self._partner_comes(), timeout=patience)
            self._news = False
        while self._changing and not self._stopping:
            time.sleep(0.001)
        return not self._stopping

    def _partner_comes(self) -> bool:
        """Say whether a batch of one stream waits to be joined while one of its partner is about to be committed.

        One unit for both takes about as long as a unit for either, so it pays to wait as long as a unit took::

            A   ──ingest──┐ commit
            B   ────ingest────┐ commit
            unit              └──── both ────     instead of   ── A ── ── B ──
        """
        coming, ledger = self.on_their_way(), self.store.ledger
        for group in self.plan.groups:
            state = ledger.groups.get(group.id)
            if state is None or not coming or state.apart:
                continue
            names = (group.left.stream, group.right.stream)
            reached, goal = state.stops[-1][0], self._goal(ledger, group)[0]
            waits = [name for place, name in enumerate(names) if reached[place] < goal[place]]
            if waits and any(name in coming and name not in waits for name in names):
                return True
        return False

    def _behind(self) -> bool:
        """Say whether some batch is not joined, some query lacks its past, or some output is not published."""
        ledger = self.store.ledger
        return (
            self._news
            or bool(ledger.pending)
            or is_due(self.plan, ledger, self.silence)
            or self._is_joining(ledger)
        )

    def _is_joining(self, ledger: Ledger) -> bool:
        """Say whether some row is not counted, some batch not joined, or some query lacks its past."""
        return bool(choose_sealings(self.plan, ledger, everything=self._all_in)) or any(
            self._lacking(ledger, group) or self._is_behind(ledger, group) for group in self.plan.groups
        )

    def _turn(self) -> None:
        """Bring every query up, let every group take its next step towards its streams, then tidy the logs."""
        with self._turning:
            self._seal()
            try:
                self._catch_up()
                for group in self.plan.groups:
                    if self._is_behind(self.store.ledger, group):
                        self._advance(group)
            except QueriesFailedError as error:
                if self.stop_queries is None:
                    raise
                self.plan = self.stop_queries(error.failures)
            for group in self.plan.groups:
                self._choose_what_waits(group)
            self.release()
            self.publish_pending()
            for log in self.plan.logs:
                self._tidy(log.id)
            self._compact()
            self.plan = self.reconsider(self.plan)
        if self._behind_goal():
            self.notify()  # other slices have still to follow

    def _behind_goal(self) -> bool:
        """Say whether some slice of some group has not joined all that was ingested."""
        return any(self._is_behind(self.store.ledger, group) for group in self.plan.groups)

    def _seal(self) -> None:
        """Give the rows that the watermarks have passed their final positions, where windows count rows."""
        sealings = choose_sealings(self.plan, self.store.ledger, everything=self._all_in)
        if not sealings:
            return
        some = any(each.waiting for each in sealings)
        made = seal_job(self.spark, self.store.files, sealings) if some else [None] * len(sealings)
        commit = seal_commit(sealings, made)
        self.store.commit(commit)
        for name in commit.remove:
            self.store.let_go(name)

    def bring_up(self, groups: Iterable[Group], without: Iterable[str] = ()) -> None:
        """Bring groups up to their streams; new queries first, so that they go on from their groups' cursors.

        Nothing is evaluated or delivered for queries that the groups go `without`: they have failed.
        """
        self._without = frozenset(without)
        self._catch_up()
        self._bringing_up = True
        try:
            for group in groups:
                while self._is_behind(self.store.ledger, group):
                    self._advance(group)
        finally:
            self._bringing_up = False

    def _choose_what_waits(self, group: Group) -> None:
        """Let a group's adaptive queries go by what was measured: the input waits, or the results."""
        if commit := switch_commit(self.plan, self.store.ledger, group):
            self.store.commit(commit)
            _log.info("%s: %s from here on: %s", ", ".join(commit.groups), commit.mode, commit.reason)

    def _goal(self, ledger: Ledger, group: Group) -> Station:
        """Say how far a group may advance now."""
        everything = self._all_in or self._bringing_up or self.silence.lets_join(self.plan, ledger, group)
        return goal_of(self.plan, ledger, group, everything=everything)

    def _is_behind(self, ledger: Ledger, group: Group) -> bool:
        """Say whether some slice of a group has not joined all that it may."""
        state = ledger.groups.get(group.id)  # none while the plan is being replaced
        if state is None or set(state.cursors) != {self._goal(ledger, group)[0]}:
            return True
        return group.signature.counted and state.watermarks[0] != sealed_until(group, ledger)

    def release(self) -> None:
        """Release the results whose turn it is; at the end of the input, once all of it is joined, everything."""
        ledger, files = self.store.ledger, self.store.files
        last = self._all_in and not self._is_joining(ledger)
        releases = (
            last_releases(self.plan, ledger, files)
            if last
            else choose_releases(self.plan, ledger, files, self.silence)
        )
        if not releases:
            return
        reports = release_job(self.spark, files, releases)
        self.store.commit(release_commit(releases, reports))
        for name in ledger.files() - self.store.ledger.files():
            self.store.let_go(name)

    def _lacking(self, ledger: Ledger, group: Group) -> list[str]:
        """List the queries of a group that have not got the pairs that were there before them."""
        names = (member.query.name for member in group.members)
        return [name for name in names if ledger.query(name).backfill is not None]

    def _catch_up(self) -> None:
        """Give new queries the pairs of rows that were there before them: a unit in each group, one commit."""
        ledger = self.store.ledger
        outputs = [
            self._past(ledger, group, names)
            for group in self.plan.groups
            if (names := self._lacking(ledger, group))
        ]
        if outputs:
            lacking = (
                each.name for each in self.plan.queries if ledger.query(each.name).backfill is not None
            )
            self.store.commit(Backfilled(tuple(lacking), _together(outputs)))

    def _past(self, ledger: Ledger, group: Group, names: list[str]) -> Output:
        """Join, for some queries of a group, all that was there before them."""
        # where it was when they came: this is done before it advances
        until = ledger.groups[group.id].cursors[0]
        horizon = ledger.groups[group.id].watermarks[0]
        small = subgroup(group, names)
        unit = f"{group.id[-8:]}-{ledger.version:06d}-past"
        since = (Cursor(0, 0), until)  # nothing of the left stream is joined, and all of the right one
        task = self._unit_task(ledger, small, since, until, (None, horizon)).without_arrivals()
        past = f"v{ledger.version}-past"
        table = next((each for each in ledger.tables.get(group.id, ()) if each.id == past), None)
        reports = self._run(small, task, unit, table) if task.left.new else []
        return _output(small, unit, reports, self._without, table)

    def _advance(self, group: Group) -> None:
        """Run one unit of the slices whose turn it is, and commit it."""
        started = time.monotonic()
        ledger = self.store.ledger
        advance = self._next(ledger, group)
        unit = f"{group.id[-8:]}-{ledger.version:06d}-{ledger.groups[group.id].units:08d}"
        known, horizon = ledger.groups[group.id].watermarks[0], sealed_until(group, ledger)
        since = (advance.since, advance.since)
        task = self._unit_task(ledger, group, since, advance.until, (known, horizon))
        task = replace(task, levels=advance.runs(group.chain))
        table = ledger.table(group.id)
        reports = self._run(group, task, unit, table) if task.left.new or task.right.new else []
        left, right = (spans(group, side, ledger, self.store.files, horizon) for side in SIDES)
        pairs = sum(each.pairs for each in reports)
        self.store.commit(
            UnitJoined(
                group=group.id,
                cursors=advance.cursors,
                watermarks=(horizon, horizon) if group.signature.counted else advance.watermarks,
                pairs=pairs,
                output=replace(
                    _output(group, unit, reports, self._without, table), delays=_delays(group, reports)
                ),
                spans=(left, right),
                rows=sum(each.rows for side in (task.left, task.right) for each in side.new),
                seconds=time.monotonic() - started,
                stations=advance.stations if len(set(advance.cursors)) > 1 else (),
            )
        )
        rows = sum(ledger.stream(name).rows for name in {group.left.stream, group.right.stream})
        rows -= waiting_rows(group, ledger, advance.cursors)
        self._unit_seconds = time.monotonic() - started
        done = UnitDone(group.id, unit, rows, pairs, self._unit_seconds)
        for watcher in self.watchers:
            try:
                watcher(done)
            except Exception:  # noqa: BLE001 - who watches must not stop the work
                _log.warning("a watcher of units failed", exc_info=True)

    def _next(self, ledger: Ledger, group: Group) -> Advance:
        """Choose the slices that advance; all at once where windows count rows."""
        policy = "lwo" if group.signature.counted else self.scheduler
        goal = self._goal(ledger, group)
        advance = next_advance(group, ledger, policy, goal)
        if advance is None:  # only the horizon of windows that count rows has moved
            until = goal[0]
            state = ledger.groups[group.id]
            return Advance(tuple(range(len(state.cursors))), until, until, state.cursors, state.stops)
        known = self._overdue.get(group.id, "")
        if advance.overdue and advance.overdue != known:
            _log.warning(
                "query %s is behind by more than its max_lag, and is served first: more arrives than can be joined",
                advance.overdue,
            )
        self._overdue[group.id] = advance.overdue
        return advance

    def _run(self, group: Group, task: UnitTask, unit: str, table: StoredTable | None) -> list[UnitReport]:
        """Run a unit's Spark job."""
        last = max((each.arrived for side in (task.left, task.right) for each in side.new), default=0.0)
        delivery = replace(self._delivery(group, unit, table), arrived=last)
        run = partial(self._run_job, group, task)
        try:
            return run(delivery)
        except Exception as error:
            if failures := blame_for_unit(delivery, run):
                raise QueriesFailedError(failures) from error
            raise

    def _run_job(self, group: Group, task: UnitTask, delivery: Delivery) -> list[UnitReport]:
        """Join and deliver, computing what the targets need."""
        left, right = (self.plan.stream(group.log(side).stream) for side in SIDES)
        members = [(each, group.members[each.number]) for each in delivery.targets if each.computed]
        columns = [
            (wanted_column if target.in_table else computed_column)(group, target.number, member)
            for target, member in members
        ]
        fleeting = any(constancy_of(member.query, left, right) == Constancy.ONCE for _, member in members)
        schema = unit_schema(group, left, right)
        return unit_job(self.spark, task, delivery, schema, columns, fleeting=fleeting)

    def _unit_task(
        self,
        ledger: Ledger,
        group: Group,
        since: tuple[Cursor, Cursor],
        until: Cursor,
        horizons: tuple[int | None, int | None],
    ) -> UnitTask:
        """Describe a unit's input: which segments are old, which are new, by batch or by what is sealed."""
        counting = Counting.of(group, ledger, *horizons) if group.signature.counted else None
        sides = [
            self._side_task(ledger, group, side, (since[place], until), counting)
            for place, side in enumerate(SIDES)
        ]
        return UnitTask(
            files=self.store.files,
            left=sides[0],
            right=sides[1],
            cuts=group.chain.bounds,
            level_sets=tuple(group.level_sets()),
            queries=len(group.members),
            selective=group.selective,
            parts=self.spark.sparkContext.defaultParallelism,
            narrow=not group.pulled,
            keyed=bool(group.signature.keys),
            comparisons=tuple(group.comparisons().items()),
            counting=counting,
            timed=carries_times(group),
        )

    def _side_task(
        self,
        ledger: Ledger,
        group: Group,
        side: Side,
        reach: tuple[Cursor, Cursor],
        counting: Counting | None,
    ) -> SideTask:
        """Describe one stream's part in a unit."""
        since, until = reach
        log, place = group.log(side), SIDES.index(side)
        known = ledger.segments(log.id)
        if counting is not None:
            sealed = [each for each in known if each.last < until[place]]
            old, new = counting.old(sealed), counting.new(sealed)
        else:
            old, new = joined_before(known, place, since), joined_between(known, place, since, until)
        types = self.arrow_types(self.plan.stream(log.stream))
        layouts = {
            number: ledger.layouts[log.id][number] for number in {each.layout for each, _, _ in old + new}
        }
        return SideTask(
            old=tuple(_stretch(*each) for each in old),
            new=tuple(_stretch(*each) for each in new),
            columns=tuple((name, types[name]) for name in pair_columns(group, side)),
            masks={
                number: group.masks_under(side, layout.columns, layout.predicates)
                for number, layout in layouts.items()
            },
            shunned={
                number: group.shunned_under(side, layout.predicates) for number, layout in layouts.items()
            },
        )

    def _delivery(self, group: Group, unit: str, table: StoredTable | None) -> Delivery:
        """Describe a unit's output: which query's rows go where.  The table says who reads pairs from it."""
        views = table.members if table else {}
        targets = tuple(
            _query_target(
                number,
                member.query,
                member.levels,
                sink_root(member.query, self.store.files),
                in_table=member.query.name in views,
            )
            for number, member in enumerate(group.members)
            if member.query.name not in self._without
        )
        left, right = (self.plan.stream(group.log(side).stream) for side in SIDES)
        targets = tuple(
            replace(each, types=self.result_types(group, each.number, left, right))
            if each.root or each.kept or each.hold
            else each
            for each in targets
        )
        return Delivery(
            unit,
            len(group.members),
            targets,
            pairs_folder(group.id) if any(each.in_table for each in targets) else "",
            table.selective if table else False,
            self.store.files.root,
            buffers=self._buffers(group, targets),
        )

    def _buffers(self, group: Group, targets: Iterable[Target]) -> dict[str, Buffers]:
        """Say what waits for each query whose results go into files of the unit; in order, they go into a release's."""
        ledger = self.store.ledger
        names = [
            each.query for each in targets if (each.root or each.in_table or each.kept) and not each.hold
        ]
        if not names:
            return {}
        waiting = waiting_rows(group, ledger, ledger.groups[group.id].cursors)
        return {name: Buffers(waiting, 0, ledger.undelivered.get(name, 0)) for name in names}

    def publish_pending(self) -> None:
        """Bring committed output to its sinks, then forget it."""
        pending = self.store.ledger.pending
        for publication in pending:
            publish(publication, self.store.files)
            if publication.query:
                self._hand_over(publication)
        if pending:
            self.store.commit(Published(tuple((each.unit, each.query) for each in pending)))
        for publication in pending:
            if publication.query:
                let_go(publication)

    def _compact(self) -> None:
        """Merge files of results, a few at a time; `_untidy` says whether there is more to merge."""
        ledger, files = self.store.ledger, self.store.files
        self._attic.clear(self.store.let_go)
        tasks = self.spark.sparkContext.defaultParallelism
        chosen = choose_steps(ledger, tasks, busy=self._behind_goal(), shunned=self._unmergeable)
        self._untidy = bool(chosen.steps)
        if not chosen.steps and not chosen.begun:
            return
        made = compact_job(self.spark, files, [each.merge for each in chosen.steps]) if chosen.steps else []
        self._unmergeable |= {
            frozenset(step.names) for step, file in zip(chosen.steps, made, strict=True) if file == CONFLICT
        }
        self.store.commit(compact_commit(chosen, made))
        self._attic.take(ledger.files() - self.store.ledger.files())
        self._attic.clear(self.store.let_go)

    def _tidy(self, log: str) -> None:
        """Let go of what has ended, and rewrite what is worth it; not while a new query still needs the past."""
        ledger = self.store.ledger
        if any(self._lacking(ledger, group) for group in self.plan.groups):
            return
        until = passed(self.plan, log, ledger)
        for shared, settled in settled_alike(self.plan, log, ledger).items():
            self._tidy_alike(log, settled, shared, until)

    def _tidy_alike(self, log: str, settled: list[Segment], shared: Layout, until: int) -> None:
        """Tidy the segments that hold the same for everyone: they can be merged with each other."""
        ledger = self.store.ledger
        common = common_layout(self.plan, log, ledger, settled, shared)
        ended = [each for each in settled if is_ended(each, common.claims[each.layout])]
        rest = [each for each in settled if each not in ended]
        claims = common.claims[settled[0].layout]
        runs = choose_rewrites(rest, claims, until, common.claims)
        started = time.monotonic()
        files = self.store.files
        onto = common if any(each.layout != common.layout for run in runs for each in run) else None
        made = rewrite_job(self.spark, files, log, runs, claims, common=onto) if runs else []
        gone = [*ended, *(each for run in runs for each in run)]
        if not gone:
            return
        added = tuple(each for each in made if each)
        fresh = added and common.layout not in ledger.layouts[log]
        self.store.commit(
            Rewritten(
                log=log,
                remove=tuple(each.name for each in gone),
                add=added,
                layouts=(NumberedLayout(common.layout, shared),) if fresh else (),
                rows=sum(each.rows for run in runs for each in run),
                seconds=time.monotonic() - started,
            )
        )
        for each in gone:
            self.store.let_go(each.name)


def _stretch(segment: Segment, first: int, last: int) -> Stretch:
    """Describe a segment of which the rows between two times take part."""
    cut = (first, last) != (segment.min_t, segment.max_t)
    rows = segment.rows_between(first, last)
    return Stretch(segment.name, first, last, segment.layout, rows, segment.arrived, cut, segment.checksum)


def _query_target(number: int, query: Query, levels: tuple[int, int], root: str, *, in_table: bool) -> Target:
    """Describe one query's delivery."""
    apart = query.in_table and not in_table
    return Target(
        number=number,
        query=query.name,
        levels=levels,
        root=root,
        columns=tuple((each.name, *each.column) for each in query.outputs if each.column),
        computed=bool(query.residual) if in_table else is_computed(query),
        in_table=in_table,
        kept=results_folder(query.name) if apart else "",
        compression=query.sink.option("compression", "snappy"),
        hold=hold_folder(query.name) if query.ordered else "",
    )


def _output(
    group: Group,
    unit: str,
    reports: Sequence[UnitReport],
    without: Container[str],
    table: StoredTable | None,
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
    )


def _delays(group: Group, reports: Sequence[UnitReport]) -> dict[str, tuple[tuple[float, int], ...]]:
    """Say how long each query's results of a unit took; those that are held are counted when they are released."""
    now = time.time()
    delays = {}
    for number, member in enumerate(group.members):
        arrivals = [(at, counts[number]) for report in reports for at, counts in report.arrivals]
        if waited := delays_of(arrivals, now):
            delays[member.query.name] = tuple(waited)
    return delays


def _together(outputs: Sequence[Output]) -> Output:
    """Make one of the output of several units; a query may have got something from each."""
    results = sum((Counter(each.results) for each in outputs), Counter[str]())
    return Output(
        results=dict(results),
        publish=tuple(file for each in outputs for file in each.publish),
        stored={group: files for each in outputs for group, files in each.stored.items()},
        kept=by_name(each.kept for each in outputs),
        held=by_name(each.held for each in outputs),
    )
