"""Makes the class archive: a small run that loads what runs load, in a JVM that writes down its classes when it ends.

    python -m penstock.engine.archive_maker                 started by `penstock.engine.spark.class_archive`

    this process ──starts──▶ rehearsal ──starts──▶ JVM: a few rows through every kind of job ──ends──▶ temporary file
         └── waits until all of them have ended, then gives the file its name

It has the lowest priority, holds a lock so that one is enough, and leaves either a whole archive or a note on why there
is none.

In:  nothing.  Out: the archive in the user's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.engine.spark.class_archive import LONGEST_MAKING, ROOM_BYTES, SWITCH, Archive, find_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCHIVES_KEPT = 6
"""Archives that stay in the cache, those used last: every Python environment has jars of its own."""

_SCRIPT = """\
CREATE STREAM A (k BIGINT, v DOUBLE, s STRING, ts TIMESTAMP) WITH (format = 'parquet', path = '{home}/a', time = 'ts');
CREATE STREAM B (k BIGINT, v DOUBLE, s STRING, ts TIMESTAMP) WITH (format = 'json', path = '{home}/b', time = 'ts');
CREATE QUERY plain WITH (sink = 'parquet', path = '{home}/out') AS
  SELECT A.k, A.v AS av, B.s AS bs FROM A, B WHERE A.k = B.k AND A.v > 0 WINDOW 5 SECONDS;
CREATE QUERY computed AS
  SELECT A.k, A.v + B.v AS both, upper(A.s) AS s FROM A, B WHERE A.k = B.k AND A.v < B.v + 9 WINDOW 10 SECONDS;
CREATE QUERY folded AS
  SELECT A.k, COUNT(*) AS n, SUM(B.v) AS total FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS]
  WHERE A.k = B.k GROUP BY A.k EVERY 5 SECONDS;
"""


def make_archive(archive: Archive) -> None:
    """Make the archive, unless somebody else does; leave it, or a note on why there is none."""
    with _locked(archive) as ours:
        if not ours or archive.exists:
            return
        file = archive.file.with_suffix(f".{os.getpid()}.part")
        try:
            failure = _rehearse(archive, file)
            if failure:
                archive.failure.write_text(failure, encoding="utf-8")
            else:
                file.replace(archive.file)
                _clear_old(archive)
        finally:
            for each in file.parent.glob(f"{file.name}*"):  # also what a Java writes on the way
                each.unlink(missing_ok=True)


@contextmanager
def _locked(archive: Archive) -> Iterator[bool]:
    """Be the only one; a lock whose owner is gone is taken over."""
    archive.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not archive.is_being_made:
        archive.lock.unlink(missing_ok=True)
    try:
        os.close(os.open(archive.lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        yield False
        return
    try:
        yield True
    finally:
        archive.lock.unlink(missing_ok=True)


def _rehearse(archive: Archive, file: Path) -> str:
    """Let a JVM write its classes to a file; say why it has not, if so."""
    if shutil.disk_usage(archive.file.parent).free < ROOM_BYTES:
        return f"less than {ROOM_BYTES >> 20} MiB free"
    command = [sys.executable, "-m", __spec__.name, archive.making_options(file)]
    environment = {**os.environ, SWITCH: "off"}
    # Its output ends when the last of the processes has ended that write to it, and that is the JVM.
    try:
        run = subprocess.run(  # noqa: S603 - ourselves
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=LONGEST_MAKING,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {LONGEST_MAKING:.0f} seconds"
    if run.returncode == 0 and file.is_file():
        return ""
    said = run.stdout.decode("utf-8", "replace").strip().splitlines()
    return f"ended with status {run.returncode} and no archive: {said[-1] if said else 'without a word'}"


def _clear_old(archive: Archive) -> None:
    """Leave the archives used last, and nothing that was left half done."""
    folder = archive.file.parent
    files = sorted(folder.glob("spark-*.jsa"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in (*files[ARCHIVES_KEPT:], *folder.glob("spark-*.part*")):
        with suppress(OSError):
            each.unlink()


def rehearse(options: str) -> None:
    """Run a few rows through every kind of job, in a JVM with more options."""
    from penstock.engine.engine import Engine  # noqa: PLC0415 - the process that waits does without Spark
    from penstock.engine.spark.session import QUICK_START  # noqa: PLC0415 - see above

    name = "spark.driver.extraJavaOptions"
    settings = {**QUICK_START, name: f"{QUICK_START[name]} {options}", "spark.log.level": "OFF"}
    with tempfile.TemporaryDirectory(prefix="penstock-archive-") as folder:
        home = Path(folder)
        _write_streams(home)
        with Engine(home / "state", settings=settings) as engine:
            engine.script(_SCRIPT.format(home=home))
            engine.start(once=True)
            engine.wait()
            for query in engine.plan.queries:
                engine.results(query.name).toArrow()
            engine.spark.stop()


def _write_streams(home: Path) -> None:
    """Write a few rows for either stream."""
    seconds = list(range(40))
    times = pa.array([each * 1_000_000 for each in seconds]).cast(pa.timestamp("us", "UTC"))
    rows = pa.table(
        {
            "k": [each % 3 for each in seconds],
            "v": [each / 2 for each in seconds],
            "s": ["a"] * 40,
            "ts": times,
        }
    )
    for name in "ab":
        (home / name).mkdir()
    pq.write_table(rows, home / "a" / "0.parquet")
    lines = (
        f'{{"k": {each % 3}, "v": {each / 2}, "s": "b", "ts": "1970-01-01T00:00:{each:02d}Z"}}'
        for each in seconds
    )
    (home / "b" / "0.json").write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    """Make the archive for the Java and the Spark that are here; with options for a JVM, be the rehearsal."""
    os.nice(19)
    if len(sys.argv) > 1:
        rehearse(sys.argv[1])
    elif archive := find_archive():
        with suppress(OSError):  # the cache cannot be written: then without
            make_archive(archive)


if __name__ == "__main__":
    main()
