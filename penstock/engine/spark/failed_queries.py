"""Find the queries that cannot be evaluated, after a job that evaluates many of them has failed.

Predicates, keys and outputs of all queries are evaluated in one job.  An expression that fails on some row (a cast, a
division, a user's function) fails the job for every query.  So the work is tried again for half of the queries, and so
on, until the queries are found that fail alone.  The work without any query is tried first: if that fails too, the
machine is to blame, and no query::

    none ok ── a b c d e f ✗ ─┬─ a b c ok
                              └─ d e f ✗ ─┬─ d ok
                                          └─ e f ✗ ─┬─ e ✗   "Division by zero"
                                                    └─ f ok

In:  the names of queries, and an attempt at the work for some of them.  Out: the queries to stop, with reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.spark.spark_errors import short_message
from penstock.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    Attempt = Callable[[Collection[str]], object]


class QueriesFailedError(RunError):
    """Some queries cannot be evaluated."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        """Keep the reason by query."""
        self.failures = dict(failures)
        super().__init__("; ".join(f"query {name} failed: {why}" for name, why in failures.items()))


def find_failed_queries(queries: Sequence[str], attempt: Attempt) -> dict[str, str]:
    """Return the queries for which `attempt` fails, with reasons; none if it fails without any query.

    >>> def attempt(names):
    ...     if "e" in names:
    ...         raise ValueError("Division by zero")
    >>> find_failed_queries("abcdef", attempt)
    {'e': 'Division by zero'}
    """
    try:
        attempt(())
    except Exception:  # noqa: BLE001 - whatever it is, no query is the reason
        return {}
    return _bisect(queries, attempt)


def _bisect(queries: Sequence[str], attempt: Attempt) -> dict[str, str]:
    if not queries:
        return {}
    try:
        attempt(queries)
    except Exception as error:  # noqa: BLE001 - the error is the result
        if len(queries) == 1:
            return {queries[0]: short_message(error)}
    else:
        return {}
    half = len(queries) // 2
    return _bisect(queries[:half], attempt) | _bisect(queries[half:], attempt)
