"""Queries read as streams: ``FROM q1, Sensor3 S3``, where the rows of q1 are the results of a query.

A query that has no window may read the results of others like it, so that joins are trees of joins (paper 5, Fig. 4)::

    Sensor1 ─┐
             ├─ q1 ─┐
    Sensor2 ─┘      ├─ q2            q1.epoch = S3.epoch: the attribute that q1 itself is joined on
    Sensor3 ────────┘

All rows of a result of q1 have one value of what they are joined on; a column that holds it is an *attribute* of q1's
results.  What is still to come of q1's streams says what is still to come of q1, by that value and no other.

In:  streams, and the queries that there are.
Out: a `Stream` for each query, or why it cannot be read as one.
True: a stream that was declared goes before a query of its name; no query reads what is made of its own results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.sql.query import Column, Edge, Output, Query, Results, Stream
from penstock.sql.spark_types import TypeTextError, parse_type, refusal_to_store
from penstock.sql.text.parser import parse_text
from penstock.sql.text.tree import cast_type, unquoted, unwrapped

ANOTHER_WAY = (
    "let it write to a parquet sink, and let another engine read that directory as a stream: CREATE STREAM ... WITH "
    "(format = 'parquet', path = '...', time = '...')"
)


def with_results(
    streams: Mapping[str, Stream], queries: Iterable[Query], reader: str = ""
) -> dict[str, Stream]:
    """Give the streams that a query may read: those that are declared, and the results of the others.

    `reader` names the query that reads: its own results, and what is made of them, cannot be among its input.
    """
    known = dict(streams)
    by_name = {each.name.lower(): each for each in queries}
    taken = {each.name.lower() for each in streams.values()}
    for name in by_name:
        if name not in taken:
            _add(known, by_name, name)
    if reader and reader.lower() not in taken:
        for each in readers_of(reader, by_name.values(), deep=True, hidden=taken):
            known[each] = _refused(
                each, f"{each} is made of the results of {reader}, which cannot read them again"
            )
        known[reader] = _refused(
            reader, f"{reader} cannot read its own results: name another query, or a stream"
        )
    return known


def _add(known: dict[str, Stream], queries: Mapping[str, Query], name: str) -> None:
    """Add the results of a query, and first those that it reads itself."""
    query = queries[name]
    for each in query.streams:
        if each not in known and each.lower() in queries and each.lower() != name:
            _add(known, queries, each.lower())
    known[query.name] = result_stream(query, known)


def result_stream(query: Query, streams: Mapping[str, Stream]) -> Stream:
    """Give the results of a query as a stream, whose rows are known by their order of arrival."""
    if why := _why_not(query):
        return _refused(query.name, why)
    inputs = [streams[each] for each in query.streams]
    columns, untyped = [], []
    for output in query.outputs:
        kind = _type(output, query, inputs)
        columns += [Column(output.name, kind)] if kind else []
        untyped += [] if kind else [output.name]
    return Stream(query.name, tuple(columns), "", results=Results(_attributes(query), tuple(untyped)))


def _why_not(query: Query) -> str:
    """Say why a query cannot be read as a stream; empty if it can."""
    if query.aggregation is not None:
        return f"{query.name} answers with aggregates, which a join cannot read as they come: {ANOTHER_WAY}"
    if not query.oblivious:
        return f"{query.name} has a window, and only joins without one are read by others as they come: {ANOTHER_WAY}"
    return ""


def _refused(name: str, why: str) -> Stream:
    return Stream(name, (), "", results=Results(refusal=why))


def _type(output: Output, query: Query, inputs: list[Stream]) -> str:
    """Give the type of an output, if it is a column or a cast; empty if only Spark can tell it."""
    if output.column is not None:
        side, name = output.column
        column = inputs[query.sides.index(side)].column(name)
        return column.type if column else ""
    tree = parse_text(output.expression)
    try:
        kind = parse_type(cast_type(unwrapped(tree))) if tree is not None else None
    except TypeTextError:
        return ""
    is_told = kind is not None and not kind.holds("char", "varchar") and not refusal_to_store(str(kind))
    return str(kind) if is_told else ""


def _attributes(query: Query) -> tuple[str, ...]:
    """Name the outputs that hold what the query is joined on."""
    terms = set(attribute_terms(query.edges))
    sides = {side: number for number, side in enumerate(query.sides)}
    return tuple(
        each.name
        for each in query.outputs
        if each.column and (sides[each.column[0]], each.column[1]) in terms
    )


def attribute_terms(edges: Iterable[Edge]) -> Iterator[tuple[int, str]]:
    """List what is compared of each input, by its number; a plain column without its quotes."""
    for edge in edges:
        yield edge.first, unquoted(edge.key.left)
        yield edge.second, unquoted(edge.key.right)


def why_not_joined(streams: list[Stream], edges: Iterable[Edge]) -> str:
    """Say what is wrong where results of a query are joined on something else than they are ordered by."""
    for number, term in attribute_terms(edges):
        stream = streams[number]
        if stream.results is None or term in stream.results.attribute:
            continue
        known = " or ".join(f"{stream.name}.{each}" for each in stream.results.attribute)
        way_out = f"join on {known}" if known else f"select in {stream.name} the column that it is joined on"
        return (
            f"is joined with {stream.name} on {term}, which is not what {stream.name} itself is joined on, so that "
            f"nobody knows in which order it comes: {way_out}, or {ANOTHER_WAY}"
        )
    return ""


def readers_of(
    name: str, queries: Iterable[Query], *, deep: bool = False, hidden: Iterable[str] = ()
) -> list[str]:
    """Name the queries that read the results of one; if `deep`, also those that read theirs, and so on.

    Of the names in `hidden` (in lower case) it is a stream that is read, not the query.
    """
    everyone = list(queries)
    found: list[str] = []
    waiting = [name]
    while waiting:
        read = waiting.pop().lower()
        more = [each.name for each in everyone if read in map(str.lower, each.streams)]
        fresh = [each for each in more if each not in found]
        found += fresh
        waiting += [each for each in fresh if deep and each.lower() not in hidden]
    return found


def why_not_changed(
    query: Query, after: Query | None, streams: Mapping[str, Stream], queries: Iterable[Query]
) -> str:
    """Say why a query cannot be dropped, or defined as `after`, because others read its results; empty if it can."""
    everyone = [each for each in queries if each.name != query.name]
    declared = {each.name.lower() for each in streams.values()}
    readers = readers_of(query.name, everyone) if query.name.lower() not in declared else []
    if not readers:
        return ""
    read = f"query {query.name} is read by {', '.join(readers)}"
    if after is None:
        return f"{read}: drop that first"
    was, now = (with_results(streams, [*everyone, each])[query.name] for each in (query, after))
    if was == now:
        return ""
    if now.results and now.results.refusal:
        return f"{read}: {now.results.refusal}; or drop {readers[0]} first"
    columns = ", ".join(f"{each.name} {each.type}" for each in was.columns)
    return f"{read}, for which its columns must stay as they are ({columns}): drop that first, or create another query"
