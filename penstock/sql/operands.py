"""What an operator can stand beside: literals, names, calls, CASE, brackets, and what is attached to them.

Which function, type or unit it is need not be known: all of them are kept as written.

In:  a `Reader` before an operand.  Out: its tree; the reader stands after it.
Refused where they stand: subqueries, parameters, and (`penstock.sql.calls`) functions of more than one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.sql.calls import call
from penstock.sql.text.keywords import CLAUSES
from penstock.sql.text.literals import (
    TYPE_WORDS,
    begins_interval,
    interval,
    number,
    path_text,
    strings,
    type_text,
    typed,
)
from penstock.sql.text.tree import COMPARISON, LOOSEST, TIGHTEST, Constant, Form, Name, Tree, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from penstock.sql.text.tokens import Reader

    Deep = Generator[Any, Tree, Tree]
    Parts = list[str | Tree]

DEEPEST_BRACKETS = 500
"""How deep brackets may be nested; Spark gives up earlier, unless the brackets have no effect."""


class Operands:
    """Reads operands.  What gives a generator is for `penstock.sql.trampoline.run`."""

    def __init__(self, reader: Reader) -> None:
        """Begin where the reader stands."""
        self.reader = reader
        self.depth = 0

    def expression(self, least: int) -> Deep:
        """Read operators that bind at least so tightly, and their operands."""
        raise NotImplementedError

    def operand(self) -> Deep:
        """Read an operand and what is attached to it."""
        tree = yield self.attached((yield self._bare()))
        return tree

    def attached(self, tree: Tree) -> Deep:
        """Read the fields, subscripts and casts behind an operand."""
        reader = self.reader
        while True:
            parts: Parts
            if reader.word() == "[":
                self.open("[")
                parts = ["[", (yield self.expression(COMPARISON)), "]"]
                self.close("]")
            elif reader.accept("."):
                parts = [f".{quoted(self.name())}"]
            elif reader.accept("::"):
                parts = [f"::{type_text(reader)}"]
            elif reader.accept("COLLATE"):
                parts = [f" COLLATE {quoted(self.name())}"]
            elif reader.word() == ":":
                parts = [path_text(reader)]
            else:
                return tree
            head = next(each for each in ("[", "::", ".", " COLLATE", ":") if str(parts[0]).startswith(each))
            span = (tree.span[0], reader.behind)
            tree = Form(head.strip(), (tree, *parts), needs=(TIGHTEST, COMPARISON), span=span)

    def expect(self, word: str) -> None:
        """Read this word, which must come next."""
        if not self.reader.accept(word):
            raise self.reader.misfit()

    def open(self, bracket: str) -> None:
        """Read a bracket that opens; it must not be one too many, nor begin a subquery."""
        span = self.reader.span
        self.expect(bracket)
        self.depth += 1
        if self.depth > DEEPEST_BRACKETS:
            raise self.reader.error(
                f"brackets are nested more than {DEEPEST_BRACKETS} deep: write it with fewer", span
            )
        if self.reader.word() in {"SELECT", "WITH"}:
            raise self.reader.error("a subquery is not supported: join its stream, as in A JOIN B ON ...")

    def close(self, bracket: str) -> None:
        """Read a bracket that closes."""
        self.expect(bracket)
        self.depth -= 1

    def name(self) -> str:
        """Read one part of a name."""
        token = self.reader.ahead()
        if token is None or token.kind not in {"word", "quoted"}:
            raise self.reader.misfit()
        return self.reader.take().name

    def listed(self, item: Callable[[], Generator[Any, Any, Parts]]) -> Generator[Any, Parts, Parts]:
        """Read items separated by commas."""
        parts = yield item()
        while self.reader.accept(","):
            parts += [", ", *(yield item())]
        return parts

    def item(self) -> Generator[Any, Tree, Parts]:
        """Read an expression."""
        return [(yield self.expression(LOOSEST))]

    def argument(self) -> Generator[Any, Tree, Parts]:
        """Read an argument of a function, which may say whose it is: ``name => value``."""
        given: Parts = []
        if self.reader.word(1) == "=>":
            given = [f"{quoted(self.name())} => "]
            self.expect("=>")
        return [*given, (yield self.expression(LOOSEST))]

    def aliased(self) -> Generator[Any, Tree, Parts]:
        """Read an expression that may be given a name."""
        value = yield self.expression(LOOSEST)
        alias = self.alias()
        return [value] if alias is None else [value, f" AS {quoted(alias)}"]

    def alias(self) -> str | None:
        """Read a name given with AS or without; None if there is none."""
        token = self.reader.ahead()
        named = self.reader.accept("AS")
        if named or (
            token and (token.kind == "quoted" or (token.kind == "word" and token.upper not in CLAUSES))
        ):
            return self.name()
        return None

    def _bare(self) -> Deep:
        """Read an operand without what is attached to it."""
        reader, token = self.reader, self.reader.ahead()
        if token is None or (token.kind == "symbol" and token.text not in "(*?:") or self._at_clause():
            raise reader.misfit()
        if token.text in {"?", ":"}:
            raise reader.error("a parameter has no value here: write the value itself")
        if token.kind in {"string", "number"}:
            return strings(reader) if token.kind == "string" else number(reader)
        if token.text == "*":
            return Form("STAR", (reader.take().text,), span=(token.start, token.end))
        tree = yield self._brackets() if token.text == "(" else self._worded()
        return tree

    def _at_clause(self) -> bool:
        """Say whether a word comes next that no operand begins with; some are also the name of a function."""
        word = self.reader.word()
        return word in CLAUSES and not (word in {"BETWEEN", "LIKE", "NOT"} and self.reader.word(1) == "(")

    def _worded(self) -> Deep:
        """Read an operand that begins with a word: CASE, a literal, a name, a call, a lambda."""
        reader, word = self.reader, self.reader.word()
        start, after = reader.span[0], reader.ahead(1)
        if word in {"NULL", "TRUE", "FALSE"}:
            return Constant(reader.take().upper, span=(start, reader.behind))
        if word == "INTERVAL" and begins_interval(reader):
            return interval(reader)
        if word in TYPE_WORDS and after and after.kind == "string":
            return typed(reader)
        tree = yield self._case() if word == "CASE" else self._named()
        return tree

    def _named(self) -> Deep:
        """Read a name, and what it is the name of: a function, a variable, a column, all columns of a stream."""
        reader, start, plain = self.reader, self.reader.span[0], bool(self.reader.word())
        parts = [self.name()]
        while reader.accept("."):
            if reader.accept("*"):
                name = Name(tuple(parts), (start, reader.behind))
                return Form("STAR", (name, ".*"), span=name.span)
            parts, plain = [*parts, self.name()], False
        name = Name(tuple(parts), (start, reader.behind))
        if reader.word() not in {"(", "->"}:
            return name
        tree = yield call(self, name, plain=plain) if reader.word() == "(" else self._lambda([name])
        return tree

    def _case(self) -> Deep:
        """Read ``CASE ... END``."""
        reader, start = self.reader, self.reader.span[0]
        self.open("CASE")
        parts: Parts = ["CASE"]
        if reader.word() != "WHEN":
            parts += [" ", (yield self.expression(LOOSEST))]
        while True:
            for word in ("WHEN", "THEN"):
                self.expect(word)
                parts += [f" {word} ", (yield self.expression(LOOSEST))]
            if reader.word() != "WHEN":
                break
        if reader.accept("ELSE"):
            parts += [" ELSE ", (yield self.expression(LOOSEST))]
        self.close("END")
        return Form("CASE", (*parts, " END"), span=(start, reader.behind))

    def _brackets(self) -> Generator[Any, Any, Tree]:
        """Read what is in brackets: one expression, several as a row, or the variables of a lambda."""
        reader, start = self.reader, self.reader.span[0]
        self.open("(")
        parts: Parts = yield self.listed(self.aliased)
        self.close(")")
        star = next((part for part in parts if isinstance(part, Form) and part.head == "STAR"), None)
        if star:
            raise reader.error(
                "* stands for columns and cannot stand in brackets: leave the brackets out", star.span
            )
        if reader.word() != "->":
            return Form("(" if len(parts) == 1 else "ROW", ("(", *parts, ")"), span=(start, reader.behind))
        variables = [part for part in parts if isinstance(part, Name) and len(part.parts) == 1]
        if len(parts) != 2 * len(variables) - 1:
            raise reader.misfit()
        tree: Tree = yield self._lambda(variables)
        return tree

    def _lambda(self, variables: list[Name]) -> Deep:
        """Read the body of a lambda."""
        self.expect("->")
        body = yield self.expression(LOOSEST)
        parts: Parts = [variables[0]]
        for each in variables[1:]:
            parts += [", ", each]
        listed = parts if len(parts) == 1 else ["(", *parts, ")"]
        return Form("->", (*listed, " -> ", body), LOOSEST, span=(variables[0].span[0], self.reader.behind))
