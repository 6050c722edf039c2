"""Penstock as a contestant that is started as its command line starts: Spark begins while the rest is imported.

    python -m benchmarks.peers.started_early ENGINE JOB

Else it is `benchmarks.peers.contestant`.
"""

from __future__ import annotations

import sys

from penstock.engine.spark.early_start import start_early
from penstock.engine.spark.session import QUICK_START

if __name__ == "__main__":
    start_early(QUICK_START)
    from benchmarks.peers.contestant import RUNS
    from benchmarks.peers.peer import Job

    name, what = sys.argv[1:]
    RUNS[name](Job.from_json(what))
