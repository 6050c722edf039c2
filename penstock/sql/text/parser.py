"""Tokens to trees, by Spark's own grammar of expressions (its ``SqlBaseParser.g4``).

Words must be grouped here as Spark groups them, so the operators and their order are Spark's.  From the loosest to the
tightest::

    OR   AND   NOT !   IN LIKE RLIKE BETWEEN IS   = <> < > <=>   |   ^   &   << >> >>>   + - ||   * / % DIV   - + ~

In:  a `TokenReader` before an expression.  Out: its tree; the reader stands after it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from penstock.errors import SqlError
from penstock.sql.aggregates import function_of
from penstock.sql.text.keywords import (
    AGGREGATES,
    ARGUMENT_WORDS,
    CLAUSES,
    GENERATORS,
    UNIT_FUNCTIONS,
    UNITS,
)
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
from penstock.sql.text.refusals import EXPLODE, OVER, refused_function
from penstock.sql.text.tokens import Source, Span, TokenReader
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
    Constant,
    Form,
    Name,
    Tree,
    aggregate_form,
    binary,
    chain,
    negation,
    quoted,
    rank_of,
    run,
)

Deep = Generator[Any, Tree, Tree]
Parts = list[str | Tree]

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


_AGGREGATE_CLAUSES = {("FILTER", "("), ("WITHIN", "GROUP"), ("IGNORE", "NULLS"), ("RESPECT", "NULLS")}
_CHOICES = (
    "choose from COUNT, SUM, AVG, MIN, MAX, MIN_BY, MAX_BY, STDDEV, STDDEV_POP, VARIANCE, VAR_POP, COUNT_IF, BOOL_AND, "
    "BOOL_OR"
)


def call(parser: Parser, name: Name, *, plain: bool) -> Generator[Any, Any, Form]:
    """Read the rest of a call; `plain`: the name is one word without backquotes."""
    reader, function = parser.reader, name.parts[-1].upper()
    _refuse(reader, name)
    if plain and (refusal := refused_function(function)):
        raise reader.error(refusal, name.span)
    if function_of(function) and len(name.parts) == 1:
        aggregate: Form = yield _aggregate(parser, name)
        return aggregate
    parser.open("(")
    parts: Parts = []
    needs = LOOSEST
    if plain and function in UNIT_FUNCTIONS and reader.word() in UNITS and reader.word(1) == ",":
        parts = [f"{reader.take().upper}, "]
        reader.take()
    if plain and function in {"CAST", "TRY_CAST"}:
        parts = [(yield parser.expression(LOOSEST))]
        reader.require("AS")
        parts += [f" AS {type_text(reader)}"]
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


def _aggregate(parser: Parser, name: Name) -> Generator[Any, Any, Form]:
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
        reader.require("FILTER")
        parser.open("(")
        reader.require("WHERE")
        condition = yield parser.expression(LOOSEST)
        parser.close(")")
    span = (name.span[0], reader.behind)
    _refuse_window(reader, span)
    return aggregate_form(function, arguments, condition, distinct=distinct, span=span)


def _separated(parser: Parser, function: str) -> Generator[Any, Any, Parts]:
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


def _refuse(reader: TokenReader, name: Name) -> None:
    """Refuse functions that do not return one value for one row."""
    function = name.parts[-1].lower()
    if function in AGGREGATES and (not function_of(function.upper()) or len(name.parts) > 1):
        raise reader.error(f"the aggregate {function.upper()} is not supported: {_CHOICES}", name.span)
    if function in GENERATORS:
        raise reader.error(
            f"{function.upper()}, which returns several rows, is not supported: {EXPLODE}", name.span
        )
    if function == "identifier":
        raise reader.error("IDENTIFIER(...) is not supported: write the name itself", name.span)


def _refuse_window(reader: TokenReader, span: Span) -> None:
    """Refuse the clauses of aggregates and window functions behind a call."""
    word, after = reader.word(), reader.ahead(1)
    if word == "OVER" and after and (after.text == "(" or after.kind in {"word", "quoted"}):
        raise reader.error(f"a window function (OVER) is not supported: {OVER}")
    if after and (word, after.upper) in _AGGREGATE_CLAUSES:
        raise reader.error(
            f"{word} {after.text} cannot stand here: FILTER (WHERE ...) is for aggregates such as COUNT(*)",
            span,
        )


DEEPEST_BRACKETS = 500
"""The maximum nesting of brackets; Spark has a lower limit, except for brackets without effect."""


class Parser:
    """Reads expressions; a method that returns a generator is for `penstock.sql.text.tree.run`."""

    def __init__(self, reader: TokenReader) -> None:
        self.reader = reader
        self.depth = 0

    def expression(self, least: int) -> Deep:
        """Read operators of at least this rank, and their operands."""
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
        """Read all operands of AND, or of OR."""
        operands = [first]
        while self.reader.accept(word):
            operands.append((yield self.expression(_CONNECTORS[word] + 1)))
        return chain(word, operands)

    def _negation(self) -> Deep:
        """Read ``NOT x``, or any other operand."""
        start = self.reader.span[0]
        if not (self.reader.accept("NOT") or self.reader.accept("!")):
            return (yield self._signed())
        operand = yield self.expression(NOT)
        return negation(operand, (start, self.reader.behind))

    def _signed(self) -> Deep:
        """Read an operand and the signs before it; the minus before a number is part of it."""
        reader, start, sign = self.reader, self.reader.span[0], self.reader.word()
        if sign not in _SIGNS:
            return (yield self.operand())
        reader.take()
        after = reader.ahead()
        if sign == "-" and after and after.kind == "number":
            return (yield self.attached(number(reader, sign)))
        operand = yield self._signed()
        return Form(_SIGNS[sign], (sign, operand), SIGN, (TIGHTEST,), (start, reader.behind))

    def _at_test(self) -> bool:
        """Check whether a test such as ``IN (...)`` or ``IS NULL`` comes next."""
        word, after = self.reader.word(), self.reader.word(1)
        return word in _TESTS or word == "IS" or (word == "NOT" and after in _TESTS)

    def _test(self, left: Tree) -> Generator[Any, Any, Tree]:
        """Read a test such as ``IN (...)`` behind its left operand."""
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
            self.reader.require("AND")
            more = [" AND ", (yield self.expression(COMPARISON))]
        elif word in {"LIKE", "ILIKE"} and reader.accept("ESCAPE"):
            more = [f" ESCAPE {strings(reader).text}"]
        return self._tested(f"{no}{word}", left, f" {no}{word} ", right, *more)

    def _identity(self, left: Tree) -> Deep:
        """Read a test that begins with IS."""
        reader = self.reader
        head = "IS NOT" if reader.accept("NOT") else "IS"
        if reader.accept("DISTINCT"):
            self.reader.require("FROM")
            head += " DISTINCT FROM"
            return self._tested(head, left, f" {head} ", (yield self.expression(COMPARISON)))
        if reader.word() not in {"NULL", "TRUE", "FALSE", "UNKNOWN"}:
            raise reader.misfit()
        head += f" {reader.take().upper}"
        return self._tested(head, left, f" {head}")

    def _tested(self, head: str, left: Tree, *parts: str | Tree) -> Form:
        """Build a test; items in brackets may be any expression, other operands need a tighter rank."""
        trees = 1 + sum(not isinstance(part, str) for part in parts)
        needs = (BIT_OR,) if parts[-1] == ")" else (BIT_OR,) * trees
        return Form(head, (left, *parts), PREDICATE, needs, (left.span[0], self.reader.behind))

    def operand(self) -> Deep:
        """Read an operand and its fields, subscripts and casts."""
        return (yield self.attached((yield self._bare())))

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
                parts = [f".{quoted(self.reader.part())}"]
            elif reader.accept("::"):
                parts = [f"::{type_text(reader)}"]
            elif reader.accept("COLLATE"):
                parts = [f" COLLATE {quoted(self.reader.part())}"]
            elif reader.word() == ":":
                parts = [path_text(reader)]
            else:
                return tree
            heads = ("[", "::", ".", " COLLATE", ":")
            head = next(head for head in heads if str(parts[0]).startswith(head))
            span = (tree.span[0], reader.behind)
            tree = Form(head.strip(), (tree, *parts), needs=(TIGHTEST, COMPARISON), span=span)

    def open(self, bracket: str) -> None:
        """Read an opening bracket, and refuse deep nesting and subqueries."""
        span = self.reader.span
        self.reader.require(bracket)
        self.depth += 1
        if self.depth > DEEPEST_BRACKETS:
            raise self.reader.error(
                f"brackets are nested more than {DEEPEST_BRACKETS} deep: write it with fewer", span
            )
        if self.reader.word() in {"SELECT", "WITH"}:
            raise self.reader.error("a subquery is not supported: join its stream, as in A JOIN B ON ...")

    def close(self, bracket: str) -> None:
        self.reader.require(bracket)
        self.depth -= 1

    def listed(self, item: Callable[[], Generator[Any, Any, Parts]]) -> Generator[Any, Parts, Parts]:
        """Read items separated by commas."""
        parts = yield item()
        while self.reader.accept(","):
            parts += [", ", *(yield item())]
        return parts

    def item(self) -> Generator[Any, Tree, Parts]:
        return [(yield self.expression(LOOSEST))]

    def argument(self) -> Generator[Any, Tree, Parts]:
        """Read an argument of a function, which may be named: ``name => value``."""
        given: Parts = []
        if self.reader.word(1) == "=>":
            given = [f"{quoted(self.reader.part())} => "]
            self.reader.require("=>")
        return [*given, (yield self.expression(LOOSEST))]

    def aliased(self) -> Generator[Any, Tree, Parts]:
        """Read an expression and its alias, if it has one."""
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
            return self.reader.part()
        return None

    def _bare(self) -> Deep:
        """Read an operand without its fields, subscripts and casts."""
        reader, token = self.reader, self.reader.ahead()
        if token is None or (token.kind == "symbol" and token.text not in "(*?:") or self._at_clause():
            raise reader.misfit()
        if token.text in {"?", ":"}:
            raise reader.error("a parameter has no value here: write the value itself")
        if token.kind in {"string", "number"}:
            return strings(reader) if token.kind == "string" else number(reader)
        if token.text == "*":
            return Form("STAR", (reader.take().text,), span=(token.start, token.end))
        return (yield self._brackets() if token.text == "(" else self._worded())

    def _at_clause(self) -> bool:
        """Check whether the next word begins a clause; some such words are also the name of a function."""
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
        return (yield self._case() if word == "CASE" else self._named())

    def _named(self) -> Deep:
        """Read what begins with a name: a column, a call, a lambda, or all columns of a stream."""
        reader, start, plain = self.reader, self.reader.span[0], bool(self.reader.word())
        parts = [self.reader.part()]
        while reader.accept("."):
            if reader.accept("*"):
                name = Name(tuple(parts), (start, reader.behind))
                return Form("STAR", (name, ".*"), span=name.span)
            parts, plain = [*parts, self.reader.part()], False
        name = Name(tuple(parts), (start, reader.behind))
        if reader.word() not in {"(", "->"}:
            return name
        return (yield call(self, name, plain=plain) if reader.word() == "(" else self._lambda([name]))

    def _case(self) -> Deep:
        reader, start = self.reader, self.reader.span[0]
        self.open("CASE")
        parts: Parts = ["CASE"]
        if reader.word() != "WHEN":
            parts += [" ", (yield self.expression(LOOSEST))]
        while True:
            for word in ("WHEN", "THEN"):
                self.reader.require(word)
                parts += [f" {word} ", (yield self.expression(LOOSEST))]
            if reader.word() != "WHEN":
                break
        if reader.accept("ELSE"):
            parts += [" ELSE ", (yield self.expression(LOOSEST))]
        self.close("END")
        return Form("CASE", (*parts, " END"), span=(start, reader.behind))

    def _brackets(self) -> Generator[Any, Any, Tree]:
        """Read an expression in brackets, a row of several, or the variables of a lambda."""
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
        self.reader.require("->")
        body = yield self.expression(LOOSEST)
        parts: Parts = [variables[0]]
        for variable in variables[1:]:
            parts += [", ", variable]
        listed = parts if len(parts) == 1 else ["(", *parts, ")"]
        return Form("->", (*listed, " -> ", body), LOOSEST, span=(variables[0].span[0], self.reader.behind))


def parse_expression(reader: TokenReader) -> Tree:
    """Read one expression.

    >>> from penstock.sql.text.tokens import TokenReader, Source
    >>> from penstock.sql.text.tree import show
    >>> source = Source("not a.b between 1 and 2 or lower( x )like'y' and c FROM t")
    >>> reader = TokenReader(source, source.statements[0])
    >>> show(parse_expression(reader)), reader.word()
    ("NOT a.b BETWEEN 1 AND 2 OR LOWER(x) LIKE 'y' AND c", 'FROM')
    """
    return run(Parser(reader).expression(LOOSEST))


def parse_text(text: str) -> Tree | None:
    """Read a text that is one expression; None if it is anything else."""
    source = Source(text)
    try:
        reader = TokenReader(source, source.tokens)
        tree = parse_expression(reader) if source.tokens else None
    except SqlError:
        return None
    return tree if reader.done else None
