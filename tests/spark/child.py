"""A process to be killed: runs the crash test's queries over all input that is there.

    python tests/spark/child.py ROOT [many | tree SEED]

``many`` are the queries over three streams, ``tree`` those over other queries.  The driver is guarded.
The parent finds out how far it is by looking at the journal.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))


def main() -> None:
    """Run to the end of the input."""
    from penstock.engine.spark.session import QUICK_START, embedded_session
    from tests.spark.driver_guard import guard
    from tests.spark.many_runs import QUERIES, ManyRun
    from tests.spark.runner import Run
    from tests.spark.tree_runs import queries, run_once, streams, values_of
    from tests.spark.world import crash_specs

    guard(pytest.MonkeyPatch())
    root = Path(sys.argv[1])
    spark = embedded_session({**QUICK_START, "spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"})
    if "many" in sys.argv[2:]:
        ManyRun(root, QUERIES[:5]).once(spark)
    elif "tree" in sys.argv[2:]:
        run_once(spark, root, streams(root, values_of(int(sys.argv[-1]))) + queries(root))
    else:
        Run(spark, root, crash_specs(root)).once()


if __name__ == "__main__":
    main()
