"""Work while there are no Python workers: done by threads of this process, until workers are sure to be worth it.

To start workers takes 4 seconds of CPU: a daemon that loads Arrow and kernels, which this process has loaded too,
and a job of Spark.  Many a run is over before that.  How much there will be to join, nobody knows; so the rule is that
of one who rents until what renting costs more than owning has come to the price.  Threads cost hardly more than
workers, so that is late::

    CPU spent here     0 ────────────── WORTH ────────────────────────────▶
    work is done by    threads          threads, while workers start        tasks of Spark
                                        ▲ begin                             ▲ they are there

Kernels and Arrow let go of the interpreter, so that threads share the cores as tasks do, but for what is Python in
between; that is why workers are worth starting at all.

In:  who starts workers, and the parts of some work.  Out: what the parts give, in order.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from penstock.engine.ingest.arrow_reader import built_columns, is_plain_parquet
from penstock.engine.out.pair_sql import is_computed
from penstock.plan.promises import indexes_about
from penstock.sql.promises import promises_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plan.build import Plan
    from penstock.sql.query import Query, Stream

R = TypeVar("R")

WORTH = 30.0
"""Seconds of CPU spent on work here after which workers are begun, whose start takes 4."""


class Workers(Protocol):
    """Starts Python workers, once."""

    def begin(self) -> None:
        """Begin to start them, and do not wait."""

    @property
    def are_there(self) -> bool:
        """Say whether they have started, or cannot be: then a job says why."""


class OwnWork:
    """Does work in threads of this process as long as there are no workers."""

    def __init__(self, workers: Workers | None, threads: int) -> None:
        """Work beside these workers; with None, they are nobody's concern here, and all work is theirs."""
        self._workers, self._threads = workers, threads
        self._adding = threading.Lock()
        self._spent = 0.0

    def is_wanted(self) -> bool:
        """Say whether what comes next is to be done here; begin to start workers once they are worth it."""
        if self._workers is None:
            return False
        if self._spent >= WORTH:
            self._workers.begin()
        return not self._workers.are_there

    def run(self, work: Callable[[int], R], parts: int) -> list[R]:
        """Do each part of some work, as many at once as there are cores; once one has failed, begin no more."""
        timed = partial(self._timed, work)
        return [timed(0)] if parts == 1 else _Parts(timed, parts).done_by(min(self._threads, parts))

    def _timed(self, work: Callable[[int], R], part: int) -> R:
        began = time.thread_time()
        try:
            return work(part)
        finally:
            with self._adding:
                self._spent += time.thread_time() - began


class _Parts(Generic[R]):
    """Parts of some work that threads take one after the other.

    The threads are daemons, as the joiner is: those of a pool would let nobody leave before a unit is done.
    """

    def __init__(self, work: Callable[[int], R], parts: int) -> None:
        """Begin with all parts to do."""
        self._work = work
        self._left = deque(range(parts))
        self._made: dict[int, R] = {}
        self._failures: list[BaseException] = []

    def done_by(self, count: int) -> list[R]:
        """Let so many threads do them, and give what they make in order; what failed first is raised, once all rest."""
        threads = [
            threading.Thread(target=self._take, name=f"penstock-own-work-{each}", daemon=True)
            for each in range(count)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        if self._failures:
            raise self._failures[0]
        return [self._made[part] for part in sorted(self._made)]

    def _take(self) -> None:
        while self._left:
            try:
                part = self._left.popleft()
            except IndexError:  # another thread was sooner
                return
            try:
                self._made[part] = self._work(part)
            except BaseException as failure:  # noqa: BLE001 - raised by whoever waits for the parts
                self._failures.append(failure)
                self._left.clear()


def needs_workers(plan: Plan) -> bool:
    """Say whether a plan has work that is for Spark's tasks however little it is: to begin workers at once."""
    return not all(_is_read_here(plan, each) for each in plan.sources) or any(
        map(_is_for_tasks, plan.queries)
    )


def _is_read_here(plan: Plan, stream: Stream) -> bool:
    """Say whether batches of a stream can be read without Spark, as far as its declaration tells."""
    plain = is_plain_parquet(stream) and not promises_of(stream) and not indexes_about(plan, stream.name)
    return plain and built_columns(stream, plan.logs_of(stream.name)) is not None


def _is_for_tasks(query: Query) -> bool:
    """Say whether a query computes something of pairs or groups, or has its results put in order."""
    groups = query.aggregation
    if groups is not None and (groups.having or not all(each.plain for each in groups.answers)):
        return True
    return query.oblivious or query.order != "none" or is_computed(query)
