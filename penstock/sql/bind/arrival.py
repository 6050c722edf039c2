"""What a stream declares about the order in which its rows arrive, for joins without a window.

``ordered`` names the column whose order the rows roughly follow.  ``scrambling`` is the maximum number of positions by
which a row may be out of order, ``multiplicity`` the maximum number of rows with one value
(`penstock.plan.characteristics` has the definitions).  Both are measured where they are not declared.  A stream with a
``scrambling`` and no ``ordered`` follows the column that it is joined on, whichever that is.

In:  a `Stream` with its options.  Out: numbers and a column name, or an error that names the option.
True: a multiplicity of m goes with a scrambling of at least m - 1, since rows with one value count as out of order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.sql.query import Stream

SCRAMBLING, MULTIPLICITY, ORDERED = "scrambling", "multiplicity", "ordered"
ARRIVAL_OPTIONS = frozenset({SCRAMBLING, MULTIPLICITY, ORDERED})
"""Options of a stream that say how its rows arrive; they are ours, and Spark's source does not see them."""

_KINDS = {
    "whole numbers": ("tinyint", "smallint", "int", "bigint"),
    "floating-point numbers": ("float", "double"),
    "decimals": ("decimal",),
    "dates": ("date",),
    "timestamps": ("timestamp",),
    "timestamps without a zone": ("timestamp_ntz",),
}
KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
"""The types that have an order a stream can follow, and what their values are."""

_LEAST = {SCRAMBLING: 0, MULTIPLICITY: 1}
_MOST_DIGITS = 15


class ArrivalError(InputError):
    """An option about arrival that no stream can have; `option` names it."""

    def __init__(self, message: str, option: str) -> None:
        """Keep the option, so that a script can point at it."""
        super().__init__(message)
        self.option = option


def known_scrambling(stream: Stream) -> int | None:
    """Return the scrambling that a stream is declared with; None: it is measured."""
    return _number(stream, SCRAMBLING)


def known_multiplicity(stream: Stream) -> int | None:
    """Return the multiplicity that a stream is declared with; None: it is measured."""
    return _number(stream, MULTIPLICITY)


def ordered_column(stream: Stream) -> str:
    """Return the column whose order a stream declares to follow; empty if it names none."""
    return dict(stream.options).get(ORDERED, "")


def _number(stream: Stream, name: str) -> int | None:
    text = dict(stream.options).get(name)
    return None if text is None else int(text)


def settled_arrival(stream: Stream) -> Stream:
    """Return a stream whose ``ordered`` is a column name as declared; refuse what no stream can be like.

    >>> from penstock.sql.query import Column, Stream
    >>> columns = (Column("epoch", "bigint"), Column("name", "string"))
    >>> settled_arrival(Stream("S", columns, "", options=(("ordered", "Epoch"),))).options
    (('ordered', 'epoch'),)
    >>> settled_arrival(Stream("S", columns, "", options=(("scrambling", "-1"),)))
    Traceback (most recent call last):
    penstock.sql.bind.arrival.ArrivalError: scrambling '-1' is not a number of rows: it must be whole, and 0 or more
    """
    _check_numbers(stream.options)
    if not any(name == ORDERED for name, _ in stream.options):
        return stream
    column = _ordered(stream, ordered_column(stream).strip())
    return replace(
        stream, options=tuple((name, column if name == ORDERED else value) for name, value in stream.options)
    )


def _ordered(stream: Stream, name: str) -> str:
    """Find the column that ``ordered`` names, and check that its type has an order that a stream can follow."""
    column = stream.column(name)
    if column is None:
        hint = did_you_mean(name, [each.name for each in stream.columns])
        raise ArrivalError(f"ordered column {name} is not a column of {stream.name}: {hint}", ORDERED)
    if column.type.split("(")[0] not in KIND_OF:
        raise ArrivalError(
            f"ordered column {column.name} of {stream.name} is {column.type}, which has no order that streams follow. "
            "Name a column of numbers, dates or timestamps",
            ORDERED,
        )
    return column.name


def _check_numbers(options: Iterable[tuple[str, str]]) -> None:
    """Refuse numbers of rows that cannot be, alone or together."""
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
