"""What each condition of a query is for: every conjunct of WHERE and ON is one of four kinds.

    l.k = r.k                          key           decides which rows can meet
    r.ts <= l.ts + INTERVAL 1 MINUTE   bound         decides for how long
    l.Value > 30                       predicate     evaluated once per row, when it arrives
    l.Value > r.Value                  residual      evaluated once per pair, or result of more streams

An equality of strings with a collation is residual too: which of them are equal, only Spark can tell.

Any of them may be missing; without a key, every two rows in the window meet.

Spark evaluates conjuncts from the left, so that one may guard the next: ``s RLIKE '^[0-9]+$' AND CAST(s AS INT) > 5``.
Those that cannot fail (`penstock.sql.bind.safety`) may stand in any order, and come first; all others stay in theirs.

In:  resolved conditions.
Out: `Conditions`: canonical, without repeats.
True: the four together hold for a pair exactly when the conditions as written do.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from penstock.sql.bind.time_bounds import Bound, on_two_times, read_bound, window_bound
from penstock.sql.bind.canonical import affirmed, canonical, conjuncts
from penstock.sql.connections import connected
from penstock.sql.graph import Edge, side_number
from penstock.sql.keys import make_key
from penstock.sql.bind.safety import cannot_fail
from penstock.sql.time_numbers import time_numbers
from penstock.sql.bind.time_windows import equal_windows, without_time_windows
from penstock.sql.text.tree import COMPARISON, Column, Constant, Form, binary, nodes, show, show_bare, sides_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.sql.graph import Key
    from penstock.sql.bind.scope import Scope
    from penstock.sql.query import Side
    from penstock.sql.bind.time_windows import TimeWindow
    from penstock.sql.text.tree import Tree


@dataclass(slots=True)
class Conditions:
    """The conjuncts of one query, sorted out; each list is in the order of the text."""

    scope: Scope
    edges: list[Edge] = field(default_factory=list)
    bounds: list[tuple[Bound, Tree]] = field(default_factory=list)
    predicates: dict[Side, list[Tree]] = field(default_factory=lambda: defaultdict(list))
    residual: list[Tree] = field(default_factory=list)

    def sorted_keys(self) -> tuple[Key, ...]:
        """Give the keys of a join of two streams in canonical order."""
        return tuple(each.key for each in self.sorted_edges())

    def sorted_edges(self) -> tuple[Edge, ...]:
        """Give the equalities, and which sides they are between, in canonical order."""
        return tuple(sorted(set(self.edges)))

    def sorted_predicates(self, side: Side) -> tuple[str, ...]:
        """Give one side's predicates in canonical order.

        Each that cannot fail is a predicate by itself.  All others together are one more, behind those that may be
        there to guard them: ``x <> 0``, ``(x <> 0) AND (10 / x > 1)``.
        """
        plain, risky = self._in_order(self.predicates[side], show_bare)
        if not risky or len(plain) + len(risky) == 1:
            return (*plain, *risky)
        return (*plain, " AND ".join(f"({each})" for each in (*plain, *risky)))

    def sorted_residual(self) -> tuple[str, ...]:
        """Give the conditions on several rows in canonical order: the order in which they have to be evaluated."""
        plain, risky = self._in_order(self.residual, show)
        return (*plain, *risky)

    def _in_order(self, trees: list[Tree], text: Callable[[Tree], str]) -> tuple[list[str], list[str]]:
        """Sort what cannot fail, and leave the rest in its order."""
        safe = {text(each): cannot_fail(each, self.scope.type_of) for each in trees}
        plain = sorted(each for each, sure in safe.items() if sure)
        return plain, [text(each) for each in trees if not safe[text(each)]]


def classify(scope: Scope, resolved: Iterable[Tree]) -> Conditions:
    """Sort out the conjuncts of some resolved conditions."""
    conditions = Conditions(scope)
    equal_times: list[Edge] = []
    for condition in resolved:
        for written in conjuncts(condition):  # cut first: a chain of conjuncts is not to be sorted
            windows = equal_windows(scope, written)
            if windows:
                _sort_out_windows(scope, windows, conditions, equal_times)
                continue
            tree = canonical(without_time_windows(scope, written), scope.type_of)
            for each in affirmed(tree) if on_two_times(scope, tree) else conjuncts(tree):
                _sort_out(scope, each, conditions, equal_times)
    conditions.edges += _joining(equal_times, conditions.edges)
    return conditions


def _joining(equal_times: list[Edge], edges: Sequence[Edge]) -> list[Edge]:
    """Take equal event times for a key where no other equalities join the two streams, directly or over others."""
    parts = connected({each.first, each.second} for each in edges)
    return [each for each in equal_times if not any({each.first, each.second} <= part for part in parts)]


def _sort_out_windows(
    scope: Scope, windows: tuple[TimeWindow, TimeWindow], conditions: Conditions, equal_times: list[Edge]
) -> None:
    """Put the equality of two time windows where it belongs: as that of the microseconds at which they begin."""
    left, right = windows
    each = canonical(binary("=", COMPARISON, left.begin, right.begin), scope.type_of)
    bound = window_bound(scope, windows)
    if bound is None:
        _sort_out(scope, each, conditions, equal_times)
        return
    conditions.bounds.append((bound, each))
    conditions.residual.append(each)
    equal_times.extend(_edge_of(scope, each))


def _sort_out(scope: Scope, each: Tree, conditions: Conditions, equal_times: list[Edge]) -> None:
    """Put one conjunct where it belongs."""
    sides = sides_of(each)
    bound = read_bound(scope, each)
    if not sides:
        if not _always_true(each):
            conditions.residual.append(each)
    elif len(sides) == 1:
        (side,) = sides
        conditions.predicates[side].append(each)
    elif bound:
        edges = _edge_of(scope, each)
        counted = bool(
            edges and time_numbers(each)
        )  # equal numbers are a key like others, which decides exactly
        conditions.bounds.append((bound, each))
        conditions.residual.extend([] if bound.exact or counted else [each])
        (conditions.edges if counted else equal_times).extend(edges)
    else:
        edges = _edge_of(scope, each)
        conditions.edges.extend(edges)
        conditions.residual.extend([] if edges else [each])


def _edge_of(scope: Scope, each: Tree) -> list[Edge]:
    """Read an equality between two streams; nothing when it is something else."""
    if not isinstance(each, Form) or each.head != "=":
        return []
    _refuse_rows(scope, each)
    numbered = [({side_number(side) for side in sides_of(tree)}, tree) for tree in each.trees]
    if any(len(numbers) != 1 for numbers, _ in numbered):
        return []
    (first, left), (second, right) = sorted(
        ((min(numbers), tree) for numbers, tree in numbered), key=itemgetter(0)
    )
    edge = Edge(first, second, make_key(scope, left, right, each))
    return [] if _is_collated(scope, each) else [edge]


def _is_collated(scope: Scope, each: Tree) -> bool:
    """Say whether strings are compared otherwise than byte by byte."""
    return any(
        " collate " in scope.type_of(node)
        if isinstance(node, Column)
        else isinstance(node, Form) and node.head == "COLLATE"
        for node in nodes(each)
    )


def _refuse_rows(scope: Scope, each: Form) -> None:
    """Refuse ``(a.x, a.y) = (b.x, b.y)``: columns one by one are shared with other queries."""
    if any(isinstance(side, Form) and side.head == "ROW" for side in each.trees):
        raise scope.error("lists of columns cannot be compared: write a.x = b.x AND a.y = b.y", each)


def _always_true(tree: Tree) -> bool:
    """Recognise ``TRUE`` and ``1 = 1``."""
    if isinstance(tree, Form) and tree.head == "=":
        left, right = tree.trees
        return isinstance(left, Constant) and left == right and left.kind in {"number", "string"}
    return tree == Constant("TRUE")
