"""What the stages of a turn share: the state, the plan, the runner, and what they remember between turns.

In:  the store, the backend and a plan.  Out: how far each group may advance, and what work is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.engine.aggregate.answers import is_answer_due
from penstock.engine.spark.failed_queries import QueriesFailedError
from penstock.engine.stages.compact import ReplacedFiles
from penstock.engine.stages.release import is_due
from penstock.engine.stages.seal import choose_sealings, sealed_until
from penstock.engine.stages.unit_planner import UnitPlanner
from penstock.engine.views.advance_limit import reach_of
from penstock.engine.views.estimates import prices_of
from penstock.engine.views.horizon import IdleClock
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


@dataclass(frozen=True, slots=True)
class UnitDone:
    """What a unit did, for watchers.

    `rows` are the input rows of the group's streams that are joined now; `seconds` is the duration of the unit.
    """

    group: str
    unit: str
    rows: int
    pairs: int
    seconds: float


@dataclass
class TurnContext:
    """The state, the plan in force, and what stages remember from one turn to the next."""

    store: Store
    backend: Backend[Any]
    plan: Plan
    hand_over: Callable[[Publication], None]
    """Passes new results of a query to its console or callback."""
    idle: IdleClock = field(default_factory=IdleClock)
    scheduler: str = DEFAULT_SCHEDULER
    """Which slices go first: a name among `penstock.schedulers.SCHEDULERS`."""
    memory: MemoryPolicy = field(default_factory=MemoryPolicy)
    """How joins without a window save memory."""
    input_ended: bool = False
    """Whether no more input is to come."""
    defers_answers: bool = False
    """Whether answers of aggregates are computed together when the input has ended."""
    joins_all: bool = False
    """Whether input that waits for its order is joined too, because the plan is about to change."""
    unit_bound: UnitBound = field(default_factory=UnitBound)
    """How many rows a unit may join."""
    targets: Mapping[str, Station] = field(default_factory=dict)
    """By group: the station to stop at, because the plan is about to change."""
    is_wanted: Callable[[], bool] = lambda: False
    """Returns whether a change of plan waits for the turn to end; called between units and between stages."""
    without: frozenset[str] = frozenset()
    """Queries that have failed: nothing is evaluated or delivered for them."""
    watchers: list[Callable[[UnitDone], None]] = field(default_factory=list)
    stop_queries: Callable[[Mapping[str, str]], Plan] | None = None
    """Stops queries that cannot be evaluated, by name and reason; returns the plan of the others."""
    recut: Callable[[Plan], Plan] = lambda plan: plan
    """Returns the plan to go on with; called at the end of each turn."""
    unit_seconds: float = 0.0
    """Duration of the last unit."""
    overdue: dict[str, str] = field(default_factory=dict)
    """By group: the query that exceeded its max_lag at the last unit."""
    warned: set[str] = field(default_factory=set)
    """Subjects of warnings that are logged once: keys that multiply results, and unordered streams."""
    missed: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By group: missed results that were warned of, and those missed since."""
    pairs_per_row: dict[str, float] = field(default_factory=dict)
    """By group: pairs of a new row in the last units; the maximum weighs most."""
    unit_rows: dict[str, int] = field(default_factory=dict)
    """By group: the rows of its last unit."""
    fruitless: dict[str, int] = field(default_factory=dict)
    """By log: the factor by which it is checked against promises less often, because few rows were finished."""
    replaced_files: ReplacedFiles = field(default_factory=ReplacedFiles)
    unmergeable: set[frozenset[str]] = field(default_factory=set)
    """Files of results that cannot be merged with each other."""
    untidy: bool = False
    """Whether more files of results can be merged."""

    @property
    def runner(self) -> Runner:
        """Return what executes tasks."""
        return self.backend.runner

    @property
    def ledger(self) -> Ledger:
        """Return what is true now."""
        return self.store.ledger

    @property
    def answers_together(self) -> bool:
        """Return whether answers are deferred now."""
        return self.defers_answers and not self.input_ended

    # --- how far a group may advance ------------------------------------------------------------------------------

    def goal(self, group: Group, ledger: Ledger | None = None) -> Station:
        """Return how far one unit of a group may advance."""
        ledger = ledger or self.ledger
        reach, state = self.reach(group, ledger), ledger.groups.get(group.id)
        if state is None or group.signature.counted or reach[0] == state.all_stations[-1][0]:
            return reach
        return within(reach, group, ledger, self._most_rows(group, ledger))

    def _most_rows(self, group: Group, ledger: Ledger) -> int:
        """Return how many rows a unit may join to end in time, by the measured cost of rows and pairs."""
        prices, effort = prices_of(ledger), ledger.groups[group.id].effort
        known = effort.pairs / effort.rows if effort.rows else 1.0
        pairs = self.pairs_per_row.get(group.id, known)
        last = None if self.defers_answers or self.input_ended else self.unit_rows.get(group.id, 0)
        return self.unit_bound.rows(prices, pairs, len(self.plan.groups), last)

    def reach(self, group: Group, ledger: Ledger) -> Station:
        """Return how far a group may advance in total, in as many units as that takes."""
        if target := self.targets.get(group.id):
            return target
        if group.oblivious and not self.joins_all and group.id in ledger.groups:
            strategy = strategy_in_force(group, ledger, self.memory)
            return reach_of(self.plan, ledger, group, (strategy, self.memory.budget), ended=self.input_ended)
        everything = self.input_ended or self.joins_all or self.idle.lets_join(self.plan, ledger, group)
        return goal_of(self.plan, ledger, group, everything=everything)

    # --- a unit ---------------------------------------------------------------------------------------------------

    def planner(self, ledger: Ledger) -> UnitPlanner:
        """Return a planner of units for one version of the ledger."""
        return UnitPlanner(self.plan, ledger, self.store.files, self.backend, self.without)

    def parts_for(self, group: Group, rows: int) -> int:
        """Return the number of tasks for a unit of so many rows, by the pairs that rows of the group had so far."""
        most, fanout = self.runner.parallelism, self.pairs_per_row.get(group.id)
        return (
            most if fanout is None else min(most, 1 + int(rows * (1 + fanout)) // limits.UNIT_ROWS_PER_TASK)
        )

    def note_pairs(self, group: Group, rows: int, pairs: int) -> None:
        """Remember how many pairs the rows of a unit had; a lower number counts only after some units."""
        if rows:
            self.unit_rows[group.id] = rows
            before = limits.FADE_FACTOR * self.pairs_per_row.get(group.id, 0.0)
            self.pairs_per_row[group.id] = max(pairs / rows, before)

    def go_on_without(self, failures: Mapping[str, str], cause: BaseException | None) -> None:
        """Stop queries that cannot be evaluated, and go on by the plan of the others; raise without `stop_queries`."""
        if self.stop_queries is None:
            raise QueriesFailedError(failures) from cause
        self.plan = self.stop_queries(failures)

    # --- what is left to do ---------------------------------------------------------------------------------------

    def is_behind(self, group: Group, ledger: Ledger | None = None) -> bool:
        """Return whether some slice of a group has not joined all that it may."""
        ledger = ledger or self.ledger
        state = ledger.groups.get(group.id)  # none while the plan is being replaced
        if state is None or set(state.cursors) != {self.reach(group, ledger)[0]}:
            return True
        return group.signature.counted and state.watermarks[0] != sealed_until(group, ledger)

    def any_behind(self) -> bool:
        """Return whether some slice of some group has not joined all that it may."""
        ledger = self.ledger
        return any(self.is_behind(group, ledger) for group in self.plan.groups)

    def lacking(self, group: Group, ledger: Ledger | None = None) -> list[str]:
        """List the queries of a group that still need their backfill."""
        ledger = ledger or self.ledger
        names = (member.query.name for member in group.members)
        return [name for name in names if ledger.query(name).backfill is not None]

    def is_joining(self, ledger: Ledger | None = None) -> bool:
        """Return whether rows are to be sealed, joined, fed or backfilled."""
        ledger = ledger or self.ledger
        if ledger.fed or choose_sealings(self.plan, ledger, everything=self.input_ended):
            return True
        return any(self.lacking(group, ledger) or self.is_behind(group, ledger) for group in self.plan.groups)

    def has_work(self) -> bool:
        """Return whether something is to be joined, released, answered or published.

        Other threads call it too.  It judges by one version of the ledger, whatever is committed meanwhile.
        """
        ledger = self.ledger
        if ledger.pending or is_due(self.plan, ledger, self.idle) or self.is_joining(ledger):
            return True
        everything, together = self.input_ended, self.answers_together
        return is_answer_due(self.plan, ledger, self.idle, everything=everything, together=together)

    def waits_for_partner(self, mid_batch: set[str]) -> bool:
        """Return whether a batch waits to be joined while a batch of its partner is about to be committed.

        One unit for both takes about as long as a unit for one of them, so waiting that long pays off::

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
