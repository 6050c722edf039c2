"""Promises: rows that say what will not come any more.

A *punctuation* is a row of a stream that carries no data but a promise::

    CREATE STREAM Bid (item_id BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)
      WITH (..., time = 'ts', punctuation = 'kind = ''closed''', punctuates = 'item_id');

    item_id  price  kind     ts
    7        12.5   bid      10:00       data
    7               closed   10:05       after 10:05 there is no row of Bid with item_id = 7

``unique = 'item_id'`` says of every row that it is the last of its value, and data as well.  A stream with
``punctuation_of = 'Bid'`` has no data: it *carries* the promises of another.

In:  the options of a `Stream`.  Out: its `Promise`s.
True: columns are named as declared, and values fit the columns they are compared with; of a carrier that is so once
`check_promises` has seen both streams, and names are those of the other once it is `settled_promises`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from penstock.errors import InputError, SqlError, did_you_mean
from penstock.sql.bind.canonical import canonical
from penstock.sql.bind.scope import Input, Scope, exact_type
from penstock.sql.query import Stream
from penstock.sql.spark_types import TIME_TYPES, SparkType, TypeTextError, parse_type
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
"""Options of a stream that are about promises, in lower case; they are ours, and Spark's source does not see them."""

DEFAULT_BUDGET = 1_000_000
"""How many promises a stream remembers unless it says so."""

_MOST_BUDGET_DIGITS = 18


@dataclass(frozen=True, slots=True)
class PromisePattern:
    """Which values of one column are promised about, and where they are read from.

    `column` is of the stream that the promise is about, `low` and `high` of the stream that carries it.  `low` has the
    value, the list or the lower bound; `high` is the upper bound of a range.
    """

    column: str
    kind: Kind
    low: str
    high: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """That no row of a stream comes after this one whose columns match all patterns.

    `condition` is Spark SQL over the bare columns of the stream that carries the promise, and holds for the rows that
    make it; empty: every row does.  With `is_data` the row is data as well, and the last of its value.
    """

    about: str
    patterns: tuple[PromisePattern, ...]
    condition: str = ""
    is_data: bool = False


@lru_cache(maxsize=4096)
def promises_of(stream: Stream) -> tuple[Promise, ...]:
    """List the promises that rows of a stream make; nearly all streams have none."""
    options = promise_options(stream)
    _check_together(stream, options)
    promises: list[Promise] = []
    if "punctuates" in options:
        clauses = read_punctuates(options["punctuates"])
        condition = read_condition(options["punctuation"], stream) if "punctuation" in options else ""
        about = stream.punctuation_of or stream.name
        promises.append(Promise(about, _patterns(stream, clauses, "punctuates"), condition))
    if "unique" in options:
        unique = _patterns(stream, read_unique(options["unique"]), "unique")
        promises.append(Promise(stream.name, unique, is_data=True))
    return tuple(promises)


def promise_options(stream: Stream) -> dict[str, str]:
    """Give the options of a stream that are about promises."""
    return {name.lower(): value for name, value in stream.options if name.lower() in PROMISE_OPTIONS}


def promise_budget(stream: Stream) -> int:
    """Give how many promises a stream remembers."""
    text = promise_options(stream).get("promises", str(DEFAULT_BUDGET)).strip()
    digits = text.isascii() and text.isdecimal() and len(text) <= _MOST_BUDGET_DIGITS
    if not digits or int(text) == 0:
        raise PromiseError(
            f"promises cannot be {text}: it is how many promises stream {stream.name} remembers, a whole number from 1",
            "promises",
        )
    return int(text)


# --- what can be wrong ------------------------------------------------------------------------------------------


def _check_together(stream: Stream, options: Mapping[str, str]) -> None:
    """Refuse options that mean nothing without, or beside, each other."""
    promise_budget(stream)
    carrier, name = "punctuation_of" in options, stream.name
    if carrier and not stream.punctuation_of:
        raise PromiseError(
            "punctuation_of names no stream: give the one that is promised about", "punctuation_of"
        )
    if carrier and stream.punctuation_of.lower() == name.lower():
        raise PromiseError(
            f"stream {name} has its own promises anyway: leave punctuation_of out", "punctuation_of"
        )
    if carrier and "unique" in options:
        raise PromiseError(
            f"stream {name} carries promises and has no rows of its own that could be unique: declare unique with "
            f"{stream.punctuation_of}",
            "unique",
        )
    for given in ("punctuation", "punctuation_of"):
        if given in options and "punctuates" not in options:
            raise PromiseError(
                f"stream {name} has {given} and does not say what is promised: add punctuates = '<column>'",
                given,
            )
    if "punctuates" in options and not carrier and "punctuation" not in options:
        raise PromiseError(
            f"stream {name} has punctuates and does not say which rows are promises: add punctuation = '<condition>', "
            "or, if every row is the last of its value, write unique in place of punctuates",
            "punctuates",
        )


def _patterns(stream: Stream, clauses: list[PromiseClause], option: str) -> tuple[PromisePattern, ...]:
    """Give clauses their names as they are declared; those of another stream keep theirs until it is known."""
    about = None if stream.punctuation_of else stream
    return tuple(_pattern(stream, each, about, option) for each in clauses)


def _pattern(stream: Stream, clause: PromiseClause, about: Stream | None, option: str) -> PromisePattern:
    """Find the columns of a clause, and check that their types fit where both streams are known."""
    column = _declared(about, clause.column, option) if about else clause.column
    low = _declared(stream, clause.low, option)
    pattern = PromisePattern(
        column, clause.kind, low, _declared(stream, clause.high, option) if clause.high else ""
    )
    if about:
        check_types(pattern, about, stream, option)
    return pattern


def _declared(stream: Stream, name: str, option: str) -> str:
    """Find a column of a stream, as declared."""
    column = stream.column(name)
    if column is None:
        hint = did_you_mean(name, [each.name for each in stream.columns])
        raise PromiseError(f"{option}: stream {stream.name} has no column {name}: {hint}", option)
    return column.name


def check_promises(stream: Stream, streams: Mapping[str, Stream]) -> None:
    """Refuse promises that cannot be: also those about another stream, which must be one of `streams`."""
    settled_promises(stream, streams)


def settled_promises(stream: Stream, streams: Mapping[str, Stream]) -> Stream:
    """Give a stream with its promises written the one way, all names as declared; refuse what cannot be.

    So two declarations that promise the same are equal, and `promises_of` needs to see no other stream.
    """
    promises = promises_of(stream)
    about = _other(stream, streams) if stream.punctuation_of else stream
    settled = {}
    for each in promises:
        option = "unique" if each.is_data else "punctuates"
        patterns = [replace(one, column=_declared(about, one.column, option)) for one in each.patterns]
        for one in patterns:
            check_types(one, about, stream, option)
        settled[option] = ", ".join(written(one.column, one.kind, one.low, one.high) for one in patterns)
        settled |= {"punctuation": each.condition} if each.condition else {}
    settled |= {"punctuation_of": about.name} if stream.punctuation_of else {}
    options = tuple((name, settled.get(name.lower(), value)) for name, value in stream.options)
    return replace(stream, options=options) if promises else stream


def _other(stream: Stream, streams: Mapping[str, Stream]) -> Stream:
    """Find the stream whose promises another carries."""
    name = stream.punctuation_of
    about = next((each for each in streams.values() if each.name.lower() == name.lower()), None)
    if about is None:
        hint = did_you_mean(name, [each.name for each in streams.values()])
        raise PromiseError(
            f"stream {stream.name} carries the promises of {name}, which is not declared before it: {hint}",
            "punctuation_of",
        )
    if about.punctuation_of:
        raise PromiseError(
            f"stream {about.name} carries the promises of {about.punctuation_of} itself: name a stream that has rows",
            "punctuation_of",
        )
    if about.timeless:
        raise PromiseError(
            f"stream {about.name} has no event time, by which promises take effect: declare it with time = '<column>'",
            "punctuation_of",
        )
    if (about.time_type == "timestamp") != (stream.time_type == "timestamp"):
        raise PromiseError(
            f"the time of {stream.name} is {stream.time_type} and that of {about.name} is {about.time_type}, which "
            "cannot be compared in every zone: give both streams times of one type",
            "punctuation_of",
        )
    return about


def carriers_of(name: str, streams: Mapping[str, Stream]) -> list[str]:
    """Name the streams that carry the promises of one."""
    return [each.name for each in streams.values() if each.punctuation_of.lower() == name.lower()]


_WHOLE_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Whole numbers, narrowest first, and how many digits their values have at the most."""
_EXACT_FLOATS = {"float": {"tinyint", "smallint"}, "double": {"tinyint", "smallint", "int", "float"}}
"""Which numbers are all among the floating ones: a float has 24 bits for digits, a double 53."""
_ORDERED = frozenset({*_WHOLE_DIGITS, *_EXACT_FLOATS, *TIME_TYPES, "decimal", "string", "binary"})
_NOT_PLAIN = ("map", "array", "struct", "variant", "void")


def widens(narrow: str, wide: str) -> bool:
    """Say whether every value of one type is one of the other: the cast loses nothing and keeps the order.

    >>> widens("int", "bigint"), widens("bigint", "decimal(19,0)"), widens("int", "decimal(10,2)")
    (True, True, False)
    >>> widens("float", "double"), widens("bigint", "double"), widens("date", "timestamp")
    (True, False, False)
    """
    try:
        source, target = parse_type(narrow), parse_type(wide)
    except TypeTextError:
        return narrow == wide
    if source == target:
        return True
    if source.name in _WHOLE_DIGITS and target.name in _WHOLE_DIGITS:
        return _WHOLE_DIGITS[source.name] < _WHOLE_DIGITS[target.name]
    if target.name == "decimal" and source.name in {*_WHOLE_DIGITS, "decimal"}:
        (digits, scale), (most, places) = _digits(source), target.digits
        return scale <= places and digits - scale <= most - places
    return source.name in _EXACT_FLOATS.get(target.name, ())


def _digits(kind: SparkType) -> tuple[int, int]:
    """Give how many digits a number has, and how many of them behind the point."""
    return kind.digits if kind.name == "decimal" else (_WHOLE_DIGITS[kind.name], 0)


def check_types(pattern: PromisePattern, about: Stream, carrier: Stream, option: str) -> None:
    """Refuse a pattern whose column cannot be promised about, or whose values are none of that column."""
    kind = _type(about, pattern.column)
    parsed = parse_type(kind)
    if parsed.holds(*_NOT_PLAIN) or parsed.has_collation():
        raise PromiseError(
            f"{option} names {pattern.column}, which is {kind}: a promise is about plain values, compared byte by "
            "byte; name a column of numbers, of text without a collation, or of times",
            option,
        )
    if pattern.kind == "range" and parsed.name not in _ORDERED:
        raise PromiseError(
            f"{option} has a range of {pattern.column}, which is {kind}: a range is of numbers, texts, times or binary "
            f"values; write {pattern.column} = {pattern.low}, or {pattern.column} IN an array",
            option,
        )
    for name in filter(None, (pattern.low, pattern.high)):
        _check_value(pattern, kind, name, _value_type(pattern, name, _type(carrier, name), option), option)


def _check_value(pattern: PromisePattern, kind: str, name: str, given: str, option: str) -> None:
    """Refuse values that do not become values of the column without loss."""
    if not widens(given, kind):
        what = f"{name} holds {given}" if pattern.kind == "list" else f"{name} is {given}"
        raise PromiseError(
            f"{option} compares {pattern.column}, which is {kind}, with {name}: {what}, which does not become {kind} "
            "without loss; give both one type",
            option,
        )


def _value_type(pattern: PromisePattern, name: str, given: str, option: str) -> str:
    """Give the type of the values that a column has: of a list, that of its elements."""
    if pattern.kind != "list":
        return given
    parsed = parse_type(given)
    if parsed.name != "array":
        raise PromiseError(
            f"{option} says {pattern.column} IN {name}, and {name} is {given}: IN needs a column that is an array; for "
            f"one value write {pattern.column} = {name}",
            option,
        )
    return str(parsed.parts[0])


def _type(stream: Stream, name: str) -> str:
    """Give the type of a column that is there."""
    column = stream.column(name)
    return column.type if column else ""


Kind = Literal["value", "list", "range"]

FORMS = "write 'item_id', 'item_id = auction', 'item_id IN items', 'item_id BETWEEN lo AND hi', or several with commas"
"""What may stand in ``punctuates``."""

COLUMNS = "write 'item_id', or several columns with commas"
"""What may stand in ``unique``."""


class PromiseError(InputError):
    """An option about promises that cannot be right: which one, so that it can be pointed at, and why."""

    def __init__(self, message: str, option: str) -> None:
        """Keep the name of the option."""
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True)
class PromiseClause:
    """One column that is promised about, and the columns that say for which values."""

    column: str
    kind: Kind
    low: str
    high: str = ""


def read_punctuates(text: str) -> list[PromiseClause]:
    """Read the text of ``punctuates``.

    >>> for clause in read_punctuates("item_id, day between first AND last"):
    ...     print(clause)
    PromiseClause(column='item_id', kind='value', low='item_id', high='')
    PromiseClause(column='day', kind='range', low='first', high='last')
    """
    return _read_list("punctuates", text, FORMS, _clause)


def read_unique(text: str) -> list[PromiseClause]:
    """Read the text of ``unique``: columns alone.

    >>> read_unique("item_id")
    [PromiseClause(column='item_id', kind='value', low='item_id', high='')]
    """
    return _read_list("unique", text, COLUMNS, _bare)


def _read_list(
    option: str, text: str, forms: str, item: Callable[[TokenReader], PromiseClause]
) -> list[PromiseClause]:
    """Read items that are separated by commas; each column may stand left once."""
    source, clauses = Source(text), list[PromiseClause]()
    try:
        reader = TokenReader(source, source.tokens)
        while not clauses or reader.accept(","):
            clauses.append(item(reader))
        reader.end()
    except (SqlError, IndexError):  # a text without words has no place to point at
        raise PromiseError(f"{option} {text!r} cannot be read: {forms}", option) from None
    names = [each.column.lower() for each in clauses]
    twice = next((each.column for each in clauses if names.count(each.column.lower()) > 1), None)
    if twice:
        raise PromiseError(f"{option} names {twice} twice: a column can stand there once", option)
    return clauses


def _bare(reader: TokenReader) -> PromiseClause:
    """Read one column."""
    column = reader.name("a column")
    return PromiseClause(column, "value", column)


def _clause(reader: TokenReader) -> PromiseClause:
    """Read one column, and where its values are read from."""
    column = reader.name("a column")
    if reader.accept("="):
        return PromiseClause(column, "value", reader.name("a column"))
    if reader.accept("IN"):
        return PromiseClause(column, "list", reader.name("a column"))
    if reader.accept("BETWEEN"):
        low = reader.name("a column")
        reader.expect("AND", FORMS)
        return PromiseClause(column, "range", low, reader.name("a column"))
    return PromiseClause(column, "value", column)


def written(column: str, kind: Kind, low: str, high: str) -> str:
    """Write a clause the one way it is written.

    >>> written("item_id", "value", "Item_Id", ""), written("day", "range", "first", "last")
    ('item_id', 'day BETWEEN first AND last')
    """
    name, first = quoted(column), quoted(low)
    if kind == "range":
        return f"{name} BETWEEN {first} AND {quoted(high)}"
    if kind == "list":
        return f"{name} IN {first}"
    return name if column.lower() == low.lower() else f"{name} = {first}"


_OPTION = "punctuation"
_ARITHMETIC = frozenset(
    {"+", "-", "*", "/", "%", "DIV", "&", "|", "^", "<<", ">>", ">>>", "||", "NEG", "POS", "~"}
)
_TEXTS = frozenset({"string", "a string"})
_CONNECTIONS = frozenset({"AND", "OR", "NOT"})
_INCONSTANT_NAMES = """
    rand random randn randstr uniform uuid shuffle monotonically_increasing_id spark_partition_id input_file_name
    input_file_block_start input_file_block_length now curdate current_date current_time current_timestamp localtime
    localtimestamp current_user session_user user reflect try_reflect java_method
"""
_INCONSTANT = frozenset(_INCONSTANT_NAMES.split())
"""Functions that may say another thing of the same row when they are asked again."""


@lru_cache(maxsize=4096)
def read_condition(text: str, stream: Stream) -> str:
    """Read the condition of a stream's punctuations, and write it the one way it is written.

    >>> from penstock.sql.query import Column, Stream
    >>> bid = Stream("Bid", (Column("Kind", "string"), Column("ts", "timestamp")), "ts")
    >>> read_condition("bid.KIND != 'bid' and (kind) is not null", bid)
    "NOT Kind IS NULL AND Kind <> 'bid'"
    """
    scope = _scope(text, stream)
    try:
        tree = scope.resolve(_parsed(scope, stream))
    except SqlError as error:
        raise PromiseError(f"punctuation {text!r}: {error.message}", _OPTION) from None
    problem = condition_problem(scope, tree)
    if problem:
        raise PromiseError(f"punctuation {text!r} {problem}", _OPTION)
    return show_bare(canonical(tree, scope.type_of))


def _scope(text: str, stream: Stream) -> Scope:
    """Make a scope of one stream."""
    return Scope(Source(text), (0, len(text)), (Input(stream.name, stream, "l"),))


def _parsed(scope: Scope, stream: Stream) -> Tree:
    """Read one expression; what does not belong in any is said without advice about queries."""
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


def condition_problem(scope: Scope, tree: Tree) -> str:
    """Say what is wrong with a resolved condition, as far as it is known without Spark; empty if nothing is."""
    if has_aggregate(tree):
        return "has an aggregate: whether a row is a punctuation is asked of that row alone"
    if inconstant := next(filter(None, map(_inconstant, nodes(tree))), ""):
        return f"has {inconstant}(), which may say another thing of the same row: use its columns alone"
    if not any(True for _ in columns_of(tree)):
        return "reads no column, and would hold for every row or for none: write a condition on a column"
    if kind := _wrong_type(scope, tree):
        return f"is {kind}, and no condition: compare it with something, as in kind = 'closed'"
    return ""


def _inconstant(node: Tree) -> str:
    """Name the function that a node is, if it may give another value for the same row."""
    if isinstance(node, Constant):
        return node.text.lower() if node.kind == "call" else ""
    name = node.head[:-1].lower() if isinstance(node, Form) and node.head.endswith("(") else ""
    asks_the_clock = name == "unix_timestamp" and isinstance(node, Form) and not node.trees
    return name if name in _INCONSTANT or asks_the_clock else ""


def _wrong_type(scope: Scope, tree: Tree) -> str:
    """Say what makes a tree surely no condition; a text becomes a boolean beside AND, OR and NOT, but not alone."""
    bare = unwrapped(tree)
    kinds = [_other_type(scope, each) for each in _operands(bare)]
    alone = not (isinstance(bare, Form) and bare.head in _CONNECTIONS)
    return next((each for each in kinds if each and (alone or each not in _TEXTS)), "")


def _other_type(scope: Scope, tree: Tree) -> str:
    """Say what an operand of AND, OR or NOT is that is not boolean; empty if it is, or may be."""
    if isinstance(tree, Form) and tree.head in _ARITHMETIC:
        return "a string" if tree.head == "||" else "a number"
    if isinstance(tree, Constant) and tree.kind not in {"word", "variable"}:
        return f"a {tree.kind}"
    kind = exact_type(scope, tree)
    return "" if kind in {"boolean", "variant"} else kind


def _operands(tree: Tree) -> Iterator[Tree]:
    """List what AND, OR and NOT hold together, at any depth."""
    waiting = [tree]
    while waiting:
        bare = unwrapped(waiting.pop())
        if isinstance(bare, Form) and bare.head in _CONNECTIONS:
            waiting.extend(reversed(bare.trees))
        else:
            yield bare
