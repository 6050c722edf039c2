"""Spark SQL expressions evaluated without Spark, exactly or not at all.

A script can be tested without a JVM where Spark's answers are known for certain.  An expression is made into a `Node`,
operator by operator; what may not mean here what it means in Spark is refused before a row is looked at::

    v > 30 AND lower(s) = 'x'       a value for each row
    sha2(s, 256) = 'x'              NeedsSparkError: the function SHA2 is known to Spark only

Evaluation is from the left, and no further than needed, as Spark's own.  (Spark may evaluate a part that stands twice
in an expression before all else, and so fail where a condition or a NULL guards it in the text; here it does not.)

In:  canonical text as `penstock.sql` makes it, the columns' types, and rows as an Arrow table.
Out: the expression's type, and an Arrow array of its values; `RunError` where Spark fails to compute one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError, RunError, did_you_mean
from penstock.sql.bind.safety import is_unqualified
from penstock.sql.query import is_side
from penstock.sql.spark_types import TypeTextError, parse_type
from penstock.sql.text.lexer import string_value, tokenize
from penstock.sql.text.parser import parse_text
from penstock.sql.text.tree import Constant, Form, Name, cast_type, rebuilt, show, unwrapped
from penstock.sql.zones import is_utc
from penstock.testing.expression import conditions, times
from penstock.testing.expression.arithmetic import calculate, kept, negated
from penstock.testing.expression.casts import cast
from penstock.testing.expression.functions import call, concat
from penstock.testing.expression.literals import read
from penstock.testing.expression.nodes import VOID, Node, Refusal, Settings, constant, named
from penstock.testing.expression.values import from_arrow, is_supported, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from penstock.sql.spark_types import SparkType
    from penstock.sql.text.tree import Tree

_DEEPEST = 60
"""Forms in forms that are evaluated here: each costs some of Python's stack."""


class NeedsSparkError(InputError):
    """An expression that only Spark can evaluate: the part of it that is not known here, and why."""

    def __init__(self, expression: str, part: str, why: str) -> None:
        """Keep what only Spark knows, for tools that show errors their own way."""
        self.expression, self.part, self.why = expression, part, why
        within = f" (in {expression})" if part != expression else ""
        super().__init__(
            f"{part}{within} needs Spark: {why}; run it with the engine on Spark: penstock.Engine"
        )


def type_of(expression: str, types: Mapping[str, str], *, ansi: bool = True) -> str:
    """Give the Spark SQL type of an expression's value.

    >>> type_of("l.n / r.n", {"l.n": "int", "r.n": "int"}), type_of("price * 2", {"price": "decimal(10,2)"})
    ('double', 'decimal(12,2)')
    """
    return str(_Compiler(expression, types, Settings(utc=True, ansi=ansi)).made().kind)


def evaluate(
    expression: str, rows: pa.Table, types: Mapping[str, str], *, zone: str = "UTC", ansi: bool = True
) -> pa.Array:
    """Give the value of an expression for each row, as the Arrow type that Spark would give.

    >>> import pyarrow as pa
    >>> evaluate("n % 3 = 1", pa.table({"n": [1, 2, None]}), {"n": "bigint"}).to_pylist()
    [True, False, None]
    """
    compiler = _Compiler(expression, types, Settings(utc=is_utc(zone), ansi=ansi))
    node = compiler.made()
    names = {name.lower(): name for name in rows.column_names}
    columns = [
        from_arrow(rows.column(names[name.lower()]), kind)
        if name in compiler.read
        else [None] * rows.num_rows
        for name, kind in compiler.kinds.items()
    ]
    each_row = zip(*columns, strict=True) if columns else [()] * rows.num_rows
    try:
        values = [node.of(row) for row in each_row]
    except RunError as error:
        raise RunError(f"{error} in {expression}") from None
    return to_arrow(values, node.kind, zone)


class _Compiler:
    """Makes a node of an expression; `read` are the columns it reads."""

    def __init__(self, expression: str, types: Mapping[str, str], settings: Settings) -> None:
        self.expression, self.settings = expression, settings
        self.kinds = {name: _kind(type_) for name, type_ in types.items()}
        self.read: set[str] = set()

    def made(self) -> Node:
        """Make the node of the whole expression."""
        tree = parse_text(self.expression)
        if tree is None:
            raise NeedsSparkError(self.expression, self.expression, "it cannot be read here")
        return self.node(rebuilt(tree, unwrapped), 0)

    def node(self, tree: Tree, depth: int) -> Node:
        """Make the node of a tree."""
        if depth > _DEEPEST:
            raise NeedsSparkError(self.expression, self.expression, "it is nested too deep")
        text = show(tree)
        operands = [self.node(each, depth + 1) for each in tree.trees] if isinstance(tree, Form) else []
        try:
            made = self._made(tree, operands)
            if made.fails and not self.settings.ansi:
                raise Refusal("what it is where it fails in ANSI mode is not known here")  # noqa: TRY301
        except Refusal as refusal:
            raise NeedsSparkError(self.expression, text, str(refusal)) from None
        return named(made, text)

    def _made(self, tree: Tree, operands: list[Node]) -> Node:
        if isinstance(tree, Name):
            return self._column(tree)
        if isinstance(tree, Constant):
            return read(tree, self.settings)
        if not isinstance(tree, Form):
            raise Refusal("it is no expression over columns by name")
        return _form(tree, operands, self.settings)

    def _column(self, name: Name) -> Node:
        """Find a column by its name, whatever its case."""
        parts = name.parts
        if len(parts) > 1 and (len(parts) > len(("l", "v")) or not is_side(parts[0].lower())):
            raise Refusal("fields of a STRUCT are known to Spark only")
        wanted = ".".join(parts).lower()
        for index, (each, kind) in enumerate(self.kinds.items()):
            if each.lower() == wanted:
                return self._value(each, kind, index)
        raise InputError(
            f"there is no column {'.'.join(parts)} in {self.expression}: {did_you_mean(wanted, self.kinds)}"
        )

    def _value(self, name: str, kind: SparkType | str, index: int) -> Node:
        if isinstance(kind, str) or not is_supported(kind):
            raise Refusal(f"values of {str(kind).upper()} are known to Spark only")
        self.read.add(name)
        return Node(kind, lambda row: row[index])


def _kind(text: str) -> Any:
    """Read a type; one that cannot be read stays text."""
    try:
        return parse_type(text)
    except TypeTextError:
        return text


def _form(tree: Form, operands: list[Node], settings: Settings) -> Node:
    """Make the node of a form of its operands' nodes."""
    head = tree.head
    rule = _RULES.get(head)
    if head.startswith("NOT ") and head[4:] in _RULES:
        return conditions.negation(_RULES[head[4:]](tree, operands, settings))
    if rule is None and head.endswith("(") and is_unqualified(tree):
        return _call(tree, operands, settings)
    if rule is None:
        raise Refusal(f"{head} is known to Spark only")
    return rule(tree, operands, settings)


def _call(tree: Form, operands: list[Node], settings: Settings) -> Node:
    """Make a call whose arguments stand between commas."""
    words = {part for part in tree.parts[1:-1] if isinstance(part, str)}
    if tree.head == "TIMESTAMPDIFF(" and len(operands) == len(("start", "end")):
        return times.counted(str(tree.parts[1]).rstrip(", "), operands, settings)
    if words - {", "}:
        raise Refusal(f"{tree.head[:-1]} is not known with {' '.join(sorted(words - {', '})).strip()}")
    return call(tree.head[:-1], operands, settings)


def _arithmetic(tree: Form, operands: list[Node], settings: Settings) -> Node:
    left, right = operands
    if tree.head in {"+", "-"} and times.shifts_time(left, right):
        return times.shift(tree.head, left, right, settings)
    return calculate(tree.head, left, right, settings)


def _like(tree: Form, operands: list[Node], _: Settings) -> Node:
    escape = "\\"
    if isinstance(tree.parts[-1], str):
        escape = "".join(map(string_value, tokenize(tree.parts[-1].removeprefix(" ESCAPE "))))
    if len(escape) != 1:
        raise Refusal("an escape is one character")
    return conditions.like(operands, escape)


def _case(tree: Form, operands: list[Node], settings: Settings) -> Node:
    """Make CASE; what it asks about is compared with each."""
    asked = operands[0] if tree.parts[1] == " " else None
    pairs = operands[1:] if asked else operands
    last = [pairs[-1]] if len(pairs) % 2 else [constant(VOID, None, "NULL")]
    tests = pairs[: len(pairs) // 2 * 2 : 2]
    if asked:
        tests = [conditions.compare("=", [asked, test], settings) for test in tests]
    return conditions.choose(tests, [*pairs[1::2], *last], settings)


def _cast(tree: Form, operands: list[Node], settings: Settings) -> Node:
    kind = _kind(cast_type(tree))
    if isinstance(kind, str) or not is_supported(kind) or kind.name.startswith("interval"):
        raise Refusal(f"a cast to {str(kind).upper()} is known to Spark only")
    return replace(cast(operands[0], kind, settings), literal=False)


def _distinct(_: Form, operands: list[Node], settings: Settings) -> Node:
    return conditions.same(operands, settings)


_RULES: dict[str, Callable[[Form, list[Node], Settings], Node]] = {
    **dict.fromkeys(
        conditions.COMPARISONS, lambda tree, two, settings: conditions.compare(tree.head, two, settings)
    ),
    **dict.fromkeys(("<=>", "IS NOT DISTINCT FROM"), _distinct),
    "IS DISTINCT FROM": lambda tree, two, settings: conditions.negation(_distinct(tree, two, settings)),
    "IS NULL": lambda _, one, __: conditions.is_null(*one),
    "IS NOT NULL": lambda _, one, __: conditions.negation(conditions.is_null(*one)),
    "IS UNKNOWN": lambda _, one, __: conditions.is_null(*one),
    "IS NOT UNKNOWN": lambda _, one, __: conditions.negation(conditions.is_null(*one)),
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
    "POS": lambda _, one, __: kept(*one),
    "NEG": lambda _, one, __: negated(*one),
    "||": lambda _, two, settings: concat(two, settings),
    "CASE": _case,
    **dict.fromkeys(("CAST(", "::"), _cast),
}
"""What each operator makes of its operands."""
