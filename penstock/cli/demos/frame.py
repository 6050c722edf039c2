"""The frame of a demo: make streams and a script, run the engine on them, report, and clean up.

    streams, script ──▶ introduction ──▶ run, live ──▶ report ──▶ one paragraph at the end

In:  a `Demo`, and a directory to keep everything in, or None.  Out: the terminal.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from penstock.cli.progress import Display
from penstock.cli.run import Signals
from penstock.cli.show import console
from penstock.engine.api import Engine
from penstock.engine.spark.session import QUICK_START

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from penstock.engine.report.status import Status


class Demo(ABC):
    """One demo."""

    to_try: ClassVar[tuple[str, ...]]
    """Commands to look around with afterwards; ``{keep}`` is the directory."""

    @abstractmethod
    def script(self, folder: Path) -> str:
        """Write the streams' first files below `folder`, and return the script."""

    @abstractmethod
    def introduce(self, engine: Engine, out: Console) -> None:
        """Print what is about to run."""

    @abstractmethod
    def play(self, engine: Engine, folder: Path, signals: Signals) -> None:
        """Run the engine, and show progress."""

    @abstractmethod
    def report(self, engine: Engine, folder: Path, out: Console) -> None:
        """Print the results."""

    @abstractmethod
    def closing(self, seconds: float) -> str:
        """Return the paragraph at the end of a demo that took that long."""

    def run(self, keep: Path | None = None) -> None:
        """Run the demo; keep its files in `keep`, or delete them at the end."""
        started, out = time.monotonic(), console()
        with _folder(keep) as folder, Signals() as signals:
            text = self.script(folder)
            (folder / "demo.sql").write_text(text, encoding="utf-8")
            with Engine(folder / "state", settings=QUICK_START) as engine:
                engine.script(text)
                self.introduce(engine, out)
                self.play(engine, folder, signals)
                if not signals.asked.is_set():
                    self.report(engine, folder, out)
        if signals.asked.is_set():
            out.print("stopped")
            return
        out.print(self.closing(time.monotonic() - started))
        if keep is not None:
            out.print(f"\nKept in {keep}: data, demo.sql, state and out. Look around, for example with\n")
            for command in self.to_try:
                out.print(f"  {command.format(keep=keep)}", markup=False)


class SteppedDemo(Demo):
    """A demo whose files come in steps: the engine joins the rows of one step before the next one comes."""

    steps: int

    @abstractmethod
    def arrive(self, folder: Path, step: int) -> None:
        """Put the files of one step where the streams read."""

    @abstractmethod
    def look(self, folder: Path, status: Status) -> None:
        """Note the state after one step."""

    def play(self, engine: Engine, folder: Path, signals: Signals) -> None:
        """Process step by step, and show progress."""
        engine.start()
        signals.arm()
        with Display() as display:
            for step in range(self.steps):
                if signals.asked.is_set():
                    return
                self.arrive(folder, step)
                engine.process_available()
                status = engine.status()
                self.look(folder, status)
                display.show(engine, status)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Make the directory to keep, or a temporary one that is removed at the end."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
