"""Run a script: check, start, show, stop.

    load ──▶ own the state ──▶ start Spark ──▶ watch ──▶ stop ──▶ summary
     │            │                │             └ until all is read (--once), a signal, or a failure
     └ exit 2, nothing made        └ exit 2 if Spark refuses an expression; a new state is removed

The first Ctrl-C or SIGTERM ends the run after the current unit, with status 0; the second one ends it at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.load import check_sources, load
from penstock.cli.progress import Display, StatusPace
from penstock.cli.spark_talk import quiet_spark
from penstock.engine.spark.early_start import start_early
from penstock.engine.spark.session import QUICK_START, spark_options
from penstock.errors import InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Self

    from penstock.cli.load import Loaded
    from penstock.engine.api import Engine

POLL_SECONDS = 0.1
"""Seconds between two checks for the end of the run."""


def run_script(
    script: Path, state: str, *, once: bool, accept_loss: bool = False, debug: bool = False
) -> None:
    """Run a script's queries until stopped, or with `once` until all available input is processed."""
    started = time.monotonic()
    loaded = load(script)
    check_sources(loaded.plan)
    display = Display()
    for notice in loaded.notices:
        display.say(f"note: {notice}")
    count = len(loaded.plan.queries)
    display.say(f"starting {count} {'query' if count == 1 else 'queries'}, state in {state}")
    with (
        Signals() as signals,
        quiet_spark(debug=debug),
        _removed_if_refused(state),
        _engine(loaded, state, once=once) as engine,
    ):
        done = engine.script(loaded.text)
        engine.start(once=once, accept_loss=accept_loss)
        if engine.spark.sparkContext.uiWebUrl:
            display.say(f"Spark UI: {engine.spark.sparkContext.uiWebUrl}")
        signals.arm()
        with display.tolerant:
            for answer in engine.answers(done):
                display.say(answer.rstrip("\n"))
        watch(engine, signals, display, once=once)
        display.sum_up(engine)
        failures = engine.failures
    if failures:
        raise RunError(
            f"{len(failures)} of {count} queries failed ({', '.join(failures)}) and the others continued: "
            "correct the failed queries and run again"
        )
    display.say(
        f"{'stopped' if signals.asked.is_set() else 'done'} after {time.monotonic() - started:.1f} seconds"
    )


def _engine(loaded: Loaded, state: str, *, once: bool) -> Engine:
    """Make the engine; Spark starts while the engine is imported."""
    settings = QUICK_START if once else {}
    start_early(spark_options({**settings, **loaded.script.settings}))
    from penstock.engine.api import Engine  # noqa: PLC0415 - see above

    return Engine(state, settings=settings)


class Signals:
    """Turns Ctrl-C and SIGTERM into a request to stop; the second one ends the process."""

    def __init__(self) -> None:
        """Note the present handlers."""
        self.asked = threading.Event()
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self._in_main_thread = threading.current_thread() is threading.main_thread()

    def arm(self) -> None:
        """Install the handlers; again after the start of Spark, which installs its own for SIGINT."""
        if self._in_main_thread:
            for number in self._before:
                signal.signal(number, self._ask)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        """Note the request; the second time, end the process."""
        if self.asked.is_set():
            os._exit(128 + number)
        self.asked.set()
        with suppress(OSError):  # standard error may be gone
            os.write(2, b"stopping after the current unit; press Ctrl-C again to stop at once\n")

    def __enter__(self) -> Self:
        """Install the handlers."""
        self.arm()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        """Restore the handlers.  A Ctrl-C that Spark caught while it started is a request to stop, too."""
        if self._in_main_thread:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        if kind is KeyboardInterrupt:
            self.asked.set()
        return kind is KeyboardInterrupt


def watch(engine: Engine, signals: Signals, display: Display, *, once: bool) -> None:
    """Show progress until the end, and stop the engine."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            engine.wait()
        except BaseException as failure:  # noqa: BLE001 - handed to the main thread
            failures.append(failure)
        finally:
            ended.set()

    waiter = threading.Thread(target=wait, name="penstock-wait", daemon=True)
    if once:
        waiter.start()
    with display:
        pace = StatusPace()
        while not ended.is_set() and not signals.asked.is_set():
            engine.check_running()
            if pace.is_due():
                with pace:
                    display.show(engine)
            ended.wait(POLL_SECONDS)
        if failures:
            raise failures[0]
        engine.stop()


@contextmanager
def _removed_if_refused(state: str) -> Iterator[None]:
    """Remove a new state if its start is refused."""
    path = None if "://" in state else Path(state)
    made = None if path is None else _first_missing(path)
    try:
        yield
    except InputError:
        if path is not None and made is not None and _is_empty_state(path):
            shutil.rmtree(path)
            for parent in path.parents:
                if not parent.is_relative_to(made):
                    break
                with suppress(OSError):
                    parent.rmdir()
        raise


def _first_missing(path: Path) -> Path | None:
    """Return the topmost directory that does not exist; None if all do."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    return missing[-1] if missing else None


def _is_empty_state(path: Path) -> bool:
    """Check that a state holds only its lock, its identity and empty directories."""
    return path.is_dir() and all(
        entry.name in {"lock", "identity"} or (entry.is_dir() and not any(entry.iterdir()))
        for entry in path.iterdir()
    )
