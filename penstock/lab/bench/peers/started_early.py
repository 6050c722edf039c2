"""Penstock as a contestant that is started as its command line starts: Spark begins while the rest is imported.

    python -m penstock.lab.bench.peers.started_early ENGINE JOB

Else it is `penstock.lab.bench.peers.contestant`.
"""

from __future__ import annotations

import sys

from penstock.engine.spark.early_start import start_early
from penstock.engine.spark.session import QUICK_START

if __name__ == "__main__":
    start_early(QUICK_START)
    from penstock.lab.bench.peers.contestant import RUNS
    from penstock.lab.bench.peers.peer import Job

    name, what = sys.argv[1:]
    RUNS[name](Job.from_json(what))
