"""Spark SQL expressions in DuckDB SQL, with the type that Spark gives them.

An expression is translated operator by operator.  A part with another meaning in DuckDB is refused before a row is
read::

    v > 30 AND lower(s) = 'x'       DuckDB SQL
    sha2(s, 256) = 'x'              NeedsSparkError: the function SHA2 is known to Spark only

Values are Spark's.  Whether a part that can fail (an overflow, a division by zero, a malformed cast) is evaluated at
all follows the text from the left; Spark's optimizer may leave out such a part, or evaluate it earlier.

In:  Spark SQL as `penstock.sql` writes it, and the types of its columns.  Out: a `Translation`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.errors import InputError, did_you_mean
from penstock.sql.bind.safety import is_unqualified
from penstock.sql.query import is_side
from penstock.sql.spark_types import SparkType, TypeTextError, parse_type
from penstock.sql.text.lexer import string_value, tokenize
from penstock.sql.text.parser import parse_text
from penstock.sql.text.tree import Constant, Form, Name, cast_type, rebuilt, show, unwrapped
from penstock.testing.expression import conditions
from penstock.testing.expression.arithmetic import calculate, negative, positive, shift, shifts_time
from penstock.testing.expression.casts import cast
from penstock.testing.expression.functions import bitwise_or, call, concat, counted_units
from penstock.testing.expression.literals import read_literal
from penstock.testing.expression.node import (
    VOID,
    EvaluationSettings,
    Node,
    Refusal,
    combine,
    is_supported,
    null,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.sql.text.tree import Tree

_DEEPEST = 60
"""The deepest nesting that is translated: each level takes some of Python's stack."""
_KEPT_TRANSLATIONS = 4_096


class NeedsSparkError(InputError):
    """An expression that only Spark can evaluate: the part of it that is not known here, and why."""

    def __init__(self, expression: str, part: str, why: str) -> None:
        """Keep the part and the reason, for tools that show errors in their own way."""
        self.expression, self.part, self.why = expression, part, why
        within = f" (in {expression})" if part != expression else ""
        super().__init__(
            f"{part}{within} needs Spark: {why}; run it with the engine on Spark: penstock.Engine"
        )


@dataclass(frozen=True, slots=True)
class Translation:
    """An expression in DuckDB SQL: its type, and the columns it reads (see `column_sql`)."""

    kind: SparkType
    sql: str
    columns: tuple[str, ...]
    column: str = ""
    """The name of the column if the expression is nothing else."""


def column_sql(name: str) -> str:
    """Write a column; that of a pair has a dot in its name, ``"l.v"``."""
    return '"' + name.replace('"', '""') + '"'


def type_of(expression: str, types: Mapping[str, str], *, ansi: bool = True) -> str:
    """Return the Spark SQL type of an expression.

    >>> type_of("l.n / r.n", {"l.n": "int", "r.n": "int"}), type_of("price * 2", {"price": "decimal(10,2)"})
    ('double', 'decimal(12,2)')
    """
    return str(translate(expression, types, EvaluationSettings(ansi=ansi)).kind)


def translate(expression: str, types: Mapping[str, str], settings: EvaluationSettings) -> Translation:
    """Translate an expression over columns of some types."""
    return _translated(expression, tuple(types.items()), settings)


@lru_cache(_KEPT_TRANSLATIONS)
def _translated(
    expression: str, types: tuple[tuple[str, str], ...], settings: EvaluationSettings
) -> Translation:
    translator = _Translator(expression, dict(types), settings)
    tree = parse_text(expression)
    if tree is None:
        raise NeedsSparkError(expression, expression, "it cannot be read here")
    bare = rebuilt(tree, unwrapped)
    node = translator.node(bare, 0)
    read = tuple(translator.read)
    return Translation(node.kind, node.sql, read, read[0] if isinstance(bare, Name) else "")


class _Translator:
    """Translates one expression; `read` are the columns it reads."""

    def __init__(self, expression: str, types: Mapping[str, str], settings: EvaluationSettings) -> None:
        self.expression, self.types, self.settings = expression, types, settings
        self.read: dict[str, None] = {}

    def node(self, tree: Tree, depth: int) -> Node:
        """Translate a tree."""
        if depth > _DEEPEST:
            raise NeedsSparkError(self.expression, self.expression, "it is nested too deep")
        operands = [self.node(operand, depth + 1) for operand in tree.trees] if isinstance(tree, Form) else []
        try:
            made = self._made(tree, operands)
            if made.fails and not self.settings.ansi:
                raise Refusal("its value where it fails in ANSI mode is not known here")  # noqa: TRY301
        except Refusal as refusal:
            raise NeedsSparkError(self.expression, show(tree), str(refusal)) from None
        return made

    def _made(self, tree: Tree, operands: list[Node]) -> Node:
        if isinstance(tree, Name):
            return self._column(tree)
        if isinstance(tree, Constant):
            return read_literal(tree, self.settings)
        if not isinstance(tree, Form):
            raise Refusal("it is no expression over columns by name")
        return _form(tree, operands, self.settings)

    def _column(self, name: Name) -> Node:
        """Find a column by its name, whatever its case."""
        parts = name.parts
        if len(parts) > 1 and (len(parts) > len(("l", "v")) or not is_side(parts[0].lower())):
            raise Refusal("fields of a STRUCT are known to Spark only")
        wanted = ".".join(parts).lower()
        found = next((column for column in self.types if column.lower() == wanted), None)
        if found is None:
            raise InputError(
                f"there is no column {'.'.join(parts)} in {self.expression}: {did_you_mean(wanted, self.types)}"
            )
        kind = read_type(self.types[found])
        if kind is None or not is_supported(kind):
            raise Refusal(f"values of {self.types[found].upper()} are known to Spark only")
        self.read[found] = None
        return Node(kind, column_sql(found))


def read_type(text: str) -> SparkType | None:
    """Read a type; None for one that cannot be read."""
    try:
        return parse_type(text)
    except TypeTextError:
        return None


def _form(tree: Form, operands: list[Node], settings: EvaluationSettings) -> Node:
    """Translate a form of its operands' nodes."""
    head = tree.head
    rule = _RULES.get(head)
    if head.startswith("NOT ") and head[4:] in _RULES:
        return conditions.negation(_RULES[head[4:]](tree, operands, settings))
    if rule is None and head.endswith("(") and is_unqualified(tree):
        return _call(tree, operands, settings)
    if rule is None:
        raise Refusal(f"{head} is known to Spark only")
    return rule(tree, operands, settings)


def _call(tree: Form, operands: list[Node], settings: EvaluationSettings) -> Node:
    """Translate a call whose arguments stand between commas."""
    words = {part for part in tree.parts[1:-1] if isinstance(part, str)}
    if tree.head == "TIMESTAMPDIFF(" and len(operands) == len(("start", "end")):
        return counted_units(str(tree.parts[1]).rstrip(", "), operands, settings)
    if words - {", "}:
        raise Refusal(f"{tree.head[:-1]} is not known with {' '.join(sorted(words - {', '})).strip()}")
    if tree.head == "NAMED_STRUCT(":
        return _struct(operands)
    return call(tree.head[:-1], operands, settings)


def _struct(operands: list[Node]) -> Node:
    """Translate NAMED_STRUCT; DuckDB gets numbers for names, since two fields may have one name."""
    names, values = operands[::2], operands[1::2]
    kind = SparkType(
        "struct",
        parts=tuple(value.kind for value in values),
        names=tuple(str(name.literal) for name in names),
    )
    fields = ", ".join(f"f{number} := {value.sql}" for number, value in enumerate(values))
    return combine(kind, f"struct_pack({fields})", operands)


def _arithmetic(tree: Form, operands: list[Node], settings: EvaluationSettings) -> Node:
    left, right = operands
    if tree.head in {"+", "-"} and shifts_time(left, right):
        return shift(tree.head, left, right, settings)
    return calculate(tree.head, left, right, settings)


def _like(tree: Form, operands: list[Node], _: EvaluationSettings) -> Node:
    escape = "\\"
    if isinstance(tree.parts[-1], str):
        escape = "".join(map(string_value, tokenize(tree.parts[-1].removeprefix(" ESCAPE "))))
    if len(escape) != 1 or escape in "{}":
        raise Refusal("an escape is one character")
    return conditions.like(operands, escape)


def _case(tree: Form, operands: list[Node], settings: EvaluationSettings) -> Node:
    """Translate CASE; the operand of a simple one is compared with each value."""
    asked = operands[0] if tree.parts[1] == " " else None
    pairs = operands[1:] if asked else operands
    last = [pairs[-1]] if len(pairs) % 2 else [null(VOID)]
    tests = pairs[: len(pairs) // 2 * 2 : 2]
    if asked:
        tests = [conditions.compare("=", [asked, test], settings) for test in tests]
    values = pairs[1::2]
    if len(values) == 1 and values[0].kind.name == "struct" and len(pairs) % 2 == 0:
        sql = f"CASE WHEN {tests[0].sql} THEN {values[0].sql} END"
        return combine(values[0].kind, sql, [*tests, *values])
    return conditions.choose(tests, [*values, *last], settings)


def _cast(tree: Form, operands: list[Node], settings: EvaluationSettings) -> Node:
    kind = read_type(cast_type(tree))
    if kind is None or not is_supported(kind) or kind.name.startswith("interval"):
        raise Refusal(f"a cast to {cast_type(tree).upper()} is known to Spark only")
    return replace(cast(operands[0], kind, settings), literal=None)


def _distinct(_: Form, operands: list[Node], settings: EvaluationSettings) -> Node:
    return conditions.same(operands, settings)


_RULES: dict[str, Callable[[Form, list[Node], EvaluationSettings], Node]] = {
    **dict.fromkeys(
        conditions.COMPARISONS, lambda tree, two, settings: conditions.compare(tree.head, two, settings)
    ),
    **dict.fromkeys(("<=>", "IS NOT DISTINCT FROM"), _distinct),
    "IS DISTINCT FROM": lambda tree, two, settings: conditions.negation(_distinct(tree, two, settings)),
    **dict.fromkeys(("IS NULL", "IS UNKNOWN"), lambda _, one, __: conditions.is_null(*one)),
    **dict.fromkeys(
        ("IS NOT NULL", "IS NOT UNKNOWN"), lambda _, one, __: conditions.negation(conditions.is_null(*one))
    ),
    "IS TRUE": lambda _, one, __: conditions.is_truth(one[0], wanted=True),
    "IS NOT TRUE": lambda _, one, __: conditions.negation(conditions.is_truth(one[0], wanted=True)),
    "IS FALSE": lambda _, one, __: conditions.is_truth(one[0], wanted=False),
    "IS NOT FALSE": lambda _, one, __: conditions.negation(conditions.is_truth(one[0], wanted=False)),
    **dict.fromkeys(("AND", "OR"), lambda tree, several, _: conditions.connect(tree.head, several)),
    "NOT": lambda _, one, __: conditions.negation(*one),
    "BETWEEN": lambda _, three, settings: conditions.between(three, settings),
    "IN": lambda _, several, settings: conditions.listed(several[0], several[1:], settings),
    "LIKE": _like,
    **dict.fromkeys(("+", "-", "*", "/", "%", "DIV"), _arithmetic),
    "POS": lambda _, one, __: positive(*one),
    "NEG": lambda _, one, __: negative(*one),
    "|": lambda _, two, __: bitwise_or(two),
    "||": lambda _, two, settings: concat(two, settings),
    "CASE": _case,
    **dict.fromkeys(("CAST(", "::"), _cast),
}
"""Each operator and the function that translates it."""
