"""Engines that serve: they join the files that appear in HOME/data until their standard input is closed.

    python -m benchmarks.peers.serving ENGINE HOME

Results go to HOME/out, for `benchmarks.latency`.  A run says when it is ready and when all it was given is in
its sink; one that the engine does not allow says why instead::

    {"mark": [0, 0]} … {"done": {}}         {"done": {"refused": "[STREAMING_REAL_TIME_MODE…] …"}}

Flink serves by `flink_program.py`, in its own environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.latency import WINDOW
from benchmarks.peers.contestant import AT_ITS_BEST, SHUFFLE, joined, newest_state_format
from benchmarks.peers.peer import tell, tell_done
from benchmarks.workloads import as_script
from penstock.engine.api import Engine
from penstock.engine.spark.session import embedded_session
from penstock.engine.spark.spark_errors import short_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.readwriter import DataStreamWriter

REAL_TIME = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
"""What real-time mode asks for beside its trigger."""


def serve_penstock(home: Path) -> None:
    """Run Penstock with a directory of Parquet files as its sink."""
    sink = f"sink = 'parquet', path = '{home / 'out'}'"
    with Engine(state=home / "state") as engine:
        engine.script(as_script(home / "data", (WINDOW,), sink, files=None))
        engine.start()
        tell("mark", 0, 0)
        sys.stdin.read()
        engine.process_available()
    tell_done()


def serve_spark_best(home: Path) -> None:
    """Run Spark's join at its best with the same kind of sink."""
    query = _spark_join(home).start(str(home / "out"))
    tell("mark", 0, 0)
    sys.stdin.read()
    query.processAllAvailable()
    query.stop()
    tell_done()


def serve_spark_real_time(home: Path) -> None:
    """Ask Spark to run the same join in real-time mode, and say what it says."""
    try:
        join = _spark_join(home, REAL_TIME)
        writer = join.trigger(realTime="5 seconds")  # type: ignore[call-overload] # not in its stubs
        query = writer.start(str(home / "out"))
        query.awaitTermination(30)  # sources are judged when it first reads
    except Exception as error:  # noqa: BLE001 - whatever Spark refuses it with
        tell_done(refused=short_message(error))
        return
    tell("mark", 0, 0)
    sys.stdin.read()
    query.stop()
    tell_done()


def _spark_join(home: Path, more: dict[str, str] | None = None) -> DataStreamWriter:
    spark = embedded_session({**SHUFFLE, **AT_ITS_BEST, **(more or {})})
    newest_state_format(spark)
    pairs = joined(spark, home / "data", WINDOW, 0, files=None)
    return pairs.writeStream.format("parquet").option("checkpointLocation", str(home / "state"))


SERVES: dict[str, Callable[[Path], None]] = {
    "penstock": serve_penstock,
    "spark-best": serve_spark_best,
    "spark-real-time": serve_spark_real_time,
}


if __name__ == "__main__":
    engine_name, where = sys.argv[1:]
    SERVES[engine_name](Path(where))
