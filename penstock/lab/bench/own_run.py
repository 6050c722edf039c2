"""A run of Penstock in this process, over all input there is, from an empty state that is thrown away.

Three benchmarks look at such a run: as a contestant, strategy by strategy, and thread by thread.  Spark is imported
only when it runs.
"""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engine.engine import Engine


class OwnRun(NamedTuple):
    """Seconds from start to end, the status at the end, results by query, and the rows that are still held."""

    seconds: float
    status: Any
    results: dict[str, int]
    state_rows: int


def run_to_end(
    script: str,
    watch: Callable[[float, int], None],
    settings: Mapping[str, str] | None = None,
    prepare: Callable[[Engine], None] = lambda _: None,
) -> OwnRun:
    """Run a script; `watch` hears after each unit how many seconds have passed and how many rows are joined."""
    from penstock.engine.engine import Engine  # noqa: PLC0415 - other contestants do without Spark

    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as state,
        Engine(state, settings=settings) as engine,
    ):
        engine.script(script)
        prepare(engine)
        started = time.monotonic()
        engine.watch(lambda unit: watch(time.monotonic() - started, unit.rows))
        engine.start(once=True)
        engine.wait()
        seconds, status = time.monotonic() - started, engine.status()
        results = {each.name: each.results for each in status.queries}
        return OwnRun(seconds, status, results, sum(group.state_rows for group in status.groups))
