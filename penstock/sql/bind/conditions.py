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
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from penstock.sql.bind.canonical import affirmed, canonical, conjuncts
from penstock.sql.bind.linear import time_numbers
from penstock.sql.bind.safety import cannot_fail
from penstock.sql.bind.scope import Input, Scope, exact_type
from penstock.sql.bind.time_bounds import TimeBound, on_two_times, read_bound, window_bound
from penstock.sql.bind.time_windows import TimeWindow, equal_windows, without_time_windows
from penstock.sql.query import LEAST_INPUTS, Edge, Key, Side, side_number
from penstock.sql.spark_types import TypeTextError, common_type, parse_type
from penstock.sql.text.select import From
from penstock.sql.text.tree import (
    COMPARISON,
    ColumnRef,
    Constant,
    Form,
    Tree,
    binary,
    cast_type,
    nodes,
    run,
    show,
    show_bare,
    sides_of,
    unwrapped,
)


@dataclass(slots=True)
class Conditions:
    """The conjuncts of one query, sorted out; each list is in the order of the text."""

    scope: Scope
    edges: list[Edge] = field(default_factory=list)
    bounds: list[tuple[TimeBound, Tree]] = field(default_factory=list)
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
        if isinstance(node, ColumnRef)
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


_WIDEST_TYPE = {
    "tinyint": "bigint",
    "smallint": "bigint",
    "int": "bigint",
    "bigint": "bigint",
    "float": "double",
    "double": "double",
}
_TEXT_FUNCTIONS = {"LOWER(", "UPPER(", "TRIM(", "LTRIM(", "RTRIM("}


def make_key(scope: Scope, left: Tree, right: Tree, at: Tree) -> Key:
    """Make the key of ``left = right``; `at` is the whole equality, for errors."""
    return Key(show_bare(left), show_bare(right), _key_type(scope, left, right, at))


def _key_type(scope: Scope, left: Tree, right: Tree, at: Tree) -> str:
    """Give the type to cast both sides to, or nothing where that is not needed or not known."""
    exact = [exact_type(scope, side) for side in (left, right)]
    first, second = (
        kind or run(_family(scope, side)) for kind, side in zip(exact, (left, right), strict=True)
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
    sides = [
        f"{each.alias}.{show_bare(tree)} is {kind}"
        for each in scope.inputs
        for tree, kind in (left, right)
        if each.side in sides_of(tree)
    ]
    hint = "CAST one of them"
    if "collate" in left[1] + right[1]:
        hint = "write COLLATE behind one of them"
    never = next(
        (kind for kind in ("map", "variant") if any(_holds(each[1], kind) for each in (left, right))), ""
    )
    hint = f"a {never.upper()} cannot be compared" if never else hint
    return f"cannot join on these: {sides[0]} and {sides[1]}; {hint}"


def _holds(kind: str, name: str) -> bool:
    try:
        return parse_type(kind).holds(name)
    except TypeTextError:
        return False


def _family(scope: Scope, side: Tree) -> Generator[Any, Any, str]:
    """Give a type wide enough for every value of an expression, if its family is known.

    Decimals are left to Spark: their digits follow rules of their own.
    """
    side = unwrapped(side)
    if not isinstance(side, Form) or side.head == "." or cast_type(side):
        kind = exact_type(scope, side) if not hasattr(side, "text") else _literal(side.text)
        return _WIDEST_TYPE.get(kind, kind)
    kinds = []
    for each in side.trees:
        kinds.append((yield _family(scope, each)))  # noqa: PERF401 - a comprehension cannot yield
    if side.head in _TEXT_FUNCTIONS and kinds == ["string"]:
        return "string"
    if side.head not in {"+", "-", "*", "/", "%", "NEG"} or not set(kinds) <= {"bigint", "double"}:
        return ""
    return "double" if "double" in kinds or side.head == "/" else "bigint"


def _literal(text: str) -> str:
    """Give the type of a literal that is a whole number small enough for an INT; empty for any other."""
    return "bigint" if text.lstrip("-").isdecimal() and len(text) < len("1234567890") else ""


def connected(links: Iterable[set[int]]) -> list[set[int]]:
    """Join sets that have something in common.

    >>> connected([{0, 1}, {2, 3}, {1, 2}, {4, 5}])
    [{0, 1, 2, 3}, {4, 5}]
    """
    parts: list[set[int]] = []
    for link in links:
        touched = [each for each in parts if each & link]
        whole = set(link).union(*touched)
        parts = sorted([*(each for each in parts if each not in touched), whole], key=min)
    return parts


def refuse_unconnected(scope: Scope, joined: From, conditions: Conditions) -> None:
    """Refuse more than two streams that nothing connects, unless CROSS JOIN does."""
    if len(scope.inputs) < LEAST_INPUTS:
        return
    alone = [{each.number} for each in scope.inputs]
    parts = connected([*alone, *_links(conditions), *_crosses(scope, joined)])
    with_first = next(each for each in parts if scope.inputs[0].number in each)
    for place, each in enumerate(scope.inputs):
        if each.number not in with_first:
            raise scope.error(
                f"no condition connects {each.alias} with {scope.inputs[0].alias}: write one"
                f"{_example(scope, each)}, or CROSS JOIN {each.alias} if each of its rows shall meet all others",
                joined.tables[place].span,
            )


def _example(scope: Scope, alone: Input) -> str:
    """Write an equality that the user may have meant, on a column that two streams have."""
    for other in scope.inputs:
        for column in other.stream.columns:
            if other is not alone and column.name != other.stream.time and alone.stream.column(column.name):
                return f", such as {other.alias}.{column.name} = {alone.alias}.{column.name}"
    return ""


def _links(conditions: Conditions) -> Iterator[set[int]]:
    """List what each condition is between."""
    yield from ({each.first, each.second} for each in conditions.edges)
    yield from (set(bound.between) for bound, _ in conditions.bounds)
    for each in conditions.residual:
        if sides := sides_of(each):
            yield {side_number(side) for side in sides}


def _crosses(scope: Scope, joined: From) -> Iterator[set[int]]:
    """List what each CROSS JOIN connects: the stream behind it, with those that the first is connected with."""
    for place in joined.crossed:
        yield {scope.inputs[0].number, scope.inputs[place].number}
