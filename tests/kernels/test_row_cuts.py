"""Pairs by row_cuts are the pairs of nested loops that count rows between them."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.tasks.row_windows import Counting
from penstock.kernels.reference import difference_in_rows, nested_loop_join
from penstock.kernels.row_cuts import probe_row_cuts
from penstock.sql.query import Range
from penstock.state.files import open_files
from penstock.state.row_times import LONG_AGO, Roll, write_times
from tests.kernels.drawn import as_rows, events


def roll_of(files, name, rows, until):
    """Seal all rows below a horizon in one piece."""
    times = np.array([each.time for each in rows if each.time < until], np.int64)
    pieces = (write_times(files, name, times, first=0, last=times.size - 1),) if times.size else ()
    return Roll(until, pieces)


lengths = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)


@given(
    streams=st.tuples(events(), events()),
    cuts=st.tuples(lengths, lengths),
    rows=st.sampled_from(((True, True), (True, False), (False, True))),
    horizons=st.tuples(st.integers(-13, 13), st.integers(0, 26)),
)
def test_a_ladder_finds_what_counting_in_nested_loops_finds(tmp_path_factory, streams, cuts, rows, horizons):
    """Rows between two horizons are new; each pair of a new row with any other below is found once, with its level."""
    left, right = streams
    since, until = horizons[0], horizons[0] + horizons[1]
    files = open_files(str(tmp_path_factory.mktemp("row_cuts")), sync=False)
    counting = Counting(
        rows, (roll_of(files, "l", left, until), roll_of(files, "r", right, until)), since, until
    )
    edges = [*(-each for each in sorted(cuts[1], reverse=True)), 0, *sorted(cuts[0])]
    axis = counting.axis(files, edges, np.empty((0, 1), np.uint64))
    found = Counter()
    for batch_is_left in (True, False):
        batch, mine, _ = as_rows(left if batch_is_left else right)
        state, theirs, _ = as_rows(right if batch_is_left else left)
        pairs = probe_row_cuts(
            batch,
            state,
            axis.left if batch_is_left else axis.right,
            batch_times=(since, until - 1),
            state_times=(LONG_AGO, until - 1 if batch_is_left else since - 1),
        )
        for part in pairs:
            for i, j, level in zip(part.batch, part.state, part.level, strict=True):
                one, other = (mine[i], theirs[j]) if batch_is_left else (theirs[j], mine[i])
                found[one.name, other.name, int(level)] += 1
    below = [[each for each in side if each.time < until] for side in (left, right)]
    measure = difference_in_rows(*([each.time for each in side] for side in below), rows)
    assert found == Counter(
        (a.name, b.name, level)
        for level, (lo, hi) in enumerate(pairwise(edges))
        for a, b in nested_loop_join(*below, Range(lo, hi), difference=measure).elements()
        if max(a.time, b.time) >= since
    )
