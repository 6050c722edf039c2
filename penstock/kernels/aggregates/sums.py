"""SUM and AVG: floating point is summed as such, whole numbers and decimals exactly, in limbs of 32 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError, RunError
from penstock.kernels.aggregates.folded import Folded, counts_of, floats_of
from penstock.kernels.fold import (
    LIMB,
    carried,
    count,
    group_sums,
    is_too_large,
    limbs_of,
    to_decimals,
    to_ints,
)
from penstock.sql.spark_types import WHOLE_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from penstock.kernels.aggregates.folded import Numbers
    from penstock.kernels.key_hash import Ints

_LIMBS = ("0", "1", "2", "3")
_SMALL_SUM = 1 << 61
_WIDEST_LIMB = 1 << 61
"""Limbs are clipped here, far beyond what that of any sum that fits its type can be."""
_MOST_DIGITS = 38


class Sum(Folded):
    """A sum and the number of its values: n, and s as a float or limbs; t where 64 bits are known to be enough."""

    __slots__ = ()
    takes_distinct: ClassVar[bool] = True

    @classmethod
    def result_type(cls, function: str, arguments: Sequence[str]) -> str:
        """Return the type of a sum or an average, as Spark has it."""
        refuse_text(function, arguments[0])
        digits, scale = _decimal(arguments[0])
        if function == "sum" and digits:
            return f"decimal({min(digits + 10, _MOST_DIGITS)},{scale})"
        if digits:
            return f"decimal({min(digits + 4, _MOST_DIGITS)},{min(scale + 4, _MOST_DIGITS)})"
        return "bigint" if function == "sum" and arguments[0] in WHOLE_TYPES else "double"

    @classmethod
    def from_values(cls, function: str, column: pa.Array, ids: Ints, size: int) -> Self:
        """Sum the values of a column by group."""
        n = group_sums(ids, counts_of(column), size) if column.null_count else count(ids, size)
        if _is_float(column.type):
            return cls(function, {"n": n, "s": group_sums(ids, floats_of(column), size)}, pa.float64())
        return cls(function, {"n": n, **_exact_sum(column, ids, size)}, column.type)

    @classmethod
    def from_rows(cls, function: str, column: pa.Array) -> Self:
        """Return each value as a sum of one."""
        n = counts_of(column)
        if _is_float(column.type):
            return cls(function, {"n": n, "s": floats_of(column)}, pa.float64())
        return cls(function, {"n": n, **dict(zip(_LIMBS, limbs_of(column), strict=False))}, column.type)

    def by(self, ids: Ints, size: int) -> Self:
        """Fold entries by group."""
        folded = super().by(ids, size)
        return replace(folded, parts=_in_limbs(folded.parts))

    def plus(self, other: Self) -> Self:
        """Put entries together one by one."""
        both = super().plus(other)
        return replace(both, parts=_in_limbs(both.parts))

    def times(self, counts: Ints, rows: Ints, pairs: Ints) -> Self:
        """Count every entry as often as it meets rows of the other side.

        >>> rows, counts = np.array([2]), np.array([4])
        >>> summed = Sum("sum", {"n": rows, "s": np.array([1.5])}).times(counts, rows, rows * counts)
        >>> summed.parts["n"].tolist(), summed.parts["s"].tolist()
        ([8], [6.0])
        """
        parts = dict(_in_limbs(self.parts))
        if highest := max((limb for limb in _LIMBS if limb in parts), default=""):
            most = _WIDEST_LIMB // max(1, int(counts.max(initial=0)))
            parts[highest] = parts[highest].clip(-most, most)  # which is too large all the same
        parts = {name: pairs if part is rows else part * counts for name, part in parts.items()}
        return replace(self, parts=_in_limbs(parts))

    def stored(self) -> dict[str, pa.Array]:
        """Return the parts as columns."""
        return {name: pa.array(part) for name, part in _in_limbs(self.parts).items()}

    def finished(self, kind: pa.DataType) -> pa.Array:
        """Return sums or averages; null where there is no value."""
        n = self.parts["n"]
        as_float = self.function == "avg" and pa.types.is_floating(kind)
        total = self._float() if as_float else self._total(kind)
        if self.function == "avg":
            total = _averages(total, n, kind)
        if (n > 0).all():
            return total.cast(kind)
        return pc.if_else(pa.array(n > 0), total, pa.scalar(None, total.type)).cast(kind)

    @property
    def is_finished_by_sliding(self) -> bool:
        """A sum is what the pass adds up; an average is divided afterwards."""
        return self.function == "sum"

    def _float(self) -> pa.Array:
        """Return sums as floating point, which they always fit."""
        if "s" in self.parts:
            return pa.array(self.parts["s"])
        low, high = carried(self._limbs()[:2])
        return pa.array(high * float(1 << LIMB) + low)

    def _limbs(self) -> list[Ints]:
        """Return the limbs of sums."""
        if "t" in self.parts:
            return [self.parts["t"] & (1 << LIMB) - 1, self.parts["t"] >> LIMB]
        return [self.parts[limb] for limb in _LIMBS if limb in self.parts]

    def _total(self, kind: pa.DataType) -> pa.Array:
        """Return sums; one that does not fit its type is refused, as Spark refuses it."""
        if "s" in self.parts:
            return pa.array(self.parts["s"])
        limbs = self._limbs()
        if "t" not in self.parts and is_too_large(limbs):
            raise RunError(f"a SUM is too large for {kind}: CAST its argument to a wider type, or to DOUBLE")
        if len(limbs) == len(_LIMBS):
            assert self.kind is not None  # noqa: S101 - a sum knows what it sums
            return to_decimals(limbs, self.kind)
        total = pa.array(self.parts["t"] if "t" in self.parts else to_ints(limbs))
        if self.kind is not None and pa.types.is_duration(self.kind):
            return total.view(self.kind)
        return total


def _in_limbs(parts: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
    """Carry what is too large for a limb to the next, so that any number of sums can be summed again."""
    names = [limb for limb in _LIMBS if limb in parts]
    if not names:
        return parts
    return {**parts, **dict(zip(names, carried([parts[name] for name in names]), strict=True))}


def refuse_text(function: str, kind: str) -> None:
    """Refuse to add up texts."""
    if kind == "string":
        raise InputError(f"{function.upper()} of a STRING: CAST it to DOUBLE first")


def _is_float(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_string(kind)


def _decimal(kind: str) -> tuple[int, int]:
    """Return the digits of a decimal type, and how many of them come after the point; none for another type."""
    if not kind.startswith("decimal("):
        return 0, 0
    digits, _, scale = kind.removeprefix("decimal(").removesuffix(")").partition(",")
    return int(digits), int(scale or 0)


def _exact_sum(column: pa.Array, ids: Ints, size: int) -> Mapping[str, Numbers]:
    """Sum whole numbers or decimals by group, as limbs; small ones in one go."""
    limbs = limbs_of(column)
    if len(limbs) == 2 and len(column):  # noqa: PLR2004 - the two of a 64-bit number
        high = limbs[1]
        if (int(np.abs(high).max()) + 1) << LIMB < _SMALL_SUM // len(column):
            total = group_sums(ids, (high << LIMB) | limbs[0], size)
            limbs = [total & ((1 << LIMB) - 1), total >> LIMB]
            return dict(zip(_LIMBS, limbs, strict=False))
    return {name: group_sums(ids, limb, size) for name, limb in zip(_LIMBS, limbs, strict=False)}


def _averages(total: pa.Array, n: Ints, kind: pa.DataType) -> pa.Array:
    """Divide sums by counts; decimals are rounded half up to the scale of the result, intervals to microseconds."""
    counts = np.maximum(n, 1)
    if pa.types.is_duration(kind):
        micros = total.view(pa.int64()).to_numpy(zero_copy_only=False)
        whole, rest = np.divmod(np.abs(micros), counts)
        return pa.array(np.sign(micros) * (whole + (2 * rest >= counts))).view(kind)
    if not pa.types.is_decimal(kind):
        return pa.array(total.cast(pa.float64()).to_numpy(zero_copy_only=False) / counts)
    wide = total.cast(pa.decimal256(total.type.precision, total.type.scale))
    divided = pc.divide(wide, pa.array(counts).cast(pa.decimal256(19, 0)))
    return pc.round(divided, kind.scale, "half_towards_infinity").cast(kind)
