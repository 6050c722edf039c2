"""Conditions and choices: comparisons, tests, AND OR NOT, CASE, and the functions that are short for them.

Three-valued logic, evaluated from the left and no further than needed, as what stands behind may fail.

In:  nodes of operands.  Out: a node.
"""

from __future__ import annotations

import operator
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.errors import RunError
from penstock.sql.spark_types import TIME_TYPES
from penstock.testing.expression.coercion import alike, compared
from penstock.testing.expression.nodes import (
    BOOLEAN,
    DATE,
    Node,
    Refusal,
    constant,
    eager,
    made,
    named,
    refuse_folded,
    refuse_repeats,
    strict,
)
from penstock.testing.expression.values import FLOATING, order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.testing.expression.nodes import Row, Settings

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "==": operator.eq, "<>": operator.ne, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    "!>": operator.le, ">": operator.gt, ">=": operator.ge, "!<": operator.ge,
}  # fmt: skip
COMPARISONS = tuple(_COMPARISONS)
_FARTHEST_DAY = 106_751_991
_LISTED_ONE_BY_ONE = 10
"""Items up to which Spark compares a list one by one."""


def compare(head: str, sides: Sequence[Node], settings: Settings) -> Node:
    """Make ``left = right`` and the like."""
    refuse_repeats(sides, sides[0].fails)
    nodes = _of_days(compared(sides, settings))
    _refuse_unwrapped(sides, [node for node in sides if node.fails and not node.nullable])
    test = _COMPARISONS[head]
    text = f"({sides[0].text}) {head} ({sides[1].text})"
    return named(strict(BOOLEAN, lambda one, other: test(order(one), order(other)), nodes), text)


def _of_days(nodes: list[Node]) -> list[Node]:
    """Take a date beside a constant timestamp as it is: Spark compares it with the constant's date."""
    if any(node.constant and node.kind == DATE and abs(node.value or 0) > _FARTHEST_DAY for node in nodes):
        raise Refusal("it is a date beyond all timestamps")
    beside = any(node.constant for node in nodes)
    return [node.unchecked or node if beside else node for node in nodes]


def _refuse_unwrapped(nodes: Sequence[Node], failing: Sequence[Node]) -> None:
    """Refuse a constant of another type beside what can fail: Spark may know the answer from the constant alone."""
    constants = [node for node in nodes if node.constant]
    if any(one.kind != other.kind for one in constants for other in failing):
        raise Refusal("Spark may leave out what can fail beside a constant of another type")


def same(sides: Sequence[Node], settings: Settings) -> Node:
    """Make ``left <=> right``, which is never NULL."""
    refuse_repeats(sides, sides[0].fails)
    nodes = _of_days(compared(sides, settings))
    _refuse_unwrapped(sides, [node for node in sides if node.fails and node.unchecked is None])
    for node, other in (nodes, reversed(nodes)):
        if node.is_null:
            return is_null(other)
    return made(
        BOOLEAN, lambda row: order(nodes[0].of(row)) == order(nodes[1].of(row)), nodes, nullable=False
    )


def is_null(node: Node) -> Node:
    """Make ``node IS NULL``."""
    if node.fails and not node.nullable:
        raise Refusal("Spark may leave out what can fail where it cannot be NULL")
    return made(BOOLEAN, lambda row: node.of(row) is None, [node], nullable=False)


def is_truth(node: Node, wanted: bool) -> Node:
    """Make ``node IS TRUE`` or ``node IS FALSE``."""
    condition = _condition(node)
    return made(BOOLEAN, lambda row: condition.of(row) is wanted, [condition], nullable=False)


def negation(node: Node) -> Node:
    """Make ``NOT node``."""
    return replace(strict(BOOLEAN, operator.not_, [_condition(node)]), terms=_terms(node))


def _condition(node: Node) -> Node:
    """Take a node as a condition."""
    if node.kind.name == "void":
        return constant(BOOLEAN, None, node.text)
    if node.kind != BOOLEAN:
        raise Refusal(f"{node.text} is {node.kind} and no condition")
    return node


def connect(head: str, nodes: Sequence[Node]) -> Node:
    """Make ``a AND b AND c``, or the same with OR: evaluated until one settles it."""
    operands = [_condition(node) for node in nodes]
    settling = head == "OR"
    fails = any(node.fails for node in operands)
    if fails and any(node.constant for node in operands):
        raise Refusal("Spark may leave out what can fail beside a constant condition")
    terms = tuple(term for node in operands for term in _terms(node))
    if fails and len(set(terms)) < len(terms):
        raise Refusal("Spark may leave out what can fail where a condition stands twice")

    def of(row: Row) -> Any:
        result: bool | None = not settling
        for node in operands:
            value = node.of(row)
            if value is settling:
                return settling
            result = None if value is None else result
        return result

    return replace(made(BOOLEAN, of, operands), terms=terms)


def _terms(node: Node) -> tuple[str, ...]:
    return node.terms or (node.text,)


def between(nodes: Sequence[Node], settings: Settings) -> Node:
    """Make ``value BETWEEN low AND high``."""
    value, low, high = nodes
    return connect("AND", [compare(">=", [value, low], settings), compare("<=", [value, high], settings)])


def listed(value: Node, items: Sequence[Node], settings: Settings) -> Node:
    """Make ``value IN (...)``."""
    every, times = [value, *items], value.kind.name in TIME_TYPES
    nodes = alike(every, settings, strings=times) if len(items) > 1 else compared(every, settings)
    _refuse_unwrapped(every, [node for node in every if node.fails and not node.nullable])
    if len(items) > _LISTED_ONE_BY_ONE and nodes[0].kind.name in FLOATING:
        raise Refusal(f"Spark compares more than {_LISTED_ONE_BY_ONE} floating numbers in its own way")
    refuse_repeats([value, *items], value.fails)
    asked, *others = nodes
    if asked.is_null:
        return constant(BOOLEAN, None)

    def of(row: Row) -> bool | None:
        wanted = asked.of(row)
        if wanted is None:
            return None
        unknown = False
        for node in others:
            item = node.of(row)
            if item is not None and order(item) == order(wanted):
                return True
            unknown = unknown or item is None
        return None if unknown else False

    return made(BOOLEAN, of, nodes)


def choose(tests: Sequence[Node], values: Sequence[Node], settings: Settings) -> Node:
    """Make CASE: the value of the first test that holds, or the last value, which stands behind ELSE."""
    conditions = [_condition(test) for test in tests if test.kind.name != "void"]
    if len(conditions) < len(tests):
        raise Refusal("Spark takes no NULL for a condition")
    refuse_repeats(values, any(test.fails for test in conditions))
    results = alike(values, settings)

    def of(row: Row) -> Any:
        for test, result in zip(conditions, results, strict=False):
            if test.of(row):
                return result.of(row)
        return results[-1].of(row)

    nodes = [*conditions, *results]
    folded = any(test.fails for test in conditions) and sum(not result.constant for result in results) <= 1
    for test in conditions:
        refuse_folded([test])
    if all(node.constant for node in nodes):
        return made(results[0].kind, of, nodes)
    fails, nullable = any(node.fails for node in nodes), any(node.nullable for node in results)
    return Node(results[0].kind, of, fails=fails, nullable=nullable, folded=folded)


def first(nodes: Sequence[Node], settings: Settings) -> Node:
    """Make COALESCE."""
    results = alike(nodes, settings)

    def of(row: Row) -> Any:
        return next((value for node in results if (value := node.of(row)) is not None), None)

    return made(results[0].kind, of, results, nullable=all(node.nullable for node in results))


def extreme(nodes: Sequence[Node], settings: Settings, *, greatest: bool) -> Node:
    """Make GREATEST or LEAST of what is not NULL; the first of equals."""
    results = alike(nodes, settings)

    def pick(*values: Any) -> Any:
        present = [value for value in values if value is not None]
        return (max if greatest else min)(present, key=order) if present else None

    return eager(results[0].kind, pick, results)


def like(nodes: Sequence[Node], escape: str) -> Node:
    """Make ``value LIKE pattern``."""
    value, pattern = nodes
    if not {value.kind.name, pattern.kind.name} <= {"string", "void"}:
        raise Refusal("only Spark compares with LIKE what is no string")
    if pattern.constant and pattern.value is not None:
        try:
            _pattern(pattern.value, escape)
        except RunError as error:
            raise Refusal(str(error)) from None
    fails = not pattern.constant
    return strict(
        BOOLEAN,
        lambda text, shape: bool(_pattern(shape, escape).fullmatch(text)),
        [value, pattern],
        fails=fails,
    )


@cache
def _pattern(shape: str, escape: str) -> re.Pattern[str]:
    """Read a pattern: ``%`` is any text, ``_`` any character, and an escape takes the meaning of either."""
    said, characters = [], iter(shape)
    for each in characters:
        if each == escape:
            after = next(characters, "")
            if after not in {"%", "_", escape} or not after:
                raise RunError(f"The pattern '{shape}' escapes what needs no escape (INVALID_FORMAT)")
            said.append(re.escape(after))
        else:
            said.append({"%": ".*", "_": "."}.get(each, re.escape(each)))
    return re.compile("".join(said), re.DOTALL)
