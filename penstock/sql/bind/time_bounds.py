"""Interval predicates: conditions between two event times that say how far apart they may be.

Spark and Flink users write their windows as predicates.  Each such comparison is linear in the two times, and
so is a bound on ``d = T_right - T_left``, the left one being of the side that comes first::

    r.ts BETWEEN l.ts - INTERVAL 10 SECONDS AND l.ts + INTERVAL 1 MINUTE

        r.ts >= l.ts - 10 s       d >= -10 s              lo = -10 s
        r.ts <= l.ts + 1 min      d <= 1 min              hi = 1 min + 1 µs  (hi is exclusive)

    ABS(r.ts - l.ts) <= INTERVAL 5 SECONDS                -5 s <= d <= 5 s
    CAST(r.ts AS LONG) - CAST(l.ts AS LONG) <= 60         d < 61 s, and Spark is asked about each pair
    window(l.ts, '1 minute') = window(r.ts, '1 minute')   -1 min < d < 1 min, and Spark is asked

Where times are compared as whole numbers (`penstock.sql.bind.linear`), the bound is as much wider as the numbers are
rounded.  Where the session's clock is put forward and back, some comparisons go by that clock and not by time
(`penstock.sql.zones`).  Their bound is as much wider as the clock may move.  Spark is asked about each pair then.

In:  canonical comparisons over the columns of sides.
Out: `TimeBound`s, intersected by `penstock.sql.bind.binder` and `penstock.sql.bind.time_bounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import ceil, floor

from penstock.sql.bind.canonical import MIRROR
from penstock.sql.bind.linear import CalendarError, Linear, linear, time_numbers
from penstock.sql.bind.scope import Input, Scope
from penstock.sql.bind.time_windows import TimeWindow
from penstock.sql.query import DAY, FOREVER, SIDES, Side, closed
from penstock.sql.text.tree import ColumnRef, Form, Tree, columns_of, run, unwrapped
from penstock.sql.text.windows import WindowSpec
from penstock.sql.zones import clock_shift, has_fixed_offset

Limits = tuple[tuple[int, ...], ...]

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""What a comparison becomes under NOT; where one side is NULL, both are NULL."""


@dataclass(frozen=True, slots=True)
class TimeBound:
    """The differences ``lo <= d < hi`` that one predicate admits, in microseconds."""

    lo: int = -FOREVER + 1
    hi: int = FOREVER
    exact: bool = True
    """Whether it admits no more than the predicate does."""
    between: tuple[int, int] = (0, 1)
    """The numbers of the two sides, the left one first."""

    def intersected(self, other: TimeBound) -> TimeBound:
        """Return the differences that both admit."""
        exact = self.exact and other.exact
        return replace(self, lo=max(self.lo, other.lo), hi=min(self.hi, other.hi), exact=exact)

    def widened(self, micros: int) -> TimeBound:
        """Move both ends outwards; the result is no longer exact."""
        lo, hi = max(self.lo - micros, -FOREVER + 1), min(self.hi + micros, FOREVER)
        return replace(self, lo=lo, hi=hi, exact=False)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """``first <operator> second``."""

    first: Linear
    operator: str
    second: Linear

    @property
    def subtracts(self) -> bool:
        """Return whether one time is subtracted from the other before they are compared."""
        return any(each.left and each.right for each in (self.first, self.second))

    def bound(self) -> TimeBound | None:
        """Solve it for d, when it is a multiple of d and a constant."""
        zero, operator = self.first.plus(self.second.times(-1)), self.operator
        if zero.right < 0:
            zero, operator = zero.times(-1), MIRROR[operator]
        if zero.right <= 0 or zero.left != -zero.right:
            return None
        # V <operator> 0 with zero - below <= V <= zero + above, and zero = right * d + micros
        most, least = (zero.below - zero.micros) / zero.right, (-zero.above - zero.micros) / zero.right
        bound = TimeBound(exact=not (zero.below or zero.above))
        if operator in {"=", "<", "<="}:
            bound = replace(bound, hi=min(FOREVER, ceil(most) if operator == "<" else floor(most) + 1))
        if operator in {"=", ">", ">="}:
            lo = floor(least) + 1 if operator == ">" else ceil(least)
            bound = replace(bound, lo=max(1 - FOREVER, lo))
        return bound


def read_bound(scope: Scope, condition: Tree) -> TimeBound | None:
    """Read a comparison of two event times; None when it is something else."""
    both = _two_times(scope, condition)
    if both is None or not isinstance(condition, Form):
        return None
    numbers, types = time_numbers(condition), {each.stream.time_type for each in both}
    units = {each.unit for each in numbers}
    if len(units) > 1 or (types != {"timestamp"} and any(each.taken is None for each in numbers)):
        return None
    try:
        read = list(_comparisons(condition, both[0].side, units.pop() if units else 0))
    except CalendarError as error:
        raise scope.error(f"the interval of this window {error}", condition) from None
    bounds = [each.bound() if each else None for each in read]
    bound = reduce(TimeBound.intersected, (each for each in bounds if each), TimeBound())
    if not bounds or None in bounds:
        return None
    bound = replace(bound, between=(both[0].number, both[1].number))
    by_time = all(each.taken is None for each in numbers) if numbers else _is_elapsed_time(types, read)
    return bound if has_fixed_offset(scope.zone) or by_time else bound.widened(clock_shift(scope.zone))


def window_bound(scope: Scope, windows: Sequence[TimeWindow]) -> TimeBound | None:
    """Return how far apart two event times in one window of a fixed length can be; None of other columns."""
    columns = [unwrapped(each.value) for each in windows]
    sides = {each.side: each.name for each in columns if isinstance(each, ColumnRef)}
    inputs = [each for each in scope.inputs if sides.get(each.side) == each.stream.time]
    if len(inputs) < len(SIDES):
        return None
    first, second = sorted(each.number for each in inputs)
    length = windows[0].length
    bound = TimeBound(1 - length, length, exact=False, between=(first, second))
    is_steady = has_fixed_offset(scope.zone) or all(each.kind != "date" for each in windows)
    return bound if is_steady else bound.widened(clock_shift(scope.zone))


def _is_elapsed_time(types: set[str], read: Sequence[_Comparison | None]) -> bool:
    """Check whether Spark compares elapsed time here, and not readings of the session's wall clock."""
    known = [each for each in read if each]
    spans = [abs(span) for each in known for span in (*each.first.spans, *each.second.spans)]
    if types == {"timestamp_ntz"}:
        return True
    if types == {"timestamp"}:
        return sum(spans) < DAY and not any(each.subtracts for each in known)
    return all(each % DAY == 0 for each in spans)


def _comparisons(condition: Form, left: Side, unit: int) -> Iterator[_Comparison | None]:
    """Read the comparisons that a condition stands for: one, or two that hold together; None for one not understood.

    `unit` is that of numbers that count time, in microseconds; 0: times are compared with intervals.
    """
    trees, operator = condition.trees, condition.head
    if operator == "NOT":
        inner = unwrapped(trees[0])
        trees, operator = (inner.trees, _NEGATED.get(inner.head, "")) if isinstance(inner, Form) else ((), "")
    if operator == "BETWEEN":
        value, low, high = (run(linear(each, left, unit)) for each in trees)
        for end, compared in ((low, ">="), (high, "<=")):
            yield _Comparison(value, compared, end) if value and end else None
    elif operator in {"=", *_NEGATED}:
        inside = _absolute(trees[0]) if operator in {"<", "<="} else None
        first, second = (run(linear(each, left, unit)) for each in (inside or trees[0], trees[1]))
        if not first or not second or (inside and not second.is_constant):
            yield None
            return
        if inside and _is_negative(second, operator):
            first, second = (replace(each, below=Fraction(0), above=Fraction(0)) for each in (first, second))
        yield _Comparison(first, operator, second)
        if inside:
            yield _Comparison(first.times(-1), operator, second)


def _absolute(tree: Tree) -> Tree | None:
    """Return what stands inside ``ABS(...)``."""
    return (
        tree.trees[0] if isinstance(tree, Form) and tree.parts[0] == "ABS(" and len(tree.trees) == 1 else None
    )


def _is_negative(number: Linear, operator: str) -> bool:
    """Check whether no absolute value is below a constant: what is compared need not be known then."""
    most = number.micros + number.above
    return most < 0 or (most == 0 and operator == "<")


def on_two_times(scope: Scope, tree: Tree) -> bool:
    """Check whether all columns of a tree are the event times of two streams."""
    return _two_times(scope, tree) is not None


def _two_times(scope: Scope, tree: Tree) -> list[Input] | None:
    """Return the two streams, in the order of their sides, whose event times are all the columns of a tree."""
    read = {(column.side, column.name) for column in columns_of(tree)}
    both = [each for each in scope.inputs if (each.side, each.stream.time) in read]
    only_times = len(both) == len(read) == len(SIDES)
    return sorted(both, key=lambda each: each.number) if only_times else None


def limits_of(windows: Sequence[WindowSpec], bounds: Iterable[TimeBound]) -> tuple[Limits, bool]:
    """Return the limits that windows and bounds leave, and whether any result can be within them.

    Where none can be, the limits are the shortest there are.  Bounds on time are no limits on a number of rows: where a
    window counts rows, they only have to be possible.
    """
    counted = any(each.kind == "rows" for each in windows)
    lengths = [FOREVER if counted else each.length for each in windows]
    limits = closed(_bounded(_table(lengths), bounds), FOREVER)
    possible = not _is_empty(limits)
    if possible and not counted:
        return limits, possible
    stated = _table([each.length if counted else 1 for each in windows])
    return tuple(map(tuple, stated)), possible


def _table(lengths: Sequence[int]) -> list[list[int]]:
    """Write windows as limits: a row is met by all that come less than its window after it, and by itself."""
    count = len(lengths)
    return [[1 if i == j else lengths[i] for j in range(count)] for i in range(count)]


def _bounded(limits: list[list[int]], bounds: Iterable[TimeBound]) -> list[list[int]]:
    """Shorten limits to what each bound ``lo <= T_j - T_i < hi`` leaves."""
    for bound in bounds:
        i, j = bound.between
        limits[i][j] = min(limits[i][j], bound.hi)
        limits[j][i] = min(limits[j][i], 1 - bound.lo)
    return limits


def _is_empty(limits: Limits) -> bool:
    """Say whether some row would have to be before itself: no times are within such limits."""
    count = range(len(limits))
    return any(limits[i][j] + limits[j][i] <= 1 for i in count for j in count)
