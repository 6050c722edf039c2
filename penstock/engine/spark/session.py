"""The Spark session: the user's own, or an embedded one on this machine's cores.

Penstock's defaults apply to a JVM that is launched here, and come last: what a script or ``Engine(settings=...)`` sets
wins, then ``PYSPARK_SUBMIT_ARGS``, then ``spark-defaults.conf``, then Penstock.  A session that is running, and a JVM
that ``spark-submit`` has launched, get only what a script or ``Engine(settings=...)`` sets.

In:  nothing, or a session the user made.  Out: a session whose Python workers run this very interpreter.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import zipfile
from functools import cache
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.engine.spark.class_archive import archive_options
from penstock.engine.spark.launch import launcher_environment, private_folder, socket_folder, spark_home
from penstock.engine.spark.spark_errors import short_message
from penstock.errors import InputError, RunError
from penstock.plan.spark_settings import ANSI, SparkSettings
from penstock.reporting import Logger
from penstock.sql.options import check_duration
from penstock.sql.query import SECOND
from penstock.sql.source_options import scrubbed
from penstock.sql.zones import ZONE

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = Logger(__name__)

MASTER = "local[*, 4]"
"""All cores, and four attempts for a task: a dead Python worker costs a retry, not the run."""

_JVM_OPTIONS = "spark.driver.extraJavaOptions"
# While Spark's classes load, the JVM collects all garbage four times, unless the size that triggers it is higher.
_JAVA = "-XX:+IgnoreUnrecognizedVMOptions -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=192m"
_LAUNCHED = "spark.penstock.launched"

_DEFAULTS = {
    _LAUNCHED: "true",
    "spark.app.name": "penstock",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "262144",
    "spark.sql.streaming.stopTimeout": "30s",
    # Two are enough: the journal, not the checkpoint, decides which batches are ingested.
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    # Time between two polls of an idle source.  With Spark's 10 ms, two streams take a fifth of a core and more.
    "spark.sql.streaming.pollingDelay": "50ms",
    # Workers that are forked with Arrow and the kernels loaded.
    "spark.python.daemon.module": "penstock.engine.daemon",
    # A worker keeps freed memory for the next array.  By default glibc returns it to the system, and a loop that fills
    # arrays of a megabyte spends most of its time on pages that the system clears.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}

_SOCKETS = "spark.python.unix.domain.socket"
"""Python workers connect by Unix sockets: over TCP, small messages wait for acknowledgements, 40 ms a job."""

_QUICK = "spark.penstock.quickStart"
QUICK_START = {_QUICK: "true"}
"""Settings for a short run.  The JVM compiles less: a short run is a third faster, a long one slower.  It collects
garbage in one thread, which takes 200 MiB less."""
_QUICK_JAVA = f"{_JAVA} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_starting = threading.Lock()
_session_defaults: dict[str, str] = {}
"""The settings that every engine on the embedded session starts with, whatever an earlier engine has set."""

_early_failure: list[RunError] = []
"""The error of an early start: a second try would fail after the same time."""


def embedded_session(settings: Mapping[str, str] | None = None, *, early: bool = False) -> SparkSession:
    """Return the running session, or start one; only `settings` override what the user has set elsewhere.

    If it is started `early` and fails, the next call raises the reason.
    """
    settings = settings or {}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_HOME", str(spark_home()))  # else its launcher starts a Python to find it
    with _starting:
        if _early_failure and not early:
            raise _early_failure.pop()
        running = _running()
        again = _session_defaults if running is not None and is_ours(running) else {}
        try:
            if running is None:
                with launcher_environment(_defaults(settings), settings, _variables()):
                    SparkContext.getSystemProperty("java.version")  # launches a JVM, unless one runs
                again = _private_folders(settings)
            spark = SparkSession.builder.config(map={**again, **settings}).getOrCreate()
        except InputError:
            raise
        except Exception as error:
            failure = RunError(_not_started(error, settings))
            if early:
                _early_failure.append(failure)
            raise failure from error
        if running is None:
            _note_start(spark, settings)
    return spark


def _defaults(settings: Mapping[str, str]) -> dict[str, str]:
    """Return Penstock's defaults for a JVM that is launched here."""
    sockets = hasattr(socket, "AF_UNIX") and socket_folder() is not None
    return {
        **_DEFAULTS,
        "spark.sql.warehouse.dir": str(private_folder() / "warehouse"),
        f"{_SOCKETS}.enabled": str(sockets).lower(),
        _JVM_OPTIONS: _QUICK_JAVA if settings.get(_QUICK) == "true" else _JAVA,
        **archive_options(),
    }


def _variables() -> dict[str, str]:
    """Return the environment variables for the master and the driver's memory, used where nothing else is set."""
    return {
        "MASTER": os.environ.get("MASTER", MASTER),
        "SPARK_DRIVER_MEMORY": os.environ.get("SPARK_DRIVER_MEMORY", _driver_memory()),
    }


def _private_folders(settings: Mapping[str, str]) -> dict[str, str]:
    """Return private directories for Spark's sockets and blocks, if its JVM was launched here and is local."""
    given = SparkConf()
    master = settings.get("spark.master") or given.get("spark.master") or ""
    if not given.contains(_LAUNCHED) or not is_local_master(master):
        return {}
    folders = {f"{_SOCKETS}.dir": socket_folder(), "spark.local.dir": str(private_folder())}
    return {name: folder for name, folder in folders.items() if folder and not given.contains(name)}


def _not_started(error: Exception, settings: Mapping[str, str]) -> str:
    """Return the error: a cluster's master does not answer, or something is missing on this machine."""
    master = settings.get("spark.master") or SparkConf().get("spark.master", MASTER) or MASTER
    if not is_local_master(master):
        said = scrubbed(short_message(error), settings.items()).rstrip(".")
        said = "it did not answer within a minute" if "stopped SparkContext" in said else said
        return (
            f"Spark's master {master} did not take the application: {said}. Check that spark.master names one "
            "that runs and can be reached from here, or SET spark.master = 'local[*]'"
        )
    reason = scrubbed(_first_line(error), settings.items())
    return f"Spark did not start: {reason}. Run `penstock doctor` to see what is missing."


def is_local_master(master: str) -> bool:
    """Check whether a master runs its executors in or beside the driver, so that they are there at once.

    >>> is_local_master("local[*, 4]"), is_local_master("spark://host:7077")
    (True, False)
    """
    return master.startswith("local")


_START_TIMEOUT, _USUAL_TIMEOUT = "spark.penstock.startTimeout", "60 seconds"


def start_timeout(spark: SparkSession) -> float:
    """Return the seconds that the first job may wait for an executor."""
    value = str(spark.conf.get(_START_TIMEOUT, _USUAL_TIMEOUT))
    return check_duration(_START_TIMEOUT, value) / SECOND


def quick_session(settings: SparkSettings) -> SparkSession:
    """Return the running session, or start one for a command that ends soon, with the settings of a state."""
    return embedded_session({**QUICK_START, **settings.as_options()})


def _note_start(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Log where the UI is; mark a session whose JVM was launched here, and keep its defaults."""
    if spark.sparkContext.uiWebUrl:
        _log.info("Spark UI: %s", spark.sparkContext.uiWebUrl)
    launched = spark.sparkContext.getConf()
    if not launched.contains(_LAUNCHED):
        return
    spark.conf.set(_OURS, "true")
    for name, value in _DEFAULTS.items():
        if name.startswith("spark.sql."):
            _session_defaults[name] = value if name in settings else str(launched.get(name, value))


def spark_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Select the settings of Spark among those of an engine."""
    return {name: value for name, value in settings.items() if name.startswith("spark.")}


_OURS = "spark.penstock.embedded"
"""Set in a session that was started here; any other session belongs to the user."""


def is_ours(spark: SparkSession) -> bool:
    """Check whether a session was started here; any other session belongs to the user."""
    return spark.conf.get(_OURS, "false") == "true"


def _running() -> SparkSession | None:
    """Return the running session; None if there is none."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _driver_memory() -> str:
    """Return the memory of the JVM: a fifth, since Python workers and the page cache of the state need the rest."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return f"{max(1024, min(4096, total // 5))}m"


_LOCAL = "fs.file.impl"
_RAW = "org.apache.hadoop.fs.RawLocalFileSystem"

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.{}FileSystemBasedCheckpointFileManager"


def use_plain_files(spark: SparkSession) -> None:
    """Make a session that was started here write checkpoints on local disks as plain files.

    By default Hadoop writes a checksum beside each file, and starts a process to set the permissions of both.  For the
    three files of a batch and stream, that took as long as the batch.  A session of the user stays as it is, because
    other parts may need Hadoop's own local file system, as Spark's RocksDB store does.  So does a session for which the
    user has set either class.
    """
    launched = spark.sparkContext.getConf()
    if not is_ours(spark) or launched.contains(f"spark.hadoop.{_LOCAL}") or launched.contains(_MANAGER):
        return
    spark.conf.set(_LOCAL, _RAW)
    spark.conf.set("fs.file.impl.disable.cache", "true")
    manager = _checkpoint_manager()
    if manager:
        spark.conf.set(_MANAGER, manager)


def verifies_checksums(spark: SparkSession) -> bool:
    """Check whether a session verifies files on local disks by the checksums that Hadoop writes beside them."""
    return spark.conf.get(_LOCAL, "") != _RAW


@cache
def _checkpoint_manager() -> str | None:
    """Return the class that writes checkpoints through this file system; its package depends on Spark's release."""
    names = [_CHECKPOINTS.format(package) for package in ("checkpointing.", "")]
    for jar in sorted((spark_home() / "jars").glob("spark-sql_*.jar")):
        with zipfile.ZipFile(jar) as content:
            present = set(content.namelist())
        for name in names:
            if f"{name.replace('.', '/')}.class" in present:
                return name
    return None


def settings_of(spark: SparkSession) -> SparkSettings:
    """Read the settings of a session that change the value of an expression."""
    return SparkSettings.of({name: str(spark.conf.get(name)) for name in (ZONE, ANSI)})


_DIALECT = {
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings that change how a text is parsed, with the values by which Penstock parses."""


def refuse_unpinned_threads() -> None:
    """Refuse to run without pinned threads: a Spark job could carry the tasks of another thread."""
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise InputError(
            "PYSPARK_PIN_THREAD is not true: unset it, so that each Python thread has a JVM thread"
        )


def refuse_other_dialects(spark: SparkSession) -> None:
    """Refuse a session that parses quotes, backslashes or the word TIMESTAMP in another way than Penstock."""
    for name, value in _DIALECT.items():
        now = str(spark.conf.get(name, value))
        if now.lower() != value.lower():
            raise InputError(
                f"this session has {name} = {now!r}, but Penstock parses queries with {value!r}. Set it to that value"
            )


def _first_line(error: BaseException) -> str:
    """Return the first line of an error, without its Java stack trace."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
