"""The errors that Penstock raises.

Every error names the value, the rule it breaks and the fix.  Two families, because
a command line has two exit codes for failure:

* `InputError`: the user's input is wrong (exit 2).  `SqlError` adds the position in the text.
* `RunError`: the input was fine and the run failed (exit 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class PenstockError(Exception):
    """Anything Penstock itself raises."""


class InputError(PenstockError):
    """The user's input is wrong; nothing was started."""


class RunError(PenstockError):
    """The run failed; whatever was committed stays committed."""


class DamagedError(RunError):
    """A file of the state is not as it was written."""


class MissingError(RunError, FileNotFoundError):
    """A file of the state is not there: lost, or merged into another a moment ago."""


class StateBusyError(RunError):
    """Another engine owns this state directory."""


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a script: 1-based line and column, and how many characters it spans."""

    line: int
    column: int
    length: int = 1


_LINE_CHARACTERS, _LEAD_CHARACTERS = 160, 60
"""How much of a line of SQL is shown, and how much of that before the caret."""
_MESSAGE_CHARACTERS = 2_000
_CHOICES = 40
"""How many names `did_you_mean` lists."""


class SqlError(InputError):
    r"""An error in the SQL text, with its position.

    >>> print(SqlError("stream Temprature is not declared", "SELECT *\nFROM Temprature", Place(2, 6, 10)))
    stream Temprature is not declared (line 2, column 6)
      FROM Temprature
           ^^^^^^^^^^
    """

    def __init__(self, message: str, text: str = "", place: Place | None = None) -> None:
        """Keep the bare `message` and `place` for tools that show errors in their own way."""
        self.message = shortened(message)
        self.place = place
        super().__init__(_with_caret(self.message, text, place) if place else self.message)


def shortened(text: str, most: int = _MESSAGE_CHARACTERS) -> str:
    """Cut the middle out of a text that is too long to read, such as a message with a literal of 5 MB.

    >>> shortened("0123456789", 7)
    '0123 … 789'
    """
    half = most // 2
    return text if len(text) <= most else f"{text[: most - half]} … {text[-half:]}"


def _with_caret(message: str, text: str, place: Place) -> str:
    """Append the line and a row of carets to the message; of a long line, the part around the caret."""
    lines = text.splitlines()
    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    at = place.column - 1
    start = max(0, min(at - _LEAD_CHARACTERS, len(line) - _LINE_CHARACTERS))
    end = min(len(line), start + _LINE_CHARACTERS)
    before, after = "…" * (start > 0), "…" * (end < len(line))
    shown = line[start:end].replace("\t", " ")
    gap, room = len(before) + at - start, max(1, min(place.length, end - at))
    return (
        f"{message} (line {place.line}, column {place.column})\n"
        f"  {before}{shown}{after}\n  {' ' * gap}{'^' * room}"
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name, or list them all when nothing is near.

    >>> did_you_mean("Temprature", ["Temperature", "Humidity"])
    'did you mean Temperature?'
    >>> did_you_mean("zzz", ["mqt", "swf"])
    'choose one of: mqt, swf'
    >>> did_you_mean("zzz", [])
    'none is declared'
    """
    names = list(known)
    folded = {name.lower(): name for name in names}
    near = get_close_matches(name.lower()[:_LINE_CHARACTERS], folded, n=1)
    if near:
        return f"did you mean {folded[near[0]]}?"
    more = f" and {len(names) - _CHOICES:,} more" if len(names) > _CHOICES else ""
    return f"choose one of: {', '.join(names[:_CHOICES])}{more}" if names else "none is declared"
