"""The windows and the conditions on event times in the text of a query.

The plan merges both into one window.  A comparison by that window would not find a mistake in it, so this module reads
the text once more::

    FROM A [RANGE 5 s], B [UNBOUNDED]
    WHERE A.k = B.k AND NOT B.ts > A.ts + INTERVAL 1 MINUTE

        lengths      5,000,000 and FOREVER
        conditions   NOT r.ts > l.ts + INTERVAL 1 MINUTE

In:  a query and its streams.
Out: a `Written`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.sql.bind.canonical import conjuncts
from penstock.sql.bind.scope import make_scope, resolved_conditions
from penstock.sql.query import FOREVER
from penstock.sql.text.select import read_select
from penstock.sql.text.tokens import Source, span_of_tokens
from penstock.sql.text.tree import columns_of, show
from penstock.sql.text.windows import take_windows, window_clauses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sql.bind.scope import Scope
    from penstock.sql.query import Query, Stream
    from penstock.sql.text.tree import Tree


@dataclass(frozen=True)
class Written:
    """The length of each input's window, in the order of the sides, and the conditions on several event times."""

    lengths: tuple[int, ...]
    conditions: tuple[str, ...]


def read_written(query: Query, streams: Sequence[Stream], zone: str) -> Written:
    """Read the windows and the conditions on event times in a query's text."""
    source = Source(query.text)
    clauses, rest = take_windows(source, source.statements[0], query.name)
    select = read_select(source, rest, query.name)
    scope = make_scope(
        source, select.joined, {stream.name: stream for stream in streams}, span_of_tokens(rest), zone
    )
    lengths = [FOREVER] * len(scope.inputs)
    stated = window_clauses(source, clauses, [one.alias for one in scope.inputs])
    for one, window in zip(scope.inputs, stated or (), strict=bool(stated)):
        lengths[one.number] = window.length
    trees = (
        condition
        for tree in resolved_conditions(scope, select.joined, select.where)
        for condition in conjuncts(tree)
    )
    conditions = [show(condition) for condition in trees if _is_on_times(scope, condition)]
    return Written(tuple(lengths), tuple(conditions))


def _is_on_times(scope: Scope, tree: Tree) -> bool:
    """Check whether the columns of a tree are the event times of several inputs."""
    read = {(column.side, column.name) for column in columns_of(tree)}
    return len(read) > 1 and all(name == scope.side(side).stream.time for side, name in read)
