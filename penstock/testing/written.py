"""How far apart the rows of a result may be, as the text of its query says: windows, and conditions on event times.

The plan makes one window of both.  Whoever asks another engine by that window finds no mistake in it, so that here the
text is read once more, up to where its columns are known, and no further::

    FROM A [RANGE 5 s], B [UNBOUNDED]
    WHERE A.k = B.k AND NOT B.ts > A.ts + INTERVAL 1 MINUTE

        lengths      5,000,000 and FOREVER
        conditions   NOT r.ts > l.ts + INTERVAL 60000000 MICROSECONDS

In:  a query and its streams.
Out: a `Written`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.sql.bind.canonical import conjuncts
from penstock.sql.bind.linear import interval_micros
from penstock.sql.bind.scope import make_scope, resolved_conditions
from penstock.sql.query import FOREVER
from penstock.sql.text.select import read_select
from penstock.sql.text.tokens import Source, span_of_tokens
from penstock.sql.text.tree import ColumnRef, Constant, Form, columns_of, rebuilt, show, unwrapped
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
    """Read what a query's text says of the event times of its results."""
    source = Source(query.text)
    clauses, rest = take_windows(source, source.statements[0], query.name)
    select = read_select(source, rest, query.name)
    scope = make_scope(
        source, select.joined, {each.name: each for each in streams}, span_of_tokens(rest), zone
    )
    lengths = [FOREVER] * len(scope.inputs)
    stated = window_clauses(source, clauses, [each.alias for each in scope.inputs])
    for one, window in zip(scope.inputs, stated or (), strict=bool(stated)):
        lengths[one.number] = window.length
    trees = (
        each for tree in resolved_conditions(scope, select.joined, select.where) for each in conjuncts(tree)
    )
    conditions = [show(rebuilt(each, partial(_plain, scope))) for each in trees if _is_on_times(scope, each)]
    return Written(tuple(lengths), tuple(conditions))


def _is_on_times(scope: Scope, tree: Tree) -> bool:
    """Say whether the columns of a tree are the event times of several inputs."""
    read = {(column.side, column.name) for column in columns_of(tree)}
    return len(read) > 1 and all(name == scope.side(side).stream.time for side, name in read)


def _plain(scope: Scope, node: Tree) -> Tree:
    """Write constant intervals and differences of dates so that DuckDB reads them as Spark does."""
    if isinstance(node, Constant):
        micros = interval_micros(node)
        return node if micros is None else replace(node, text=f"INTERVAL {micros} MICROSECONDS")
    if isinstance(node, Form) and node.head == "-":
        sides = [unwrapped(each) for each in node.trees]
        if all(isinstance(each, ColumnRef) and scope.type_of(each) == "date" for each in sides):
            return node.with_trees(
                tuple(Form("CAST(", ("CAST(", each, " AS TIMESTAMP_NTZ)")) for each in sides)
            )
    return node
