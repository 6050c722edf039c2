"""Count the rows of use, slice by slice: the state that the papers speak of.

A left row is in the slice of age ``a`` when the right stream's watermark is ``a`` beyond it, and it is there only if
some query that reads this slice, or a later one, accepts it.  So each row is in one slice, or in none any more::

    watermark of the partner                              W
    row at T                     T ------ age = W - T ----|
    slices                       ...  [10, 60)  |  [0, 10)

Rows younger than the watermark (their partner's stream is behind) are in the youngest slice.

In:  the segments of a log and one group's claim on it.  Out: how many rows each slice of that side holds.
The count is exact; it reads the time and pattern columns of the segments, so it is for looking, not for every batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.log.keep import live_rows
from penstock.log.segment import read_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.join.keys import Ints
    from penstock.log.files import Files
    from penstock.log.keep import Horizon
    from penstock.log.segment import Segment


def rows_per_slice(files: Files, segments: Iterable[Segment], claim: Horizon, ends: Sequence[int]) -> Ints:
    """Count a side's rows of use by slice; `ends` are the far ends of the slices' ages.

    Where an end is not known yet (a new number of rows), it is no farther than the next one that is, and rows that are
    held to be safe are in the last slice.
    """
    counts = np.zeros(len(ends), np.int64)
    known = np.minimum.accumulate(np.asarray(ends)[::-1])[::-1]
    for segment in segments:
        rows = read_segment(files, segment)
        live = live_rows(rows, [claim])
        if claim.watermark is None:
            counts[0] += int(live.sum())
            continue
        ages = claim.watermark - rows.rows.t[live]
        place = np.minimum(np.searchsorted(known, ages, "right"), len(ends) - 1)
        counts += np.bincount(place, minlength=len(ends))
    return counts
