"""What may stand in ``WITH (…)`` and after ``SET``: the known names and their values.

An option of a stream that is not ours belongs to the Spark source and passes untouched.  A query has no such
neighbour, so an unknown option there is a mistake, and is refused with the nearest known name.

In:  `Option`s and where they stand (`read_options`), or plain mappings from Python.
Out: checked pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import InputError, did_you_mean
from penstock.schedulers import DEFAULT_SCHEDULER, SCHEDULERS
from penstock.sql.query import Sink
from penstock.sql.text.lexer import Token, string_value
from penstock.sql.text.tokens import Source, Span, TokenReader
from penstock.sql.units import DurationError, SizeError, parse_duration, parse_size

ORDERS = ("none", "sync-filter", "filter-order", "adaptive")
EMITS = ("sliding", "final", "changes")
STRATEGIES = ("mem-opt", "cpu-opt", "pull-up", "push-down", "isolated", "auto")
BUFFERS = ("plain", "dbf", "msf", "hybrid")
"""What joins without a window do to take less memory, from what delays results least to what delays them most."""

SINKS = {"parquet": ("path", "compression", "punctuations"), "table": (), "console": (), "noop": ()}
"""The sinks a script can name, and the options of each."""

COMPRESSIONS = ("snappy", "none", "gzip", "zstd", "lz4", "brotli")
"""How files of results may be compressed."""

_CHOICES = {
    "order": ORDERS,
    "emit": EMITS,
    "strategy": STRATEGIES,
    "scheduler": tuple(SCHEDULERS),
    "buffers": BUFFERS,
    "compression": COMPRESSIONS,
    "punctuations": ("true", "false"),
}
_DURATIONS = {"max_lag", "idle_after", "lateness", "retain"}
_QUERY_OPTIONS = ("order", "alpha", "max_lag", "idle_after", "emit", "buffers")
_SETTINGS = ("strategy", "scheduler", "memory", "buffers")
_PASSED_ON = ("spark.", "penstock.")


@dataclass(frozen=True, slots=True)
class Option:
    """One ``key = 'value'`` and where it stands."""

    key: str
    value: str = field(repr=False)  # may be secret
    key_span: Span
    value_span: Span


def read_options(reader: TokenReader) -> list[Option]:
    """Read ``(k = 'v', …)``; the same key twice, in whatever case, is refused."""
    options: dict[str, Option] = {}
    reader.expect("(", "options are written WITH (name = 'value', ...)")
    while not reader.accept(")"):
        option = _read_option(reader)
        if option.key.lower() in options:
            raise reader.error(f"option {option.key} is given twice", option.key_span)
        options[option.key.lower()] = option
        if not reader.accept(",") and reader.word() != ")":
            raise reader.error(f"{reader.next_text()}: options are separated by commas and end with )")
    return list(options.values())


def _read_option(reader: TokenReader) -> Option:
    """Read one ``key = 'value'``; the key may have dots, the value may be a bare number or word."""
    key_span = reader.span
    key = reader.until("=", ",", ")")
    if not key:
        raise reader.error(f"{reader.next_text()}: an option is written name = 'value'")
    key_span = (key_span[0], key[-1].end)
    reader.expect("=", "an option is written name = 'value'")
    value = reader.until(",", ")")
    if not value:
        raise reader.error(f"{reader.next_text()}: option {plain(reader.source, key)} has no value")
    value_span = (value[0].start, value[-1].end)
    if len(value) > 1 and any(token.kind == "string" for token in value):
        raise reader.error("options are separated by commas", (value[1].start, value[-1].end))
    return Option(plain(reader.source, key), plain(reader.source, value), key_span, value_span)


def plain(source: Source, tokens: list[Token]) -> str:
    """Give what a quoted text says, or a bare one as it is written."""
    if len(tokens) == 1 and tokens[0].kind in {"string", "quoted"}:
        return string_value(tokens[0]) if tokens[0].kind == "string" else tokens[0].name
    return source.slice(tokens)


def query_options(options: Iterable[Option], source: Source) -> tuple[Sink, tuple[tuple[str, str], ...]]:
    """Split the options of CREATE QUERY into its sink and its own, each checked."""
    given = {each.key.lower(): each for each in options}
    kind = given["sink"].value.lower() if "sink" in given else Sink().kind
    if kind not in SINKS:
        hint = "a callback is given from Python" if kind == "callback" else did_you_mean(kind, SINKS)
        raise source.error(f"unknown sink {kind}: {hint}", given["sink"].value_span)
    for name, option in given.items():
        try:
            _check_query_option(name, option.value, kind)
        except InputError as error:
            raise source.error(str(error), option.key_span) from None
    if kind == "parquet" and "path" not in given:
        message = "sink parquet needs a path: WITH (sink = 'parquet', path = '...')"
        raise source.error(message, given["sink"].value_span)
    sink = Sink(kind, tuple((name, _sink_value(given[name])) for name in SINKS[kind] if name in given))
    return sink, tuple((name, given[name].value.lower()) for name in sorted(given) if name in _QUERY_OPTIONS)


def _sink_value(option: Option) -> str:
    """Give an option of a sink as it is kept: a path as written, a choice in lower case."""
    return option.value.lower() if option.key.lower() in _CHOICES else option.value


def check_query_options(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Check the options of a query given from Python, where there is no text to point into."""
    for name, value in options.items():
        if name.lower() not in _QUERY_OPTIONS:
            raise InputError(f"unknown query option {name}: {did_you_mean(name, _QUERY_OPTIONS)}")
        check_value(name.lower(), str(value))
    return tuple(sorted((name.lower(), str(value).lower()) for name, value in options.items()))


def _check_query_option(name: str, value: str, kind: str) -> None:
    """Check one option of CREATE QUERY, in lower case."""
    if name == "sink" or name in SINKS[kind]:
        check_value(name, value)
        return
    owner = next((sink for sink, names in SINKS.items() if name in names), None)
    if owner:
        raise InputError(f"option {name} is for sink = '{owner}', and this sink is {kind}")
    if name not in _QUERY_OPTIONS:
        options = ["sink", *SINKS[kind], *_QUERY_OPTIONS]
        raise InputError(f"unknown query option {name}: {did_you_mean(name, options)}")
    check_value(name, value)


def setting_name(name: str) -> str:
    """Give a setting's normal name; ``spark.`` and ``penstock.`` settings keep their case."""
    if name.lower().startswith(_PASSED_ON):
        return name
    if name.lower() not in _SETTINGS:
        raise InputError(f"unknown setting {name}: {did_you_mean(name, _SETTINGS)}")
    return name.lower()


def check_value(name: str, value: str) -> None:
    """Refuse a value that this option or setting cannot have."""
    choices = _CHOICES.get(name)
    if choices and value.lower() not in choices:
        shown = value or "empty"
        raise InputError(f"{name} cannot be {shown}: choose one of: {', '.join(choices)}")
    if name == "alpha":
        check_alpha(value)
    if name == "memory":
        check_size(name, value)
    if name in _DURATIONS and check_duration(name, value) == 0 and name == "idle_after":
        raise InputError(f"idle_after {value!r} would leave every stream out: give it a length of time")


def check_alpha(value: str | float) -> float:
    """Read the share of the time from which on adaptive queries join at once; at 1 the join no longer keeps up.

    >>> check_alpha("0.3")
    0.3
    """
    try:
        alpha = float(value)
    except ValueError:
        alpha = -1.0
    if not 0 <= alpha < 1:
        raise InputError(
            f"alpha cannot be {value}: it is the share of the time that joining may take before order = 'adaptive' "
            "joins at once, a number from 0 up to, but not including, 1"
        )
    return alpha


def scheduler_of(settings: Mapping[str, str]) -> str:
    """Give the scheduler that settings ask for."""
    return settings.get("scheduler", DEFAULT_SCHEDULER).lower()


def buffers_of(settings: Mapping[str, str]) -> str:
    """Give the way in which joins without a window are to save memory; empty: as the memory there is asks for."""
    return settings.get("buffers", "").lower()


def strategy_of(settings: Mapping[str, str]) -> str:
    """Give the way in which queries share."""
    return settings.get("strategy", "mem-opt").lower()


def budget_of(settings: Mapping[str, str]) -> float | None:
    """Give the bytes that `auto` may plan for, and that joins without a window may take; None: as many as they like."""
    return check_size("memory", settings["memory"]) if "memory" in settings else None


def check_size(name: str, value: str) -> int:
    """Read a setting that is an amount of memory, in bytes."""
    try:
        return parse_size(value)
    except SizeError as error:
        raise InputError(f"{name} {value!r} {error}") from None


def check_duration(name: str, value: str) -> int:
    """Read an option that is a length of time, 0 or more, in microseconds."""
    try:
        micros = parse_duration(value)
    except DurationError as error:
        raise InputError(f"{name} {value!r} {error}") from None
    if micros < 0:
        raise InputError(f"{name} {value!r} is negative: it must be 0 or more")
    return micros
