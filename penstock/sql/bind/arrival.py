"""Declarations of the order in which the rows of a stream arrive, for joins without a window.

``ordered`` names the column whose order the rows roughly follow.  ``scrambling`` is the maximum number of positions by
which a row may be out of order, ``multiplicity`` the maximum number of rows with one value
(`penstock.plan.buffers` has the definitions).  Both are measured if they are not declared.  A stream with a
``scrambling`` and no ``ordered`` follows the order of its join column.

In:  a `Stream` with its options.  Out: numbers and a column name, or an error that names the option.
True: a multiplicity of m has a scrambling of at least m - 1, since rows with one value count as out of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.errors import did_you_mean
from penstock.sql.bind.conditions import connected
from penstock.sql.bind.result_streams import ANOTHER_WAY
from penstock.sql.bind.scope import written_list
from penstock.sql.options import OptionError, read_count
from penstock.sql.query import Edge, Query, Stream
from penstock.sql.spark_types import FLOATING_TYPES, TIME_TYPES, WHOLE_TYPES
from penstock.sql.text.parser import parse_text
from penstock.sql.text.tree import Constant, Form, Name, cast_type, unquoted, unwrapped

SCRAMBLING, MULTIPLICITY, ORDERED = "scrambling", "multiplicity", "ordered"
ARRIVAL_OPTIONS = frozenset({SCRAMBLING, MULTIPLICITY, ORDERED})
"""Options about the order of arrival; Penstock reads them, and Spark's source does not see them."""

_KINDS = {
    "whole numbers": WHOLE_TYPES,
    "floating-point numbers": FLOATING_TYPES,
    "decimals": ("decimal",),
    "dates": ("date",),
    "timestamps": ("timestamp",),
    "timestamps without a zone": ("timestamp_ntz",),
}
KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
"""The types whose order a stream can follow, each with the name of its kind."""

_LEAST_ROWS = {SCRAMBLING: 0, MULTIPLICITY: 1}


def known_scrambling(stream: Stream) -> int | None:
    """Return the declared scrambling of a stream; None: it is measured."""
    return _number(stream, SCRAMBLING)


def known_multiplicity(stream: Stream) -> int | None:
    """Return the declared multiplicity of a stream; None: it is measured."""
    return _number(stream, MULTIPLICITY)


def ordered_column(stream: Stream) -> str:
    """Return the column whose order a stream follows as declared; empty if none is declared."""
    return dict(stream.options).get(ORDERED, "")


def _number(stream: Stream, name: str) -> int | None:
    text = dict(stream.options).get(name)
    return None if text is None else int(text)


def settled_arrival(stream: Stream) -> Stream:
    """Check the options about arrival, and write the name in ``ordered`` as declared.

    >>> from penstock.sql.query import Column, Stream
    >>> columns = (Column("epoch", "bigint"), Column("name", "string"))
    >>> settled_arrival(Stream("S", columns, "", options=(("ordered", "Epoch"),))).options
    (('ordered', 'epoch'),)
    >>> settled_arrival(Stream("S", columns, "", options=(("scrambling", "-1"),)))
    Traceback (most recent call last):
    penstock.sql.options.OptionError: scrambling '-1' is not a number of rows: it must be whole, and 0 or more
    """
    _check_numbers(stream.options)
    if not any(name == ORDERED for name, _ in stream.options):
        return stream
    column = _ordered(stream, ordered_column(stream).strip())
    return replace(
        stream, options=tuple((name, column if name == ORDERED else value) for name, value in stream.options)
    )


def _ordered(stream: Stream, name: str) -> str:
    """Find the column that ``ordered`` names, and check that its type has an order."""
    column = stream.column(name)
    if column is None:
        hint = did_you_mean(name, [other.name for other in stream.columns])
        raise OptionError(f"ordered column {name} is not a column of {stream.name}: {hint}", ORDERED)
    if column.type.split("(")[0] not in KIND_OF:
        raise OptionError(
            f"ordered column {column.name} of {stream.name} is {column.type}, which has no order that streams follow. "
            "Name a column of numbers, dates or timestamps",
            ORDERED,
        )
    return column.name


def _check_numbers(options: Iterable[tuple[str, str]]) -> None:
    """Refuse numbers of rows that are wrong, alone or together."""
    given = {
        name.lower(): _checked(name.lower(), value) for name, value in options if name.lower() in _LEAST_ROWS
    }
    multiplicity, scrambling = given.get(MULTIPLICITY), given.get(SCRAMBLING)
    if multiplicity is not None and scrambling is not None and multiplicity > scrambling + 1:
        raise OptionError(
            f"multiplicity {multiplicity} and scrambling {scrambling} contradict each other, as rows with one value "
            f"count as out of order: declare a scrambling of {multiplicity - 1} or more",
            MULTIPLICITY,
        )


def _checked(name: str, value: str) -> int:
    count = read_count(value.strip(), _LEAST_ROWS[name])
    if count is None:
        raise OptionError(
            f"{name} {value!r} is not a number of rows: it must be whole, and {_LEAST_ROWS[name]} or more",
            name,
        )
    return count


WINDOW_FORMS = (
    "WINDOW 1 min at its end, [RANGE 1 min] after each stream, "
    "or a condition such as B.ts BETWEEN A.ts AND A.ts + INTERVAL 1 MINUTE"
)


def refusal(query: str, streams: Sequence[Stream], edges: Sequence[Edge]) -> str:
    """Return why a query without a window is refused, and the fix; empty if its streams declare an order."""
    way = _way_to_a_window(streams)
    if why := why_a_window(streams, edges):
        return f"{query} has no window, and {why}. To have one, {way}"
    wrong: dict[str, str] = {}
    missing: dict[str, dict[str, None]] = {}
    for stream, term in _unordered(streams, edges):
        if declared := ordered_column(stream):
            wrong[f"{stream.name} is joined on {term} and declared as ordered by {declared}"] = (
                f"{stream.name}.{declared}"
            )
        else:
            column = _followed(term)
            option = f"ordered = '{column}'" if column else "scrambling = '<rows>'"
            missing.setdefault(option, {})[stream.name] = None
    if wrong:
        return f"{query} has no window, and {written_list(wrong)}. Join on {written_list(wrong.values())}; or {way}"
    if not missing:
        return ""
    names = written_list(name for names in missing.values() for name in names)
    options = written_list(f"{option} on {written_list(names)}" for option, names in missing.items())
    return (
        f"{query} has no window, and no option of {names} declares that rows arrive in the order of their join column. "
        f"To have one, {way}; or, if rows arrive roughly in that order, declare {options}"
    )


def _way_to_a_window(streams: Sequence[Stream]) -> str:
    """Return the advice how to add a window to a query over these streams."""
    if read := {stream.name: "" for stream in streams if stream.results}:
        return f"read the results of {written_list(read)} as a stream: {ANOTHER_WAY}"
    times: dict[str, dict[str, None]] = {}
    for stream in streams:
        if stream.timeless:
            times.setdefault(_time_column(stream), {})[stream.name] = None
    if times:
        declared = written_list(
            f"time = '{column}' on {written_list(names)}" for column, names in times.items()
        )
        return f"declare {declared}, and write WINDOW 1 min at its end"
    kept = "or write [UNBOUNDED] after each stream to keep all rows until punctuations release them"
    return f"write {WINDOW_FORMS}; {kept}"


def _time_column(stream: Stream) -> str:
    """Guess the event-time column."""
    return next((column.name for column in stream.columns if column.type in TIME_TYPES), "<column>")


def _unordered(streams: Sequence[Stream], edges: Sequence[Edge]) -> list[tuple[Stream, str]]:
    """List the streams that do not declare the order of their join column, each with that column."""
    terms = [(streams[number], term) for number, names in sorted(_terms(edges).items()) for term in names]
    return [(stream, term) for stream, term in terms if not _is_ordered(stream, term)]


def _is_ordered(stream: Stream, term: str) -> bool:
    """Check whether a stream follows the order of a term; results of a query do if their streams do."""
    if declared := ordered_column(stream):
        return _followed(term).lower() == declared.lower()
    return stream.results is not None or known_scrambling(stream) is not None


def _followed(term: str) -> str:
    """Return the column whose order a term has; empty if there is none.

    >>> _followed("epoch"), _followed("CAST(epoch AS BIGINT) + 1"), _followed("epoch % 10"), _followed("1 - epoch")
    ('epoch', 'epoch', '', '')
    """
    tree = unwrapped(parse_text(term) or Constant(term))
    while isinstance(tree, Form):
        if cast_type(tree) or (tree.head in {"+", "-"} and _is_constant(tree, 1)):
            tree = unwrapped(tree.trees[0])
        elif tree.head == "+" and _is_constant(tree, 0):
            tree = unwrapped(tree.trees[1])
        else:
            return ""
    return tree.parts[0] if isinstance(tree, Name) and len(tree.parts) == 1 else ""


def _is_constant(sum_: Form, position: int) -> bool:
    return len(sum_.trees) > 1 and isinstance(unwrapped(sum_.trees[position]), Constant)


def why_a_window(streams: Sequence[Stream], edges: Sequence[Edge]) -> str:
    """Return why the equalities of a join are not of one ordered attribute; empty if they are.

    A type that only Spark can determine passes here; `refusal` is called again when it is known.
    """
    terms = _terms(edges)
    inputs = [{number} for number in range(len(streams))]
    if len(connected([*inputs, *({edge.first, edge.second} for edge in edges)])) > 1:
        return "not all streams are joined on one attribute"
    for number, names in sorted(terms.items()):
        if len(names) > 1:
            return f"{streams[number].name} is joined on several: {', '.join(sorted(names))}"
    types = [_type(streams, edge) for edge in edges]
    for edge, kind in zip(edges, types, strict=True):
        if kind and kind.split("(")[0] not in KIND_OF:
            return f"{edge.key.left}, which is {kind}, has no order that streams follow"
    kinds = _kinds(streams, edges)
    if len(kinds) > 1:
        return f"values are compared as {' and as '.join(kinds)}: CAST them to one type"
    return ""


def _kinds(streams: Sequence[Stream], edges: Sequence[Edge]) -> list[str]:
    """List the kinds of values that are compared, as far as they are known; a decimal with its digits."""
    types = [_type(streams, edge) for edge in edges]
    return sorted({kind if "(" in kind else KIND_OF[kind] for kind in types if kind})


def why_other_kind(queries: Iterable[Query], inputs: Mapping[str, Stream]) -> str:
    """Return the error about a query that compares by another type than the query whose results it reads.

    The progress of the results is known by these values, which must mean the same to both queries.
    """
    by_name = {query.name: query for query in queries if query.oblivious}
    kinds = {
        name: _kinds([inputs[stream] for stream in query.streams], query.edges)
        for name, query in by_name.items()
    }
    for name, query in by_name.items():
        for read in query.streams:
            if inputs[read].results and kinds[name] and kinds.get(read) and kinds[name] != kinds[read]:
                return (
                    f"query {name} compares values as {kinds[name][0]}, and {read}, whose results it reads, as "
                    f"{kinds[read][0]}: CAST them to one type"
                )
    return ""


def _terms(edges: Sequence[Edge]) -> dict[int, set[str]]:
    """Return the terms of each input that equalities compare."""
    terms: dict[int, set[str]] = {}
    for edge in edges:
        terms.setdefault(edge.first, set()).add(edge.key.left)
        terms.setdefault(edge.second, set()).add(edge.key.right)
    return terms


def _type(streams: Sequence[Stream], edge: Edge) -> str:
    """Return the type by which an equality compares; empty if only Spark can determine it."""
    if edge.key.type:
        return edge.key.type
    left = streams[edge.first].type_of(unquoted(edge.key.left))
    return left or streams[edge.second].type_of(unquoted(edge.key.right))
