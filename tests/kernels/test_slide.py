"""Windows that slide over entries: each sees what nested loops over the entries find.

cuts          0        1        2              a window that begins at cut 1 sees cells 1 and 2
entries       |  a  b  |   a    |   b   |

Of two sides it sees the pairs of their rows.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RunError
from penstock.kernels import slide_pass
from penstock.kernels.aggregates.folded import fold_values
from penstock.kernels.aggregates.sums import Sum
from penstock.kernels.slide import NOT_ASKED, Sliding, WindowAnswers, order_by
from penstock.kernels.slide_measures import EntryRun, goes_by_runs, laid_in
from penstock.kernels.slide_pass import slide_parts
from tests.kernels.drawn import examples
from tests.kernels.test_aggregates import KINDS, plain, some_kind
from tests.kernels.test_fold import BIG

GROUPS, CUTS, INSTANTS = 3, 8, 3

asked_by_instant = st.lists(
    st.lists(st.integers(NOT_ASKED, CUTS - 1), min_size=2, max_size=2),
    min_size=INSTANTS,
    max_size=INSTANTS,
)
more_kinds = some_kind | st.sampled_from(
    [("sum", "bigint"), ("avg", "double"), ("max", "bigint"), ("min", "float"), ("min", "date"),
     ("max", "boolean"), ("sum", "interval")]
)  # fmt: skip


def falling(cuts):
    """Put the cuts of an instant in the order of windows that grow; who does not ask may stand anywhere."""
    known = iter(sorted((each for each in cuts if each != NOT_ASKED), reverse=True))
    return [each if each == NOT_ASKED else next(known) for each in cuts]


def values_of(kind):
    return (1.5, 2.0, float("nan")) if kind in {"double", "float"} else KINDS[kind][1]


class Side:
    """Drawn rows of one side, in order of birth, each with a value for each of some measures."""

    def __init__(self, data, asked):
        self.chosen = data.draw(st.lists(more_kinds, max_size=3))
        values = [st.none() | st.sampled_from(values_of(kind)) for _, kind in self.chosen]
        group, cut, born = (st.integers(0, most - 1) for most in (GROUPS, CUTS, INSTANTS))
        self.rows = data.draw(st.lists(st.tuples(born, cut, group, *values), max_size=25))
        self.rows.sort(key=lambda row: row[0])
        self.all_rows, self.counts = np.arange(len(self.rows)), np.ones(len(self.rows), np.int64)
        of_run = data.draw(st.lists(st.integers(0, 2), min_size=len(self.rows), max_size=len(self.rows)))
        if not all(goes_by_runs(each) for each in self.measures()):
            of_run = [0] * len(self.rows)
        self.runs = [np.flatnonzero(np.array(of_run, np.int64) == number) for number in {0, *of_run}]
        self.slidings = [self.sliding(rows.tolist(), asked) for rows in self.runs]

    def sliding(self, rows, asked):
        upto = [sum(self.rows[n][0] <= at for n in rows) for at in range(INSTANTS)]
        at = np.array([self.rows[n][1] * GROUPS + self.rows[n][2] for n in rows], np.int64)
        return Sliding(at, np.array(upto, np.int64), asked, GROUPS, CUTS)

    def measures(self):
        size = len(self.rows)
        return [
            fold_values(function, column, self.all_rows, size)
            for (function, _), column in zip(self.chosen, self.columns, strict=True)
        ]

    @property
    def columns(self):
        return [
            pa.array([row[3 + number] for row in self.rows], KINDS[kind][0])
            for number, (_, kind) in enumerate(self.chosen)
        ]

    def laid_in(self, often):
        measures = self.measures()
        return laid_in([EntryRun(measures, rows, self.counts) for rows in self.runs], often)

    def seen(self, instant, since, group):
        return [
            n
            for n, (born, cut, own, *_) in enumerate(self.rows)
            if own == group and born <= instant and cut >= since and since != NOT_ASKED
        ]


def expected(sides, asked):
    """For each answer its group, the pairs of all sides' rows, and the values of each side's measures."""
    for window in range(asked.shape[1]):
        for instant in range(INSTANTS):
            for group in range(GROUPS):
                seen = [each.seen(instant, asked[instant, window], group) for each in sides]
                pairs = int(np.prod([len(each) for each in seen]))
                if pairs:
                    yield group, pairs, [of_pairs(*each, pairs) for each in zip(sides, seen, strict=True)]


def of_pairs(side, seen, pairs):
    """What the measures of a side come to over all pairs, in which each of its rows is equally often."""
    rows = pa.array(seen * (pairs // len(seen)))
    return [
        told(fold_values(function, column.take(rows), np.zeros(pairs, np.int64), 1))
        for (function, _), column in zip(side.chosen, side.columns, strict=True)
    ]


def told(measure):
    try:
        return plain(measure)
    except RunError:
        return "too large"


def slide_all(sides):
    """Slide over all sides as answers do: what is in the pass, and what slides by itself."""
    often = [len(each.rows) for each in reversed(sides)] if len(sides) > 1 else [1]
    laid = [side.laid_in(most) for side, most in zip(sides, often, strict=True)]
    slidings, parts = [each.slidings for each in sides], [parts for parts, _ in laid]
    slid = slide_parts(slidings, parts, with_counts=True)
    counted = slide_parts(slidings, parts, keep=False)
    assert counted.seen.sizes.tolist() == slid.seen.sizes.tolist()
    measures = []
    for number, (side, (_, places)) in enumerate(zip(sides, laid, strict=True)):
        own, other, seen = slid.sides[number], slid.sides[-1 - number], slid.seen
        mine = WindowAnswers(seen.groups, own.counts, seen.starts, seen.sizes)
        alone = [
            each.measure.slid(side.slidings[0], mine, side.all_rows, side.counts)
            for each in places
            if each.is_apart
        ]
        if len(sides) > 1:
            alone = [each.times(other.counts, own.counts, seen.counts) for each in alone]
        rest = iter(alone)
        measures.append([next(rest) if each.is_apart else each.read(own, seen) for each in places])
    return slid.seen, measures


@pytest.mark.parametrize("count", [1, 2])
@examples(80)
@given(asked=asked_by_instant, data=st.data())
def test_each_window_sees_what_is_born_by_the_instant_from_its_cut_on(count, asked, data):
    windows = np.array([falling(each) for each in asked], np.int64)
    sides = [Side(data, windows) for _ in range(count)]
    seen, measures = slide_all(sides)
    right = list(expected(sides, windows))
    assert seen.groups.tolist() == [group for group, *_ in right]
    assert seen.counts.tolist() == [pairs for _, pairs, _ in right]
    for number, mine in enumerate(measures):
        for place, measure in enumerate(mine):
            wanted = [values[number][place] for *_, values in right]
            got = told(measure)
            assert (got == "too large") == ("too large" in wanted)
            if got != "too large":
                assert got == [value for (value,) in wanted]


@pytest.mark.parametrize("often", [1, 3])
@pytest.mark.parametrize("most", [1 << 28, 1 << 40, 1 << 58, BIG])
@examples(15)
@given(signs=st.lists(st.sampled_from((1, -1, 0)), min_size=1, max_size=6), less=st.integers(0, 9))
def test_sums_near_the_edge_of_64_bits_are_exact_or_refused(signs, less, often, most):
    values = [sign * (most - less) for sign in signs]
    one, ones = np.zeros((1, 1), np.int64), np.ones(len(values), np.int64)
    rows, zeros = np.arange(len(values)), np.zeros(len(values), np.int64)
    left = Sliding(zeros, np.array([len(values)]), one, 1, 1)
    right = Sliding(zeros[:1], np.array([1]), one, 1, 1)
    summed = fold_values("sum", pa.array(values), rows, len(values))
    parts, (place,) = laid_in([EntryRun([summed], rows, ones)], often)
    other, _ = laid_in([EntryRun([], rows[:1], np.array([often]))], len(values))
    slid = slide_parts([[left], [right]], [parts, other], with_counts=True)
    own = slid.sides[0]
    if place.is_apart:
        mine = WindowAnswers(slid.seen.groups, own.counts, slid.seen.starts, slid.seen.sizes)
        whole = summed.slid(left, mine, rows, ones).times(slid.sides[1].counts, own.counts, slid.seen.counts)
    else:
        whole = place.read(own, slid.seen)
    total = sum(values) * often
    assert told(whole) == ([total] if -BIG - 1 <= total <= BIG else "too large")
    assert place.is_apart or most < 1 << 60 or not any(values)


def test_what_is_only_counted_is_computed_too():
    """The last window at the last instant leaves its values where all of them were written."""
    windows = np.array([[1, 0], [1, 0]])
    sliding = Sliding(np.array([0, 1, 3]), np.array([2, 3]), windows, groups=2, cuts=2)
    counts, rows = np.array([5, 7, 1]), np.arange(3)
    measures = [
        Sum("sum", {"n": counts, "s": np.array([0.5, 2, 3])}),
        fold_values("max", pa.array([1.5, -2.0, 4.0]), rows, 3),
    ]
    parts, places = laid_in([EntryRun(measures, rows, counts)], often=1)
    with patch.object(slide_pass, "slide", side_effect=slide_pass.slide) as ran:
        slide_parts([[sliding]], [parts], keep=False)
    *_, (_, _, floats, leasts), answers, _, _ = ran.call_args.args
    assert all(each.is_final for each in places)
    assert answers[1].tolist() == [5, 8]
    assert floats.tolist() == [[0.5, 5.0]]
    assert leasts.view(np.float64).tolist() == [[1.5, 4.0]]


@examples(25)
@given(codes=st.lists(st.integers(0, 5), max_size=20))
def test_rows_in_the_order_of_their_codes_keep_their_own_order(codes):
    rows, ends = order_by(np.array(codes, np.int64), 6)
    assert rows.tolist() == sorted(range(len(codes)), key=lambda row: codes[row])
    assert ends.tolist() == [sum(each <= code for each in codes) for code in range(6)]
