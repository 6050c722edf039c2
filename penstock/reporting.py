"""Reports about a run that cannot end it: log records, displays.

A display writes to a terminal or a pipe that may be gone, and a log record goes to handlers that the user wrote.  An
error there is logged once, as a warning with the reason, and the run goes on.

In:  the name of a module, or what a block of code does.  Out: a logger, or a context manager, that raises nothing.
"""

from __future__ import annotations

import logging
from typing import Any

_OUR_FRAME = 2
"""The stack level of the code that logs, as seen from `Logger.log`: one frame is in this module."""


class Logger(logging.LoggerAdapter[logging.Logger]):
    """The logger of a module; a handler or filter that raises is named once on standard error."""

    def __init__(self, name: str) -> None:
        """Log under the name of a module."""
        super().__init__(logging.getLogger(name), {})
        self._has_failed = False

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        """Log a record, and raise nothing."""
        options.setdefault("stacklevel", _OUR_FRAME)
        try:
            super().log(level, msg, *args, **options)
        except Exception as error:  # noqa: BLE001 - of a user's handler
            if self._has_failed or logging.lastResort is None:
                return
            self._has_failed = True
            said = f"a log handler failed, and the run goes on: {reason(error)}"
            record = logging.LogRecord(self.logger.name, logging.WARNING, __file__, 0, said, (), None)
            logging.lastResort.handle(record)  # which prints to standard error, if that can be


class Tolerant:
    """A block of code whose errors are not raised; the first one is logged."""

    def __init__(self, log: Logger, what: str) -> None:
        """Describe the block for the message."""
        self._log, self._what, self._has_failed = log, what, False

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """Log the first error.  `SystemExit` is one: Rich raises it where standard output was closed."""
        if not isinstance(error, Exception | SystemExit):
            return False
        if not self._has_failed:
            self._has_failed = True
            self._log.warning("%s failed, and the run goes on: %s", self._what, reason(error))
        return True


def reason(error: BaseException) -> str:
    """Return what an error says, in one line.

    >>> reason(KeyError("Shipments")), reason(SystemExit(1))
    ("KeyError: 'Shipments'", 'standard output was closed')
    """
    if isinstance(error, SystemExit):
        return "standard output was closed"
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
