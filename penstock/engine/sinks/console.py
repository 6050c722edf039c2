"""The `console` sink: new results are printed, commit by commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.sinks.sink_kind import HandOverSink
from penstock.sql.query import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.engine.sinks.sink_kind import Handler


class ConsoleSink(HandOverSink):
    """A result is a printed row."""

    after_crash = "the last unit may come again"

    def hand_over(self, rows: DataFrame, unit: str, _handler: Handler | None) -> None:
        """Print the results of a unit."""
        print(f"-- {self.query.name}, unit {unit}")  # noqa: T201 - the sink is the console
        rows.show(truncate=False)


def console() -> Sink:
    """Print results as they come."""
    return Sink("console")
