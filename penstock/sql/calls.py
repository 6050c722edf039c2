"""Calls of functions: a name, brackets, and in them whatever expressions Spark would look for there.

Which function it is matters for a few only::

    CAST(x AS t)            TRIM(BOTH 'x' FROM s)        DATEDIFF(DAY, a, b)         STRUCT(x AS a, y AS b)
    COUNT(*)                SUM(DISTINCT x)              MAX(x) FILTER (WHERE c)

An aggregate is read wherever a call may stand; where it must not, whoever reads the clause says so
(`penstock.sql.bind.aggregates`).  Refused: functions that make rows, and aggregates that are not supported.

In:  a parser that has read a name and stands before a bracket.  Out: the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.sql.bind.aggregates import aggregate_form
from penstock.sql.text.keywords import (
    AGGREGATES,
    ARGUMENT_WORDS,
    GENERATORS,
    SUPPORTED_AGGREGATES,
    UNIT_FUNCTIONS,
    UNITS,
)
from penstock.sql.text.literals import type_text
from penstock.sql.text.refusals import EXPLODE, OVER, refused_function
from penstock.sql.text.tree import COMPARISON, LOOSEST, Form, quoted

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.sql.operands import Operands
    from penstock.sql.text.tokens import Reader, Span
    from penstock.sql.text.tree import Name, Tree

    Parts = list[str | Tree]
    Deep = Generator[Any, Any, Parts]


_AGGREGATE_CLAUSES = {("FILTER", "("), ("WITHIN", "GROUP"), ("IGNORE", "NULLS"), ("RESPECT", "NULLS")}
_CHOICES = (
    "choose from COUNT, SUM, AVG, MIN, MAX, MIN_BY, MAX_BY, STDDEV, STDDEV_POP, VARIANCE, VAR_POP, COUNT_IF, BOOL_AND, "
    "BOOL_OR"
)


def call(parser: Operands, name: Name, *, plain: bool) -> Generator[Any, Any, Form]:
    """Read the rest of a call; `plain` says that the name is one word without backquotes."""
    reader, function = parser.reader, name.parts[-1].upper()
    _refuse(reader, name)
    if plain and (refusal := refused_function(function)):
        raise reader.error(refusal, name.span)
    if function in SUPPORTED_AGGREGATES and len(name.parts) == 1:
        aggregate: Form = yield _aggregate(parser, name)
        return aggregate
    parser.open("(")
    parts: Parts = []
    needs = LOOSEST
    if plain and function in UNIT_FUNCTIONS and reader.word() in UNITS and reader.word(1) == ",":
        parts = [f"{reader.take().upper}, "]
        reader.take()
    if plain and function in {"CAST", "TRY_CAST"}:
        parts = yield _cast(parser)
    elif plain and function in ARGUMENT_WORDS:
        parts, needs = (yield _separated(parser, function)), COMPARISON
    elif reader.word() != ")":
        parts += yield parser.listed(parser.aliased if function == "STRUCT" else parser.argument)
    parser.close(")")
    span = (name.span[0], reader.behind)
    _refuse_window(reader, span)
    written = function if plain else ".".join(map(quoted, name.parts))
    trees = sum(not isinstance(part, str) for part in parts)
    return Form(f"{function}(", (f"{written}(", *parts, ")"), needs=(needs,) * trees, span=span)


def _aggregate(parser: Operands, name: Name) -> Generator[Any, Any, Form]:
    """Read ``([DISTINCT | ALL] x, ...)`` and the FILTER behind it; ``COUNT(*)`` has no arguments."""
    reader, function = parser.reader, name.parts[0].upper()
    parser.open("(")
    distinct = reader.word() == "DISTINCT" and reader.word(1) not in {")", ","}
    if distinct or (reader.word() == "ALL" and reader.word(1) not in {")", ","}):
        reader.take()
    arguments: Parts = []
    if function == "COUNT" and not distinct and reader.word() == "*" and reader.word(1) == ")":
        arguments = [reader.take().text]
    elif reader.word() != ")":
        arguments = yield parser.listed(parser.item)
    parser.close(")")
    condition = None
    if reader.word() == "FILTER" and reader.word(1) == "(":
        condition = yield _filter(parser)
    span = (name.span[0], reader.behind)
    _refuse_window(reader, span)
    return aggregate_form(function, arguments, condition, distinct=distinct, span=span)


def _filter(parser: Operands) -> Generator[Any, Any, Tree]:
    """Read ``FILTER (WHERE c)``."""
    parser.expect("FILTER")
    parser.open("(")
    parser.expect("WHERE")
    condition: Tree = yield parser.expression(LOOSEST)
    parser.close(")")
    return condition


def _cast(parser: Operands) -> Deep:
    """Read ``x AS t``."""
    value = yield parser.expression(LOOSEST)
    parser.expect("AS")
    return [value, f" AS {type_text(parser.reader)}"]


def _separated(parser: Operands, function: str) -> Deep:
    """Read arguments with words between them."""
    reader, parts = parser.reader, []
    if function == "EXTRACT" and reader.word(1) == "FROM":
        parts = [reader.take().text]
    while reader.word() != ")":
        is_word = reader.word() in ARGUMENT_WORDS[function]
        if parts and not is_word and reader.word() != "," and not isinstance(parts[-1], str):
            raise reader.misfit()
        if reader.accept(","):
            parts.append(", ")
            continue
        gap = " " if parts and parts[-1] != ", " else ""
        parts += [f"{gap}{reader.take().upper}"] if is_word else [gap, (yield parser.expression(COMPARISON))]
    return [part for part in parts if part]


def _refuse(reader: Reader, name: Name) -> None:
    """Refuse functions that do not give one value for one row."""
    function = name.parts[-1].lower()
    if function in AGGREGATES and (function.upper() not in SUPPORTED_AGGREGATES or len(name.parts) > 1):
        raise reader.error(f"the aggregate {function.upper()} is not supported: {_CHOICES}", name.span)
    if function in GENERATORS:
        raise reader.error(f"{function.upper()}, which makes rows, is not supported: {EXPLODE}", name.span)
    if function == "identifier":
        raise reader.error("IDENTIFIER(...) is not supported: write the name itself", name.span)


def _refuse_window(reader: Reader, span: Span) -> None:
    """Refuse what may stand behind the call of an aggregate or a window function."""
    word, after = reader.word(), reader.ahead(1)
    if word == "OVER" and after and (after.text == "(" or after.kind in {"word", "quoted"}):
        raise reader.error(f"a window function (OVER) is not supported: {OVER}")
    if after and (word, after.upper) in _AGGREGATE_CLAUSES:
        raise reader.error(
            f"{word} {after.text} cannot stand here: FILTER (WHERE ...) is for aggregates such as COUNT(*)",
            span,
        )
