"""When an aggregate query answers, and what it needs for that.

    sliding    at every instant of EVERY, for the pairs in the window that ends there     WINDOW 1 hour EVERY 1 min
    final      once per group, when no pair of it can come any more
    changes    whenever a group has changed

In:  a SELECT that aggregates, its window clauses, and the query's options.
Out: its pair outputs and its `Aggregation`.
True: a sliding query has windows in time on all streams, and EVERY is not longer than the longest of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from penstock.sql.buckets import bucket_end
from penstock.sql.bind.grouping import make_groups
from penstock.sql.units import show_duration
from penstock.sql.bind.outputs import make_output
from penstock.sql.query import Aggregation, Bucket, Emit
from penstock.sql.remainders import remainder_of
from penstock.sql.bind.time_windows import without_time_windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.errors import SqlError
    from penstock.sql.bind.grouping import Groups
    from penstock.sql.bind.scope import Scope
    from penstock.sql.query import Output
    from penstock.sql.text.select import Select
    from penstock.sql.text.tree import Tree
    from penstock.sql.text.windows import Clause, Every

    Stated = tuple[Clause, ...] | None
    """The clauses that state the windows of the streams, in the order of their sides."""

_INSTANTS, _MOST_INSTANTS = 60, 3600
"""How many instants a window has where EVERY is not written, and the most that are tried to divide it evenly."""

_ADDED_NAMES = {"sliding": ("window_end",), "final": (), "changes": ("_op", "_seq")}
"""The columns of a result that come with each way to answer."""

_WAYS_OUT = (
    "add WINDOW 1 min EVERY 10 s (other conditions stay), or WITH (emit = 'final') or (emit = 'changes')"
)


def make_aggregation(
    scope: Scope,
    select: Select,
    *,
    every: Every | None,
    stated: Stated,
    options: Mapping[str, str],
    query: str,
) -> tuple[tuple[Output, ...], list[Tree], Aggregation]:
    """Bind what an aggregate query answers, and when."""
    emit = cast("Emit", options.get("emit", "sliding"))
    groups = make_groups(scope, select)
    names, trees = groups.names, [without_time_windows(scope, each) for each in groups.trees]
    _refuse_names(scope, groups, emit)
    if emit == "changes":
        _refuse_missing_keys(scope, groups, query)
    if emit != "sliding" and every:
        raise scope.error(
            f"EVERY is for answers that slide, and emit of {query} is {emit}: leave one of them out",
            every.span,
        )
    step, reach = (
        _sliding(scope, every, stated, query) if emit == "sliding" else (0, (0,) * len(scope.inputs))
    )
    bucket = next(filter(None, (bucket_end(scope, key) for key in groups.keys)), None)
    if emit == "final" and bucket:
        names, trees = [*names, "e0"], [*trees, bucket[1]]
    aggregation = Aggregation(
        emit=emit,
        groups=len(groups.keys),
        measures=tuple(groups.measures),
        answers=tuple(groups.answers),
        having=groups.having,
        every=step,
        reach=reach,
        bucket=Bucket(bucket[0], len(trees) - 1) if emit == "final" and bucket else None,
    )
    outputs = tuple(
        replace(make_output(name, tree), remainder=remainder_of(tree, scope.type_of))
        for name, tree in zip(names, trees, strict=True)
    )
    return outputs, trees, aggregation


def refuse_emission(scope: Scope, every: Every | None, options: Mapping[str, str], query: str) -> None:
    """Refuse EVERY and `emit` in a query that answers with pairs."""
    way_out = "leave it out, or aggregate, as in SELECT COUNT(*) ... or GROUP BY"
    if every:
        raise scope.error(f"EVERY is for aggregates, and {query} has none: {way_out}", every.span)
    if "emit" in options:
        raise scope.error(
            f"emit = '{options['emit']}' is for aggregates, and {query} has none: {way_out}", scope.span
        )


def _refuse_missing_keys(scope: Scope, groups: Groups, query: str) -> None:
    """Refuse changes of groups that the result could not tell apart."""
    selected = {each.plain for each in groups.answers}
    for number, key in enumerate(groups.keys):
        if f"g{number}" not in selected:
            raise scope.error(
                f"{query} emits changes, and this group key is not in its SELECT list, so that nobody could tell which "
                "group has changed: add it there",
                key,
            )


def _refuse_names(scope: Scope, groups: Groups, emit: Emit) -> None:
    """Refuse names that the result has already."""
    for answer, span in zip(groups.answers, groups.spans, strict=True):
        if answer.name.lower() in _ADDED_NAMES[emit]:
            raise scope.error(
                f"a column of the result is called {answer.name}, as one that comes with emit = '{emit}': "
                "give it another name with AS",
                span,
            )


def _sliding(scope: Scope, every: Every | None, stated: Stated, query: str) -> tuple[int, tuple[int, ...]]:
    """Give the time from one instant to the next, and how far back each stream is looked at."""
    if stated is None:
        raise scope.error(f"{query} aggregates, and has no WINDOW that slides: {_WAYS_OUT}", scope.span)
    for clause in stated:
        if not clause.spec.slides:
            raise _no_end(scope, clause, query)
    lengths = tuple(clause.spec.length for clause in stated)
    longest = max(lengths)
    if every and every.length > longest:
        raise scope.error(
            f"EVERY of {query} is {show_duration(every.length)} and its window {show_duration(longest)}, so that pairs "
            "between two instants would be lost: EVERY must not be longer than the window",
            every.span,
        )
    return every.length if every else default_every(longest), lengths


def _no_end(scope: Scope, clause: Clause, query: str) -> SqlError:
    """Say that a window of rows, or without end, does not slide in time."""
    what = f"counts rows ({clause.spec.text})" if clause.spec.kind == "rows" else "is unbounded"
    return scope.error(
        f"{query} aggregates over a window that {what}, and answers slide in time: give every stream a length "
        "of time, as in WINDOW 1 min EVERY 10 s, or write WITH (emit = 'final') or (emit = 'changes')",
        clause.span,
    )


def default_every(window: int) -> int:
    """Give the time from one instant to the next where none is written, in microseconds.

    It is a sixtieth of the window; if that is not whole, the next smaller part of it that is (up to one in 3600), so
    that a window always ends where another begins; and at least a microsecond.

    >>> default_every(3_600_000_000), default_every(60_000_000), default_every(10_000_000), default_every(7)
    (60000000, 1000000, 156250, 1)
    """
    parts = next((each for each in range(_INSTANTS, _MOST_INSTANTS + 1) if window % each == 0), _INSTANTS)
    return max(1, window // parts)
