"""COUNT and COUNT_IF: how many pairs a group has, or how many values other than NULL."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from penstock.kernels.aggregates.folded import Folded, counts_of
from penstock.kernels.fold import count
from penstock.sql.bind.aggregates import ONE, is_literal, is_not_null, when
from penstock.sql.text.tree import chain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from penstock.kernels.key_hash import Ints
    from penstock.sql.text.tree import Tree


class Count(Folded):
    """The number of values: part n."""

    __slots__ = ()
    takes_distinct: ClassVar[bool] = True
    adds: ClassVar[bool] = False

    @classmethod
    def wrong_number(cls, name: str, count: int) -> str:
        """Take any number of arguments, but at least one."""
        if name == "COUNT":
            return "" if count else "COUNT counts nothing: write COUNT(*), or COUNT(column)"
        return super().wrong_number(name, count)

    @classmethod
    def taken(cls, name: str, arguments: list[Tree], *, distinct: bool) -> list[Tree]:
        """Return what is NULL for a pair that does not count; nothing where every pair counts."""
        if name == "COUNT_IF":
            return [when(arguments[0], ONE)]
        if distinct or not arguments:
            return arguments
        if len(arguments) > 1:
            return [when(chain("AND", [is_not_null(argument) for argument in arguments]), ONE)]
        return [] if is_literal(arguments[0]) else arguments

    @classmethod
    def result_type(cls, _function: str, _arguments: Sequence[str]) -> str:
        """Return the type of a count."""
        return "bigint"

    @classmethod
    def in_duckdb(cls, function: str, arguments: Sequence[str], *, distinct: bool) -> str:
        """Write the call; several values are one row, and a null among them is no value."""
        if len(arguments) > 1:
            given = " AND ".join(f"{argument} IS NOT NULL" for argument in arguments)
            arguments = [f"CASE WHEN {given} THEN row({', '.join(arguments)}) END"]
        return super().in_duckdb(function, arguments or ["*"], distinct=distinct)

    @classmethod
    def from_values(cls, function: str, column: pa.Array, ids: Ints, size: int) -> Self:
        """Count values by group."""
        if column.null_count:
            return super().from_values(function, column, ids, size)
        return cls(function, {"n": count(ids, size)}, column.type)

    @classmethod
    def from_rows(cls, function: str, column: pa.Array) -> Self:
        """Count each value once."""
        return cls(function, {"n": counts_of(column)}, column.type)

    def finished(self, kind: pa.DataType) -> pa.Array:
        """Return the counts."""
        return pa.array(self.parts["n"]).cast(kind)

    @property
    def is_finished_by_sliding(self) -> bool:
        """A count is what the pass adds up."""
        return True


def counted(n: Ints) -> Count:
    """Return groups that have these numbers of pairs."""
    return Count("count", {"n": n})


def count_rows(ids: Ints, size: int) -> Count:
    """Count rows by group, whatever is in them."""
    return counted(count(ids, size))
