"""What a stream declares about the order in which its rows arrive, for joins without a window.

``ordered`` names the column whose order the rows roughly follow.  ``scrambling`` is the maximum number of positions by
which a row may be out of order, ``multiplicity`` the maximum number of rows with one value
(`penstock.plan.buffers` has the definitions).  Both are measured where they are not declared.  A stream with a
``scrambling`` and no ``ordered`` follows the column that it is joined on, whichever that is.

In:  a `Stream` with its options.  Out: numbers and a column name, or an error that names the option.
True: a multiplicity of m goes with a scrambling of at least m - 1, since rows with one value count as out of order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.errors import InputError, did_you_mean
from penstock.sql.bind.result_streams import ANOTHER_WAY
from penstock.sql.query import Edge, Query, Stream
from penstock.sql.spark_types import TIME_TYPES
from penstock.sql.text.parser import parse_text
from penstock.sql.text.tree import Constant, Form, Name, cast_type, unquoted, unwrapped

SCRAMBLING, MULTIPLICITY, ORDERED = "scrambling", "multiplicity", "ordered"
ARRIVAL_OPTIONS = frozenset({SCRAMBLING, MULTIPLICITY, ORDERED})
"""Options of a stream that say how its rows arrive; they are ours, and Spark's source does not see them."""

_KINDS = {
    "whole numbers": ("tinyint", "smallint", "int", "bigint"),
    "floating-point numbers": ("float", "double"),
    "decimals": ("decimal",),
    "dates": ("date",),
    "timestamps": ("timestamp",),
    "timestamps without a zone": ("timestamp_ntz",),
}
KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
"""The types that have an order a stream can follow, and what their values are."""

_LEAST = {SCRAMBLING: 0, MULTIPLICITY: 1}
_MOST_DIGITS = 15


class ArrivalError(InputError):
    """An option about arrival that no stream can have; `option` names it."""

    def __init__(self, message: str, option: str) -> None:
        """Keep the option, so that a script can point at it."""
        super().__init__(message)
        self.option = option


def known_scrambling(stream: Stream) -> int | None:
    """Return the scrambling that a stream is declared with; None: it is measured."""
    return _number(stream, SCRAMBLING)


def known_multiplicity(stream: Stream) -> int | None:
    """Return the multiplicity that a stream is declared with; None: it is measured."""
    return _number(stream, MULTIPLICITY)


def ordered_column(stream: Stream) -> str:
    """Return the column whose order a stream declares to follow; empty if it names none."""
    return dict(stream.options).get(ORDERED, "")


def _number(stream: Stream, name: str) -> int | None:
    text = dict(stream.options).get(name)
    return None if text is None else int(text)


def settled_arrival(stream: Stream) -> Stream:
    """Return a stream whose ``ordered`` is a column name as declared; refuse what no stream can be like.

    >>> from penstock.sql.query import Column, Stream
    >>> columns = (Column("epoch", "bigint"), Column("name", "string"))
    >>> settled_arrival(Stream("S", columns, "", options=(("ordered", "Epoch"),))).options
    (('ordered', 'epoch'),)
    >>> settled_arrival(Stream("S", columns, "", options=(("scrambling", "-1"),)))
    Traceback (most recent call last):
    penstock.sql.bind.arrival.ArrivalError: scrambling '-1' is not a number of rows: it must be whole, and 0 or more
    """
    _check_numbers(stream.options)
    if not any(name == ORDERED for name, _ in stream.options):
        return stream
    column = _ordered(stream, ordered_column(stream).strip())
    return replace(
        stream, options=tuple((name, column if name == ORDERED else value) for name, value in stream.options)
    )


def _ordered(stream: Stream, name: str) -> str:
    """Find the column that ``ordered`` names, and check that its type has an order that a stream can follow."""
    column = stream.column(name)
    if column is None:
        hint = did_you_mean(name, [each.name for each in stream.columns])
        raise ArrivalError(f"ordered column {name} is not a column of {stream.name}: {hint}", ORDERED)
    if column.type.split("(")[0] not in KIND_OF:
        raise ArrivalError(
            f"ordered column {column.name} of {stream.name} is {column.type}, which has no order that streams follow. "
            "Name a column of numbers, dates or timestamps",
            ORDERED,
        )
    return column.name


def _check_numbers(options: Iterable[tuple[str, str]]) -> None:
    """Refuse numbers of rows that cannot be, alone or together."""
    given = {name.lower(): _checked(name.lower(), value) for name, value in options if name.lower() in _LEAST}
    alike, apart = given.get(MULTIPLICITY), given.get(SCRAMBLING)
    if alike is not None and apart is not None and alike > apart + 1:
        raise ArrivalError(
            f"multiplicity {alike} and scrambling {apart} contradict each other: rows with one value count as out of "
            f"order, so that the scrambling is {alike - 1} or more",
            MULTIPLICITY,
        )


def _checked(name: str, value: str) -> int:
    """Read a number of rows."""
    text = value.strip()
    if not text.isdecimal() or not text.isascii() or len(text) > _MOST_DIGITS or int(text) < _LEAST[name]:
        raise ArrivalError(
            f"{name} {value!r} is not a number of rows: it must be whole, and {_LEAST[name]} or more", name
        )
    return int(text)


WINDOW_FORMS = (
    "WINDOW 1 min at its end, [RANGE 1 min] after each stream, "
    "or a condition such as B.ts BETWEEN A.ts AND A.ts + INTERVAL 1 MINUTE"
)


def refusal(query: str, streams: Sequence[Stream], edges: Sequence[Edge]) -> str:
    """Return why a query without a window is refused, and the ways out; empty if its streams say how to run it."""
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
        return f"{query} has no window, and {_listed(wrong)}. Join on {_listed(wrong.values())}; or {way}"
    if not missing:
        return ""
    names = _listed(name for names in missing.values() for name in names)
    options = _listed(f"{option} on {_listed(names)}" for option, names in missing.items())
    return (
        f"{query} has no window, and no option of {names} declares that rows arrive in the order of what they are "
        f"joined on. To have one, {way}; or, if rows arrive roughly in that order, declare {options}"
    )


def _way_to_a_window(streams: Sequence[Stream]) -> str:
    """Say how a query over these streams comes to a window; one that has no event time needs that first."""
    if read := {each.name: "" for each in streams if each.results}:
        return f"read the results of {_listed(read)} as a stream: {ANOTHER_WAY}"
    times: dict[str, dict[str, None]] = {}
    for each in streams:
        if each.timeless:
            times.setdefault(_time_column(each), {})[each.name] = None
    if times:
        declared = _listed(f"time = '{column}' on {_listed(names)}" for column, names in times.items())
        return f"declare {declared}, and write WINDOW 1 min at its end"
    kept = "or write [UNBOUNDED] after each stream to keep all rows, which punctuations may let go"
    return f"write {WINDOW_FORMS}; {kept}"


def _time_column(stream: Stream) -> str:
    """Guess which column is the event time."""
    return next((each.name for each in stream.columns if each.type in TIME_TYPES), "<column>")


def _unordered(streams: Sequence[Stream], edges: Sequence[Edge]) -> list[tuple[Stream, str]]:
    """List the streams that do not declare to follow the order of what they are joined on, and what that is."""
    terms = [(streams[number], term) for number, names in sorted(_terms(edges).items()) for term in names]
    return [(stream, term) for stream, term in terms if not _is_ordered(stream, term)]


def _is_ordered(stream: Stream, term: str) -> bool:
    """Check whether a stream is declared to follow the order of a term; results of a query do by their streams."""
    if declared := ordered_column(stream):
        return _followed(term).lower() == declared.lower()
    return stream.results is not None or known_scrambling(stream) is not None


def _followed(term: str) -> str:
    """Return the column whose order a term has; empty if it is another than that of a column.

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


def _is_constant(sum_: Form, place: int) -> bool:
    return len(sum_.trees) > 1 and isinstance(unwrapped(sum_.trees[place]), Constant)


def _listed(names: Iterable[str]) -> str:
    """Write names the way a sentence does.

    >>> _listed(["A", "B", "C"])
    'A, B and C'
    """
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


def why_a_window(streams: Sequence[Stream], edges: Sequence[Edge]) -> str:
    """Return why the equalities of a join are not of one attribute that has an order; empty if they are.

    A type that only Spark can tell is taken for an ordered one: `refusal` is called again when it is known.
    """
    terms = _terms(edges)
    if set(terms) != set(range(len(streams))) or not _is_one(edges):
        return "not all streams are joined on one attribute"
    for number, names in sorted(terms.items()):
        if len(names) > 1:
            return f"{streams[number].name} is joined on several: {', '.join(sorted(names))}"
    types = [_type(streams, each) for each in edges]
    for edge, kind in zip(edges, types, strict=True):
        if kind and kind.split("(")[0] not in KIND_OF:
            return f"{edge.key.left}, which is {kind}, has no order that streams follow"
    kinds = _kinds(streams, edges)
    if len(kinds) > 1:
        return f"values are compared as {' and as '.join(kinds)}: CAST them to one type"
    return ""


def _kinds(streams: Sequence[Stream], edges: Sequence[Edge]) -> list[str]:
    """List what values are compared as, as far as it is known; of a decimal also its digits."""
    types = [_type(streams, each) for each in edges]
    return sorted({kind if "(" in kind else KIND_OF[kind] for kind in types if kind})


def why_other_kind(queries: Iterable[Query], inputs: Mapping[str, Stream]) -> str:
    """Say which query compares values as another type than a query does whose results it reads; empty if none does.

    What is still to come of that one is known by its values, which must mean the same to both.
    """
    by_name = {each.name: each for each in queries if each.oblivious}
    kinds = {
        name: _kinds([inputs[each] for each in query.streams], query.edges) for name, query in by_name.items()
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
    """Give what is compared of each input."""
    terms: dict[int, set[str]] = {}
    for edge in edges:
        terms.setdefault(edge.first, set()).add(edge.key.left)
        terms.setdefault(edge.second, set()).add(edge.key.right)
    return terms


def _is_one(edges: Sequence[Edge]) -> bool:
    """Say whether equalities hang together: all values of a result are then equal."""
    reached, waiting = {0}, list(edges)
    while more := [each for each in waiting if each.first in reached or each.second in reached]:
        reached |= {number for each in more for number in (each.first, each.second)}
        waiting = [each for each in waiting if each not in more]
    return not waiting


def _type(streams: Sequence[Stream], edge: Edge) -> str:
    """Give the type that the two sides of an equality are compared as; empty if only Spark can tell."""
    if edge.key.type:
        return edge.key.type
    left = streams[edge.first].column(unquoted(edge.key.left))
    right = streams[edge.second].column(unquoted(edge.key.right))
    return left.type if left else right.type if right else ""
