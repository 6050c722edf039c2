"""The `callback` sink: a Python function gets new results as a DataFrame, commit by commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.engine.sinks.sink_kind import HandOverSink
from penstock.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.engine.sinks.sink_kind import Handler


class CallbackSink(HandOverSink):
    """A result is a row of the DataFrame of one call ``function(df, unit_id)``."""

    in_scripts: ClassVar[bool] = False
    after_crash = "the last unit may come again, under the same id"

    def hand_over(self, rows: DataFrame, unit: str, handler: Handler | None) -> None:
        """Call the function with the results of a unit."""
        if handler is None:
            raise InputError(
                f"query {self.query.name} delivers to a callback: register it again with its function"
            )
        handler(rows, unit)


@dataclass(frozen=True, slots=True)
class Callback:
    """A sink that is a Python function: called with a DataFrame of new results and the unit's id."""

    function: Handler


def callback(function: Handler) -> Callback:
    """Hand results to ``function(df, unit_id)``, unit by unit."""
    return Callback(function)
