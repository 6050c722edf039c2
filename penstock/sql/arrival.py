"""What a stream says of the order in which its rows arrive, for joins without a window.

``scrambling`` is how many rows of the stream a row may come after one that is not smaller, ``multiplicity`` how many
rows may have one value (`penstock.plan.characteristics` has the definitions).  What is left out is measured.

In:  the options of a stream.  Out: numbers, or an error that names the option.
True: a multiplicity of m goes with a scrambling of at least m - 1, since rows with one value count as out of order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.sql.query import Stream

SCRAMBLING, MULTIPLICITY = "scrambling", "multiplicity"
ARRIVAL_OPTIONS = frozenset({SCRAMBLING, MULTIPLICITY})
"""Options of a stream that say how its rows arrive; they are ours, and Spark's source does not see them."""

_LEAST = {SCRAMBLING: 0, MULTIPLICITY: 1}
_MOST_DIGITS = 15


class ArrivalError(InputError):
    """An option about arrival that no stream can have; `option` names it."""

    def __init__(self, message: str, option: str) -> None:
        """Keep the option, for who knows where it stands."""
        super().__init__(message)
        self.option = option


def known_scrambling(stream: Stream) -> int | None:
    """Give the scrambling that a stream is declared with; None: it is measured."""
    return _number(stream, SCRAMBLING)


def known_multiplicity(stream: Stream) -> int | None:
    """Give the multiplicity that a stream is declared with; None: it is measured."""
    return _number(stream, MULTIPLICITY)


def _number(stream: Stream, name: str) -> int | None:
    text = dict(stream.options).get(name)
    return None if text is None else int(text)


def check_arrival(options: Iterable[tuple[str, str]]) -> None:
    """Refuse what no stream can be like.

    >>> check_arrival([("scrambling", "4"), ("multiplicity", "5")])
    >>> check_arrival([("scrambling", "-1")])
    Traceback (most recent call last):
    penstock.sql.arrival.ArrivalError: scrambling '-1' is not a number of rows: it must be whole, and 0 or more
    """
    given = {name.lower(): _checked(name.lower(), value) for name, value in options if name.lower() in _LEAST}
    alike, apart = given.get(MULTIPLICITY), given.get(SCRAMBLING)
    if alike is not None and apart is not None and alike > apart + 1:
        raise ArrivalError(
            f"multiplicity {alike} and scrambling {apart} contradict each other: rows with one value count as out of "
            f"order, so that the scrambling is {alike - 1} or more",
            MULTIPLICITY,
        )


def _checked(name: str, value: str) -> int:
    """Read a number of rows."""
    text = value.strip()
    if not text.isdecimal() or not text.isascii() or len(text) > _MOST_DIGITS or int(text) < _LEAST[name]:
        raise ArrivalError(
            f"{name} {value!r} is not a number of rows: it must be whole, and {_LEAST[name]} or more", name
        )
    return int(text)
