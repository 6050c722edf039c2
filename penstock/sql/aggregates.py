"""The aggregate functions by name, and what SQL needs to know of each.

An aggregate function is one class, a `penstock.kernels.aggregates.folded.Folded`, and one line in `AGGREGATES`.  The
line names the class, which is imported when a query first uses one of its functions, and the names that SQL has for
them.  Several names may mean one function, and one class may fold several functions.

In:  a name in SQL.  Out: its function, and the class.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sql.text.tree import Tree

AGGREGATES: dict[str | type[AggregateSyntax], Mapping[str, str]] = {
    "penstock.kernels.aggregates.count:Count": {"COUNT": "count", "COUNT_IF": "count"},
    "penstock.kernels.aggregates.sums:Sum": {"SUM": "sum", "AVG": "avg", "MEAN": "avg"},
    "penstock.kernels.aggregates.extremes:Extreme": {
        **dict.fromkeys(("MIN", "BOOL_AND", "EVERY"), "min"),
        **dict.fromkeys(("MAX", "BOOL_OR", "ANY", "SOME"), "max"),
    },
    "penstock.kernels.aggregates.chosen_by:ChosenBy": {"MIN_BY": "min_by", "MAX_BY": "max_by"},
    "penstock.kernels.aggregates.spreads:Spread": {
        **dict.fromkeys(("STDDEV", "STD", "STDDEV_SAMP"), "stddev_samp"),
        **dict.fromkeys(("VARIANCE", "VAR_SAMP"), "var_samp"),
        "STDDEV_POP": "stddev_pop",
        "VAR_POP": "var_pop",
    },
}
"""The functions of each class, by all names that SQL has for them; a class, or the module and name it has."""


class AggregateSyntax:
    """How an aggregate function is written: the part of `Folded` that SQL needs."""

    __slots__ = ()
    takes_distinct: ClassVar[bool] = False
    """Whether DISTINCT changes the result, and is supported."""
    compares: ClassVar[bool] = False
    """Whether the last argument is compared, so that it needs an order; DISTINCT then makes no difference."""
    adds: ClassVar[bool] = True
    """Whether the arguments are added up, so that they must be numbers."""
    of_conditions: ClassVar[frozenset[str]] = frozenset()
    """The names that take a condition only."""

    @classmethod
    def wrong_number(cls, name: str, count: int) -> str:
        """Return what is wrong with this number of arguments; empty if nothing is."""
        return "" if count == 1 else f"{name} takes one argument, and this call has {count}: write {name}(x)"

    @classmethod
    def taken(cls, _name: str, arguments: list[Tree], *, distinct: bool) -> list[Tree]:  # noqa: ARG003 - overridden
        """Return the expressions that are folded, computed for each pair; the same form for all names."""
        return arguments

    @classmethod
    def result_type(cls, function: str, arguments: Sequence[str]) -> str:
        """Return the Spark SQL type of the result, by the types of the arguments; empty if only Spark knows."""
        raise NotImplementedError

    @classmethod
    def in_duckdb(cls, function: str, arguments: Sequence[str], *, distinct: bool) -> str:
        """Write the call in DuckDB's SQL, for tests that compare results with DuckDB's."""
        return f"{function}({'DISTINCT ' if distinct else ''}{', '.join(arguments)})"


def function_of(name: str) -> str:
    """Return the function that SQL calls by a name, in upper case; empty if there is none.

    >>> function_of("MEAN"), function_of("MEDIAN")
    ('avg', '')
    """
    return next((functions[name] for functions in AGGREGATES.values() if name in functions), "")


def aggregate_class(function: str) -> type[AggregateSyntax]:
    """Return the class of a function."""
    entry = next(entry for entry, functions in AGGREGATES.items() if function in functions.values())
    return resolve_name(entry) if isinstance(entry, str) else entry


def takers_of_distinct() -> list[str]:
    """List the functions that can be called with DISTINCT."""
    found = (name for functions in AGGREGATES.values() for name in dict.fromkeys(functions.values()))
    return [
        function.upper()
        for function in found
        if "_" not in function
        and (aggregate_class(function).takes_distinct or aggregate_class(function).compares)
    ]
