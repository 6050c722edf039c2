"""Promises: rows that declare which rows will not come any more.

A *punctuation* is a row of a stream that carries no data but a promise::

    CREATE STREAM Bid (item_id BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)
      WITH (..., time = 'ts', punctuation = 'kind = ''closed''', punctuates = 'item_id');

    item_id  price  kind     ts
    7        12.5   bid      10:00       data
    7               closed   10:05       after 10:05 there is no row of Bid with item_id = 7

With ``unique = 'item_id'`` every row is data and the last row of its value.  A stream with ``punctuation_of = 'Bid'``
has no data: it *carries* the promises of another stream.

In:  the options of a `Stream`.  Out: its `Promise`s.
True: columns have their declared names, and values fit the columns they are compared with.  For a stream that carries
      the promises of another, `settled_promises` checks this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from penstock.errors import SqlError, did_you_mean
from penstock.sql.bind.canonical import canonical
from penstock.sql.bind.scope import Input, Scope, exact_type
from penstock.sql.options import OptionError, read_count
from penstock.sql.query import Stream
from penstock.sql.spark_types import FLOATING_TYPES, TIME_TYPES, WHOLE_TYPES, parse_type, widens
from penstock.sql.text.parser import parse_expression
from penstock.sql.text.tokens import Source, TokenReader
from penstock.sql.text.tree import (
    Constant,
    Form,
    Tree,
    columns_of,
    has_aggregate,
    nodes,
    quoted,
    show_bare,
    unwrapped,
)

PROMISE_OPTIONS = frozenset({"punctuation", "punctuates", "unique", "punctuation_of", "promises"})
"""Options about promises, in lower case; Penstock reads them, and Spark's source does not see them."""

DEFAULT_BUDGET = 1_000_000
"""How many promises a stream remembers by default."""


@dataclass(frozen=True, slots=True)
class PromisePattern:
    """The values of one column that a promise is about, and the columns that hold these values.

    `column` is of the stream that the promise is about, `low` and `high` of the stream that carries it.  `low` has the
    value, the list or the lower bound; `high` is the upper bound of a range.
    """

    column: str
    kind: Literal["value", "list", "range"]
    low: str
    high: str = ""

    @property
    def text(self) -> str:
        """The normal spelling in ``punctuates``.

        >>> PromisePattern("item_id", "value", "Item_Id").text, PromisePattern("day", "range", "first", "last").text
        ('item_id', 'day BETWEEN first AND last')
        """
        name, first = quoted(self.column), quoted(self.low)
        if self.kind == "range":
            return f"{name} BETWEEN {first} AND {quoted(self.high)}"
        if self.kind == "list":
            return f"{name} IN {first}"
        return name if self.column.lower() == self.low.lower() else f"{name} = {first}"


@dataclass(frozen=True, slots=True)
class Promise:
    """The promise that no later row of a stream matches all patterns.

    `condition` is Spark SQL over the bare columns of the stream that carries the promise; the rows for which it holds
    make the promise.  Without a condition every row makes it.  With `is_data` the row is data as well, and the last row
    of its value.
    """

    about: str
    patterns: tuple[PromisePattern, ...]
    condition: str = ""
    is_data: bool = False


@lru_cache(maxsize=4096)
def promises_of(stream: Stream) -> tuple[Promise, ...]:
    """List the promises that rows of a stream make; most streams have none."""
    options = promise_options(stream)
    _check_together(stream, options)
    promises: list[Promise] = []
    if "punctuates" in options:
        patterns = _read_list("punctuates", options["punctuates"], _PUNCTUATES_FORMS, _read_pattern)
        condition = read_condition(options["punctuation"], stream) if "punctuation" in options else ""
        about = stream.punctuation_of or stream.name
        promises.append(Promise(about, _patterns(stream, patterns, "punctuates"), condition))
    if "unique" in options:
        unique = _patterns(
            stream, _read_list("unique", options["unique"], _UNIQUE_FORMS, _read_column), "unique"
        )
        promises.append(Promise(stream.name, unique, is_data=True))
    return tuple(promises)


def promise_options(stream: Stream) -> dict[str, str]:
    """Return the options of a stream that are about promises."""
    return {name.lower(): value for name, value in stream.options if name.lower() in PROMISE_OPTIONS}


def promise_budget(stream: Stream) -> int:
    """Return how many promises a stream remembers."""
    text = promise_options(stream).get("promises", str(DEFAULT_BUDGET)).strip()
    count = read_count(text, least=1)
    if count is None:
        raise OptionError(
            f"promises cannot be {text}: it is how many promises stream {stream.name} remembers, a whole number from 1",
            "promises",
        )
    return count


def settled_promises(stream: Stream, streams: Mapping[str, Stream]) -> Stream:
    """Write the promises of a stream in their normal spelling, or refuse them.

    Two declarations of the same promises become equal, and `promises_of` needs no other stream.
    """
    promises = promises_of(stream)
    about = _promised_stream(stream, streams) if stream.punctuation_of else stream
    settled = {}
    for promise in promises:
        option = "unique" if promise.is_data else "punctuates"
        patterns = [
            replace(pattern, column=_declared(about, pattern.column, option)) for pattern in promise.patterns
        ]
        for pattern in patterns:
            _check_types(pattern, about, stream, option)
        settled[option] = ", ".join(pattern.text for pattern in patterns)
        settled |= {"punctuation": promise.condition} if promise.condition else {}
    settled |= {"punctuation_of": about.name} if stream.punctuation_of else {}
    options = tuple((name, settled.get(name.lower(), value)) for name, value in stream.options)
    return replace(stream, options=options) if promises else stream


def carriers_of(name: str, streams: Mapping[str, Stream]) -> list[str]:
    """Return the names of the streams that carry the promises of a stream."""
    return [stream.name for stream in streams.values() if stream.punctuation_of.lower() == name.lower()]


# --- checking ---------------------------------------------------------------------------------------------------


def _check_together(stream: Stream, options: Mapping[str, str]) -> None:
    """Refuse options that need, or exclude, each other."""
    promise_budget(stream)
    carrier, name = "punctuation_of" in options, stream.name
    if carrier and not stream.punctuation_of:
        raise OptionError(
            "punctuation_of names no stream: write the stream of the promises", "punctuation_of"
        )
    if carrier and stream.punctuation_of.lower() == name.lower():
        raise OptionError(
            f"punctuation_of of stream {name} names the stream itself: leave it out", "punctuation_of"
        )
    if carrier and "unique" in options:
        raise OptionError(
            f"stream {name} carries promises and has no data: declare unique with {stream.punctuation_of}",
            "unique",
        )
    for given in ("punctuation", "punctuation_of"):
        if given in options and "punctuates" not in options:
            raise OptionError(
                f"stream {name} has {given} without punctuates: add punctuates = '<column>'",
                given,
            )
    if "punctuates" in options and not carrier and "punctuation" not in options:
        raise OptionError(
            f"stream {name} has punctuates without a punctuation: add punctuation = '<condition>', "
            "or, if every row is the last of its value, write unique in place of punctuates",
            "punctuates",
        )


def _patterns(stream: Stream, patterns: list[PromisePattern], option: str) -> tuple[PromisePattern, ...]:
    """Find the columns of patterns as declared; columns of another stream are found when that stream is known."""
    found = []
    for pattern in patterns:
        low = _declared(stream, pattern.low, option)
        high = _declared(stream, pattern.high, option) if pattern.high else ""
        if stream.punctuation_of:
            found.append(replace(pattern, low=low, high=high))
            continue
        found.append(PromisePattern(_declared(stream, pattern.column, option), pattern.kind, low, high))
        _check_types(found[-1], stream, stream, option)
    return tuple(found)


def _declared(stream: Stream, name: str, option: str) -> str:
    """Return the declared spelling of a column."""
    column = stream.column(name)
    if column is None:
        hint = did_you_mean(name, [column.name for column in stream.columns])
        raise OptionError(f"{option}: stream {stream.name} has no column {name}: {hint}", option)
    return column.name


def _promised_stream(stream: Stream, streams: Mapping[str, Stream]) -> Stream:
    """Find the stream that `punctuation_of` names."""
    name, option = stream.punctuation_of, "punctuation_of"
    about = next((other for other in streams.values() if other.name.lower() == name.lower()), None)
    if about is None:
        hint = did_you_mean(name, [other.name for other in streams.values()])
        raise OptionError(
            f"stream {stream.name} carries the promises of {name}, which is not declared before it: {hint}",
            option,
        )
    if about.punctuation_of:
        raise OptionError(
            f"stream {about.name} carries the promises of {about.punctuation_of} itself: name a stream that has rows",
            option,
        )
    if about.timeless:
        raise OptionError(
            f"stream {about.name} has no event time, by which promises take effect: declare it with time = '<column>'",
            option,
        )
    if (about.time_type == "timestamp") != (stream.time_type == "timestamp"):
        raise OptionError(
            f"the time of {stream.name} is {stream.time_type} and that of {about.name} is {about.time_type}, which "
            "cannot be compared in every zone: give both streams times of one type",
            option,
        )
    return about


_ORDERED = frozenset({*WHOLE_TYPES, *FLOATING_TYPES, *TIME_TYPES, "decimal", "string", "binary"})
_NOT_PLAIN = ("map", "array", "struct", "variant", "void")


def _check_types(pattern: PromisePattern, about: Stream, carrier: Stream, option: str) -> None:
    """Refuse a column without plain values, and values that lose something when they become values of the column."""
    kind = parse_type(about.type_of(pattern.column))
    if kind.holds(*_NOT_PLAIN) or kind.has_collation():
        raise OptionError(
            f"{option} names {pattern.column}, which is {kind}: a promise is about plain values, compared byte by "
            "byte. Name a column of numbers, of text without a collation, or of times",
            option,
        )
    if pattern.kind == "range" and kind.name not in _ORDERED:
        raise OptionError(
            f"{option} has a range of {pattern.column}, which is {kind}: a range is of numbers, texts, times or binary "
            f"values. Write {pattern.column} = {pattern.low}, or {pattern.column} IN an array",
            option,
        )
    for name in filter(None, (pattern.low, pattern.high)):
        given, verb = parse_type(carrier.type_of(name)), "is"
        if pattern.kind == "list":
            if given.name != "array":
                raise OptionError(
                    f"{option} has {pattern.column} IN {name}, and {name} is {given}: IN needs a column that is an "
                    f"array. For one value write {pattern.column} = {name}",
                    option,
                )
            given, verb = given.parts[0], "holds"
        if not widens(given, kind):
            raise OptionError(
                f"{option} compares {pattern.column}, which is {kind}, with {name}: {name} {verb} {given}, which does "
                f"not become {kind} without loss. Give both one type",
                option,
            )


# --- reading patterns -------------------------------------------------------------------------------------------

_PUNCTUATES_FORMS = (
    "write 'item_id', 'item_id = auction', 'item_id IN items', 'item_id BETWEEN lo AND hi', "
    "or several with commas"
)
_UNIQUE_FORMS = "write 'item_id', or several columns with commas"


def _read_list(
    option: str, text: str, forms: str, item: Callable[[TokenReader], PromisePattern]
) -> list[PromisePattern]:
    """Read items separated by commas; each column may be named once."""
    source, patterns = Source(text), list[PromisePattern]()
    try:
        reader = TokenReader(source, source.tokens)
        while not patterns or reader.accept(","):
            patterns.append(item(reader))
        reader.end()
    except (SqlError, IndexError):  # a text without words has no position to point at
        raise OptionError(f"{option} {text!r} cannot be read: {forms}", option) from None
    names = [pattern.column.lower() for pattern in patterns]
    twice = next((pattern.column for pattern in patterns if names.count(pattern.column.lower()) > 1), None)
    if twice:
        raise OptionError(f"{option} names {twice} twice: a column can stand there once", option)
    return patterns


def _read_column(reader: TokenReader) -> PromisePattern:
    column = reader.name("a column")
    return PromisePattern(column, "value", column)


def _read_pattern(reader: TokenReader) -> PromisePattern:
    column = reader.name("a column")
    if reader.accept("="):
        return PromisePattern(column, "value", reader.name("a column"))
    if reader.accept("IN"):
        return PromisePattern(column, "list", reader.name("a column"))
    if reader.accept("BETWEEN"):
        low = reader.name("a column")
        reader.expect("AND", _PUNCTUATES_FORMS)
        return PromisePattern(column, "range", low, reader.name("a column"))
    return PromisePattern(column, "value", column)


# --- reading conditions -----------------------------------------------------------------------------------------

_ARITHMETIC = frozenset(
    ["+", "-", "*", "/", "%", "DIV", "&", "|", "^", "<<", ">>", ">>>", "||", "NEG", "POS", "~"]
)
_TEXTS = frozenset({"string", "a string"})
_CONNECTIONS = frozenset({"AND", "OR", "NOT"})
_INCONSTANT_NAMES = """
    rand random randn randstr uniform uuid shuffle monotonically_increasing_id spark_partition_id input_file_name
    input_file_block_start input_file_block_length now curdate current_date current_time current_timestamp localtime
    localtimestamp current_user session_user user reflect try_reflect java_method
"""
_INCONSTANT = frozenset(_INCONSTANT_NAMES.split())
"""Functions that may return another value when they are called again for the same row."""


@lru_cache(maxsize=4096)
def read_condition(text: str, stream: Stream) -> str:
    """Read the condition of a stream's punctuations, and return its canonical spelling.

    >>> from penstock.sql.query import Column, Stream
    >>> bid = Stream("Bid", (Column("Kind", "string"), Column("ts", "timestamp")), "ts")
    >>> read_condition("bid.KIND != 'bid' and (kind) is not null", bid)
    "NOT Kind IS NULL AND Kind <> 'bid'"
    """
    scope = Scope(Source(text), (0, len(text)), (Input(stream.name, stream, "l"),))
    try:
        tree = scope.resolve(_parsed(scope, stream))
    except SqlError as error:
        raise OptionError(f"punctuation {text!r}: {error.message}", "punctuation") from None
    problem = _problem(scope, tree)
    if problem:
        raise OptionError(f"punctuation {text!r} {problem}", "punctuation")
    return show_bare(canonical(tree, scope.type_of))


def _parsed(scope: Scope, stream: Stream) -> Tree:
    """Read one expression; errors give advice about conditions, not about queries."""
    example = f"write a condition on the columns of {stream.name}, such as kind = 'closed'"
    try:
        if not scope.source.tokens:
            raise scope.error(f"there is nothing in it: {example}", scope.span)
        reader = TokenReader(scope.source, scope.source.tokens)
        tree = parse_expression(reader)
        reader.end()
    except SqlError as error:
        reason = error.message.partition(": ")[0].replace("the query", "it")
        raise scope.error(f"{reason}: {example}", scope.span) from None
    return tree


def _problem(scope: Scope, tree: Tree) -> str:
    """Return the error of a resolved condition, as far as it is known without Spark; empty if there is none."""
    if has_aggregate(tree):
        return "has an aggregate: a condition must depend on one row"
    if inconstant := next(filter(None, map(_inconstant, nodes(tree))), ""):
        return f"has {inconstant}(), which may return another value for the same row: use columns alone"
    if not any(True for _ in columns_of(tree)):
        return "reads no column, so that it holds for every row or for none: write a condition on a column"
    if kind := _wrong_type(scope, tree):
        return f"is {kind}, and no condition: compare it with something, as in kind = 'closed'"
    return ""


def _inconstant(node: Tree) -> str:
    """Return the name of a function that may give another value for the same row; empty for all other nodes."""
    if isinstance(node, Constant):
        return node.text.lower() if node.kind == "call" else ""
    name = node.head[:-1].lower() if isinstance(node, Form) and node.head.endswith("(") else ""
    is_clock = name == "unix_timestamp" and isinstance(node, Form) and not node.trees
    return name if name in _INCONSTANT or is_clock else ""


def _wrong_type(scope: Scope, tree: Tree) -> str:
    """Return the type that makes a tree no condition; beside AND, OR and NOT a text becomes a boolean."""
    bare = unwrapped(tree)
    kinds = [_other_type(scope, operand) for operand in _operands(bare)]
    alone = not (isinstance(bare, Form) and bare.head in _CONNECTIONS)
    return next((kind for kind in kinds if kind and (alone or kind not in _TEXTS)), "")


def _other_type(scope: Scope, tree: Tree) -> str:
    """Return the type of an operand that is not boolean; empty if it is boolean or unknown."""
    if isinstance(tree, Form) and tree.head in _ARITHMETIC:
        return "a string" if tree.head == "||" else "a number"
    if isinstance(tree, Constant) and tree.kind not in {"word", "variable"}:
        return f"a {tree.kind}"
    kind = exact_type(scope, tree)
    return "" if kind in {"boolean", "variant"} else kind


def _operands(tree: Tree) -> Iterator[Tree]:
    """List the operands of AND, OR and NOT at any depth."""
    waiting = [tree]
    while waiting:
        bare = unwrapped(waiting.pop())
        if isinstance(bare, Form) and bare.head in _CONNECTIONS:
            waiting.extend(reversed(bare.trees))
        else:
            yield bare
