"""Keep Spark's log off the terminal, and let other messages of the JVM through.

Spark starts a JVM that writes to our standard error.  Its log, including stack traces, goes to a file: our own message
says why a run failed.  Known lines that are printed before there is a log are dropped.  All other lines (a JVM out of
memory, a worker that crashed) pass::

    JVM ──log──▶ spark.log (removed after a good end, named after a bad one)
     └──standard error──▶ pipe ──known chatter?──▶ dropped
                                └──else──────────▶ our standard error

In:  the environment, before Spark starts.  Out: an environment in which it starts quietly.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHATTER = (
    "WARNING: Using incubator modules",
    "WARNING: package sun.security.action not in java.base",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "Setting Spark log level to",
    "To adjust logging level use",
    ":: loading settings ::",
    '{"ts": ',  # what pyspark logs about an error that it also raises
)

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/spark.log
appender.file.filePattern = {folder}/spark.%i.log
appender.file.createOnDemand = true
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def use_packaged_java() -> None:
    """Use the Java that `make setup` installed beside Python, if the machine has none of its own."""
    packaged = Path(sys.prefix) / "java"
    if not os.environ.get("JAVA_HOME") and not shutil.which("java") and packaged.is_dir():
        os.environ["JAVA_HOME"] = str(packaged)


@contextmanager
def quiet_spark(*, debug: bool = False) -> Iterator[Path]:
    """Write the log of a Spark that starts inside this block to a file; with `debug`, to the terminal.

    The file is removed after the block.  If a run failed and there is a log, the file stays and the error names it.
    """
    use_packaged_java()
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    log = folder / "spark.log"
    if debug:
        shutil.rmtree(folder)
        yield log
        return
    settings = folder / "log4j2.properties"
    settings.write_text(_LOG4J.format(folder=folder), encoding="utf-8")
    os.environ.setdefault("LOG4J_CONFIGURATION_FILE", str(settings))
    kept = False
    try:
        with _without_chatter():
            yield log
    except Exception as error:
        kept = log.exists() and not isinstance(error, InputError)
        if kept:
            error.add_note(f"Spark's own log is in {log}")
        raise
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
        if os.environ.get("LOG4J_CONFIGURATION_FILE") == str(settings):
            del os.environ["LOG4J_CONFIGURATION_FILE"]


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Filter standard error, also that of every process started inside the block."""
    ours = os.dup(2)
    end, start = os.pipe()
    os.dup2(start, 2)
    os.close(start)
    filtering = threading.Thread(
        target=_filter, args=(end, os.dup(ours)), name="penstock-stderr", daemon=True
    )
    filtering.start()
    try:
        yield
    finally:
        with suppress(OSError):  # standard error may be gone
            sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)
        # Without a JVM the pipe is closed by now and the filter ends; a JVM that is still running keeps it open.
        filtering.join(timeout=0.1)


def _filter(source: int, target: int) -> None:
    """Pass on every line that is not known chatter, until the last writer has closed the pipe."""
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in lines:
            if not is_chatter(line.decode("utf-8", "replace")):
                with suppress(OSError):
                    out.write(line)


def is_chatter(line: str) -> bool:
    """Check whether a line is one that Spark prints at every start.

    >>> is_chatter("WARNING: Using incubator modules: jdk.incubator.vector")
    True
    >>> is_chatter("java.lang.OutOfMemoryError: Java heap space")
    False
    """
    return line.startswith(_CHATTER)
