"""When a query needs no window: all its streams are joined on one attribute that has an order (paper 5).

Rows with one value belong together whenever they arrive.  Where the streams roughly follow the order of these values,
that order tells when no partner of a row can come any more, and no window has to say how long to remember::

    A.epoch = B.epoch AND B.epoch = C.epoch        one attribute: epoch of A, of B and of C
    A.epoch = B.epoch AND A.room = B.room          two: refused, a pair of values has no order that streams follow
    A.name = B.name                                a text: refused, streams do not come in its order

Only the owner of a stream knows that its rows arrive roughly in order; nothing in the data proves it.  So each stream
has to declare it: ``ordered = 'epoch'``, or a ``scrambling``, which is about whatever the stream is joined on.  The
order of a query's results follows from the streams that it reads.

A query that joins on anything else states how long rows are kept: by a window, or with [UNBOUNDED] for ever, where
punctuations may let rows go.

In:  the streams and the equalities of a query.  Out: why it is refused without a window; nothing if it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.bind.arrival import KIND_OF, known_scrambling, ordered_column
from penstock.sql.text.parser import parse_text
from penstock.sql.bind.result_streams import ANOTHER_WAY
from penstock.sql.spark_types import TIME_TYPES
from penstock.sql.text.tree import Constant, Form, Name, cast_type, unquoted, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.sql.graph import Edge
    from penstock.sql.query import Query, Stream

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
