"""Which queries cannot be evaluated: asked when a job that evaluates for many of them has failed.

Predicates, keys and outputs are evaluated for all queries in one job, and an expression that fails on some row (a cast,
a division, a function of the user's) fails the job for everyone.  So the job's work is tried again for half of the
queries, and so on, until those are found that fail by themselves; the work without any expression of theirs is tried
first, because a machine that fails is nobody's fault::

    nobody ok ── a b c d e f ✗ ─┬─ a b c ok
                                └─ d e f ✗ ─┬─ d ok
                                            └─ e f ✗ ─┬─ e ✗   "Division by zero"
                                                      └─ f ok

In:  an attempt at the work, for some queries.  Out: the queries to stop, with reasons; none if it was no query's fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.spark.spark_errors import short_message
from penstock.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

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
