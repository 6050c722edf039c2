"""Interval predicates: conditions that bound the distance of two event times.

Spark and Flink users write their windows as predicates.  Each such comparison is linear in the two times, so it is a
bound on ``d = T_right - T_left``::

    r.ts BETWEEN l.ts - INTERVAL 10 SECONDS AND l.ts + INTERVAL 1 MINUTE

        r.ts >= l.ts - 10 s       d >= -10 s              lo = -10 s
        r.ts <= l.ts + 1 min      d <= 1 min              hi = 1 min + 1 µs  (hi is exclusive)

    ABS(r.ts - l.ts) <= INTERVAL 5 SECONDS                -5 s <= d <= 5 s
    CAST(r.ts AS LONG) - CAST(l.ts AS LONG) <= 60         d < 61 s, and Spark tests each pair
    window(l.ts, '1 minute') = window(r.ts, '1 minute')   -1 min < d < 1 min, and Spark tests each pair

Where times are compared as whole numbers (`penstock.sql.bind.linear`), rounding widens the bound.  Where the session's
zone has daylight saving, some comparisons go by the wall clock (`penstock.sql.zones`), and the shifts of that clock
widen the bound.  Spark tests each pair in both cases.

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
from penstock.sql.text.tree import ColumnRef, Form, Tree, columns_of, inside_call, run, unwrapped
from penstock.sql.text.windows import WindowSpec
from penstock.sql.zones import clock_shift, has_fixed_offset

Limits = tuple[tuple[int, ...], ...]

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""Comparisons under NOT; where one side is NULL, both forms are NULL."""


@dataclass(frozen=True, slots=True)
class TimeBound:
    """The differences ``lo <= d < hi`` that a predicate admits, in microseconds."""

    lo: int = -FOREVER + 1
    hi: int = FOREVER
    exact: bool = True
    """Whether it admits exactly what the predicate admits."""
    between: tuple[int, int] = (0, 1)
    """The numbers of the two sides, the left one first."""

    def intersected(self, other: TimeBound) -> TimeBound:
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
        """Whether one time is subtracted from the other before the comparison."""
        return any(side.left and side.right for side in (self.first, self.second))

    def bound(self) -> TimeBound | None:
        """Solve it for d, if it is a multiple of d and a constant."""
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
    """Read a comparison of two event times; None if it is anything else."""
    both = _two_times(scope, condition)
    if both is None or not isinstance(condition, Form):
        return None
    numbers, types = time_numbers(condition), {input_.stream.time_type for input_ in both}
    units = {number.unit for number in numbers}
    if len(units) > 1 or (types != {"timestamp"} and any(number.taken is None for number in numbers)):
        return None
    try:
        read = list(_comparisons(condition, both[0].side, units.pop() if units else 0))
    except CalendarError as error:
        raise scope.error(f"the interval of this window {error}", condition) from None
    bounds = [comparison.bound() if comparison else None for comparison in read]
    bound = reduce(TimeBound.intersected, (known for known in bounds if known), TimeBound())
    if not bounds or None in bounds:
        return None
    bound = replace(bound, between=(both[0].number, both[1].number))
    by_time = all(number.taken is None for number in numbers) if numbers else _is_elapsed_time(types, read)
    return bound if has_fixed_offset(scope.zone) or by_time else bound.widened(clock_shift(scope.zone))


def window_bound(scope: Scope, windows: Sequence[TimeWindow]) -> TimeBound | None:
    """Return the bound of two event times in equal windows; None if the columns are no event times."""
    columns = [unwrapped(window.value) for window in windows]
    sides = {column.side: column.name for column in columns if isinstance(column, ColumnRef)}
    inputs = [input_ for input_ in scope.inputs if sides.get(input_.side) == input_.stream.time]
    if len(inputs) < len(SIDES):
        return None
    first, second = sorted(input_.number for input_ in inputs)
    length = windows[0].length
    bound = TimeBound(1 - length, length, exact=False, between=(first, second))
    is_steady = has_fixed_offset(scope.zone) or all(window.kind != "date" for window in windows)
    return bound if is_steady else bound.widened(clock_shift(scope.zone))


def _is_elapsed_time(types: set[str], read: Sequence[_Comparison | None]) -> bool:
    """Check whether Spark compares elapsed time here, and not readings of the session's wall clock."""
    known = [comparison for comparison in read if comparison]
    spans = [abs(span) for pair in known for span in (*pair.first.spans, *pair.second.spans)]
    if types == {"timestamp_ntz"}:
        return True
    if types == {"timestamp"}:
        return sum(spans) < DAY and not any(comparison.subtracts for comparison in known)
    return all(span % DAY == 0 for span in spans)


def _comparisons(condition: Form, left: Side, unit: int) -> Iterator[_Comparison | None]:
    """Read the one or two comparisons of a condition; None for a comparison of another kind.

    `unit` is that of numbers that count time, in microseconds; 0: times are compared with intervals.
    """
    trees, operator = condition.trees, condition.head
    if operator == "NOT":
        inner = unwrapped(trees[0])
        trees, operator = (inner.trees, _NEGATED.get(inner.head, "")) if isinstance(inner, Form) else ((), "")
    if operator == "BETWEEN":
        value, low, high = (run(linear(part, left, unit)) for part in trees)
        for end, compared in ((low, ">="), (high, "<=")):
            yield _Comparison(value, compared, end) if value and end else None
    elif operator in {"=", *_NEGATED}:
        inside = inside_call(trees[0], "ABS(") if operator in {"<", "<="} else None
        first, second = (run(linear(part, left, unit)) for part in (inside or trees[0], trees[1]))
        if not first or not second or (inside and not second.is_constant):
            yield None
            return
        if inside and _is_negative(second, operator):
            first, second = (replace(side, below=Fraction(0), above=Fraction(0)) for side in (first, second))
        yield _Comparison(first, operator, second)
        if inside:
            yield _Comparison(first.times(-1), operator, second)


def _is_negative(number: Linear, operator: str) -> bool:
    """Check whether no absolute value is below a constant, so that the compared value does not matter."""
    most = number.micros + number.above
    return most < 0 or (most == 0 and operator == "<")


def on_two_times(scope: Scope, tree: Tree) -> bool:
    """Check whether all columns of a tree are the event times of two streams."""
    return _two_times(scope, tree) is not None


def _two_times(scope: Scope, tree: Tree) -> list[Input] | None:
    """Return the two streams whose event times are all the columns of a tree, in the order of their sides."""
    read = {(column.side, column.name) for column in columns_of(tree)}
    both = [input_ for input_ in scope.inputs if (input_.side, input_.stream.time) in read]
    only_times = len(both) == len(read) == len(SIDES)
    return sorted(both, key=lambda input_: input_.number) if only_times else None


def limits_of(windows: Sequence[WindowSpec], bounds: Iterable[TimeBound]) -> tuple[Limits, bool]:
    """Combine windows and bounds to limits, and return whether any result can be within them.

    If none can, the limits are the shortest possible.  Where a window counts rows, bounds on time do not limit the
    number of rows; they only have to be possible.
    """
    counted, inputs = any(window.kind == "rows" for window in windows), range(len(windows))
    table = _table([FOREVER if counted else window.length for window in windows])
    for bound in bounds:  # lo <= T_j - T_i < hi
        i, j = bound.between
        table[i][j] = min(table[i][j], bound.hi)
        table[j][i] = min(table[j][i], 1 - bound.lo)
    limits = closed(table, FOREVER)
    # no times fit if the limits put some row before itself
    possible = all(limits[i][j] + limits[j][i] > 1 for i in inputs for j in inputs)
    if possible and not counted:
        return limits, possible
    stated = _table([window.length if counted else 1 for window in windows])
    return tuple(map(tuple, stated)), possible


def _table(lengths: Sequence[int]) -> list[list[int]]:
    """Write windows as limits: row i meets the rows that come within its window after it."""
    count = len(lengths)
    return [[1 if i == j else lengths[i] for j in range(count)] for i in range(count)]
