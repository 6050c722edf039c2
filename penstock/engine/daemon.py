"""Spark's Python daemon, with all modules loaded that tasks need: the workers that it forks share them.

    python -m penstock.engine.daemon pyspark.worker          started by Spark (`spark.python.daemon.module`)

With Spark's own daemon, each worker takes a second to load Arrow and the compiled kernels, and keeps its own copy in
memory.  This daemon loads them once, and excludes them from garbage collection.  A process with threads should not
fork, so the libraries are configured to start none.

In:  nothing.  Out: workers, forked by `pyspark.daemon`.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def use_installed_pyspark() -> None:
    """Import pyspark from its directory, not from its copy in Spark's ``pyspark.zip``.

    Spark puts that file and a jar first on the path.  Modules in a zip have no byte code, and each worker would read
    the file lists of both again.  Where Spark was not installed as the package pyspark, the path stays as it is.
    """
    archives = [entry for entry in sys.path if entry.endswith((".zip", ".jar"))]
    others = [entry for entry in sys.path if entry not in archives]
    pyspark, py4j = (PathFinder.find_spec(name, others) for name in ("pyspark", "py4j"))
    if pyspark is None or pyspark.origin is None or py4j is None:
        return
    home = Path(pyspark.origin).resolve().parent
    for entry in archives:
        if Path(entry).resolve().is_relative_to(home):
            sys.path.remove(entry)
            sys.path_importer_cache.pop(entry, None)


def load() -> None:
    """Load the modules and compiled kernels that tasks need, without starting a thread.

    The garbage collector is off meanwhile: scanning permanent objects took a seventh of the time.
    """
    gc.disable()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    import pyspark.worker  # noqa: F401, PLC0415 - after the settings above

    import penstock.engine.runners.spark  # noqa: PLC0415 - see above
    import penstock.engine.tasks.registry  # noqa: F401, PLC0415 - see above
    from penstock.kernels.warm import warm_folds, warm_up  # noqa: PLC0415 - see above

    warm_up()
    warm_folds()
    gc.collect()
    gc.freeze()
    gc.enable()


def ignore_closed_pipe(worker: Callable[..., int]) -> Callable[..., int]:
    """End a worker without an error when Spark has closed its connection, as it does with idle workers."""

    def run(*connection: object) -> int:
        try:
            return worker(*connection)
        except BrokenPipeError:
            return 1

    return run


def main() -> None:
    """Load all modules, then run Spark's daemon."""
    use_installed_pyspark()
    load()
    from pyspark import daemon  # noqa: PLC0415 - see above

    daemon.worker = ignore_closed_pipe(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
