"""From the command to the answer, with the moment of every step on the way.

    python -m benchmarks.peers.startup BEGAN bare DATA
    python -m benchmarks.peers.startup BEGAN penstock run SCRIPT --once --state DIR

`BEGAN` is when the command was given, in seconds since the epoch.  The first is what somebody writes who has just
installed Spark: a session, and one micro-batch through a Python function.  The second is the command line itself, and
its steps are told as they end; each step is the first call of one function::

    {"step": ["session", 3.21]}

In:  the arguments.  Out: a line for each step, among whatever else is printed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

EARLY_STEPS = {
    "script read": ("penstock.cli.run", "load"),
    "engine imported": ("penstock.cli.run", "_engine"),
}
"""What is there before the engine is imported: the step, and the module and function whose first call ends it."""

LATER_STEPS = {
    "Spark started": ("penstock.engine.api", "embedded_session"),
    "queries checked": ("penstock.engine.deployment", "Deployment.check"),
    "streams started": ("penstock.engine.api", "Engine.start"),
    "first batch in": ("penstock.engine.sources.batch_ingest", "BatchIngest.ingest"),
    "first unit joined": ("penstock.engine.stages.join", "advance"),
    "all delivered": ("penstock.engine.api", "Engine.wait"),
}
"""What is there only with the engine."""


def tell_step(name: str, began: float) -> None:
    """Print when a step ended."""
    print(json.dumps({"step": [name, round(time.time() - began, 3)]}), flush=True)


def run_penstock(began: float, arguments: list[str]) -> int:
    """Be the command line, and tell when its steps end."""
    from penstock.cli.main import main  # noqa: PLC0415 - as the command itself imports it

    import_module("penstock.cli.run")
    for name, where in EARLY_STEPS.items():
        _watch(name, where, began)
    status = main(arguments)
    tell_step("end", began)
    return status


def _watch(step: str, where: tuple[str, str], began: float) -> None:
    """Tell when a function first returns, and watch the later steps once the engine is there."""
    owner, name = _found(where)
    function: Callable[..., Any] = getattr(owner, name)
    told: list[str] = []

    def watched(*given: object, **named: object) -> object:
        result = function(*given, **named)
        if not told:
            told.append(step)
            tell_step(step, began)
            if where == EARLY_STEPS["engine imported"]:
                for later, place in LATER_STEPS.items():
                    _watch(later, place, began)
        return result

    setattr(owner, name, watched)


def _found(where: tuple[str, str]) -> tuple[Any, str]:
    """Find the module or class that has a function, and the name it has there."""
    module, path = where
    *classes, name = path.split(".")
    owner: Any = import_module(module)
    for each in classes:
        owner = getattr(owner, each)
    return owner, name


def run_bare(began: float, data: str) -> None:
    """Start a session as Spark's first page has it, without web pages; pass one batch through a Python function."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a step of its own

    tell_step("pyspark imported", began)
    builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    tell_step("Spark started", began)
    rows = spark.readStream.schema("k bigint, v double, ts timestamp").parquet(data)

    def take(batch: Any, _number: int) -> None:
        batch.mapInArrow(_same, batch.schema).collect()

    with tempfile.TemporaryDirectory(prefix="penstock-bare-") as checkpoint:
        writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        tell_step("all delivered", began)
        spark.stop()
    tell_step("end", began)


def _same(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


if __name__ == "__main__":
    if sys.argv[2] == "bare":
        run_bare(float(sys.argv[1]), sys.argv[3])
    else:
        sys.exit(run_penstock(float(sys.argv[1]), sys.argv[3:]))
