"""The joiner: one thread that takes turns while there is something to do.

Structured Streaming ingests in other threads; they share the journal only.  `penstock.engine.stages.turn` defines a
turn; this module decides when one starts::

    ingest   ──commit──▶ notify ─┐
    changes  ──▶ between_units ──┤      ┌──────┐      ┌──────┐
    the clock (a stream is idle) ┴──▶   │ turn │ ──▶  │ turn │ ──▶  wait
                                        └──────┘      └──────┘
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock import limits
from penstock.engine.stages.turn import take_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.engine.stages.turn_context import TurnContext


class Joiner(threading.Thread):
    """Takes turns while there is something to join, with changes of plan between two units."""

    def __init__(self, context: TurnContext) -> None:
        """Get ready."""
        super().__init__(name="penstock-joiner", daemon=True)
        self.context = context
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.mid_batch: Callable[[], set[str]] = set
        """Returns the streams that have a batch between source and commit."""
        self._wake = threading.Condition()
        self._turning = threading.Lock()
        self._changing = 0
        context.is_wanted = lambda: self._changing > 0
        self._stopping = False
        self._has_news = True

    def notify(self) -> None:
        """Wake the joiner."""
        with self._wake:
            self._has_news = True
            self._wake.notify_all()

    def finish_input(self) -> None:
        """Treat the input as complete: windows that count rows and ordered results wait for no more rows."""
        self.context.input_ended = True
        self.notify()

    def finish(self) -> None:
        """Stop after the unit at hand."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self.is_alive():
            self.join()

    def drain(self) -> None:
        """Wait until everything committed so far is joined and published."""
        with self._wake:
            self._wake.wait_for(
                lambda: self.failure or self._stopping or not (self._has_news or self.context.has_work())
            )

    @contextmanager
    def between_units(self) -> Iterator[None]:
        """Hold the lock of the plan: no unit runs meanwhile."""
        with self._wake:
            self._changing += 1  # a change goes before the next turn
        try:
            with self._turning:
                yield
        finally:
            with self._wake:
                self._changing -= 1
            self.notify()

    def run(self) -> None:
        """Take turns until `finish` is called."""
        try:
            while self._wait():
                with self._turning:
                    take_turn(self.context)
                if self.context.has_work():
                    self.notify()  # other slices may follow, or an answer has left files to merge
        except BaseException as failure:  # noqa: BLE001 - raised in the thread that owns the engine
            self.failure = failure
            self.on_failure()
        finally:
            with self._wake:
                self._wake.notify_all()

    def _wait(self) -> bool:
        """Wait for work; return whether to go on."""
        context = self.context
        with self._wake:
            self._wake.notify_all()
            idle = context.idle.until_idle(context.plan, context.ledger)
            self._wake.wait_for(
                lambda: self._stopping or self._has_news, timeout=0 if context.untidy else idle
            )
            patience = min(context.unit_seconds, limits.MAX_PARTNER_WAIT_SECONDS)
            self._wake.wait_for(
                lambda: self._stopping or not context.waits_for_partner(self.mid_batch()), timeout=patience
            )
            self._has_news = False
        while self._changing and not self._stopping:
            time.sleep(0.001)
        return not self._stopping
