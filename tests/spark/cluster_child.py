"""A driver on a cluster of its own: scripts of every kind, with executors in their own processes.

    python tests/spark/cluster_child.py ROOT

It reads ROOT/script.sql and runs it on ``local-cluster``, adds and drops queries on the way, and writes what the engine
and its tasks have counted to ROOT/counts.json.  The driver is guarded: it opens no file with rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))


def main() -> None:
    """Run the script over the input that is there, reveal the rest, and run on."""
    from penstock.engine.api import Engine
    from penstock.engine.spark.session import embedded_session
    from tests.spark.driver_guard import guard

    guard(pytest.MonkeyPatch())
    root = Path(sys.argv[1])
    spark = embedded_session(
        {
            "spark.master": "local-cluster[2,1,1024]",
            "spark.sql.shuffle.partitions": "2",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": (root / "events").as_uri(),
        }
    )
    script = (root / "script.sql").read_text(encoding="utf-8")
    with Engine(root / "state", spark) as engine:
        engine.script(script)
        engine.start()
        engine.process_available()
        engine.script((root / "online.sql").read_text(encoding="utf-8"))
        for file in sorted((root / "later").rglob("*.parquet")):
            file.rename(root / "in" / file.parent.name / file.name)
        engine.process_available()
        first = engine.task_counts
    with Engine(root / "state", spark) as engine:
        engine.start(once=True)  # by the state alone
        engine.wait()
        status = engine.status()
        counts = {
            "tasks": {name: first[name] + count for name, count in engine.task_counts.items()},
            "streams": {each.name: each.rows + each.punctuations for each in status.streams},
            "queries": {each.name: each.results for each in status.queries},
            "pairs": sum(each.pairs for each in status.groups),
        }
        for name in ("table", "ordered", "late_comer"):
            engine.results(name).write.parquet(str(root / "out" / name))
    (root / "counts.json").write_text(json.dumps(counts), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
