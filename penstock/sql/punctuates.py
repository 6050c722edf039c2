"""What ``punctuates`` and ``unique`` say, read from their texts.

    item_id                      the value in the column of that name
    item_id = auction            the value in another column
    item_id IN items             any value of an array
    item_id BETWEEN lo AND hi    any value from one to another, both included

Several are separated by commas.  Left stands the column that is promised about, right where its values are read from.

In:  the text of an option.  Out: `Clause`s, with names as they are written; whose columns they are is not asked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import InputError, SqlError
from penstock.sql.text.tokens import Reader, Source
from penstock.sql.text.tree import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["value", "list", "range"]

FORMS = "write 'item_id', 'item_id = auction', 'item_id IN items', 'item_id BETWEEN lo AND hi', or several with commas"
"""What may stand in ``punctuates``."""

COLUMNS = "write 'item_id', or several columns with commas"
"""What may stand in ``unique``."""


class PromiseError(InputError):
    """An option about promises that cannot be right: which one, so that it can be pointed at, and why."""

    def __init__(self, message: str, option: str) -> None:
        """Keep the name of the option."""
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True)
class Clause:
    """One column that is promised about, and the columns that say for which values."""

    column: str
    kind: Kind
    low: str
    high: str = ""


def read_punctuates(text: str) -> list[Clause]:
    """Read the text of ``punctuates``.

    >>> for clause in read_punctuates("item_id, day between first AND last"):
    ...     print(clause)
    Clause(column='item_id', kind='value', low='item_id', high='')
    Clause(column='day', kind='range', low='first', high='last')
    """
    return _read_list("punctuates", text, FORMS, _clause)


def read_unique(text: str) -> list[Clause]:
    """Read the text of ``unique``: columns alone.

    >>> read_unique("item_id")
    [Clause(column='item_id', kind='value', low='item_id', high='')]
    """
    return _read_list("unique", text, COLUMNS, _bare)


def _read_list(option: str, text: str, forms: str, item: Callable[[Reader], Clause]) -> list[Clause]:
    """Read items that are separated by commas; each column may stand left once."""
    source, clauses = Source(text), list[Clause]()
    try:
        reader = Reader(source, source.tokens)
        while not clauses or reader.accept(","):
            clauses.append(item(reader))
        reader.end()
    except (SqlError, IndexError):  # a text without words has no place to point at
        raise PromiseError(f"{option} {text!r} cannot be read: {forms}", option) from None
    names = [each.column.lower() for each in clauses]
    twice = next((each.column for each in clauses if names.count(each.column.lower()) > 1), None)
    if twice:
        raise PromiseError(f"{option} names {twice} twice: a column can stand there once", option)
    return clauses


def _bare(reader: Reader) -> Clause:
    """Read one column."""
    column = reader.name("a column")
    return Clause(column, "value", column)


def _clause(reader: Reader) -> Clause:
    """Read one column, and where its values are read from."""
    column = reader.name("a column")
    if reader.accept("="):
        return Clause(column, "value", reader.name("a column"))
    if reader.accept("IN"):
        return Clause(column, "list", reader.name("a column"))
    if reader.accept("BETWEEN"):
        low = reader.name("a column")
        reader.expect("AND", FORMS)
        return Clause(column, "range", low, reader.name("a column"))
    return Clause(column, "value", column)


def written(column: str, kind: Kind, low: str, high: str) -> str:
    """Write a clause the one way it is written.

    >>> written("item_id", "value", "Item_Id", ""), written("day", "range", "first", "last")
    ('item_id', 'day BETWEEN first AND last')
    """
    name, first = quoted(column), quoted(low)
    if kind == "range":
        return f"{name} BETWEEN {first} AND {quoted(high)}"
    if kind == "list":
        return f"{name} IN {first}"
    return name if column.lower() == low.lower() else f"{name} = {first}"
