"""A run of Penstock in this process, over all input there is, from an empty state that is thrown away.

Three benchmarks look at such a run: as a contestant, strategy by strategy, and thread by thread.

In:  a script.  Out: how long it took, and what the engine says of it.  Imports Spark only when it runs.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class OwnRun:
    """Seconds from start to end, and the status at the end."""

    seconds: float
    status: Any

    @property
    def results(self) -> dict[str, int]:
        """Give the results of each query by its name."""
        return {each.name: each.results for each in self.status.queries}

    @property
    def state_rows(self) -> int:
        """Count the rows that are still held."""
        return sum(group.state_rows for group in self.status.groups)


def run_to_end(
    script: str,
    watch: Callable[[float, int], None],
    settings: Mapping[str, str] | None = None,
    prepare: Callable[[Engine], None] = lambda _: None,
) -> OwnRun:
    """Run a script; `watch` hears after each unit how many seconds have passed and how many rows are joined."""
    from penstock.engine.engine import Engine  # noqa: PLC0415 - other contestants do without Spark

    state = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        with Engine(state, settings=settings) as engine:
            engine.script(script)
            prepare(engine)
            started = time.monotonic()
            engine.watch(lambda unit: watch(time.monotonic() - started, unit.rows))
            engine.start(once=True)
            engine.wait()
            return OwnRun(time.monotonic() - started, engine.status())
    finally:
        shutil.rmtree(state)
