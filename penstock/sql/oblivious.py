"""When a query needs no window: all its streams are joined on one attribute that has an order (paper 5).

Rows with one value belong together whenever they arrive.  Where values have an order and streams follow it more or
less, it can be told when no partner of a row is to come any more, and no window has to say how long to remember::

    A.epoch = B.epoch AND B.epoch = C.epoch        one attribute: epoch of A, of B and of C
    A.epoch = B.epoch AND A.room = B.room          two: refused, a pair of values has no order that streams follow
    A.name = B.name                                a text: refused, streams do not come in its order

Who joins on anything else says how long rows are kept: by a window, or with [UNBOUNDED] for ever, where punctuations
may let rows go.

In:  the streams and the equalities of a query.  Out: why it needs a window; nothing if it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.tree import unquoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.sql.graph import Edge
    from penstock.sql.query import Query, Stream

_KINDS = {
    "whole numbers": ("tinyint", "smallint", "int", "bigint"),
    "floating-point numbers": ("float", "double"),
    "decimals": ("decimal",),
    "dates": ("date",),
    "timestamps": ("timestamp",),
    "timestamps without a zone": ("timestamp_ntz",),
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}

WAYS_OUT = "or say [UNBOUNDED] after each stream to keep all rows, which punctuations may let go"


def why_a_window(streams: Sequence[Stream], edges: Sequence[Edge]) -> str:
    """Say why a join of these streams needs a window; empty if its equalities are of one ordered attribute.

    A type that only Spark can tell is taken for an ordered one: `why_a_window` is asked again when it is known.
    """
    terms = _terms(edges)
    if set(terms) != set(range(len(streams))) or not _is_one(edges):
        return "not all streams are joined on one attribute"
    for number, names in sorted(terms.items()):
        if len(names) > 1:
            return f"{streams[number].name} is joined on several: {', '.join(sorted(names))}"
    types = [_type(streams, each) for each in edges]
    for edge, kind in zip(edges, types, strict=True):
        if kind and kind.split("(")[0] not in _KIND_OF:
            return f"{edge.key.left}, which is {kind}, has no order that streams follow"
    kinds = _kinds(streams, edges)
    if len(kinds) > 1:
        return f"values are compared as {' and as '.join(kinds)}: CAST them to one type"
    return ""


def _kinds(streams: Sequence[Stream], edges: Sequence[Edge]) -> list[str]:
    """List what values are compared as, as far as it is known; of a decimal also its digits."""
    types = [_type(streams, each) for each in edges]
    return sorted({kind if "(" in kind else _KIND_OF[kind] for kind in types if kind})


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


def why_this_one(query: Query, streams: Sequence[Stream]) -> str:
    """Say why a query that has no window needs one after all, now that Spark has told the types; empty if not."""
    return why_a_window(streams, query.edges) if query.oblivious else ""


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
