"""The joiner: one thread that takes turns while there is something to do.

Beside it, Structured Streaming ingests in threads of its own; the two meet only in the journal.  What a turn does is in
`penstock.engine.stages.turn`; here is when::

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

from penstock.engine.stages.turn import take_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.engine.stages.turn_context import TurnContext


LONGEST_WAIT_FOR_PARTNER = 1.0
"""Seconds that a batch waits at most for one of its partner, to be joined with it."""


class Joiner(threading.Thread):
    """Takes turns while there is something to join, and lets the plan be changed between two units."""

    def __init__(self, context: TurnContext) -> None:
        """Get ready."""
        super().__init__(name="penstock-joiner", daemon=True)
        self.context = context
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.mid_batch: Callable[[], set[str]] = set
        """Asked before a turn for the streams that have a batch between source and commit."""
        self._wake = threading.Condition()
        self._turning = threading.Lock()
        self._changing = 0
        context.is_wanted = lambda: self._changing > 0
        self._stopping = False
        self._news = True

    def notify(self) -> None:
        """Tell the joiner that there is something new."""
        with self._wake:
            self._news = True
            self._wake.notify_all()

    def finish_input(self) -> None:
        """Wait for no more rows: what is there is all, for windows that count rows and for results in order."""
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
                lambda: self.failure or self._stopping or not (self._news or self.context.has_work())
            )

    @contextmanager
    def between_units(self) -> Iterator[None]:
        """Do something while no unit runs: the plan may be replaced here."""
        with self._wake:
            self._changing += 1  # the joiner lets it go first, however much there is to join
        try:
            with self._turning:
                yield
        finally:
            with self._wake:
                self._changing -= 1
            self.notify()

    def run(self) -> None:
        """Take turns until told to stop."""
        try:
            while self._wait():
                with self._turning:
                    take_turn(self.context)
                if self.context.has_work():
                    self.notify()  # other slices have still to follow, or an answer has left files to merge
        except BaseException as failure:  # noqa: BLE001 - handed to the thread that owns the engine
            self.failure = failure
            self.on_failure()
        finally:
            with self._wake:
                self._wake.notify_all()

    def _wait(self) -> bool:
        """Wait for news; say whether to go on."""
        context = self.context
        with self._wake:
            self._wake.notify_all()
            idle = context.idle.until_idle(context.plan, context.ledger)
            self._wake.wait_for(lambda: self._stopping or self._news, timeout=0 if context.untidy else idle)
            patience = min(context.unit_seconds, LONGEST_WAIT_FOR_PARTNER)
            self._wake.wait_for(
                lambda: self._stopping or not context.waits_for_partner(self.mid_batch()), timeout=patience
            )
            self._news = False
        while self._changing and not self._stopping:
            time.sleep(0.001)
        return not self._stopping
