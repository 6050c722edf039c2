"""Live progress: redrawn in place on a terminal, printed as lines elsewhere.

A status takes time to count, so the interval between two is a multiple of the time of the last one.  An error of the
display is logged once and stops no run.

In:  the engine.  Out: standard output.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rich.live import Live

from penstock.cli.show import console, progress_line, status_view
from penstock.reporting import Logger, Tolerant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from penstock.engine.api import Engine
    from penstock.engine.report.status import Status
    from penstock.plan.build import Plan

    Show = Callable[[Plan, Status], None]

_log = Logger(__name__)

LEAST_STATUS_SECONDS = 1.0
"""The least seconds between two statuses."""

STATUS_SHARE = 0.05
"""The share of the time that may be spent on statuses."""

LEAST_LINE_SECONDS = 3.0
"""The least seconds between two lines, if there is no terminal."""

RATE_SECONDS = 5.0
"""Seconds over which rows per second are averaged."""


class StatusPace:
    """Limits the share of time of something costly: ``if pace.is_due(): with pace: …``."""

    def __init__(self) -> None:
        """Be due at once."""
        self._next = self._began = time.monotonic()

    def is_due(self) -> bool:
        """Check whether it is time."""
        return time.monotonic() >= self._next

    def __enter__(self) -> None:
        """Start the measurement."""
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        """Set the next time by the cost of this one."""
        now = time.monotonic()
        self._next = now + max(LEAST_STATUS_SECONDS, (now - self._began) / STATUS_SHARE)


class StreamRates:
    """Rows per second of each stream, over the last few seconds."""

    def __init__(self) -> None:
        """Start without any status."""
        self._seen: deque[tuple[float, dict[str, int]]] = deque()

    def take(self, status: Status) -> dict[str, float]:
        """Add a status and return the rates; a new stream has none yet."""
        now, rows = time.monotonic(), {stream.name: stream.rows for stream in status.streams}
        self._seen.append((now, rows))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_SECONDS:  # noqa: PLR2004 - two make a difference
            self._seen.popleft()
        then, before = self._seen[0]
        seconds = max(now - then, LEAST_STATUS_SECONDS)
        return {name: (count - before.get(name, count)) / seconds for name, count in rows.items()}


class Display:
    """The output of a run; as a context manager, it draws progress in place."""

    def __init__(self) -> None:
        """Print lines until the context is entered."""
        self.tolerant = Tolerant(_log, "the display")
        """A context for everything that is displayed, or computed for that only."""
        self._show = _lines()
        self._stack = ExitStack()

    def say(self, line: str) -> None:
        """Print one line without markup."""
        with self.tolerant:
            console().print(line, soft_wrap=True, markup=False)

    def show(self, engine: Engine, status: Status | None = None) -> None:
        """Show the progress of an engine."""
        with self.tolerant:
            self._show(engine.plan, status or engine.status())

    def sum_up(self, engine: Engine) -> None:
        """Print the final status of an engine."""
        with self.tolerant:
            console().print(status_view(engine.plan, engine.status()))

    def __enter__(self) -> Self:
        """Draw in place, if there is a terminal."""
        with self.tolerant:
            if console().is_terminal:
                self._show = self._stack.enter_context(_live())
        return self

    def __exit__(self, *_: object) -> None:
        """Clear the drawing; the summary replaces it."""
        with self.tolerant:
            self._stack.close()


@contextmanager
def _live() -> Iterator[Show]:
    """Redraw in place, and clear at the end."""
    rates = StreamRates()
    with Live(console=console(), auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        yield lambda plan, status: live.update(status_view(plan, status, rates.take(status)), refresh=True)


def _lines() -> Show:
    """Print a line when counts have changed, but not too often; print the warning of a stream once."""
    out, rates, warned = console(), StreamRates(), set[str]()
    last: tuple[float, tuple[int, ...]] = (0.0, ())

    def show(_plan: Plan, status: Status) -> None:
        nonlocal last
        speed = rates.take(status)
        for stream in status.streams:
            if stream.warning and stream.name not in warned:
                warned.add(stream.name)
                warning = f"{time.strftime('%H:%M:%S')}  warning: {stream.warning}"
                out.print(warning, soft_wrap=True, markup=False)
        state = (*(stream.rows for stream in status.streams), *(query.results for query in status.queries))
        if state != last[1] and time.monotonic() - last[0] >= LEAST_LINE_SECONDS:
            last = time.monotonic(), state
            out.print(f"{time.strftime('%H:%M:%S')}  {progress_line(status, speed)}", soft_wrap=True)

    return show
