"""Aggregates in canonical form.

Every spelling of an aggregate becomes a function of plain arguments (`penstock.sql.aggregates`).  FILTER becomes part
of the argument: the values it leaves out become NULL, which no aggregate counts::

    COUNT(*)  COUNT(1)                    count()
    COUNT(x, y)                           count(CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN 1 END)
    COUNT_IF(c)                           count(CASE WHEN c THEN 1 END)
    SUM(x) FILTER (WHERE c)               sum(CASE WHEN c THEN x END)
    COUNT(*) FILTER (WHERE c)             count(CASE WHEN c THEN 1 END)
    EVERY(c)  ANY(c)                      min(c)  max(c)
    MAX(DISTINCT x)                       max(x)
    MAX_BY(x, y) FILTER (WHERE c)         max_by(CASE WHEN c THEN x END, CASE WHEN c THEN y END)

In:  resolved calls, as built by `penstock.sql.text.tree.aggregate_form`.
Out: `Aggregate`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.sql.aggregates import AggregateSyntax, aggregate_class, function_of, takers_of_distinct
from penstock.sql.bind.scope import Scope, exact_type
from penstock.sql.spark_types import known_type
from penstock.sql.text.tree import (
    AGGREGATE_MARK,
    BIT_OR,
    FILTER_WORDS,
    PREDICATE,
    Constant,
    Form,
    Tree,
    is_aggregate,
    nodes,
    unwrapped,
)

ONE = Constant("1", "number")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of `penstock.sql.query.Measure`, and its arguments."""

    function: str
    arguments: tuple[Tree, ...] = ()
    distinct: bool = False


def read_aggregate(scope: Scope, call: Form) -> Aggregate:
    """Return the canonical form of a resolved call."""
    name, distinct = call.head.removeprefix(AGGREGATE_MARK)[:-1], str(call.parts[0]).endswith("DISTINCT ")
    arguments, condition = list(call.trees), None
    if FILTER_WORDS in call.parts:
        condition = arguments.pop()
    inner = next((node for tree in call.trees for node in nodes(tree) if is_aggregate(node)), None)
    if inner:
        raise scope.error(
            "an aggregate cannot stand in an aggregate: compute the inner one in its own query", inner
        )
    function = function_of(name)
    syntax = aggregate_class(function)
    _check_arguments(scope, call, name, syntax, arguments)
    if syntax.compares:
        refuse_incomparable(scope, arguments[-1], f"{name} compares")
        distinct = False
    if distinct:
        _check_distinct(scope, call, name, syntax, arguments)
    taken = syntax.taken(name, arguments, distinct=distinct)
    if condition is not None:
        taken = [when(condition, tree) for tree in taken or [ONE]]
    return Aggregate(function, tuple(taken), distinct)


def refuse_incomparable(scope: Scope, tree: Tree, doing: str) -> None:
    """Refuse values without an equality, as far as their type is known."""
    kind = known_type(exact_type(scope, unwrapped(tree)))
    if kind and kind.holds("map", "variant"):
        raise scope.error(
            f"{doing} values of {kind}, and a MAP or VARIANT cannot be compared: use a part of it, such as one "
            "element, or to_json(...)",
            tree,
        )


def _check_arguments(
    scope: Scope, call: Form, name: str, syntax: type[AggregateSyntax], arguments: Sequence[Tree]
) -> None:
    """Refuse too few or too many arguments, and values where a condition is needed."""
    if "*" not in call.parts and (wrong := syntax.wrong_number(name, len(arguments))):
        raise scope.error(wrong, call)
    kind = exact_type(scope, unwrapped(arguments[0])) if name in syntax.of_conditions else ""
    if kind not in {"", "boolean"}:
        raise scope.error(
            f"{name} is for conditions, and this is {kind}: write a condition, such as {name}(... > 0)",
            arguments[0],
        )


def _check_distinct(
    scope: Scope, call: Form, name: str, syntax: type[AggregateSyntax], arguments: Sequence[Tree]
) -> None:
    """Refuse DISTINCT where it is not supported, or where values cannot be told apart."""
    if not syntax.takes_distinct:
        *some, last = takers_of_distinct()
        raise scope.error(f"{name} takes no DISTINCT: {', '.join(some)} and {last} do", call)
    for tree in arguments:
        refuse_incomparable(scope, tree, "DISTINCT compares")


def is_not_null(tree: Tree) -> Form:
    """Write ``tree IS NOT NULL``."""
    return Form("IS NOT NULL", (tree, " IS NOT NULL"), PREDICATE, (BIT_OR,), tree.span)


def is_literal(tree: Tree) -> bool:
    """Return whether a tree is a literal other than NULL."""
    bare = unwrapped(tree)
    return isinstance(bare, Constant) and (
        bare.kind in {"number", "string", "typed", "interval"} or bare.text in {"TRUE", "FALSE"}
    )


def when(condition: Tree, value: Tree) -> Form:
    """Write ``CASE WHEN condition THEN value END``."""
    return Form("CASE", ("CASE WHEN ", condition, " THEN ", value, " END"), span=value.span)
