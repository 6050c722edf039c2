"""An engine that runs until its standard input is closed: for `penstock.lab.latency`.

    python -m penstock.lab.peers.serve ENGINE PLACE

joins the files that appear in PLACE/data, puts results into PLACE/out, says when it is ready and when it is done.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from penstock.lab.latency import WINDOW
from penstock.lab.peers.peer import tell_done, tell_mark


def serve_penstock(place: Path) -> None:
    """Run Penstock with a directory of Parquet files as its sink."""
    from penstock.engine.engine import Engine  # noqa: PLC0415 - the other engine does without
    from penstock.lab.workloads import as_script  # noqa: PLC0415 - see above

    with Engine(state=place / "state") as engine:
        sink = f"sink = 'parquet', path = '{place / 'out'}'"
        engine.script(as_script(place / "data", (WINDOW,), sink, files=None))
        engine.start()
        tell_mark(0, 0)
        sys.stdin.read()
        engine.process_available()


def serve_spark_best(place: Path) -> None:
    """Run Spark's join at its best with the same kind of sink."""
    from penstock.engine.session import embedded_session  # noqa: PLC0415 - see above
    from penstock.lab.peers.spark_joins import AT_ITS_BEST, joined, newest_state_format  # noqa: PLC0415 - see above

    spark = embedded_session({"spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)), **AT_ITS_BEST})
    newest_state_format(spark)
    writer = joined(spark, place / "data", WINDOW, 0, files=None).writeStream.format("parquet")
    query = writer.option("checkpointLocation", str(place / "state")).start(str(place / "out"))
    tell_mark(0, 0)
    sys.stdin.read()
    query.processAllAvailable()
    query.stop()


SERVES = {"penstock": serve_penstock, "spark-best": serve_spark_best}


def main() -> None:
    """Run one engine."""
    name, place = sys.argv[1:]
    SERVES[name](Path(place))
    tell_done()


if __name__ == "__main__":
    main()
