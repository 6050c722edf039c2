"""The `noop` sink: results are counted, and none is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.engine.sinks.sink_kind import SinkKind
from penstock.sql.query import Sink

if TYPE_CHECKING:
    from penstock.state.files import Files


class NoopSink(SinkKind):
    """A result is counted."""

    after_crash = "counted exactly once"
    stores_rows: ClassVar[bool] = False

    def destination(self, _state: Files) -> None:
        """Return nothing: no file is written."""


def noop() -> Sink:
    """Count results and keep none."""
    return Sink("noop")
