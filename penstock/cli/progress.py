"""Live progress: a screen that is redrawn where there is a terminal, a line now and then where there is none.

Counting the rows of the state takes time, so looks are spaced by what the last one cost.  An error of the display is
logged once and ends nothing.

In:  one `Status` after the other, each with the plan at that time.  Out: standard output.
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

SECONDS_BETWEEN_LOOKS = 1.0
"""Seconds between two looks, at the least."""

LOOKING_SHARE = 0.05
"""The share of the time that may go into looking."""

SECONDS_BETWEEN_LINES = 3.0
"""Seconds between two lines, at the least, where there is no terminal."""

RATE_SECONDS = 5.0
"""Seconds over which rows per second are taken."""


class Pace:
    """Spaces out something costly: ``if pace.is_due(): with pace: …``."""

    def __init__(self) -> None:
        """Be due at once."""
        self._next = self._began = time.monotonic()

    def is_due(self) -> bool:
        """Say whether it is time."""
        return time.monotonic() >= self._next

    def __enter__(self) -> None:
        """Begin to measure."""
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        """Put the next time off by what this one cost."""
        now = time.monotonic()
        self._next = now + max(SECONDS_BETWEEN_LOOKS, (now - self._began) / LOOKING_SHARE)


class Rates:
    """Rows per second of each stream, over the last few seconds."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._seen: deque[tuple[float, dict[str, int]]] = deque()

    def take(self, status: Status) -> dict[str, float]:
        """Count in a status and return the rates; a stream that was not there before has none yet."""
        now, rows = time.monotonic(), {each.name: each.rows for each in status.streams}
        self._seen.append((now, rows))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_SECONDS:  # noqa: PLR2004 - two make a difference
            self._seen.popleft()
        then, before = self._seen[0]
        seconds = max(now - then, SECONDS_BETWEEN_LOOKS)
        return {name: (count - before.get(name, count)) / seconds for name, count in rows.items()}


class Display:
    """What a run shows on standard output; as a context manager it shows progress meanwhile."""

    def __init__(self) -> None:
        """Show lines; a terminal is taken over by the context manager."""
        self.tolerant = Tolerant(_log, "the display")
        """A context in which something is displayed, or computed for that only."""
        self._show = _lines()
        self._stack = ExitStack()

    def say(self, line: str) -> None:
        """Print one line as it is."""
        with self.tolerant:
            console().print(line, soft_wrap=True, markup=False)

    def show(self, engine: Engine, status: Status | None = None) -> None:
        """Show how far an engine is: drawn in place on a terminal, else as a line now and then."""
        with self.tolerant:
            self._show(engine.plan, status or engine.status())

    def sum_up(self, engine: Engine) -> None:
        """Print the status of an engine, to stay."""
        with self.tolerant:
            console().print(status_view(engine.plan, engine.status()))

    def __enter__(self) -> Self:
        """Begin to draw in place, where there is a terminal."""
        with self.tolerant:
            if console().is_terminal:
                self._show = self._stack.enter_context(_live())
        return self

    def __exit__(self, *_: object) -> None:
        """Clear what was drawn: the summary takes its place."""
        with self.tolerant:
            self._stack.close()


@contextmanager
def _live() -> Iterator[Show]:
    """Redraw in place, and clear it at the end."""
    rates = Rates()
    with Live(console=console(), auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        yield lambda plan, status: live.update(status_view(plan, status, rates.take(status)), refresh=True)


def _lines() -> Show:
    """Print a line when something changed, and not too often; warn of each late stream once."""
    out, rates, warned = console(), Rates(), set[str]()
    last: tuple[float, tuple[int, ...]] = (0.0, ())

    def show(_plan: Plan, status: Status) -> None:
        nonlocal last
        speed = rates.take(status)
        for each in status.streams:
            if each.warning and each.name not in warned:
                warned.add(each.name)
                out.print(
                    f"{time.strftime('%H:%M:%S')}  warning: {each.warning}", soft_wrap=True, markup=False
                )
        state = (*(each.rows for each in status.streams), *(each.results for each in status.queries))
        if state != last[1] and time.monotonic() - last[0] >= SECONDS_BETWEEN_LINES:
            last = time.monotonic(), state
            out.print(f"{time.strftime('%H:%M:%S')}  {progress_line(status, speed)}", soft_wrap=True)

    return show
