"""What is kept of an aggregate so that it can go on: its parts, folded by group, put together in any order.

    measure            parts                                  two of them make
    count              n                                      the sum
    sum, avg           n, limbs 0 1 (2 3) or a float s        the sums
    min, max           the value, as a number in its order    the lesser
    min_by, max_by     the pair (y, x), as its rank           the lesser
    stddev, var        n, mean, m2                            Chan's formula

A group that a part knows nothing of has n = 0, or no value.  Nothing is ever taken out again: what is left behind is
simply not folded.

In:  columns of pairs, or parts that were stored.  Out: parts by group, and the finished values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import RunError
from penstock.kernels.chosen_by import best_by_y, chosen_values, ordered_pairs
from penstock.kernels.fold import (
    LIMB,
    Ordered,
    add_into,
    carried,
    count,
    is_too_large,
    least,
    limbs_of,
    lower_into,
    number_groups,
    sum_floats,
    sum_ints,
    to_decimals,
    to_ints,
)
from penstock.sql.query import CHOSEN_BY, ENDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.kernels.fold import Mask
    from penstock.kernels.key_hash import Ints
    from penstock.kernels.slide import Seen, Sliding

    Numbers = NDArray[Any]
    """Whole numbers or floating point, each part its own."""

_MOST = np.iinfo(np.int64).max
_SPREADS = frozenset({"stddev_samp", "stddev_pop", "var_samp", "var_pop"})
_SUMS = frozenset({"sum", "avg"})
_GREATEST = frozenset({"max", "max_by"})
_SPREAD_PARTS = ("n", "mean", "m2")
_LIMBS = ("0", "1", "2", "3")
_SMALL_SUM = 1 << 61
_WIDEST_LIMB = 1 << 61
"""Limbs are clipped here, far beyond what that of any sum that fits its type can be."""


@dataclass(frozen=True, slots=True)
class Folded:
    """The parts of one measure, one entry for each group, or for each row before they are folded.

    `ordered` knows the values behind the numbers of a least or greatest one; `kind` is the type of the argument.
    """

    function: str
    parts: Mapping[str, Numbers]
    kind: pa.DataType | None = None
    ordered: Ordered | None = None
    valid: Mask | None = None
    """Of a least or greatest value: which entries have one."""

    @property
    def is_greatest(self) -> bool:
        """Return whether the greatest value is kept: its numbers are flipped, so that it is the least."""
        return self.function in _GREATEST

    # --- from rows ------------------------------------------------------------------------------------------------

    @classmethod
    def rows(cls, ids: Ints, size: int) -> Folded:
        """Count rows, whatever is in them."""
        return cls("count", {"n": count(ids, size)})

    @classmethod
    def values(cls, function: str, column: pa.Array, ids: Ints, size: int) -> Folded:
        """Fold the values of a column by group.

        >>> folded = Folded.values("sum", pa.array([5, 1, None]), np.array([0, 0, 1]), 2)
        >>> folded.finished(pa.int64()).to_pylist()
        [6, None]
        """
        kind = column.type
        if function in ENDS:
            if function in CHOSEN_BY:
                column, ids = best_by_y(column, ids, size, greatest=function in _GREATEST)
            ordered, numbers = _ordered(function, column)
            found, seen = least(ids, numbers, ordered.valid, size)
            return cls(function, {"v": np.where(seen, found, _MOST)}, kind, ordered, seen)
        valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        n = count(ids, size) if valid is None else sum_ints(ids, valid.astype(np.int64), size)
        if function == "count":
            return cls(function, {"n": n}, kind)
        if function in _SPREADS:
            return _spread_of(function, column, valid, ids, n)
        if pa.types.is_floating(kind) or pa.types.is_string(kind):
            floats = _floats(column)
            return cls(function, {"n": n, "s": sum_floats(ids, floats, size)}, pa.float64())
        return cls(function, {"n": n, **_exact_sum(column, ids, size)}, kind)

    @classmethod
    def each(cls, function: str, column: pa.Array) -> Folded | None:
        """Read every value of a column as an entry of its own, to be added to others.

        None for a least or greatest text, decimal or pair: those are numbers only among the values of one column.
        """
        kind = column.type
        if function in ENDS:
            ordered, numbers = _ordered(function, column)
            if ordered.values is not None:
                return None
            return cls(function, {"v": numbers}, kind, ordered, ordered.valid)
        valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
        n = np.ones(len(column), np.int64) if valid is None else valid.astype(np.int64)
        if function == "count":
            return cls(function, {"n": n}, kind)
        if function in _SPREADS:
            return cls(function, {"n": n, "mean": _floats(column), "m2": np.zeros(len(column))}, kind)
        if pa.types.is_floating(kind) or pa.types.is_string(kind):
            return cls(function, {"n": n, "s": _floats(column)}, pa.float64())
        return cls(function, {"n": n, **dict(zip(_LIMBS, limbs_of(column), strict=False))}, kind)

    # --- folded further -------------------------------------------------------------------------------------------

    def by(self, ids: Ints, size: int) -> Folded:
        """Fold entries by group."""
        if self.function in ENDS:
            assert self.valid is not None  # noqa: S101 - a least value always knows
            found, seen = least(ids, self.parts["v"], self.valid, size)
            return replace(self, parts={"v": np.where(seen, found, _MOST)}, valid=seen)
        if self.function in _SPREADS:
            return replace(self, parts=_merged_spread(self.parts, ids, size))
        return replace(self, parts=_in_limbs({n: _summed(ids, each, size) for n, each in self.parts.items()}))

    def plus(self, other: Folded) -> Folded:
        """Put entries together one by one; both have the same values behind their numbers.

        >>> one, other = (Folded("count", {"n": np.array(each)}) for each in ([1, 2], [5, 0]))
        >>> one.plus(other).parts["n"].tolist()
        [6, 2]
        """
        if self.function in _SPREADS:
            return replace(self, parts=_joined_spread(self.parts, other.parts))
        if self.valid is not None and other.valid is not None:
            lesser = np.minimum(self.parts["v"], other.parts["v"])
            return replace(self, parts={"v": lesser}, valid=self.valid | other.valid)
        return replace(self, parts=_in_limbs({n: each + other.parts[n] for n, each in self.parts.items()}))

    def slid(self, sliding: Sliding, seen: Seen, rows: Ints, counts: Ints) -> Folded:
        """Give what windows see that slide over some of the entries; `counts` says of how many pairs each entry is.

        Most measures slide together (`penstock.kernels.slide_measures`), the least and greatest among them.
        """
        if self.function in _SPREADS:
            n, mean, m2 = (self.parts[name][rows] for name in _SPREAD_PARTS)
            parts = dict(zip(_SPREAD_PARTS, sliding.spreads((n, mean, m2), seen), strict=True))
            return replace(self, parts=parts)
        summed = {
            name: seen.counts if each is counts else sliding.sums(each[rows], seen)
            for name, each in self.parts.items()
        }
        return replace(self, parts=summed)

    def times(self, counts: Ints, rows: Ints, pairs: Ints) -> Folded:
        """Count every entry as often as it meets rows of the other side: `rows` of this side and `counts` make `pairs`.

        >>> rows, counts = np.array([2]), np.array([4])
        >>> summed = Folded("sum", {"n": rows, "s": np.array([1.5])}).times(counts, rows, rows * counts)
        >>> summed.parts["n"].tolist(), summed.parts["s"].tolist()
        ([8], [6.0])
        """
        if self.function in ENDS:
            return self
        parts = dict(_in_limbs(self.parts))
        if highest := max((each for each in _LIMBS if each in parts), default=""):
            most = _WIDEST_LIMB // max(1, int(counts.max(initial=0)))
            parts[highest] = parts[highest].clip(-most, most)  # which is too large all the same
        for name, each in parts.items():
            if name != "mean":  # which stays the same
                parts[name] = pairs if each is rows else each * counts
        return replace(self, parts=_in_limbs(parts))

    def nothing(self, size: int) -> Folded:
        """Give so many entries that know nothing yet, of the same measure."""
        if self.function in ENDS:
            parts: dict[str, Numbers] = {"v": np.full(size, _MOST)}
        else:
            parts = {name: np.zeros(size, each.dtype) for name, each in self.parts.items()}
        return replace(self, parts=parts, valid=None if self.valid is None else np.zeros(size, np.bool_))

    def grown(self, size: int) -> Folded:
        """Give more entries, the new ones knowing nothing."""
        old = next(iter(self.parts.values())).size
        more = self.nothing(size)
        for name, each in self.parts.items():
            more.parts[name][:old] = each
        if self.valid is not None and more.valid is not None:
            more.valid[:old] = self.valid
        return more

    def add(self, ids: Ints, entries: Folded) -> Folded:
        """Take further entries into those with these numbers; this one's own arrays are changed, and given back."""
        if self.function in _SPREADS:
            numbers, firsts = number_groups([ids])
            known = {name: each[ids[firsts]] for name, each in self.parts.items()}
            joined = _joined_spread(known, entries.by(numbers, firsts.size).parts)
            for name, total in self.parts.items():
                total[ids[firsts]] = joined[name]
            return self
        if self.valid is not None and entries.valid is not None:
            lower_into(self.parts["v"], self.valid, ids, entries.parts["v"], entries.valid)
            return self
        for name, total in self.parts.items():
            add_into(total, ids, entries.parts[name])
        return self

    def at(self, entries: Ints | Mask | slice) -> Folded:
        """Take some of the entries."""
        parts = {name: each[entries] for name, each in self.parts.items()}
        return replace(self, parts=parts, valid=None if self.valid is None else self.valid[entries])

    # --- stored ---------------------------------------------------------------------------------------------------

    def stored(self) -> dict[str, pa.Array]:
        """Give the parts as columns."""
        if self.ordered is not None and self.valid is not None:
            numbers = self.parts["v"]
            return {"v": self.ordered.back(~numbers if self.is_greatest else numbers, self.valid)}
        return {name: pa.array(each) for name, each in _in_limbs(self.parts).items()}

    @classmethod
    def read(
        cls,
        function: str,
        columns: Mapping[str, pa.Array],
        kind: pa.DataType | None,
        known: Mapping[str, Numbers] | None = None,
    ) -> Folded:
        """Read parts that were stored, or are known without; `kind` is the type of the argument."""
        if function in ENDS:
            ordered, numbers = _ordered(function, columns["v"])
            values = np.where(ordered.valid, numbers, _MOST)
            return cls(function, {"v": values}, columns["v"].type, ordered, ordered.valid)
        parts = {name: each.to_numpy(zero_copy_only=False) for name, each in columns.items()}
        return cls(function, {**(known or {}), **parts}, kind)

    # --- finished -------------------------------------------------------------------------------------------------

    def finished(self, kind: pa.DataType) -> pa.Array:
        """Give the values of the measure, in the type that its result has."""
        if self.function in ENDS:
            value = self._end()
            return value if value.type == kind else value.cast(kind)
        n = self.parts["n"]
        if self.function == "count":
            return pa.array(n).cast(kind)
        if self.function in _SPREADS:
            return _finished_spread(self.function, self.parts).cast(kind)
        total = (
            self._total(kind) if self.function == "sum" or not pa.types.is_floating(kind) else self._float()
        )
        if self.function == "avg":
            total = _averages(total, n, kind)
        if (n > 0).all():
            return total.cast(kind)
        return pc.if_else(pa.array(n > 0), total, pa.scalar(None, total.type)).cast(kind)

    def _end(self) -> pa.Array:
        """Return the least or greatest values, or those that are chosen by them."""
        if "bits" in self.parts and self.ordered is not None and self.valid is not None:
            found = self.ordered.of_bits(self.parts["bits"], self.valid)
        else:
            found = self.stored()["v"]
        return chosen_values(found) if self.function in CHOSEN_BY else found

    def _float(self) -> pa.Array:
        """Put sums together as floating point, which they always fit."""
        if "s" in self.parts:
            return pa.array(self.parts["s"])
        low, high = carried(self._limbs()[:2])
        return pa.array(high * float(1 << LIMB) + low)

    def _limbs(self) -> list[Ints]:
        """Give the limbs of sums; of those that are known to fit 64 bits, as many as these have."""
        if "t" in self.parts:
            return [self.parts["t"] & (1 << LIMB) - 1, self.parts["t"] >> LIMB]
        return [self.parts[each] for each in _LIMBS if each in self.parts]

    def _total(self, kind: pa.DataType) -> pa.Array:
        """Put sums together; one that no longer fits its type is refused, as Spark refuses it."""
        if "s" in self.parts:
            return pa.array(self.parts["s"])
        limbs = self._limbs()
        is_decimal = len(limbs) == len(_LIMBS)
        if "t" not in self.parts and is_too_large(limbs):
            raise RunError(f"a SUM is too large for {kind}: CAST its argument to a wider type, or to DOUBLE")
        if is_decimal:
            assert self.kind is not None  # noqa: S101 - a sum knows what it sums
            return to_decimals(limbs, self.kind)
        total = pa.array(self.parts["t"] if "t" in self.parts else to_ints(limbs))
        if self.kind is not None and pa.types.is_duration(self.kind):
            return total.view(self.kind)
        return total


def _ordered(function: str, column: pa.Array) -> tuple[Ordered, Ints]:
    """Order the values of a least or greatest one, and number them so that the least number is looked for."""
    greatest = function in _GREATEST
    ordered = ordered_pairs(column, greatest=greatest) if function in CHOSEN_BY else Ordered.of(column)
    return ordered, ~ordered.numbers if greatest else ordered.numbers


def _in_limbs(parts: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
    """Carry what is too large for a limb to the next, so that however many sums can be summed again."""
    names = [each for each in _LIMBS if each in parts]
    if not names:
        return parts
    return {**parts, **dict(zip(names, carried([parts[each] for each in names]), strict=True))}


def _summed(ids: Ints, values: Numbers, size: int) -> Numbers:
    if values.dtype == np.float64:
        return sum_floats(ids, values, size)
    return sum_ints(ids, values, size)


def _floats(column: pa.Array) -> NDArray[np.float64]:
    """Read numbers as floating point; null counts as 0."""
    floats = column.cast(pa.float64())
    known = floats.fill_null(0) if floats.null_count else floats
    return np.asarray(known.to_numpy(zero_copy_only=False))


def _exact_sum(column: pa.Array, ids: Ints, size: int) -> dict[str, Numbers]:
    """Sum whole numbers or decimals by group, as limbs; small ones in one go."""
    limbs = limbs_of(column)
    if len(limbs) == 2 and len(column):  # noqa: PLR2004 - the two of a 64-bit number
        high = limbs[1]
        if (int(np.abs(high).max()) + 1) << 32 < _SMALL_SUM // len(column):
            total = sum_ints(ids, (high << 32) | limbs[0], size)
            limbs = [total & ((1 << 32) - 1), total >> 32]
            return dict(zip(_LIMBS, limbs, strict=False))
    return {name: sum_ints(ids, each, size) for name, each in zip(_LIMBS, limbs, strict=False)}


def _spread_of(function: str, column: pa.Array, valid: Mask | None, ids: Ints, n: Ints) -> Folded:
    """Fold numbers to their count, mean and sum of squared distances from it."""
    floats = _floats(column)
    ones = np.ones(len(column), np.int64) if valid is None else valid.astype(np.int64)
    parts = {"n": ones, "mean": floats, "m2": np.zeros(len(column))}
    return Folded(function, _merged_spread(parts, ids, n.size), column.type)


def _merged_spread(parts: Mapping[str, Numbers], ids: Ints, size: int) -> dict[str, Numbers]:
    """Merge counts, means and squared distances: each part's mean is as far from the common one as it is."""
    n = sum_ints(ids, parts["n"], size)
    known, near = parts["n"] > 0, np.zeros(size)
    near[ids[known]] = parts["mean"][known]  # one of its values, from which the others are not far
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        weighted = np.where(known, parts["n"] * (parts["mean"] - near[ids]), 0.0)
        mean = np.where(n > 0, near + sum_floats(ids, weighted, size) / n, 0.0)
        apart = np.where(parts["n"] > 0, parts["n"] * (parts["mean"] - mean[ids]) ** 2, 0.0)
    m2 = sum_floats(ids, parts["m2"] + apart, size)
    return {"n": n, "mean": mean, "m2": m2}


def _joined_spread(one: Mapping[str, Numbers], other: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Merge counts, means and squared distances entry by entry."""
    n = one["n"] + other["n"]
    share = other["n"] / np.maximum(n, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        return _joined_at(one, other, n, share)


def _joined_at(
    one: Mapping[str, Numbers], other: Mapping[str, Numbers], n: Ints, share: Numbers
) -> dict[str, Numbers]:
    """Merge them, the second counting for a share."""
    apart = other["mean"] - one["mean"]
    return {
        "n": n,
        "mean": np.where(
            one["n"] == 0, other["mean"], one["mean"] + np.where(other["n"] == 0, 0, apart * share)
        ),
        "m2": one["m2"]
        + other["m2"]
        + np.where((one["n"] == 0) | (other["n"] == 0), 0, apart**2 * one["n"] * share),
    }


def _finished_spread(function: str, parts: Mapping[str, Numbers]) -> pa.Array:
    """Give variances or their roots: of a sample of one there is none, as in Spark."""
    n = parts["n"]
    of_sample = function.endswith("samp")
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = np.where(np.isfinite(parts["mean"]), parts["m2"], np.nan)
        variance = squares / (n - 1 if of_sample else n)
        values = np.sqrt(variance) if function.startswith("stddev") else variance
    return pa.array(values, mask=n < (2 if of_sample else 1), from_pandas=False)


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
