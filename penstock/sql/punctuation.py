"""The condition that tells punctuations from data: ``punctuation = 'kind = ''closed'''``.

It is any Spark SQL over the columns of its stream that says the same of a row whenever it is asked.  What is wrong for
sure is refused here; what only Spark can tell, such as the type of a function, Spark is asked when the stream is read.

In:  the text of the option and its stream.  Out: the one way to write it, over bare columns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.sql.bind.aggregates import has_aggregate
from penstock.sql.bind.canonical import canonical
from penstock.sql.keys import exact_type
from penstock.sql.bind.scope import Input, Scope
from penstock.sql.text.parser import parse_expression
from penstock.sql.punctuates import PromiseError
from penstock.sql.text.tokens import Reader, Source
from penstock.sql.text.tree import Constant, Form, columns_of, nodes, show_bare, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.sql.query import Stream
    from penstock.sql.text.tree import Tree

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
        reader = Reader(scope.source, scope.source.tokens)
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
