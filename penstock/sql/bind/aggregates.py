"""Aggregates: how each is held in a tree, and the one way to write it.

However it was written, an aggregate becomes one of eleven functions of plain arguments.  FILTER becomes part of the
argument: what it leaves out is NULL, which no aggregate looks at::

    COUNT(*)  COUNT(1)                    count()
    COUNT(x, y)                           count(CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN 1 END)
    COUNT_IF(c)                           count(CASE WHEN c THEN 1 END)
    SUM(x) FILTER (WHERE c)               sum(CASE WHEN c THEN x END)
    COUNT(*) FILTER (WHERE c)             count(CASE WHEN c THEN 1 END)
    EVERY(c)  ANY(c)                      min(c)  max(c)
    MAX(DISTINCT x)                       max(x)
    MAX_BY(x, y) FILTER (WHERE c)         max_by(CASE WHEN c THEN x END, CASE WHEN c THEN y END)

In:  calls as they are read (`aggregate_form`), and resolved ones.
Out: `Aggregate`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.sql.bind.scope import Scope, exact_type
from penstock.sql.query import CHOSEN_BY, ENDS
from penstock.sql.spark_types import TypeTextError, parse_type
from penstock.sql.text.keywords import SUPPORTED_AGGREGATES
from penstock.sql.text.tree import (
    _FILTER,
    _MARK,
    BIT_OR,
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
_NOT_COMPARED = ("map", "variant")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of `penstock.sql.query.Measure`, and what it takes of each pair."""

    function: str
    arguments: tuple[Tree, ...] = ()
    distinct: bool = False


def read_aggregate(scope: Scope, call: Form) -> Aggregate:
    """Write a resolved call the one way it is written everywhere after."""
    name, distinct = call.head.removeprefix(_MARK)[:-1], str(call.parts[0]).endswith("DISTINCT ")
    arguments, condition = list(call.trees), None
    if _FILTER in call.parts:
        condition = arguments.pop()
    _refuse_nested(scope, call)
    _check_arguments(scope, call, name, arguments)
    function = SUPPORTED_AGGREGATES[name]
    if function in ENDS:
        refuse_incomparable(scope, arguments[-1], f"{name} compares")
        distinct = False
    if distinct:
        _check_distinct(scope, call, name, arguments)
    taken = _counted(name, arguments, distinct=distinct) if function == "count" else arguments
    if condition is not None:
        taken = [_when(condition, each) for each in taken or [_ONE]]
    return Aggregate(function, tuple(taken), distinct)


def refuse_incomparable(scope: Scope, tree: Tree, doing: str) -> None:
    """Refuse values that have no equality, as far as their type is known."""
    kind = exact_type(scope, unwrapped(tree))
    try:
        never = kind and parse_type(kind).holds(*_NOT_COMPARED)
    except TypeTextError:
        return
    if never:
        raise scope.error(
            f"{doing} values of {kind}, and a MAP or VARIANT cannot be compared: use what you need of it, such as one "
            "element, or to_json(...)",
            tree,
        )


def _refuse_incomparable(scope: Scope, trees: Sequence[Tree], doing: str) -> None:
    for each in trees:
        refuse_incomparable(scope, each, doing)


def _refuse_nested(scope: Scope, call: Form) -> None:
    inner = next((each for tree in call.trees for each in nodes(tree) if is_aggregate(each)), None)
    if inner:
        raise scope.error(
            "an aggregate cannot stand in an aggregate: compute the inner one in a query of its own", inner
        )


def _check_arguments(scope: Scope, call: Form, name: str, arguments: Sequence[Tree]) -> None:
    """Refuse too few or too many arguments, and values where conditions are wanted."""
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
        raise scope.error(f"{name} takes one argument, and here are {len(arguments)}", call)
    elif name in _CONDITIONS and exact_type(scope, unwrapped(arguments[0])) not in {"", "boolean"}:
        raise scope.error(
            f"{name} is for conditions, and this is {exact_type(scope, unwrapped(arguments[0]))}: "
            f"write {name}(... > 0), say",
            arguments[0],
        )


def _check_distinct(scope: Scope, call: Form, name: str, arguments: Sequence[Tree]) -> None:
    """Refuse DISTINCT where it is not supported, or where values cannot be told apart."""
    if SUPPORTED_AGGREGATES[name] not in {"count", "sum", "avg"}:
        raise scope.error(f"{name} takes no DISTINCT: COUNT, SUM, AVG, MIN and MAX do", call)
    _refuse_incomparable(scope, arguments, "DISTINCT compares")


def _counted(name: str, arguments: list[Tree], *, distinct: bool) -> list[Tree]:
    """Give what COUNT looks at for NULL; nothing where it counts every pair."""
    if name == "COUNT_IF":
        return [_when(arguments[0], _ONE)]
    if distinct or not arguments:
        return arguments
    if len(arguments) > 1:
        return [_when(chain("AND", [_is_given(each) for each in arguments]), _ONE)]
    return [] if _is_given_literal(arguments[0]) else arguments


def _is_given(tree: Tree) -> Form:
    return Form("IS NOT NULL", (tree, " IS NOT NULL"), PREDICATE, (BIT_OR,), tree.span)


def _is_given_literal(tree: Tree) -> bool:
    """Say whether a tree is a literal other than NULL."""
    bare = unwrapped(tree)
    return isinstance(bare, Constant) and (
        bare.kind in {"number", "string", "typed", "interval"} or bare.text in {"TRUE", "FALSE"}
    )


def _when(condition: Tree, value: Tree) -> Form:
    return Form("CASE", ("CASE WHEN ", condition, " THEN ", value, " END"), span=value.span)
