"""Queries read as streams: ``FROM q1, Sensor3 S3``, where the rows of q1 are the results of a query.

A query that has no window may read the results of others like it, so that joins are trees of joins (paper 5, Fig. 4)::

    Sensor1 ─┐
             ├─ q1 ─┐
    Sensor2 ─┘      ├─ q2            q1.epoch = S3.epoch: the attribute that q1 itself is joined on
    Sensor3 ────────┘

All rows of a result of q1 have one value of the join attribute.  A column that holds it is an *attribute* of q1's
results.  The progress of q1's streams in this attribute gives the progress of q1.

In:  streams, and the known queries.
Out: a `Stream` for each query, or why it cannot be read as one.
True: a declared stream hides a query of its name; no query reads results that depend on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.sql.query import Column, Edge, OutputColumn, Query, Results, Stream
from penstock.sql.spark_types import known_type, refusal_to_store
from penstock.sql.text.parser import parse_text
from penstock.sql.text.tree import cast_type, unquoted, unwrapped

ANOTHER_WAY = (
    "let it write to a parquet sink, and let another engine read that directory as a stream: CREATE STREAM ... WITH "
    "(format = 'parquet', path = '...', time = '...')"
)


def with_results(
    streams: Mapping[str, Stream], queries: Iterable[Query], reader: str = ""
) -> dict[str, Stream]:
    """Return the streams that the query `reader` may read: declared streams, and the results of other queries.

    Its own results, and results that depend on them, are refused.
    """
    known = dict(streams)
    by_name = {query.name.lower(): query for query in queries}
    taken = {stream.name.lower() for stream in streams.values()}
    for name in by_name:
        if name not in taken:
            _add(known, by_name, name)
    if reader and reader.lower() not in taken:
        for query in readers_of(reader, by_name.values(), deep=True, hidden=taken):
            known[query] = _refused(
                query, f"{query} reads the results of {reader}, which cannot read them again"
            )
        known[reader] = _refused(
            reader, f"{reader} cannot read its own results: name another query, or a stream"
        )
    return known


def _add(known: dict[str, Stream], queries: Mapping[str, Query], name: str) -> None:
    """Add the results of a query, after those that it reads itself."""
    query = queries[name]
    for stream in query.streams:
        if stream not in known and stream.lower() in queries and stream.lower() != name:
            _add(known, queries, stream.lower())
    known[query.name] = result_stream(query, known)


def result_stream(query: Query, streams: Mapping[str, Stream]) -> Stream:
    """Return the results of a query as a stream without event time."""
    if query.aggregation is not None:
        return _refused(
            query.name,
            f"{query.name} answers with aggregates, which a join cannot read directly: {ANOTHER_WAY}",
        )
    if not query.oblivious:
        return _refused(
            query.name,
            f"{query.name} has a window, and queries read only joins without one directly: {ANOTHER_WAY}",
        )
    inputs = [streams[stream] for stream in query.streams]
    columns, untyped = [], []
    for output in query.outputs:
        kind = _type(output, query, inputs)
        columns += [Column(output.name, kind)] if kind else []
        untyped += [] if kind else [output.name]
    return Stream(query.name, tuple(columns), "", results=Results(_attributes(query), tuple(untyped)))


def _refused(name: str, why: str) -> Stream:
    return Stream(name, (), "", results=Results(refusal=why))


def _type(output: OutputColumn, query: Query, inputs: list[Stream]) -> str:
    """Return the type of an output that is a column or a cast; empty if only Spark can determine it."""
    if output.column is not None:
        side, name = output.column
        return inputs[query.sides.index(side)].type_of(name)
    tree = parse_text(output.expression)
    kind = known_type(cast_type(unwrapped(tree))) if tree is not None else None
    is_known = kind is not None and not kind.holds("char", "varchar") and not refusal_to_store(str(kind))
    return str(kind) if is_known else ""


def _attributes(query: Query) -> tuple[str, ...]:
    """Return the names of the outputs that hold the join attribute."""
    terms = set(attribute_terms(query.edges))
    sides = {side: number for number, side in enumerate(query.sides)}
    return tuple(
        output.name
        for output in query.outputs
        if output.column and (sides[output.column[0]], output.column[1]) in terms
    )


def attribute_terms(edges: Iterable[Edge]) -> Iterator[tuple[int, str]]:
    """List the terms that equalities compare, each with its input's number; a plain column without quotes."""
    for edge in edges:
        yield edge.first, unquoted(edge.key.left)
        yield edge.second, unquoted(edge.key.right)


def why_not_joined(streams: list[Stream], edges: Iterable[Edge]) -> str:
    """Return why results of a query cannot be joined on another column than its attribute; empty if they can."""
    for number, term in attribute_terms(edges):
        stream = streams[number]
        if stream.results is None or term in stream.results.attribute:
            continue
        known = " or ".join(f"{stream.name}.{name}" for name in stream.results.attribute)
        fix = f"join on {known}" if known else f"select the join column in {stream.name}"
        return (
            f"is joined with {stream.name} on {term}, which is not the join column of {stream.name} itself, so its "
            f"order is unknown: {fix}, or {ANOTHER_WAY}"
        )
    return ""


def readers_of(
    name: str, queries: Iterable[Query], *, deep: bool = False, hidden: Iterable[str] = ()
) -> list[str]:
    """Return the names of the queries that read the results of one; if `deep`, also their readers, and so on.

    `hidden` are names in lower case of streams that hide a query of the same name.
    """
    everyone = list(queries)
    found: list[str] = []
    waiting = [name]
    while waiting:
        read = waiting.pop().lower()
        more = [query.name for query in everyone if read in map(str.lower, query.streams)]
        fresh = [query for query in more if query not in found]
        found += fresh
        waiting += [query for query in fresh if deep and query.lower() not in hidden]
    return found


def why_not_changed(
    query: Query, after: Query | None, streams: Mapping[str, Stream], queries: Iterable[Query]
) -> str:
    """Return why its readers do not allow that a query is dropped, or becomes `after`; empty if they do."""
    everyone = [other for other in queries if other.name != query.name]
    declared = {stream.name.lower() for stream in streams.values()}
    readers = readers_of(query.name, everyone) if query.name.lower() not in declared else []
    if not readers:
        return ""
    read = f"query {query.name} is read by {', '.join(readers)}"
    if after is None:
        return f"{read}: drop that first"
    was, now = (with_results(streams, [*everyone, version])[query.name] for version in (query, after))
    if was == now:
        return ""
    if now.results and now.results.refusal:
        return f"{read}: {now.results.refusal}; or drop {readers[0]} first"
    columns = ", ".join(f"{column.name} {column.type}" for column in was.columns)
    return f"{read}, for which its columns must stay as they are ({columns}): drop that first, or create another query"
