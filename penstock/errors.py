"""What can go wrong, said to the person who can mend it.

Every error names the value, the rule it breaks and the way out.  Two families, because
a command line has two exit codes for failure:

* `InputError`: what the user wrote is wrong (exit 2).  `SqlError` adds where in the text.
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


class SqlError(InputError):
    r"""Something in the SQL text is wrong, and this is where.

    >>> print(SqlError("stream Temprature is not declared", "SELECT *\nFROM Temprature", Place(2, 6, 10)))
    stream Temprature is not declared (line 2, column 6)
      FROM Temprature
           ^^^^^^^^^^
    """

    def __init__(self, message: str, text: str = "", place: Place | None = None) -> None:
        """Keep the bare `message` and `place` too, for tools that show errors their own way."""
        self.message = message
        self.place = place
        super().__init__(_with_caret(message, text, place) if place else message)


def _with_caret(message: str, text: str, place: Place) -> str:
    """Put the offending line and a row of carets under the message."""
    lines = text.splitlines()
    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    lead = line[: place.column - 1].replace("\t", " ")
    room = max(1, min(place.length, len(line) - place.column + 1))
    return (
        f"{message} (line {place.line}, column {place.column})\n"
        f"  {line.replace(chr(9), ' ')}\n  {' ' * len(lead)}{'^' * room}"
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
    folded = {each.lower(): each for each in names}
    near = get_close_matches(name.lower(), folded, n=1)
    if near:
        return f"did you mean {folded[near[0]]}?"
    return f"choose one of: {', '.join(names)}" if names else "none is declared"
