"""``CREATE STREAM name (column TYPE, …) WITH (…)`` to a `Stream`.

Options of Penstock's own are ``format``, ``time``, ``lateness`` and `KEPT_OPTIONS`, in any case.  All others go to
Spark's source with their case kept.

In:  a `TokenReader` standing after CREATE STREAM.
Out: a `Stream`.
True: its time column, if it has one, exists and has a time type; a file source has a path; what it promises fits its
columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from itertools import pairwise

from penstock.errors import InputError, did_you_mean
from penstock.sql.bind.arrival import ARRIVAL_OPTIONS, ArrivalError, settled_arrival
from penstock.sql.bind.promises import PROMISE_OPTIONS, PromiseError, settled_promises
from penstock.sql.options import Option, check_duration, read_options
from penstock.sql.query import RESERVED_NAMES, Column, Stream, is_reserved
from penstock.sql.source_options import why_unknown
from penstock.sql.spark_types import TIME_TYPES, TypeTextError, parse_type, refusal_to_store
from penstock.sql.text.lexer import Token
from penstock.sql.text.refusals import refused_column, refused_constraint
from penstock.sql.text.tokens import Span, TokenReader, joined, span_of_tokens

FILE_FORMATS = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "xml"})
_OWN_OPTIONS = ("format", "time", "lateness")
KEPT_OPTIONS = frozenset({"retain", "trigger", *PROMISE_OPTIONS, *ARRIVAL_OPTIONS})
"""Options that are ours and kept among those of the source, which does not see them."""
TIMED_OPTIONS = frozenset({"lateness", "retain", *PROMISE_OPTIONS})
"""Options that go by event time."""
_EASILY_MISSPELT = ("lateness", *sorted(KEPT_OPTIONS))
DEFAULT_TRIGGER = "100 ms"
_SLIP_RATIO = 0.85
"""How alike a key must be to one of ours to be taken for a slip of it (difflib's ratio)."""


def trigger_micros(stream: Stream) -> int:
    """Return how often Spark asks a stream's source for new rows, in microseconds; 0: as soon as it has read the last.

    >>> trigger_micros(Stream("s", (), "", options=(("trigger", "2 seconds"),))), trigger_micros(Stream("s", (), ""))
    (2000000, 100000)
    """
    return check_duration("trigger", dict(stream.options).get("trigger", DEFAULT_TRIGGER))


def read_stream(reader: TokenReader, streams: Mapping[str, Stream]) -> Stream:
    """Read the rest of a CREATE STREAM statement; `streams` are those declared before it."""
    name_span = reader.span
    name = reader.name("a stream")
    columns = _read_columns(reader, name)
    reader.expect("WITH", f"stream {name} needs WITH (format = '...', time = '...')")
    options = read_options(reader)
    reader.end()
    ours = {each.key.lower(): each for each in options if each.key.lower() in _OWN_OPTIONS}
    for each in options:
        _refuse_near_miss(reader, each)
    stream = Stream(
        name=name,
        columns=columns,
        time=_time(reader, name, columns, ours["time"]) if "time" in ours else "",
        lateness=_duration(reader, ours["lateness"]) if "lateness" in ours else 0,
        format=_format(reader, name, options, name_span),
        options=tuple((_key(each), each.value) for each in options if each.key.lower() not in _OWN_OPTIONS),
    )
    _refuse_unknown(reader, stream, options)
    if stream.timeless:
        _refuse_timed_options(reader, name, options)
    return _settled(reader, stream, streams, options)


def _refuse_timed_options(reader: TokenReader, name: str, options: list[Option]) -> None:
    """Refuse options that go by event time where there is none."""
    for each in options:
        if each.key.lower() in TIMED_OPTIONS:
            message = (
                f"option {each.key} goes by event time, and stream {name} has none: WITH (time = '<column>')"
            )
            raise reader.error(message, each.key_span)


def _settled(
    reader: TokenReader, stream: Stream, streams: Mapping[str, Stream], options: list[Option]
) -> Stream:
    """Check what a stream promises and says of its order, and point at the option that is wrong."""
    try:
        return settled_promises(settled_arrival(stream), streams)
    except (PromiseError, ArrivalError) as error:
        wrong = next(each for each in options if each.key.lower() == error.option)
        raise reader.error(str(error), wrong.value_span) from None


def _read_columns(reader: TokenReader, stream: str) -> tuple[Column, ...]:
    """Read ``(name TYPE, …)``."""
    columns: dict[str, Column] = {}
    reader.expect("(", f"stream {stream} needs its columns: (name TYPE, ...)")
    while not reader.accept(")"):
        if error := refused_column(reader):
            raise error
        span = reader.span
        column = _read_column(reader)
        if column.name.lower() in columns:
            raise reader.error(f"column {column.name} of stream {stream} is declared twice", span)
        columns[column.name.lower()] = column
        if not reader.accept(",") and reader.word() != ")":
            raise reader.error(f"{reader.next_text()}: columns are separated by commas and end with )")
    if not columns:
        raise reader.error(
            f"stream {stream} has no columns",
            (reader.tokens[reader.at - 1].start, reader.tokens[reader.at - 1].end),
        )
    return tuple(columns.values())


def _read_column(reader: TokenReader) -> Column:
    """Read one ``name TYPE``; NOT NULL and COMMENT may follow and mean nothing here."""
    name_span = reader.span
    name = reader.name("a column")
    written = reader.until(",", ")")
    _refuse_constraints(reader, written)
    tokens = _without_notes(written)
    if not tokens:
        raise reader.error(f"column {name} has no type", name_span)
    if is_reserved(name):
        raise reader.error(f"column {name}: {RESERVED_NAMES}", name_span)
    try:
        kind = parse_type(joined(tokens))
    except TypeTextError as error:
        raise reader.error(f"column {name}: {error}", span_of_tokens(tokens)) from None
    if kind.holds("char", "varchar"):
        message = f"column {name}: {kind} is for tables, where Spark pads and checks it: declare it STRING"
        raise reader.error(message, span_of_tokens(tokens))
    if refusal := refusal_to_store(str(kind)):
        message = (
            f"column {name} cannot be stored. {refusal} where the rows are made, or leave the column out"
        )
        raise reader.error(message, span_of_tokens(tokens))
    return Column(name, str(kind))


def _refuse_constraints(reader: TokenReader, tokens: list[Token]) -> None:
    """Refuse ``INT PRIMARY KEY``; behind ``<`` or a comma such a word is the name of a field."""
    for before, token in pairwise(tokens):
        if before.text not in {"<", ","} and (refusal := refused_constraint(token.upper)):
            raise reader.error(refusal, (token.start, token.end))


def _without_notes(tokens: list[Token]) -> list[Token]:
    """Cut NOT NULL and COMMENT '…' off a column."""
    words = [token.upper for token in tokens]
    ends = [words.index(word) for word in ("NOT", "COMMENT") if word in words]
    return tokens[: min(ends, default=len(tokens))]


def _key(option: Option) -> str:
    """Keep a key as written, but our own in lower case."""
    return option.key.lower() if option.key.lower() in KEPT_OPTIONS else option.key


def _refuse_near_miss(reader: TokenReader, option: Option) -> None:
    """Refuse ``latness``: passed on to Spark it would be ignored without a word."""
    key = option.key.lower()
    if key in {"retain", "trigger"}:
        _duration(reader, option)
    near = get_close_matches(key, _EASILY_MISSPELT, n=1, cutoff=_SLIP_RATIO)
    if near and near[0] != key:
        raise reader.error(f"unknown option {option.key}: did you mean {near[0]}?", option.key_span)


def _refuse_unknown(reader: TokenReader, stream: Stream, options: list[Option]) -> None:
    """Refuse options that neither Penstock nor the source knows."""
    ours = (*_OWN_OPTIONS, *sorted(KEPT_OPTIONS))
    for each in options:
        if why := why_unknown(stream.format, each.key, ours):
            raise reader.error(why, each.key_span)


def _duration(reader: TokenReader, option: Option) -> int:
    """Read an option that is a length of time, in microseconds."""
    try:
        return check_duration(option.key.lower(), option.value)
    except InputError as error:
        raise reader.error(str(error), option.value_span) from None


def _format(reader: TokenReader, name: str, options: list[Option], span: Span) -> str:
    """Give the source's format; files need a path."""
    given = {each.key.lower(): each for each in options}
    if "format" not in given:
        raise reader.error(f"stream {name} needs a format: WITH (format = 'parquet', ...)", span)
    source = given["format"].value
    if source.lower() in FILE_FORMATS and "path" not in given:
        message = f"stream {name} reads {source} files and needs a path: WITH (path = '...')"
        raise reader.error(message, given["format"].value_span)
    return source


def _time(reader: TokenReader, name: str, columns: tuple[Column, ...], option: Option) -> str:
    """Find the event-time column, and give its name as declared."""
    column = next((each for each in columns if each.name.lower() == option.value.lower()), None)
    if column is None:
        hint = did_you_mean(option.value, [each.name for each in columns])
        raise reader.error(f"time column {option.value} is not a column of {name}: {hint}", option.value_span)
    if column.type not in TIME_TYPES:
        message = f"time column {column.name} of {name} is {column.type}: it must be TIMESTAMP, TIMESTAMP_NTZ or DATE"
        raise reader.error(message, option.value_span)
    return column.name
