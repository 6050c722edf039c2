"""Tokens to trees, by Spark's own grammar of expressions (its ``SqlBaseParser.g4``).

What matters is that words are grouped here as Spark will group them, so the operators and their order are Spark's.
From the loosest to the tightest::

    OR   AND   NOT !   IN LIKE RLIKE BETWEEN IS   = <> < > <=>   |   ^   &   << >> >>>   + - ||   * / % DIV   - + ~

In:  a `Reader` before an expression.  Out: its tree; the reader stands after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SqlError
from penstock.sql.text.literals import number, strings
from penstock.sql.operands import Operands
from penstock.sql.text.tokens import Reader, Source
from penstock.sql.trampoline import run
from penstock.sql.text.tree import (
    AND,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    COMPARISON,
    LOOSEST,
    NOT,
    OR,
    PREDICATE,
    PRODUCT,
    SHIFT,
    SIGN,
    SUM,
    TIGHTEST,
    Form,
    binary,
    chain,
    rank_of,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.sql.operands import Deep
    from penstock.sql.text.tree import Tree

_OPERATORS = {
    "*": PRODUCT, "/": PRODUCT, "%": PRODUCT, "DIV": PRODUCT,
    "+": SUM, "-": SUM, "||": SUM,
    "<<": SHIFT, ">>": SHIFT, ">>>": SHIFT,
    "&": BIT_AND, "^": BIT_XOR, "|": BIT_OR,
    "=": COMPARISON, "==": COMPARISON, "<>": COMPARISON, "!=": COMPARISON, "<": COMPARISON, "<=": COMPARISON,
    "!>": COMPARISON, ">": COMPARISON, ">=": COMPARISON, "!<": COMPARISON, "<=>": COMPARISON,
}  # fmt: skip
_CONNECTORS = {"AND": AND, "OR": OR}
_TESTS = {"IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "BETWEEN"}
_SIGNS = {"-": "NEG", "+": "POS", "~": "~"}


def parse_expression(reader: Reader) -> Tree:
    """Read one expression.

    >>> from penstock.sql.text.tokens import Reader, Source
    >>> from penstock.sql.text.tree import show
    >>> source = Source("not a.b between 1 and 2 or lower( x )like'y' and c FROM t")
    >>> reader = Reader(source, source.statements[0])
    >>> show(parse_expression(reader)), reader.word()
    ("NOT a.b BETWEEN 1 AND 2 OR LOWER(x) LIKE 'y' AND c", 'FROM')
    """
    return run(Parser(reader).expression(LOOSEST))


def parse_text(text: str) -> Tree | None:
    """Read a text that is one expression; None if it is none, or more than one."""
    source = Source(text)
    try:
        reader = Reader(source, source.tokens)
        tree = parse_expression(reader) if source.tokens else None
    except SqlError:
        return None
    return tree if reader.done else None


class Parser(Operands):
    """Reads operators, and so whole expressions."""

    def expression(self, least: int) -> Deep:
        """Read operators that bind at least so tightly, and their operands."""
        tree = yield self._negation() if least <= NOT else self._signed()
        while True:
            word = self.reader.word()
            rank = _OPERATORS.get(word, LOOSEST)
            if LOOSEST < rank <= rank_of(tree) and rank >= least:
                self.reader.take()
                tree = binary(word, rank, tree, (yield self.expression(rank + 1)))
            elif least <= PREDICATE < rank_of(tree) and self._at_test():
                tree = yield self._test(tree)
            elif least <= _CONNECTORS.get(word, -1):
                tree = yield self._connected(tree, word)
            else:
                return tree

    def _connected(self, first: Tree, word: str) -> Deep:
        """Read all operands that one connector holds together."""
        operands = [first]
        while self.reader.accept(word):
            operands.append((yield self.expression(_CONNECTORS[word] + 1)))
        return chain(word, operands)

    def _negation(self) -> Deep:
        """Read ``NOT x``, or any other operand."""
        start = self.reader.span[0]
        if not (self.reader.accept("NOT") or self.reader.accept("!")):
            operand = yield self._signed()
            return operand
        operand = yield self.expression(NOT)
        return Form("NOT", ("NOT ", operand), NOT, (NOT,), (start, self.reader.behind))

    def _signed(self) -> Deep:
        """Read an operand and the signs before it; the minus before a number is part of it."""
        reader, start, sign = self.reader, self.reader.span[0], self.reader.word()
        if sign not in _SIGNS:
            operand = yield self.operand()
            return operand
        reader.take()
        after = reader.ahead()
        if sign == "-" and after and after.kind == "number":
            operand = yield self.attached(number(reader, sign))
            return operand
        operand = yield self._signed()
        return Form(_SIGNS[sign], (sign, operand), SIGN, (TIGHTEST,), (start, reader.behind))

    def _at_test(self) -> bool:
        """Say whether a test such as ``IN (...)`` or ``IS NULL`` comes next."""
        word, after = self.reader.word(), self.reader.word(1)
        return word in _TESTS or word == "IS" or (word == "NOT" and after in _TESTS)

    def _test(self, left: Tree) -> Generator[Any, Any, Tree]:
        """Read a test of what stands left of it."""
        reader = self.reader
        if reader.accept("IS"):
            test: Tree = yield self._identity(left)
            return test
        no = "NOT " if reader.accept("NOT") else ""
        word = reader.take().upper
        if word in {"LIKE", "ILIKE"} and reader.word() in {"ANY", "SOME", "ALL"} and reader.word(1) == "(":
            word = f"{word} {reader.take().upper}"
        if word == "IN" or " " in word:
            self.open("(")
            items = yield self.listed(self.item)
            self.close(")")
            return self._tested(f"{no}{word}", left, f" {no}{word} (", *items, ")")
        right = yield self.expression(COMPARISON)
        more: list[str | Tree] = []
        if word == "BETWEEN":
            self.expect("AND")
            more = [" AND ", (yield self.expression(COMPARISON))]
        elif word in {"LIKE", "ILIKE"} and reader.accept("ESCAPE"):
            more = [f" ESCAPE {strings(reader).text}"]
        return self._tested(f"{no}{word}", left, f" {no}{word} ", right, *more)

    def _identity(self, left: Tree) -> Deep:
        """Read what comes after IS."""
        reader = self.reader
        head = "IS NOT" if reader.accept("NOT") else "IS"
        if reader.accept("DISTINCT"):
            self.expect("FROM")
            head += " DISTINCT FROM"
            return self._tested(head, left, f" {head} ", (yield self.expression(COMPARISON)))
        if reader.word() not in {"NULL", "TRUE", "FALSE", "UNKNOWN"}:
            raise reader.misfit()
        head += f" {reader.take().upper}"
        return self._tested(head, left, f" {head}")

    def _tested(self, head: str, left: Tree, *parts: str | Tree) -> Form:
        """Make a test; only what it lists in brackets may be any expression."""
        trees = 1 + sum(not isinstance(part, str) for part in parts)
        needs = (BIT_OR,) if parts[-1] == ")" else (BIT_OR,) * trees
        return Form(head, (left, *parts), PREDICATE, needs, (left.span[0], self.reader.behind))
