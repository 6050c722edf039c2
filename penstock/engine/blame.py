"""Which queries cannot be evaluated: asked when a job that evaluates for many of them has failed.

Predicates, keys and outputs are evaluated for all queries in one job, and an expression that fails on some row (a cast,
a division, a function of the user's) fails the job for everyone.  So the job's work is tried again for half of the
queries, and so on, until those are found that fail by themselves; the work without any expression of theirs is tried
first, because a machine that fails is nobody's fault::

    nobody ok ── a b c d e f ✗ ─┬─ a b c ok
                                └─ d e f ✗ ─┬─ d ok
                                            └─ e f ✗ ─┬─ e ✗   "Division by zero"
                                                      └─ f ok

In:  what a failed job was to do.  Out: the queries to stop, each with the reason; none if it was no query's fault.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from penstock.engine.complaints import short_message
from penstock.engine.sources import ingest_columns_of, ingest_names
from penstock.errors import RunError
from penstock.plan.build import build_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from penstock.engine.deliver import Delivery
    from penstock.plan.build import Plan
    from penstock.sql.query import Stream

    Attempt = Callable[[Collection[str]], object]


class QueriesFailedError(RunError):
    """Some queries cannot be evaluated: `failures` says which, and why."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        """Keep what failed, for whoever stops those queries."""
        self.failures = dict(failures)
        super().__init__("; ".join(f"query {name} failed: {why}" for name, why in failures.items()))


def find_culprits(queries: Sequence[str], attempt: Attempt) -> dict[str, str]:
    """Find the queries for which `attempt` fails, each by itself; none if it fails for nobody's sake.

    >>> def attempt(names):
    ...     if "e" in names:
    ...         raise ValueError("Division by zero")
    >>> find_culprits("abcdef", attempt)
    {'e': 'Division by zero'}
    """
    try:
        attempt(())
    except Exception:  # noqa: BLE001 - whatever it is, no query brought it about
        return {}
    return _culprits(queries, attempt)


def _culprits(queries: Sequence[str], attempt: Attempt) -> dict[str, str]:
    """Divide the queries for as long as the attempt fails."""
    if not queries:
        return {}
    try:
        attempt(queries)
    except Exception as error:  # noqa: BLE001 - it is what we look for
        if len(queries) == 1:
            return {queries[0]: short_message(error)}
    else:
        return {}
    half = len(queries) // 2
    return _culprits(queries[:half], attempt) | _culprits(queries[half:], attempt)


def blame_for_batch(rows: DataFrame, stream: Stream, plan: Plan) -> dict[str, str]:
    """Find the queries whose predicates or keys cannot be evaluated on a batch of a stream."""
    streams = {each.name: each for each in plan.streams}
    readers = {each.name: each for each in plan.queries if stream.name in {each.left, each.right}}

    def attempt(names: Collection[str]) -> None:
        logs = build_plan(streams, [readers[name] for name in names]).logs_of(stream.name) if names else ()
        columns = ingest_columns_of(rows, stream, logs, ingest_names(stream, logs))
        columns.select(F.xxhash64("*").alias("h")).agg(F.max("h")).collect()

    return find_culprits(list(readers), attempt)


def blame_for_unit(delivery: Delivery, run: Callable[[Delivery], object]) -> dict[str, str]:
    """Find the queries whose outputs or conditions on pairs cannot be evaluated in a unit; nothing is delivered."""

    def attempt(names: Collection[str]) -> None:
        targets = (
            replace(each, root="", in_table=False, hold="", kept="")
            for each in delivery.targets
            if each.query in names
        )
        run(replace(delivery, targets=tuple(targets), table=""))

    return find_culprits([each.query for each in delivery.targets if each.computed], attempt)
