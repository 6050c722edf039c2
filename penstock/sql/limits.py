"""How far apart in time the rows of a result may be, for every two streams of many: the limits of a `JoinGraph`.

Of three streams A, B and C, the windows are rows of a table and the conditions are single entries of it::

    A [RANGE 10 s], B [RANGE 5 s], C [NOW]                          T_j - T_i < limits[i][j]
    B.ts <= A.ts + INTERVAL 2 SECONDS
                                                 A           B           C
                                          A      .      2 s + 1 µs     10 s
                                          B     5 s          .          5 s
                                          C    1 µs        1 µs          .

and the way round over a third stream may shorten an entry further (`penstock.sql.graph.closed`).

In:  the window of each stream, and the bounds that conditions state.
Out: the closed limits, and whether they leave any result.  Where windows count rows, the limits as they are stated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.graph import closed
from penstock.sql.query import FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.sql.bind.time_bounds import Bound
    from penstock.sql.text.windows import WindowSpec

    Limits = tuple[tuple[int, ...], ...]


def limits_of(windows: Sequence[WindowSpec], bounds: Iterable[Bound]) -> tuple[Limits, bool]:
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


def _bounded(limits: list[list[int]], bounds: Iterable[Bound]) -> list[list[int]]:
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
