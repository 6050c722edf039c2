"""Options of ``WITH (…)`` and ``SET``: the known names and their values.

Unknown options of a stream go to its Spark source.  Unknown options of a query are refused with the nearest known name.

In:  `Option`s with their positions (`read_options`), or plain mappings from Python.
Out: checked pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import InputError, did_you_mean
from penstock.schedulers import DEFAULT_SCHEDULER, SCHEDULERS
from penstock.sql.query import Sink
from penstock.sql.sinks import SINKS, make_sink, sink_class
from penstock.sql.text.lexer import Token, string_value
from penstock.sql.text.tokens import Source, Span, TokenReader
from penstock.sql.units import DurationError, SizeError, parse_duration, parse_size

ORDERS = ("none", "sync-filter", "filter-order", "adaptive")
EMITS = ("sliding", "final", "changes")
STRATEGIES = ("mem-opt", "cpu-opt", "pull-up", "push-down", "isolated", "auto")
BUFFERS = ("plain", "dbf", "msf", "hybrid")
"""How joins without a window save memory, in the order of the delay of results."""

_CHOICES = {
    "order": ORDERS,
    "emit": EMITS,
    "strategy": STRATEGIES,
    "scheduler": tuple(SCHEDULERS),
    "buffers": BUFFERS,
}
_DURATIONS = {"max_lag", "idle_after", "lateness", "retain"}
_QUERY_OPTIONS = ("order", "alpha", "max_lag", "idle_after", "emit", "buffers")
_SETTINGS = ("strategy", "scheduler", "memory", "buffers")
_PASSED_ON = ("spark.", "penstock.")
_MAX_COUNT_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Option:
    """One ``key = 'value'`` and its position."""

    key: str
    value: str = field(repr=False)  # may be secret
    key_span: Span
    value_span: Span


class OptionError(InputError):
    """A wrong option of a stream; `option` is its name, so that an error can point at it."""

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message)
        self.option = option


def read_options(reader: TokenReader) -> list[Option]:
    """Read ``(k = 'v', …)``; a repeated key is refused, ignoring case."""
    options: dict[str, Option] = {}
    reader.expect("(", "options are written WITH (name = 'value', ...)")
    while not reader.accept(")"):
        option = _read_option(reader)
        if option.key.lower() in options:
            raise reader.error(f"option {option.key} is given twice: leave one out", option.key_span)
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
        raise reader.error("options are separated by commas: write one here", (value[1].start, value[-1].end))
    return Option(plain(reader.source, key), plain(reader.source, value), key_span, value_span)


def plain(source: Source, tokens: list[Token]) -> str:
    """Return the value of a quoted text, or a bare text as written."""
    if len(tokens) == 1 and tokens[0].kind in {"string", "quoted"}:
        return string_value(tokens[0]) if tokens[0].kind == "string" else tokens[0].name
    return source.slice(tokens)


def query_options(options: Iterable[Option], source: Source) -> tuple[Sink, tuple[tuple[str, str], ...]]:
    """Divide the options of CREATE QUERY into its sink and its own, and check each."""
    given = {option.key.lower(): option for option in options}
    named = given.pop("sink", None)
    name, span = (named.value.lower(), named.value_span) if named else (Sink().kind, (0, 0))
    with source.errors_at(span):
        kind = sink_class(name)
    if not kind.in_scripts:
        raise source.error(f"sink {name} is made in Python: pass sink=penstock.{name}(...) to query", span)
    for key, option in given.items():
        with source.errors_at(option.key_span):
            _check_query_option(key, option.value, name)
    with source.errors_at(span):
        sink = make_sink(name, {key: option.value for key, option in given.items() if kind.takes(key)})
    return sink, tuple((key, given[key].value.lower()) for key in sorted(given) if key in _QUERY_OPTIONS)


def check_query_options(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Check the options of a query given from Python."""
    for name, value in options.items():
        if name.lower() not in _QUERY_OPTIONS:
            raise InputError(f"unknown query option {name}: {did_you_mean(name, _QUERY_OPTIONS)}")
        check_value(name.lower(), str(value))
    return tuple(sorted((name.lower(), str(value).lower()) for name, value in options.items()))


def _check_query_option(option: str, value: str, sink: str) -> None:
    """Check one option of CREATE QUERY, in lower case."""
    kind = sink_class(sink)
    if kind.takes(option):
        kind.checked(option, value)
        return
    if option in _QUERY_OPTIONS:
        check_value(option, value)
        return
    owner = next((name for name in SINKS if sink_class(name).takes(option)), None)
    if owner:
        raise InputError(f"option {option} is for sink = '{owner}', and this sink is {sink}: leave it out")
    options = ["sink", *kind.options, *_QUERY_OPTIONS]
    raise InputError(f"unknown query option {option}: {did_you_mean(option, options)}")


def setting_name(name: str) -> str:
    """Return a setting's name in lower case; ``spark.`` and ``penstock.`` settings keep their case."""
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
        raise InputError(
            f"idle_after {value!r} would leave every stream out: write a positive length of time"
        )


def check_alpha(value: str | float) -> float:
    """Read the share of the time above which adaptive queries join at once; at 1 the join no longer keeps up.

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
            "joins at once. Write a number from 0 up to, but not including, 1"
        )
    return alpha


def scheduler_of(settings: Mapping[str, str]) -> str:
    """Return the scheduler of the plan."""
    return settings.get("scheduler", DEFAULT_SCHEDULER).lower()


def buffers_of(settings: Mapping[str, str]) -> str:
    """Return how joins without a window save memory; empty: chosen by the available memory."""
    return settings.get("buffers", "").lower()


def strategy_of(settings: Mapping[str, str]) -> str:
    """Return the sharing strategy of the plan."""
    return settings.get("strategy", "mem-opt").lower()


def budget_of(settings: Mapping[str, str]) -> float | None:
    """Return the memory limit, in bytes, of `auto` and of joins without a window; None: no limit."""
    return check_size("memory", settings["memory"]) if "memory" in settings else None


def read_count(text: str, least: int) -> int | None:
    """Read a whole number from `least` on; None if a text is anything else.

    >>> read_count("12", 0), read_count("0", 1), read_count("1.5", 0)
    (12, None, None)
    """
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_COUNT_DIGITS
    return int(text) if is_number and int(text) >= least else None


def check_size(name: str, value: str) -> int:
    """Read an amount of memory in bytes."""
    try:
        return parse_size(value)
    except SizeError as error:
        raise InputError(f"{name} {value!r} {error}") from None


def check_duration(name: str, value: str) -> int:
    """Read a length of time, 0 or more, in microseconds."""
    try:
        micros = parse_duration(value)
    except DurationError as error:
        raise InputError(f"{name} {value!r} {error}") from None
    if micros < 0:
        raise InputError(f"{name} {value!r} is negative: it must be 0 or more")
    return micros
