"""Windows that slide over entries: each sees what nested loops over the entries find.

cuts          0        1        2              a window that begins at cut 1 sees cells 1 and 2
entries       |  a  b  |   a    |   b   |
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.join.measures import Folded
from penstock.join.slide import NOT_ASKED, Sliding, order_by
from tests.join.drawn import examples
from tests.join.test_fold import TYPES
from tests.join.test_measures import plain, some_kind

GROUPS, CUTS, INSTANTS = 3, 4, 3

asked_by_instant = st.lists(
    st.lists(st.integers(NOT_ASKED, CUTS - 1), min_size=2, max_size=2),
    min_size=INSTANTS,
    max_size=INSTANTS,
)


def falling(cuts):
    """Put the cuts of an instant in the order of windows that grow; who does not ask may stand anywhere."""
    known = iter(sorted((each for each in cuts if each != NOT_ASKED), reverse=True))
    return [each if each == NOT_ASKED else next(known) for each in cuts]


@examples(60)
@given(chosen=some_kind, asked=asked_by_instant, data=st.data())
def test_each_window_sees_what_is_born_by_the_instant_from_its_cut_on(chosen, asked, data):
    function, kind = chosen
    values = (1.5, 2.0, float("nan")) if kind == "double" else TYPES[kind][1]
    group, cut, born = (st.integers(0, most - 1) for most in (GROUPS, CUTS, INSTANTS))
    rows = data.draw(st.lists(st.tuples(born, cut, group, st.none() | st.sampled_from(values)), max_size=25))
    rows.sort(key=lambda row: row[0])
    windows = np.array([falling(each) for each in asked], np.int64)
    upto = np.array([sum(born <= at for born, *_ in rows) for at in range(INSTANTS)], np.int64)
    at = np.array([cut * GROUPS + group for _, cut, group, _ in rows], np.int64)
    sliding = Sliding(at, upto, windows, GROUPS, CUTS)
    counts = np.ones(len(rows), np.int64)
    seen = sliding.seen(counts)

    column = pa.array([value for *_, value in rows], TYPES[kind][0])
    each = Folded.values(function, column, np.arange(len(rows)), len(rows))
    got = plain(each.slid(sliding, seen, np.arange(len(rows)), counts))

    right = []
    for window in range(windows.shape[1]):
        for instant in range(INSTANTS):
            since = windows[instant, window]
            for group in range(GROUPS):
                mine = [
                    n
                    for n, (born, cut, g, _) in enumerate(rows)
                    if g == group and born <= instant and cut >= since and since != NOT_ASKED
                ]
                if mine:
                    whole = Folded.values(function, column.take(mine), np.zeros(len(mine), np.int64), 1)
                    right.append((group, len(mine), *plain(whole)))
    assert list(zip(seen.groups.tolist(), seen.counts.tolist(), got, strict=True)) == right


@examples(25)
@given(codes=st.lists(st.integers(0, 5), max_size=20))
def test_rows_in_the_order_of_their_codes_keep_their_own_order(codes):
    rows, ends = order_by(np.array(codes, np.int64), 6)
    assert rows.tolist() == sorted(range(len(codes)), key=lambda row: codes[row])
    assert ends.tolist() == [sum(each <= code for each in codes) for code in range(6)]
