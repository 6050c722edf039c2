"""The conditions of a query, by purpose: every conjunct of WHERE and ON is one of four kinds.

    l.k = r.k                          key           decides which rows can meet
    r.ts <= l.ts + INTERVAL 1 MINUTE   bound         decides for how long
    l.Value > 30                       predicate     evaluated once per row, when it arrives
    l.Value > r.Value                  residual      evaluated once per pair, or result of more streams

An equality of strings with a collation is residual too, because only Spark can evaluate it.  Each kind may be missing;
without a key, every two rows in the window meet.

Spark evaluates conjuncts from the left, so that one may guard the next: ``s RLIKE '^[0-9]+$' AND CAST(s AS INT) > 5``.
Conjuncts that cannot fail (`penstock.sql.bind.safety`) are sorted and come first.  All others keep their order.

In:  resolved conditions.
Out: `Conditions`: canonical, without repeats.
True: the four kinds together hold for a pair exactly when the conditions as written do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from penstock.sql.bind.canonical import affirmed, canonical, conjuncts
from penstock.sql.bind.linear import time_numbers
from penstock.sql.bind.safety import cannot_fail
from penstock.sql.bind.scope import Input, Scope, exact_type
from penstock.sql.bind.time_bounds import TimeBound, on_two_times, read_bound, window_bound
from penstock.sql.bind.time_windows import TimeWindow, equal_windows, without_time_windows
from penstock.sql.query import LEAST_INPUTS, Edge, Key, Side, side_number
from penstock.sql.spark_types import FLOATING_TYPES, WHOLE_TYPES, common_type, known_type
from penstock.sql.text.select import From
from penstock.sql.text.tree import (
    COMPARISON,
    ColumnRef,
    Constant,
    Form,
    Tree,
    binary,
    cast_type,
    folded,
    nodes,
    show,
    show_bare,
    sides_of,
)


@dataclass(slots=True)
class Conditions:
    """The conjuncts of one query by kind; each list is in the order of the text."""

    scope: Scope
    edges: list[Edge] = field(default_factory=list)
    bounds: list[tuple[TimeBound, Tree]] = field(default_factory=list)
    predicates: dict[Side, list[Tree]] = field(default_factory=lambda: defaultdict(list))
    residual: list[Tree] = field(default_factory=list)
    equal_times: list[Edge] = field(default_factory=list)
    """Equalities of event times, which become keys only where no other equality connects the streams."""

    def sorted_edges(self) -> tuple[Edge, ...]:
        """Return the equalities in canonical order."""
        return tuple(sorted(set(self.edges)))

    def sorted_predicates(self, side: Side) -> tuple[str, ...]:
        """Return one side's predicates in canonical order.

        Each that cannot fail is a predicate by itself.  All others together are one more, behind those that may guard
        them: ``x <> 0``, ``(x <> 0) AND (10 / x > 1)``.
        """
        plain, risky = self._in_order(self.predicates[side], show_bare)
        if not risky or len(plain) + len(risky) == 1:
            return (*plain, *risky)
        return (*plain, " AND ".join(f"({text})" for text in (*plain, *risky)))

    def sorted_residual(self) -> tuple[str, ...]:
        """Return the conditions on several rows in the order in which they have to be evaluated."""
        plain, risky = self._in_order(self.residual, show)
        return (*plain, *risky)

    def _in_order(self, trees: list[Tree], text: Callable[[Tree], str]) -> tuple[list[str], list[str]]:
        """Sort the conditions that cannot fail, and keep the others in their order."""
        safe = {text(tree): cannot_fail(tree, self.scope.type_of) for tree in trees}
        plain = sorted(text for text, is_safe in safe.items() if is_safe)
        return plain, [text(tree) for tree in trees if not safe[text(tree)]]

    def add(self, condition: Tree) -> None:
        """Add one conjunct to the list of its kind."""
        sides = sides_of(condition)
        bound = read_bound(self.scope, condition)
        if not sides:
            self.residual.extend([] if _always_true(condition) else [condition])
        elif len(sides) == 1:
            self.predicates[sides.pop()].append(condition)
        elif bound:
            edges = _edge_of(self.scope, condition)
            # equal numbers are a key like others, which decides exactly
            is_key = bool(edges and time_numbers(condition))
            self.bounds.append((bound, condition))
            self.residual.extend([] if bound.exact or is_key else [condition])
            (self.edges if is_key else self.equal_times).extend(edges)
        else:
            edges = _edge_of(self.scope, condition)
            self.edges.extend(edges)
            self.residual.extend([] if edges else [condition])

    def add_windows(self, left: TimeWindow, right: TimeWindow) -> None:
        """Add the equality of two time windows, as that of the microseconds at which they begin."""
        condition = canonical(binary("=", COMPARISON, left.begin, right.begin), self.scope.type_of)
        bound = window_bound(self.scope, (left, right))
        if bound is None:
            self.add(condition)
            return
        self.bounds.append((bound, condition))
        self.residual.append(condition)
        self.equal_times.extend(_edge_of(self.scope, condition))


def classify(scope: Scope, resolved: Iterable[Tree]) -> Conditions:
    """Split resolved conditions into conjuncts, and add each to the list of its kind."""
    conditions = Conditions(scope)
    for condition in resolved:
        for written in conjuncts(condition):  # split first: a chain of conjuncts must keep its order
            if windows := equal_windows(scope, written):
                conditions.add_windows(*windows)
                continue
            tree = canonical(without_time_windows(scope, written), scope.type_of)
            for conjunct in affirmed(tree) if on_two_times(scope, tree) else conjuncts(tree):
                conditions.add(conjunct)
    parts = connected({edge.first, edge.second} for edge in conditions.edges)
    conditions.edges += [
        edge
        for edge in conditions.equal_times
        if not any({edge.first, edge.second} <= part for part in parts)
    ]
    return conditions


def _edge_of(scope: Scope, condition: Tree) -> list[Edge]:
    """Read an equality between two streams; an empty list for any other condition."""
    if not isinstance(condition, Form) or condition.head != "=":
        return []
    if any(isinstance(side, Form) and side.head == "ROW" for side in condition.trees):
        # separate columns are shared with other queries
        raise scope.error("lists of columns cannot be compared: write a.x = b.x AND a.y = b.y", condition)
    numbered = [({side_number(side) for side in sides_of(tree)}, tree) for tree in condition.trees]
    if any(len(numbers) != 1 for numbers, _ in numbered):
        return []
    (first, left), (second, right) = sorted(
        ((min(numbers), tree) for numbers, tree in numbered), key=itemgetter(0)
    )
    key = Key(show_bare(left), show_bare(right), _key_type(scope, left, right, condition))
    return [] if _is_collated(scope, condition) else [Edge(first, second, key)]


def _is_collated(scope: Scope, condition: Tree) -> bool:
    """Check whether strings are compared by a collation."""
    return any(
        " collate " in scope.type_of(node)
        if isinstance(node, ColumnRef)
        else isinstance(node, Form) and node.head == "COLLATE"
        for node in nodes(condition)
    )


def _always_true(tree: Tree) -> bool:
    """Recognise ``TRUE`` and ``1 = 1``."""
    if isinstance(tree, Form) and tree.head == "=":
        left, right = tree.trees
        return isinstance(left, Constant) and left == right and left.kind in {"number", "string"}
    return tree == Constant("TRUE")


_WIDEST_TYPE = {
    **dict.fromkeys(WHOLE_TYPES, "bigint"),
    **dict.fromkeys(FLOATING_TYPES, "double"),
}
_TEXT_FUNCTIONS = {"LOWER(", "UPPER(", "TRIM(", "LTRIM(", "RTRIM("}
_MAX_INT_DIGITS = 9


def _key_type(scope: Scope, left: Tree, right: Tree, at: Tree) -> str:
    """Return the type to cast both sides of a key to; empty if no cast is needed or a type is unknown."""
    exact = [exact_type(scope, side) for side in (left, right)]
    first, second = (
        kind or folded(side, lambda node, kinds: _widest_type(scope, node, kinds))
        for kind, side in zip(exact, (left, right), strict=True)
    )
    if not first or not second:
        return ""
    common = common_type(first, second)
    if common is None:
        if not all(exact):
            return ""
        raise scope.error(_mismatch(scope, (left, first), (right, second)), at)
    certain = all(exact) or common not in _WIDEST_TYPE
    return "" if certain and first == second else common


def _mismatch(scope: Scope, left: tuple[Tree, str], right: tuple[Tree, str]) -> str:
    one, other = (
        f"{input_.alias}.{show_bare(tree)} is {kind}"
        for input_ in scope.inputs
        for tree, kind in (left, right)
        if input_.side in sides_of(tree)
    )
    kinds = [kind for kind in (known_type(left[1]), known_type(right[1])) if kind]
    never = next((name for name in ("map", "variant") if any(kind.holds(name) for kind in kinds)), "")
    is_collated = "collate" in left[1] + right[1]
    cast = "Write COLLATE behind one of them" if is_collated else "CAST one of them"
    fix = f"A {never.upper()} cannot be compared" if never else cast
    return f"cannot join on these: {one} and {other}. {fix}"


def _widest_type(scope: Scope, node: Tree, kinds: list[str]) -> str:
    """Return a type that holds every value of an expression, if its family is known.

    Decimals are left to Spark: their digits follow rules of their own.
    """
    if isinstance(node, Constant):
        is_whole = node.text.lstrip("-").isdecimal() and len(node.text) <= _MAX_INT_DIGITS
        return "bigint" if is_whole else ""
    if not isinstance(node, Form) or node.head == "." or cast_type(node):
        kind = exact_type(scope, node)
        return _WIDEST_TYPE.get(kind, kind)
    if node.head == "(":
        return kinds[0]
    if node.head in _TEXT_FUNCTIONS and kinds == ["string"]:
        return "string"
    if node.head not in {"+", "-", "*", "/", "%", "NEG"} or not set(kinds) <= {"bigint", "double"}:
        return ""
    return "double" if "double" in kinds or node.head == "/" else "bigint"


def connected(links: Iterable[set[int]]) -> list[set[int]]:
    """Unite sets that have an element in common.

    >>> connected([{0, 1}, {2, 3}, {1, 2}, {4, 5}])
    [{0, 1, 2, 3}, {4, 5}]
    """
    parts: list[set[int]] = []
    for link in links:
        touched = [part for part in parts if part & link]
        whole = set(link).union(*touched)
        parts = sorted([*(part for part in parts if part not in touched), whole], key=min)
    return parts


def refuse_unconnected(scope: Scope, joined: From, conditions: Conditions) -> None:
    """Refuse more than two streams that nothing connects, unless CROSS JOIN does."""
    if len(scope.inputs) < LEAST_INPUTS:
        return
    first = scope.inputs[0].number
    read = [sides_of(condition) for condition in conditions.residual]
    links = [
        *({input_.number} for input_ in scope.inputs),
        *({edge.first, edge.second} for edge in conditions.edges),
        *(set(bound.between) for bound, _ in conditions.bounds),
        *({side_number(side) for side in sides} for sides in read if sides),
        *({first, scope.inputs[position].number} for position in joined.crossed),
    ]
    with_first = next(part for part in connected(links) if first in part)
    for position, input_ in enumerate(scope.inputs):
        if input_.number not in with_first:
            raise scope.error(
                f"no condition connects {input_.alias} with {scope.inputs[0].alias}: write one"
                f"{_example(scope, input_)}, or CROSS JOIN {input_.alias} if each of its rows shall meet all others",
                joined.tables[position].span,
            )


def _example(scope: Scope, alone: Input) -> str:
    """Suggest an equality on a column that two streams have."""
    for other in scope.inputs:
        for column in other.stream.columns:
            if other is not alone and column.name != other.stream.time and alone.stream.column(column.name):
                return f", such as {other.alias}.{column.name} = {alone.alias}.{column.name}"
    return ""
