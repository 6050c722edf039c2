"""The kinds of sinks by name, and the options that each takes.

A kind of sink is one class, a `penstock.engine.sinks.sink_kind.SinkKind`, and one line in `SINKS`.  The line names the
class, and the class is imported when a query first uses the kind.  So SQL checks the options of every sink, although
the engine is above it, and a library that only one sink needs is not imported for the others.

In:  the name of a kind, and options as a script or Python has them.  Out: the class, or a checked `Sink`.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar

from penstock.errors import InputError, did_you_mean
from penstock.sql.query import Sink

if TYPE_CHECKING:
    from collections.abc import Mapping

SINKS: dict[str, str | type[SinkOptions]] = {
    "parquet": "penstock.engine.sinks.parquet:ParquetSink",
    "table": "penstock.engine.sinks.table:TableSink",
    "console": "penstock.engine.sinks.console:ConsoleSink",
    "noop": "penstock.engine.sinks.noop:NoopSink",
    "callback": "penstock.engine.sinks.callback:CallbackSink",
}
"""The class of each kind of sink, or the module and name that it is imported by."""


class SinkOptions:
    """The options that a kind of sink takes: the part of `SinkKind` that SQL needs."""

    options: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Each option with its possible values; with none listed, the option takes any value."""
    needs: ClassVar[Mapping[str, str]] = {}
    """Each option that must be given, with an example of its value."""
    in_scripts: ClassVar[bool] = True
    """Whether a script can name the kind; else it is made in Python only."""

    @classmethod
    def takes(cls, option: str) -> bool:
        """Return whether the kind has an option; a kind that passes options on to a library overrides this."""
        return option in cls.options

    @classmethod
    def checked(cls, option: str, value: str) -> str:
        """Return the value of an option as it is kept; refuse a value that is not among the possible ones."""
        choices = cls.options.get(option, ())
        if not choices:
            return value
        if value.lower() not in choices:
            raise InputError(f"{option} cannot be {value or 'empty'}: choose one of: {', '.join(choices)}")
        return value.lower()

    @classmethod
    def check(cls, name: str, options: Mapping[str, str]) -> None:
        """Refuse options that do not make a sink together."""
        for option, example in cls.needs.items():
            if option not in options:
                raise InputError(
                    f"sink {name} needs a {option}: WITH (sink = '{name}', {option} = '{example}')"
                )


def sink_class(name: str) -> type[SinkOptions]:
    """Return the class of a kind of sink.

    >>> sink_class("parkett")
    Traceback (most recent call last):
    penstock.errors.InputError: unknown sink parkett: did you mean parquet?
    """
    if name not in SINKS:
        raise InputError(f"unknown sink {name}: {did_you_mean(name, script_sinks())}")
    entry = SINKS[name]
    return resolve_name(entry) if isinstance(entry, str) else entry


def script_sinks() -> list[str]:
    """List the kinds of sinks that a script can name."""
    return [name for name in SINKS if sink_class(name).in_scripts]


def make_sink(name: str, options: Mapping[str, str]) -> Sink:
    """Return a sink with checked options, in the order in which its kind lists them."""
    kind = sink_class(name)
    for option in options:
        if not kind.takes(option):
            raise InputError(f"unknown option {option} of sink {name}: {did_you_mean(option, kind.options)}")
    kind.check(name, options)
    listed = sorted(options, key=list({**kind.options, **options}).index)
    return Sink(name, tuple((option, kind.checked(option, options[option])) for option in listed))
