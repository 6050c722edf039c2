"""Penstock: many continuous window-join queries over the same streams, as one shared plan on Spark.

The tour, in five calls::

    import penstock

    engine = penstock.Engine(state="state")          # owns a state directory
    engine.stream("Temperature", temperatures, time="ts", lateness="5 seconds")
    engine.stream("Humidity", humidities, time="ts", lateness="5 seconds")
    damp = engine.query(
        "damp",
        "SELECT T.Room, H.Value FROM Temperature T JOIN Humidity H ON T.Room = H.Room WINDOW 1 min",
        sink=penstock.parquet("out/damp"),
    )
    engine.start()                                   # ingests and joins in the background
    engine.process_available()                       # all input that is there is joined and delivered
    damp.results().show()
    engine.stop()

All but the errors is imported when first used, so that ``import penstock`` does not wait for pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import InputError, PenstockError, RunError, SqlError

if TYPE_CHECKING:
    from penstock.engine.api import Engine, QueryHandle
    from penstock.engine.report.status import Status
    from penstock.engine.sinks.callback import callback
    from penstock.engine.sinks.console import console
    from penstock.engine.sinks.noop import noop
    from penstock.engine.sinks.parquet import parquet
    from penstock.engine.sinks.table import table
    from penstock.sql.query import Sink

__version__ = "0.2.0"

__all__ = [
    "Engine",
    "InputError",
    "PenstockError",
    "QueryHandle",
    "RunError",
    "Sink",
    "SqlError",
    "Status",
    "__version__",
    "callback",
    "console",
    "noop",
    "parquet",
    "table",
]

_HOMES = {
    "Engine": "penstock.engine.api",
    "QueryHandle": "penstock.engine.api",
    "Sink": "penstock.sql.query",
    "Status": "penstock.engine.report.status",
}

if not TYPE_CHECKING:  # a type checker sees the imports above, and no name that is not there

    def __getattr__(name: str) -> object:
        """Import what needs pyspark when it is first asked for."""
        sinks = import_module("penstock.sql.sinks").SINKS
        home = _HOMES.get(name) or str(sinks.get(name, "")).partition(":")[0]
        if not home:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(home), name)
