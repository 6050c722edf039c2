"""Flink SQL as a peer: installed on demand into an environment of its own, never with the product.

`pip` brings Flink, Maven the reader of Parquet, and the two Hadoop jars which that needs are those that PySpark brings
anyway.  If one of them cannot be had, `NotHereError` says which, and the table says so instead of a time.

Flink gets the rows in files made for it, one for each core and stream, every file in order of time: its file source
hands out files in no order, and rows behind the watermark would be lost.  So it would read a topic with as many
partitions.  Its event time has milliseconds only, so the exact difference in microseconds is a condition of the join
too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyspark

from benchmarks.peers.peer import Job, Launch, NotHereError, Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workloads import WindowQuery

VERSION = "2.3.0"

PROGRAM = Path(__file__).with_name("flink_program.py")


def flink(way: str) -> Callable[[Job], Launch]:
    """Give the launch of Flink, used in one of its ways."""

    def launch(job: Job) -> Launch:
        joins = len(job.queries) if way.endswith("each") else 1
        return _launch(way, job, split(job), joins)

    return launch


def flink_server(home: Path, queries: tuple[WindowQuery, ...], directory: Path) -> Launch:
    """Give the launch of a Flink that joins the files of HOME/data as they appear, and writes to HOME/out."""
    job = Job(home / "data", queries, rows=0, home=directory)
    return _launch("serve", job, job.data, 1)


def _launch(way: str, job: Job, data: Path, joins: int) -> Launch:
    home = install(job.home / "flink")
    hadoop = sorted((Path(pyspark.__path__[0]) / "jars").glob("hadoop-client-*.jar"))
    environment = {
        "JVM_ARGS": f"-Xmx{job.heap(joins)}m",
        "HADOOP_CLASSPATH": ":".join(map(str, hadoop)),
        "FLINK_JARS": ";".join(each.as_uri() for each in sorted((home / "jars").glob("*.jar"))),
    }
    python = str(home / "bin" / "python")
    return Launch((python, str(PROGRAM), way, job.to_json(), str(data)), environment)


def install(home: Path) -> Path:
    """Install Flink, unless it is there; give the home of its environment."""
    home = home.resolve()
    if (home / "ready").exists():
        return home
    if sys.version_info >= (3, 13):
        raise NotHereError(f"Flink {VERSION} has no Python package for Python 3.13 and later")
    python = str(home / "bin" / "python")
    _step("make an environment", sys.executable, "-m", "venv", str(home))
    _step("install apache-flink", python, "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}")
    if shutil.which("mvn") is None:
        raise NotHereError("Maven (mvn) is needed to get Flink's reader of Parquet")
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
    what = (f"-Dartifact=org.apache.flink:flink-sql-parquet:{VERSION}", f"-DoutputDirectory={home / 'jars'}")
    _step("get the reader of Parquet", "mvn", "--quiet", "--batch-mode", copy, *what)
    (home / "ready").touch()
    return home


def _step(what: str, *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "without a word").splitlines()
        raise NotHereError(f"could not {what}: {said[-1]}")


def split(job: Job) -> Path:
    """Write the rows again as one file for each core and stream, times as numbers, unless that was done."""
    directory = job.data / f"flink-{job.cores}"
    if (directory / "done").exists():
        return directory
    for name in job.streams:
        (directory / name).mkdir(parents=True, exist_ok=True)
        rows = ds.dataset(job.data / name).to_table().sort_by("ts")
        rows = pa.table({"k": rows["k"], "v": rows["v"], "us": rows["ts"].cast(pa.int64())})
        for part in range(job.cores):
            part_rows = rows.take(np.arange(part, rows.num_rows, job.cores))
            pq.write_table(part_rows, directory / name / f"{part}.parquet")
    (directory / "done").touch()
    return directory


EACH = (
    "interval joins in one StatementSet, hashmap state, no checkpoints, object reuse; a blackhole sink each, counted "
    "by Flink's own metrics"
)
WIDEST = "an interval join at the widest window with the level of each pair as a column; settings as above"
FLINK = Peer("flink", "Flink SQL, one join each", EACH, command=flink("each"))
FLINK_WIDEST = Peer(
    "flink-widest",
    "one Flink join, level column",
    WIDEST,
    "pairs",
    has_checking_run=True,
    command=flink("widest"),
)
