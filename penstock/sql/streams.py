"""``CREATE STREAM name (column TYPE, …) WITH (…)`` to a `Stream`.

Options of Penstock's own are ``format``, ``time``, ``lateness`` and `KEPT_OPTIONS`, in any case.  All others go to
Spark's source with their case kept.

In:  a `TokenReader` standing after CREATE STREAM.
Out: a `Stream`.
True: its time column, if it has one, exists and has a time type; a file source has a path; its promises fit its
columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from itertools import pairwise

from penstock.errors import did_you_mean
from penstock.sql.bind.arrival import ARRIVAL_OPTIONS, settled_arrival
from penstock.sql.bind.promises import PROMISE_OPTIONS, settled_promises
from penstock.sql.options import Option, OptionError, check_duration, read_options
from penstock.sql.query import RESERVED_NAMES, Column, Stream, is_reserved
from penstock.sql.source_options import why_unknown
from penstock.sql.spark_types import TIME_TYPES, TypeTextError, parse_type, refusal_to_store
from penstock.sql.text.lexer import Token
from penstock.sql.text.refusals import refuse_column, refused_constraint
from penstock.sql.text.tokens import Span, TokenReader, joined, span_of_tokens

FILE_FORMATS = frozenset({"parquet", "csv", "json", "orc", "text", "avro", "xml"})
_OWN_OPTIONS = ("format", "time", "lateness")
KEPT_OPTIONS = frozenset({"retain", "trigger", *PROMISE_OPTIONS, *ARRIVAL_OPTIONS})
"""Options of Penstock that are kept among those of the source, which does not see them."""
TIMED_OPTIONS = frozenset({"lateness", "retain", *PROMISE_OPTIONS})
"""Options that need event time."""
_EASILY_MISSPELT = ("lateness", *sorted(KEPT_OPTIONS))
DEFAULT_TRIGGER = "100 ms"
_SLIP_RATIO = 0.85
"""The similarity (difflib's ratio) from which an unknown option counts as a misspelt one."""


def trigger_micros(stream: Stream) -> int:
    """Return the time between two polls of a stream's source in microseconds; 0: no pause.

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
    given = {option.key.lower(): option for option in read_options(reader)}
    reader.end()
    _refuse_near_misses(reader, given)
    durations = {
        key: _duration(reader, given[key]) for key in ("lateness", "retain", "trigger") if key in given
    }
    stream = Stream(
        name=name,
        columns=columns,
        time=_time(reader, name, columns, given["time"]) if "time" in given else "",
        lateness=durations.get("lateness", 0),
        format=_format(reader, name, given, name_span),
        options=tuple(
            (key if key in KEPT_OPTIONS else option.key, option.value)
            for key, option in given.items()
            if key not in _OWN_OPTIONS
        ),
    )
    for key, option in given.items():
        if why := why_unknown(stream.format, option.key, (*_OWN_OPTIONS, *sorted(KEPT_OPTIONS))):
            raise reader.error(why, option.key_span)
        if stream.timeless and key in TIMED_OPTIONS:
            message = f"option {option.key} needs event time, and stream {name} has none: add WITH (time = '<column>')"
            raise reader.error(message, option.key_span)
    try:
        return settled_promises(settled_arrival(stream), streams)
    except OptionError as error:
        raise reader.error(str(error), given[error.option].value_span) from None


def _read_columns(reader: TokenReader, stream: str) -> tuple[Column, ...]:
    columns: dict[str, Column] = {}
    reader.expect("(", f"stream {stream} needs its columns: (name TYPE, ...)")
    while not reader.accept(")"):
        refuse_column(reader)
        span = reader.span
        column = _read_column(reader)
        if column.name.lower() in columns:
            raise reader.error(
                f"column {column.name} of stream {stream} is declared twice: leave one out", span
            )
        columns[column.name.lower()] = column
        if not reader.accept(",") and reader.word() != ")":
            raise reader.error(f"{reader.next_text()}: columns are separated by commas and end with )")
    if not columns:
        raise reader.error(
            f"stream {stream} has no columns: write (name TYPE, ...)",
            (reader.tokens[reader.at - 1].start, reader.tokens[reader.at - 1].end),
        )
    return tuple(columns.values())


def _read_column(reader: TokenReader) -> Column:
    """Read one ``name TYPE``; NOT NULL and COMMENT may follow and have no effect."""
    name_span = reader.span
    name = reader.name("a column")
    written = reader.until(",", ")")
    _refuse_constraints(reader, written)
    tokens = _without_notes(written)
    if not tokens:
        raise reader.error(f"column {name} has no type: write {name} and a type of Spark", name_span)
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


def _refuse_near_misses(reader: TokenReader, given: Mapping[str, Option]) -> None:
    """Refuse ``latness``, which Spark would silently ignore."""
    for key, option in given.items():
        near = get_close_matches(key, _EASILY_MISSPELT, n=1, cutoff=_SLIP_RATIO)
        if near and near[0] != key:
            raise reader.error(f"unknown option {option.key}: did you mean {near[0]}?", option.key_span)


def _duration(reader: TokenReader, option: Option) -> int:
    with reader.source.errors_at(option.value_span):
        return check_duration(option.key.lower(), option.value)


def _format(reader: TokenReader, name: str, given: Mapping[str, Option], span: Span) -> str:
    if "format" not in given:
        raise reader.error(f"stream {name} needs a format: WITH (format = 'parquet', ...)", span)
    source = given["format"].value
    if source.lower() in FILE_FORMATS and "path" not in given:
        message = f"stream {name} reads {source} files and needs a path: WITH (path = '...')"
        raise reader.error(message, given["format"].value_span)
    return source


def _time(reader: TokenReader, name: str, columns: tuple[Column, ...], option: Option) -> str:
    """Return the declared name of the event-time column."""
    column = next((column for column in columns if column.name.lower() == option.value.lower()), None)
    if column is None:
        hint = did_you_mean(option.value, [column.name for column in columns])
        raise reader.error(f"time column {option.value} is not a column of {name}: {hint}", option.value_span)
    if column.type not in TIME_TYPES:
        message = f"time column {column.name} of {name} is {column.type}: it must be TIMESTAMP, TIMESTAMP_NTZ or DATE"
        raise reader.error(message, option.value_span)
    return column.name
