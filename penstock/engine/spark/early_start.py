"""Spark, started before it is asked for, and its Python workers.

To start a session is to wait for a JVM, and to run the first task is to wait for a Python process that loads Arrow and
compiled kernels.  Neither needs what is done meanwhile, on another core: importing the engine, checking queries::

    main thread    import the engine ──▶ own the state ──▶ ask for the session ──▶ check queries, open sources ──▶ start
    Spark's        start a JVM, a session ─────────────────┘
    workers'       where a plan needs them at once (`penstock.engine.units.own_work`): a job that does nothing ──▶ there

In:  the settings of the session.  Out: the same session that `embedded_session` gives, sooner; workers.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.engine.spark.session import embedded_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from penstock.engine.spark.dispatch import Batches


def start_early(settings: Mapping[str, str]) -> None:
    """Begin to start the session with these settings; whoever asks for it waits, and hears of what went wrong.

    The JVM takes longer to come up than the engine to be imported, so kernels are loaded meanwhile too.
    """

    def start() -> None:
        with suppress(Exception):  # it will be tried again, where the error can be told
            embedded_session(settings)

    threading.Thread(target=start, name="penstock-spark", daemon=True).start()
    threading.Thread(target=_load_kernels, name="penstock-early-kernels", daemon=True).start()


def _load_kernels() -> None:
    """Load the compiled kernels; where something is wrong with them, whoever needs them hears of it."""
    with suppress(Exception):
        from penstock.join.warm import warm_up  # noqa: PLC0415 - Spark is started before it

        warm_up()


class PythonWorkers:
    """The Python workers of a session that was started here."""

    def __init__(self, spark: SparkSession) -> None:
        """Start nothing yet."""
        self._spark = spark
        self._state = _of_application(spark)

    def begin(self) -> None:
        """Begin to start them, once for a session, in a thread that nobody waits for."""
        with self._state.lock:
            begun, self._state.begun = self._state.begun, True
        if not begun:
            threading.Thread(target=self._run_nothing, name="penstock-workers", daemon=True).start()

    @property
    def are_there(self) -> bool:
        """Say whether they have started, or could not be."""
        return self._state.ended.is_set()

    @property
    def failure(self) -> Exception | None:
        """Say why they could not be started; jobs that come after that one only hear that there are none."""
        return self._state.failure

    def _run_nothing(self) -> None:
        """Run a job with a task for each core and nothing to do."""
        from penstock.engine.spark.dispatch import numbered, run_work  # noqa: PLC0415 - Spark is started before it

        try:
            run_work(numbered(self._spark, self._spark.sparkContext.defaultParallelism), _nothing, str)
        except Exception as error:  # noqa: BLE001 - told with the failure of the first job that has something to do
            self._state.failure = error
        finally:
            self._state.ended.set()


@dataclass(slots=True)
class _Started:
    """How far the workers of an application are."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: bool = False
    ended: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None


_applications: dict[str, _Started] = {}


def _of_application(spark: SparkSession) -> _Started:
    """Give what is known of a session's workers: the same for all who ask."""
    return _applications.setdefault(spark.sparkContext.applicationId, _Started())


def _nothing(_batches: Batches) -> Batches:
    return iter(())
