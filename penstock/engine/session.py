"""The Spark session: the user's own, or an embedded one on this machine's cores.

In:  nothing, or a session the user made.  Out: a session whose Python workers run this very interpreter.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import SparkSession

from penstock.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    # Python workers by Unix sockets: over TCP, small messages wait for acknowledgements, 40 ms a job.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.driver.extraJavaOptions": _JAVA,
}

QUICK_START = {"spark.driver.extraJavaOptions": f"{_JAVA} -XX:TieredStopAtLevel=1"}
"""Settings for a run that ends soon: the JVM compiles less, which costs a long run and saves a short one a third."""


def embedded_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the running session, or start one on all cores with settings that suit many small jobs."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("penstock")
    wanted = {
        "spark.master": "local[*]",
        "spark.driver.memory": _driver_memory(),
        **_DEFAULTS,
    }
    for name, value in {**wanted, **(settings or {})}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise RunError(
            f"Spark did not start: {_first_line(error)}. Run `penstock doctor` to see what is missing."
        ) from error


def _driver_memory() -> str:
    """Leave most of the memory to the Python workers and the page cache, where the state is."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return f"{max(1024, min(4096, total // 5))}m"


_RAW = "org.apache.hadoop.fs.RawLocalFileSystem"

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.{}FileSystemBasedCheckpointFileManager"


@contextmanager
def plain_checkpoints(spark: SparkSession) -> Iterator[None]:
    """Let the streaming queries that are started here write checkpoints on local disks as plain files.

    By default Hadoop puts a checksum file beside each, and starts a process to set the permissions of either: three
    files a batch and stream, which took as long as the batch.  A query keeps the settings of the moment it is started;
    they are not left to the session, where other stores count on Hadoop's own local file system.
    """
    manager = _checkpoint_manager()
    wanted = {"fs.file.impl": _RAW, "fs.file.impl.disable.cache": "true"}
    if manager:
        wanted["spark.sql.streaming.checkpointFileManagerClass"] = manager
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


@cache
def _checkpoint_manager() -> str | None:
    """Find the class that writes checkpoints through the file system set above; its package depends on the release."""
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    known = [_CHECKPOINTS.format(package) for package in ("checkpointing.", "")]
    for jar in sorted((home / "jars").glob("spark-sql_*.jar")):
        with zipfile.ZipFile(jar) as content:
            there = set(content.namelist())
        for name in known:
            if f"{name.replace('.', '/')}.class" in there:
                return name
    return None


def _first_line(error: BaseException) -> str:
    """Give the first line of an error that may carry a Java stack trace."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
