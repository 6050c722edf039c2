"""A script to statements, and to the streams and queries after the last of them.

Statements are read in order, and each sees the streams and queries declared before it.  A statement about a query that
the script did not create (``DROP QUERY q1`` sent to a running engine) is kept for the engine.

In:  the text, and the streams and queries declared outside it.
Out: a `Script`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import SqlError, did_you_mean
from penstock.sql.bind.binder import bind_query, bind_tokens, with_window
from penstock.sql.bind.promises import carriers_of
from penstock.sql.bind.result_streams import readers_of, why_not_changed, with_results
from penstock.sql.options import check_value, plain, query_options, read_options, setting_name
from penstock.sql.query import Query, Sink, Stream
from penstock.sql.streams import read_stream
from penstock.sql.text.tokens import Source, Span, TokenReader, joined, span_of_tokens
from penstock.sql.text.windows import WindowSpec, read_spec
from penstock.sql.zones import ZONE


@dataclass(frozen=True, slots=True)
class CreateStream:
    """``CREATE STREAM name (…) WITH (…)``."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class CreateQuery:
    """``CREATE QUERY name [WITH (…)] AS SELECT …``."""

    query: Query


@dataclass(frozen=True, slots=True)
class DropQuery:
    """``DROP QUERY name``."""

    name: str


@dataclass(frozen=True, slots=True)
class DropStream:
    """``DROP STREAM name``."""

    name: str


@dataclass(frozen=True, slots=True)
class AlterQuery:
    """``ALTER QUERY name SET WINDOW …`` or ``ALTER QUERY name AS SELECT …``; `altered` applies it to a query."""

    name: str
    window: WindowSpec | None = None
    select: str = ""


@dataclass(frozen=True, slots=True)
class ShowQueries:
    """``SHOW QUERIES``."""


@dataclass(frozen=True, slots=True)
class Explain:
    """``EXPLAIN`` of the whole plan, or of one query."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class SetOption:
    """``SET name = 'value'``."""

    name: str
    value: str = field(repr=False)  # may be secret


Statement = (
    CreateStream | CreateQuery | DropQuery | DropStream | AlterQuery | ShowQueries | Explain | SetOption
)


@dataclass(frozen=True, slots=True)
class Script:
    """The statements in order, and the streams, queries and settings after the last."""

    statements: tuple[Statement, ...] = ()
    streams: dict[str, Stream] = field(default_factory=dict)
    queries: tuple[Query, ...] = ()
    settings: dict[str, str] = field(default_factory=dict, repr=False)  # may hold secrets

    @property
    def inputs(self) -> dict[str, Stream]:
        """All inputs that its queries may read: the streams, and the results of queries."""
        return with_results(self.streams, self.queries)


def parse_script(
    text: str,
    declared: Mapping[str, Stream] | None = None,
    queries: Iterable[Query] = (),
    *,
    zone: str | None = None,
    default_zone: str = "UTC",
) -> Script:
    """Read a whole script; `declared` and `queries` are the streams and queries declared outside it.

    `zone` is the time zone of the session; without one, it is the zone that the script sets, or the default.

    >>> script = parse_script("SET scheduler = 'mqt'; SHOW QUERIES")
    >>> script.statements
    (SetOption(name='scheduler'), ShowQueries())
    >>> script.settings
    {'scheduler': 'mqt'}
    """
    source = Source(text)
    reading = _ScriptReader(source, dict(declared or {}), zone or _zone_set_by(source, default_zone))
    reading.others = {query.name.lower(): query for query in queries}
    statements = tuple(reading.read(TokenReader(source, tokens)) for tokens in source.statements)
    return Script(statements, reading.streams, tuple(reading.queries.values()), reading.settings)


def _zone_set_by(source: Source, default: str) -> str:
    """Return the time zone that a script sets last."""
    for tokens in source.statements:
        reading = _ScriptReader(source, {}, default)
        if tokens[0].upper == "SET":
            reading.read(TokenReader(source, tokens))
        default = reading.settings.get(ZONE, default)
    return default


def altered(query: Query, change: AlterQuery, streams: Mapping[str, Stream], zone: str = "UTC") -> Query:
    """Apply an ALTER to a query that was created elsewhere; its sink and options stay."""
    if change.window is not None:
        return with_window(query, change.window, streams, zone=zone)
    return bind_query(query.name, change.select, streams, query.sink, dict(query.options), zone=zone)


class _ScriptReader:
    """The streams, queries and settings while a script is read; names are looked up in lower case."""

    def __init__(self, source: Source, declared: dict[str, Stream], zone: str) -> None:
        self.source = source
        self.zone = zone
        self.declared = declared
        self.streams: dict[str, Stream] = {}
        self.settings: dict[str, str] = {}
        self.queries: dict[str, Query] = {}
        self.others: dict[str, Query] = {}
        """Queries created outside the script."""

    @property
    def visible(self) -> dict[str, Stream]:
        return {**self.declared, **self.streams}

    @property
    def everyone(self) -> list[Query]:
        return list({**self.others, **self.queries}.values())

    def readable(self, reader: str) -> dict[str, Stream]:
        """Return the inputs that a query may read at this point."""
        return with_results(self.visible, self.everyone, reader)

    def read(self, reader: TokenReader) -> Statement:
        for words, read in _STATEMENTS.items():
            if reader.accept(*words.split()):
                return read(self, reader)
        raise self._unknown(reader)

    def create_stream(self, reader: TokenReader) -> CreateStream:
        span = reader.span
        stream = read_stream(reader, self.visible)
        if stream.name.lower() in {name.lower() for name in self.visible}:
            raise self.source.error(f"stream {stream.name} is declared twice: leave one out", span)
        if readers := readers_of(stream.name, self.everyone):
            raise self.source.error(
                f"{', '.join(readers)} reads the results of query {stream.name}: give the stream another name",
                span,
            )
        self.streams[stream.name] = stream
        return CreateStream(stream)

    def create_query(self, reader: TokenReader) -> CreateQuery:
        span = reader.span
        name = reader.name("a query")
        if name.lower() in self.queries:
            raise self.source.error(
                f"query {name} is declared twice: drop the first, or give this one another name", span
            )
        options = read_options(reader) if reader.accept("WITH") else []
        sink, own = query_options(options, self.source)
        reader.expect("AS", f"query {name} is written CREATE QUERY {name} AS SELECT ...")
        query = self._bind(reader, name, sink, own)
        self.queries[name.lower()] = query
        return CreateQuery(query)

    def _bind(
        self, reader: TokenReader, name: str, sink: Sink, options: tuple[tuple[str, str], ...]
    ) -> Query:
        if reader.done:
            raise reader.error(f"query {name} is empty: it needs a SELECT after AS")
        return bind_tokens(
            name, self.source, reader.rest, self.readable(name), sink=sink, options=options, zone=self.zone
        )

    def drop_query(self, reader: TokenReader) -> DropQuery:
        span = reader.span
        name = reader.name("DROP QUERY")
        reader.end()
        self._refuse_change(name, None, span)
        dropped = self.queries.pop(name.lower(), None)
        self.others.pop(name.lower(), None)
        return DropQuery(dropped.name if dropped else name)

    def _refuse_change(self, name: str, after: Query | None, span: Span) -> None:
        """Refuse a change of a query if another query could no longer read its results."""
        before = self.queries.get(name.lower()) or self.others.get(name.lower())
        if before and (why := why_not_changed(before, after, self.visible, self.everyone)):
            raise self.source.error(why, span)

    def drop_stream(self, reader: TokenReader) -> DropStream:
        span = reader.span
        name = reader.name("DROP STREAM")
        reader.end()
        stream = next((known for known in self.visible if known.lower() == name.lower()), name)
        readers = [query.name for query in self.queries.values() if stream in query.streams]
        if readers:
            raise self.source.error(f"stream {stream} is read by {', '.join(readers)}: drop that first", span)
        if carriers := carriers_of(stream, self.visible):
            raise self.source.error(
                f"{', '.join(carriers)} carries the promises of {stream}: drop that first", span
            )
        self.streams.pop(stream, None)
        self.declared.pop(stream, None)
        return DropStream(stream)

    def alter_query(self, reader: TokenReader) -> AlterQuery:
        span = reader.span
        name = reader.name("ALTER QUERY")
        query = self.queries.get(name.lower())
        if reader.accept("AS"):
            return self._alter_select(reader, query.name if query else name, query, span)
        forms = f"write ALTER QUERY {name} SET WINDOW 5 min, or ALTER QUERY {name} AS SELECT ..."
        reader.expect("SET", forms)
        if reader.word() != "WINDOW":
            raise reader.error(f"{reader.next_text()}: {forms}")
        window = read_spec(self.source, reader.rest, name)
        if query:
            with self.source.errors_at(span_of_tokens(reader.rest)):
                changed = with_window(query, window, self.readable(query.name), zone=self.zone)
            self._refuse_change(name, changed, span)
            self.queries[name.lower()] = changed
        return AlterQuery(query.name if query else name, window)

    def _alter_select(self, reader: TokenReader, name: str, query: Query | None, span: Span) -> AlterQuery:
        """Define a query anew; a query that was created elsewhere is only checked."""
        sink, options = (query.sink, query.options) if query else (Sink(), ())
        changed = self._bind(reader, name, sink, options)
        self._refuse_change(name, changed, span)
        if query:
            self.queries[name.lower()] = changed
        return AlterQuery(name, select=changed.text)

    def set_option(self, reader: TokenReader) -> SetOption:
        key = reader.until("=")
        reader.expect("=", "a setting is written SET name = 'value'")
        if not key or reader.done:
            raise reader.error("a setting is written SET name = 'value'")
        value = plain(self.source, list(reader.rest))
        with self.source.errors_at(span_of_tokens(key)):
            name = setting_name(plain(self.source, key))
        with self.source.errors_at(span_of_tokens(reader.rest)):
            check_value(name, value)
        value = value if "." in name else value.lower()
        self.settings[name] = value
        return SetOption(name, value)

    def show(self, reader: TokenReader) -> ShowQueries:
        reader.end()
        return ShowQueries()

    def explain(self, reader: TokenReader) -> Explain:
        if reader.done:
            return Explain()
        name = reader.name("EXPLAIN")
        reader.end()
        query = self.queries.get(name.lower())
        return Explain(query.name if query else name)

    def _unknown(self, reader: TokenReader) -> SqlError:
        words = joined(reader.rest[:2])
        if reader.word() in {"SELECT", "WITH"}:
            return reader.error("a SELECT in a script needs a name: CREATE QUERY name AS SELECT ...")
        return reader.error(f"{words} is not a statement: {did_you_mean(words, _STATEMENTS)}")


_STATEMENTS: dict[str, Callable[[_ScriptReader, TokenReader], Statement]] = {
    "CREATE STREAM": _ScriptReader.create_stream,
    "CREATE QUERY": _ScriptReader.create_query,
    "DROP QUERY": _ScriptReader.drop_query,
    "DROP STREAM": _ScriptReader.drop_stream,
    "ALTER QUERY": _ScriptReader.alter_query,
    "SHOW QUERIES": _ScriptReader.show,
    "EXPLAIN": _ScriptReader.explain,
    "SET": _ScriptReader.set_option,
}
"""The method for each statement, by its first words."""
