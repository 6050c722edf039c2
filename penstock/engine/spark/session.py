"""The Spark session: the user's own, or an embedded one on this machine's cores.

In:  nothing, or a session the user made.  Out: a session whose Python workers run this very interpreter.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.engine.spark.class_archive import make_archive_later, spark_home, with_archive
from penstock.errors import InputError, RunError
from penstock.plan.spark_settings import ANSI, SparkSettings
from penstock.sql.zones import ZONE

if TYPE_CHECKING:
    from collections.abc import Mapping

_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_JAVA = "-XX:+IgnoreUnrecognizedVMOptions -XX:ReservedCodeCacheSize=256m"

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "penstock-warehouse"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "262144",
    "spark.sql.streaming.stopTimeout": "30s",
    # The source's checkpoint is the journal's servant, not its peer: a batch counts when the journal says so.
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    # How often an idle source is asked: at 10 ms, as Spark has it, two streams take a fifth of a core and more.
    "spark.sql.streaming.pollingDelay": "50ms",
    # Python workers by Unix sockets: over TCP, small messages wait for acknowledgements, 40 ms a job.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    # Workers that are forked with Arrow and the kernels loaded.
    "spark.python.daemon.module": "penstock.engine.daemon",
    _JVM_OPTIONS: _JAVA,
}

QUICK_START = {_JVM_OPTIONS: f"{_JAVA} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Settings for a run that ends soon: the JVM compiles less, which costs a long run and saves a short one a third, and
collects garbage in one thread, which takes 200 MiB less."""


def embedded_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the running session, or start one on all cores with settings that suit many small jobs."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_HOME", str(spark_home()))  # else its launcher starts a Python to find it
    builder = SparkSession.builder.appName("penstock")
    wanted = {
        "spark.master": "local[*]",
        "spark.driver.memory": _driver_memory(),
        **_DEFAULTS,
        **(settings or {}),
    }
    for name, value in (wanted | {_JVM_OPTIONS: with_archive(wanted[_JVM_OPTIONS])}).items():
        builder = builder.config(name, value)
    fresh = not _is_running()
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise RunError(
            f"Spark did not start: {_first_line(error)}. Run `penstock doctor` to see what is missing."
        ) from error
    if fresh:
        spark.conf.set(_OURS, "true")
        make_archive_later()
    return spark


def spark_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Choose, of an engine's settings, those that are Spark's."""
    return {name: value for name, value in settings.items() if name.startswith("spark.")}


_OURS = "spark.penstock.embedded"
"""Set in a session that was started here; one that was there before belongs to somebody."""


def is_ours(spark: SparkSession) -> bool:
    """Say whether a session was started here; one that was running before is its owner's."""
    return spark.conf.get(_OURS, "false") == "true"


def works_here(spark: SparkSession) -> bool:
    """Say whether a session was started here and its tasks run on this machine, not on a cluster's."""
    master = spark.sparkContext.master or ""
    return is_ours(spark) and (master == "local" or master.startswith("local["))


def _is_running() -> bool:
    """Say whether there is a session already."""
    try:
        SparkSession.active()
    except PySparkRuntimeError:
        return False
    return True


def _driver_memory() -> str:
    """Leave most of the memory to the Python workers and the page cache, where the state is."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return f"{max(1024, min(4096, total // 5))}m"


_LOCAL = "fs.file.impl"
_RAW = "org.apache.hadoop.fs.RawLocalFileSystem"

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.{}FileSystemBasedCheckpointFileManager"


def use_plain_files(spark: SparkSession) -> None:
    """Let a session that was started here write checkpoints on local disks as plain files.

    By default Hadoop puts a checksum file beside each, and starts a process to set the permissions of either: three
    files a batch and stream, which took as long as the batch.  A session that the user made is left as it is: what
    else runs there may count on Hadoop's own local file system, as Spark's RocksDB store does.
    """
    if not is_ours(spark):
        return
    spark.conf.set(_LOCAL, _RAW)
    spark.conf.set("fs.file.impl.disable.cache", "true")
    manager = _checkpoint_manager()
    if manager:
        spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", manager)


def verifies_checksums(spark: SparkSession) -> bool:
    """Say whether a session holds files on local disks against the checksums that Hadoop has put beside them."""
    return spark.conf.get(_LOCAL, "") != _RAW


@cache
def _checkpoint_manager() -> str | None:
    """Find the class that writes checkpoints through the file system set above; its package depends on the release."""
    names = [_CHECKPOINTS.format(package) for package in ("checkpointing.", "")]
    for jar in sorted((spark_home() / "jars").glob("spark-sql_*.jar")):
        with zipfile.ZipFile(jar) as content:
            there = set(content.namelist())
        for name in names:
            if f"{name.replace('.', '/')}.class" in there:
                return name
    return None


def settings_of(spark: SparkSession) -> SparkSettings:
    """Read the settings of a session that decide what an expression means."""
    return SparkSettings.of({name: str(spark.conf.get(name)) for name in (ZONE, ANSI)})


_DIALECT = {
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Settings under which the same text is read as another one, and the value under which scripts are read here."""


def refuse_other_dialects(spark: SparkSession) -> None:
    """Refuse a session that would read quotes, backslashes or the word TIMESTAMP otherwise than they are read here."""
    for name, value in _DIALECT.items():
        now = str(spark.conf.get(name, value))
        if now.lower() != value.lower():
            raise InputError(
                f"this session has {name} = {now!r}, and queries are read with {value!r}: set it so"
            )


def _first_line(error: BaseException) -> str:
    """Give the first line of an error that may carry a Java stack trace."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
