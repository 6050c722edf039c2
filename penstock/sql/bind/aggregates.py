"""Aggregates in canonical form.

Every spelling of an aggregate becomes one of eleven functions of plain arguments.  FILTER becomes part of the argument:
the values it leaves out become NULL, which no aggregate counts::

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

from penstock.sql.bind.scope import Scope, exact_type
from penstock.sql.query import CHOSEN_BY, ENDS
from penstock.sql.spark_types import known_type
from penstock.sql.text.keywords import SUPPORTED_AGGREGATES
from penstock.sql.text.tree import (
    AGGREGATE_MARK,
    BIT_OR,
    FILTER_WORDS,
    PREDICATE,
    Constant,
    Form,
    Tree,
    chain,
    is_aggregate,
    nodes,
    unwrapped,
)

_ONE = Constant("1", "number")
_CONDITIONS = {"BOOL_AND", "BOOL_OR", "EVERY", "ANY", "SOME"}


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
    _check_arguments(scope, call, name, arguments)
    function = SUPPORTED_AGGREGATES[name]
    if function in ENDS:
        refuse_incomparable(scope, arguments[-1], f"{name} compares")
        distinct = False
    if distinct:
        _check_distinct(scope, call, name, arguments)
    taken = _counted(name, arguments, distinct=distinct) if function == "count" else arguments
    if condition is not None:
        taken = [_when(condition, argument) for argument in taken or [_ONE]]
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


def _check_arguments(scope: Scope, call: Form, name: str, arguments: Sequence[Tree]) -> None:
    """Refuse a wrong number of arguments, and arguments of BOOL_AND and the like that are no conditions."""
    if name == "COUNT":
        if not arguments and "*" not in call.parts:
            raise scope.error("COUNT counts nothing: write COUNT(*), or COUNT(column)", call)
    elif SUPPORTED_AGGREGATES[name] in CHOSEN_BY:
        if len(arguments) != len(("x", "y")):
            end = "greatest" if name == "MAX_BY" else "least"
            raise scope.error(
                f"{name} takes two arguments, and this call has {len(arguments)}: write {name}(x, y) for the x of the "
                f"pair with the {end} y",
                call,
            )
    elif len(arguments) != 1:
        raise scope.error(
            f"{name} takes one argument, and this call has {len(arguments)}: write {name}(x)", call
        )
    elif name in _CONDITIONS and exact_type(scope, unwrapped(arguments[0])) not in {"", "boolean"}:
        raise scope.error(
            f"{name} is for conditions, and this is {exact_type(scope, unwrapped(arguments[0]))}: "
            f"write a condition, such as {name}(... > 0)",
            arguments[0],
        )


def _check_distinct(scope: Scope, call: Form, name: str, arguments: Sequence[Tree]) -> None:
    """Refuse DISTINCT where it is not supported, or where values cannot be compared."""
    if SUPPORTED_AGGREGATES[name] not in {"count", "sum", "avg"}:
        raise scope.error(f"{name} takes no DISTINCT: COUNT, SUM, AVG, MIN and MAX do", call)
    for argument in arguments:
        refuse_incomparable(scope, argument, "DISTINCT compares")


def _counted(name: str, arguments: list[Tree], *, distinct: bool) -> list[Tree]:
    """Return the arguments that COUNT checks for NULL; none where it counts every pair."""
    if name == "COUNT_IF":
        return [_when(arguments[0], _ONE)]
    if distinct or not arguments:
        return arguments
    if len(arguments) > 1:
        tests = [
            Form("IS NOT NULL", (tree, " IS NOT NULL"), PREDICATE, (BIT_OR,), tree.span) for tree in arguments
        ]
        return [_when(chain("AND", tests), _ONE)]
    return [] if _is_given_literal(arguments[0]) else arguments


def _is_given_literal(tree: Tree) -> bool:
    bare = unwrapped(tree)
    return isinstance(bare, Constant) and (
        bare.kind in {"number", "string", "typed", "interval"} or bare.text in {"TRUE", "FALSE"}
    )


def _when(condition: Tree, value: Tree) -> Form:
    return Form("CASE", ("CASE WHEN ", condition, " THEN ", value, " END"), span=value.span)
