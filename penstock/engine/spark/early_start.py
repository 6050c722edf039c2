"""Start Spark and its Python workers before they are needed.

A session starts a JVM, and the first task starts a Python process that loads Arrow and compiled kernels.  Both run in
the background while the engine is imported and queries are checked::

    main thread    import the engine ──▶ own the state ──▶ ask for the session ──▶ check queries, open sources ──▶ start
    Spark's        start a JVM, a session ─────────────────┘
    workers'                                    └──▶ a job that only loads kernels ──▶ ready

In:  the settings of the session.  Out: the same session that `embedded_session` returns, sooner; workers.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock import limits
from penstock.engine.spark.session import embedded_session, is_local_master, start_timeout
from penstock.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def start_early(settings: Mapping[str, str]) -> None:
    """Start the session with these settings, and its Python workers, in a thread; `embedded_session` waits for it."""

    def start() -> None:
        with suppress(Exception):  # raised again by `embedded_session`
            PythonWorkers(embedded_session(settings, early=True)).begin()

    threading.Thread(target=start, name="penstock-spark", daemon=True).start()


class PythonWorkers:
    """The Python workers of a session, started once for each application."""

    def __init__(self, spark: SparkSession) -> None:
        """Prepare; start no worker yet."""
        self._spark = spark
        self._state = _applications.setdefault(spark.sparkContext.applicationId, _Started())

    def begin(self) -> None:
        """Start the workers in a thread, unless that was done before."""
        with self._state.lock:
            begun, self._state.begun = self._state.begun, True
        if not begun:
            threading.Thread(target=self._start, name="penstock-workers", daemon=True).start()

    def await_executor(self) -> None:
        """Block until a task has started; raise if the cluster has no executor for the first job in time."""
        context = self._spark.sparkContext
        if is_local_master(str(context.master)):
            return
        seconds, tracker, until = start_timeout(self._spark), context.statusTracker(), None
        while not self._state.ended.wait(limits.EXECUTOR_POLL_SECONDS):
            stages = [
                stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))
            ]
            if any(stage.numActiveTasks or stage.numCompletedTasks for stage in stages):
                return
            if stages:  # before that, the job is planned
                until = until or time.monotonic() + seconds
            if until and time.monotonic() > until:
                raise RunError(
                    f"Spark's master {context.master} gave no executor in {seconds:g} s. Check that it has workers "
                    "with free cores and memory (spark.executor.cores, spark.executor.memory), or wait longer: "
                    "SET spark.penstock.startTimeout = '10 minutes'"
                )

    @property
    def failure(self) -> Exception | None:
        """Return why the workers could not be started; errors of later jobs do not say it."""
        return self._state.failure

    def _start(self) -> None:
        """Run a job with a task for each core, which loads the kernels."""
        from penstock.engine.runners.spark import start_workers  # noqa: PLC0415 - Spark is started before it

        try:
            start_workers(self._spark)
        except Exception as error:  # noqa: BLE001 - shown with the failure of the first real job
            self._state.failure = error
        finally:
            self._state.ended.set()


@dataclass(slots=True)
class _Started:
    """The start of an application's workers."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: bool = False
    ended: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None


_applications: dict[str, _Started] = {}
