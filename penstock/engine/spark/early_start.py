"""Spark, started before it is asked for, and its Python workers with it.

To start a session is to wait for a JVM, and to run the first task is to wait for a Python process that loads Arrow and
compiled kernels.  Neither needs what is done meanwhile, on another core: importing the engine, checking queries::

    main thread    import the engine ──▶ own the state ──▶ ask for the session ──▶ check queries, open sources ──▶ start
    this thread    start a JVM, a session ───────────────────┘──▶ a job that does nothing: workers are there

In:  the settings of the session.  Out: the same session that `embedded_session` gives, sooner.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.engine.spark.session import embedded_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from penstock.engine.spark.dispatch import Batches


def start_early(settings: Mapping[str, str]) -> None:
    """Begin to start the session with these settings; whoever asks for it waits, and hears of what went wrong."""

    def start() -> None:
        with suppress(Exception):  # it will be tried again, where the error can be told
            begin_workers(embedded_session(settings))

    threading.Thread(target=start, name="penstock-spark", daemon=True).start()


_begun = threading.Lock()
_workers: dict[str, Exception | None] = {}
"""The applications whose workers were begun, and what went wrong if they could not be started."""


def workers_failure(spark: SparkSession) -> Exception | None:
    """Say why Python workers could not be started; jobs that come after that one only hear that there are none."""
    return _workers.get(spark.sparkContext.applicationId)


def begin_workers(spark: SparkSession) -> None:
    """Have a session of ours start its Python workers, once, in a thread that nobody waits for."""
    with _begun:
        application = spark.sparkContext.applicationId
        if application in _workers:
            return
        _workers[application] = None
    threading.Thread(target=_run_nothing, args=(spark,), name="penstock-workers", daemon=True).start()


def _run_nothing(spark: SparkSession) -> None:
    """Run a job with a task for each core and nothing to do."""
    from penstock.engine.spark.dispatch import numbered, run_work  # noqa: PLC0415 - Spark is started before it

    try:
        run_work(numbered(spark, spark.sparkContext.defaultParallelism), _nothing, str)
    except Exception as error:  # noqa: BLE001 - told with the failure of the first job that has something to do
        _workers[spark.sparkContext.applicationId] = error


def _nothing(_batches: Batches) -> Batches:
    return iter(())
