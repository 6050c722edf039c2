"""What the stages of a turn share: the state and its plan, who runs the work, and what was asked of the joiner.

In:  the store, the backend and a plan.  Out: answers to what is still to do; the stages do it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.engine.aggregate.answers import is_answer_due
from penstock.engine.spark.failed_queries import QueriesFailedError
from penstock.engine.stages.compact import Attic
from penstock.engine.stages.release import is_due
from penstock.engine.stages.seal import choose_sealings
from penstock.engine.stages.unit_planner import UnitPlanner
from penstock.engine.tasks.count_axis import sealed_until
from penstock.engine.views.advance_limit import reach_of
from penstock.engine.views.estimates import prices_of
from penstock.engine.views.idle import IdleClock
from penstock.engine.views.memory import MemoryPolicy, strategy_in_force
from penstock.engine.views.step_size import UnitBound, within
from penstock.engine.views.waiting import goal_of
from penstock.schedulers import DEFAULT_SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engine.backend import Backend
    from penstock.engine.runners.runner import Runner
    from penstock.engine.store import Store
    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.state.ledger import Ledger
    from penstock.state.values import Publication, Station


ROWS_PER_TASK = 1 << 16
"""New rows and expected pairs of a unit for each of its tasks: some 10 milliseconds of work, more than a task costs."""

_FADING = 0.9
"""How much of the pairs per row counts after a unit that found fewer."""


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


@dataclass
class TurnContext:
    """The state, the plan by which it is joined, and what stages remember from one turn to the next."""

    store: Store
    backend: Backend[Any]
    plan: Plan
    hand_over: Callable[[Publication], None]
    """Gives a query's new results to its console or callback."""
    idle: IdleClock = field(default_factory=IdleClock)
    scheduler: str = DEFAULT_SCHEDULER
    """Which slices go first: a name among `penstock.schedulers.SCHEDULERS`."""
    memory: MemoryPolicy = field(default_factory=MemoryPolicy)
    """What was said of the memory of joins without a window."""
    input_ended: bool = False
    """Whether what is there is all: nothing is waited for any more."""
    in_no_hurry: bool = False
    """Whether the input has an end and nobody waits for single answers before it: then many are made together."""
    joins_all: bool = False
    """Whether also input that waits for its turn is joined, because the plan is about to change."""
    unit_bound: UnitBound = field(default_factory=UnitBound)
    """How many rows a unit may join."""
    targets: Mapping[str, Station] = field(default_factory=dict)
    """By group: the station to stop at, because the plan is about to change."""
    is_wanted: Callable[[], bool] = lambda: False
    """Returns whether a change of plan waits for the turn to end; asked between units and between stages."""
    without: frozenset[str] = frozenset()
    """Queries that have failed: nothing is evaluated or delivered for them."""
    watchers: list[Callable[[UnitDone], None]] = field(default_factory=list)
    stop_queries: Callable[[Mapping[str, str]], Plan] | None = None
    """Told of queries that cannot be evaluated, and why; gives the plan of the others."""
    reconsider: Callable[[Plan], Plan] = lambda plan: plan
    """Asked at the end of each turn whether to go on with this plan."""
    unit_seconds: float = 0.0
    """What the last unit took."""
    overdue: dict[str, str] = field(default_factory=dict)
    """By group: the query that was behind by more than it may at the last unit."""
    warned: set[str] = field(default_factory=set)
    """What was warned of once: keys that multiply results, and streams that do not follow their declared order."""
    missed: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By group: about how many missed results were warned of, and how many more were missed since."""
    pairs_per_row: dict[str, float] = field(default_factory=dict)
    """By group: how many pairs a new row had in the last units, the most of them counting most."""
    unit_rows: dict[str, int] = field(default_factory=dict)
    """By group: the rows of its last unit."""
    fruitless: dict[str, int] = field(default_factory=dict)
    """By log: how many times longer it is not held against promises, because they ended hardly any of its rows."""
    attic: Attic = field(default_factory=Attic)
    unmergeable: set[frozenset[str]] = field(default_factory=set)
    """Files of results that cannot be merged with each other."""
    untidy: bool = False
    """Whether there are more files of results to merge."""

    @property
    def runner(self) -> Runner:
        """Return what executes tasks."""
        return self.backend.runner

    @property
    def ledger(self) -> Ledger:
        """Give what is true now."""
        return self.store.ledger

    @property
    def answers_together(self) -> bool:
        """Return whether answers wait for each other."""
        return self.in_no_hurry and not self.input_ended

    def parts_for(self, group: Group, rows: int) -> int:
        """Return the number of tasks for a unit: one for so many rows and pairs, as far as is known of the group."""
        most, fanout = self.runner.parallelism, self.pairs_per_row.get(group.id)
        return most if fanout is None else min(most, 1 + int(rows * (1 + fanout)) // ROWS_PER_TASK)

    def note_pairs(self, group: Group, rows: int, pairs: int) -> None:
        """Remember how many pairs the rows of a unit had; a lower number counts only after some units."""
        if rows:
            self.unit_rows[group.id] = rows
            before = self.pairs_per_row.get(group.id, 0.0)
            self.pairs_per_row[group.id] = max(pairs / rows, _FADING * before)

    def planner(self, ledger: Ledger) -> UnitPlanner:
        """Describe units by the ledger of one moment."""
        return UnitPlanner(self.plan, ledger, self.store.files, self.backend, self.without)

    def goal(self, group: Group, ledger: Ledger | None = None) -> Station:
        """Return how far one unit of a group may advance, by the ledger of one moment."""
        ledger = ledger or self.ledger
        reach, state = self.reach(group, ledger), ledger.groups.get(group.id)
        if state is None or group.signature.counted or reach[0] == state.all_stations[-1][0]:
            return reach
        return within(reach, group, ledger, self._most_rows(group, ledger))

    def _most_rows(self, group: Group, ledger: Ledger) -> int:
        """Return how many rows a unit may join to end in time, by what rows and pairs have cost so far."""
        prices, effort = prices_of(ledger), ledger.groups[group.id].effort
        known = effort.pairs / effort.rows if effort.rows else 1.0
        pairs = self.pairs_per_row.get(group.id, known)
        last = None if self.in_no_hurry or self.input_ended else self.unit_rows.get(group.id, 0)
        return self.unit_bound.rows(prices, pairs, len(self.plan.groups), last)

    def reach(self, group: Group, ledger: Ledger) -> Station:
        """Return how far a group may advance in all, in as many units as that takes."""
        if target := self.targets.get(group.id):
            return target
        if group.oblivious and not self.joins_all and group.id in ledger.groups:
            way = strategy_in_force(group, ledger, self.memory), self.memory.budget
            return reach_of(self.plan, ledger, group, way, ended=self.input_ended)
        everything = self.input_ended or self.joins_all or self.idle.lets_join(self.plan, ledger, group)
        return goal_of(self.plan, ledger, group, everything=everything)

    def is_behind(self, group: Group, ledger: Ledger | None = None) -> bool:
        """Say whether some slice of a group has not joined all that it may."""
        ledger = ledger or self.ledger
        state = ledger.groups.get(group.id)  # none while the plan is being replaced
        if state is None or set(state.cursors) != {self.reach(group, ledger)[0]}:
            return True
        return group.signature.counted and state.watermarks[0] != sealed_until(group, ledger)

    def any_behind(self) -> bool:
        """Say whether some slice of some group has not joined all that it may."""
        ledger = self.ledger
        return any(self.is_behind(group, ledger) for group in self.plan.groups)

    def lacking(self, group: Group, ledger: Ledger | None = None) -> list[str]:
        """List the queries of a group that have not got the pairs that were there before them."""
        ledger = ledger or self.ledger
        names = (member.query.name for member in group.members)
        return [name for name in names if ledger.query(name).backfill is not None]

    def is_joining(self, ledger: Ledger | None = None) -> bool:
        """Say whether a row is not counted, a batch not joined, a result not fed, or a query lacks its past."""
        ledger = ledger or self.ledger
        if ledger.fed or choose_sealings(self.plan, ledger, everything=self.input_ended):
            return True
        return any(self.lacking(group, ledger) or self.is_behind(group, ledger) for group in self.plan.groups)

    def go_on_without(self, failures: Mapping[str, str], cause: BaseException | None) -> None:
        """Stop queries that cannot be evaluated, and go on by the plan of the others; raise if nobody can stop them."""
        if self.stop_queries is None:
            raise QueriesFailedError(failures) from cause
        self.plan = self.stop_queries(failures)

    def has_work(self) -> bool:
        """Say whether something is to be joined, released or published.

        Asked by other threads too: all of it is judged by one ledger, whatever the joiner commits meanwhile.
        """
        ledger = self.ledger
        if ledger.pending or is_due(self.plan, ledger, self.idle) or self.is_joining(ledger):
            return True
        everything, together = self.input_ended, self.answers_together
        return is_answer_due(self.plan, ledger, self.idle, everything=everything, together=together)

    def waits_for_partner(self, mid_batch: set[str]) -> bool:
        """Say whether a batch of one stream waits to be joined while one of its partner is about to be committed.

        One unit for both takes about as long as a unit for either, so it pays to wait as long as a unit took::

            A   ──ingest──┐ commit
            B   ────ingest────┐ commit
            unit              └──── both ────     instead of   ── A ── ── B ──
        """
        ledger = self.ledger
        for group in self.plan.groups if mid_batch else ():
            state = ledger.groups.get(group.id)
            if state is None or state.slices_apart:
                continue
            reached, goal = state.all_stations[-1][0].batches, self.goal(group, ledger)[0].batches
            waits = {
                name for name, here, there in zip(group.streams, reached, goal, strict=True) if here < there
            }
            if waits and any(name in mid_batch and name not in waits for name in group.streams):
                return True
        return False
