"""What is kept is what a partner still to come can reach: no row fewer, and (paper 1, Theorems 3 and 4) no more."""

from __future__ import annotations

from itertools import count
from math import log
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.engine.tasks.rewrite import RewriteTask
from penstock.kernels.reference import Event, rows_needed
from penstock.kernels.sets import find_patterns, to_words
from penstock.plan.chain import Chain
from penstock.sql.query import Range
from penstock.state.census import rows_per_slice
from penstock.state.claims import WindowClaim, ended_share, is_ended, live_rows
from penstock.state.files import open_files
from penstock.state.retention import THIN_SHARE, choose_rewrites
from penstock.state.segment import PatternCount, Segment, SegmentColumns, read_segment, write_segment
from tests.kernels.drawn import HASHES, examples

if TYPE_CHECKING:
    from collections.abc import Sequence

BITS = (0, 1, 2, 3, 1 << 64)


def write(files, drawn, name="s.arrow", first=0, last=0, *, selective=True):
    """Write rows ``(h, t, bits)`` as a segment, numbered as drawn."""
    h, t, bits = zip(*drawn, strict=True)
    table, pattern = find_patterns(to_words(bits, 65)) if selective else (to_words([0], 0), None)
    columns = {"id": pa.array(range(len(drawn)), pa.int64())}
    rows = SegmentColumns(np.array(h, np.uint64), np.array(t, np.int64), pattern, table, columns, {})
    return write_segment(files, name, rows, first=first, last=last)


rows = st.lists(
    st.tuples(st.sampled_from(HASHES), st.integers(-9, 9), st.sampled_from(BITS)), min_size=1, max_size=12
)
horizons = st.builds(
    lambda queries, watermark: WindowClaim(*map(tuple, zip(*queries, strict=True)), watermark),  # type: ignore[call-arg]
    st.lists(st.tuples(st.sampled_from(BITS), st.integers(-4, 12)), min_size=1, max_size=4),
    st.none() | st.integers(-12, 22),
)
claims = st.lists(horizons, min_size=1, max_size=3)


def reach(bits, claim):
    """Say in plain words how long a claim needs a row: as long as the longest of the queries that accept it."""
    accepted = [far for mask, far in zip(claim.masks, claim.reaches, strict=True) if bits & mask == mask]
    return max(accepted) if accepted else None


def is_needed(row, claim):
    """Ask the reference about one row."""
    _, t, bits = row
    horizon = -(10**9) if claim.watermark is None else claim.watermark
    return bool(rows_needed([Event(0, t)], lambda _: reach(bits, claim), horizon))


@pytest.fixture
def files(tmp_path):
    return open_files(str(tmp_path), sync=False)


fresh = count()


@examples(100)
@given(rows, claims)
def test_a_row_is_live_exactly_while_some_group_needs_it(tmp_path_factory, drawn, mine):
    files = open_files(str(tmp_path_factory.getbasetemp()), sync=False)
    segment = write(files, drawn, f"live-{next(fresh)}.arrow")
    stored = read_segment(files, segment)
    live = dict(zip(stored.column("id").to_pylist(), live_rows(stored, mine).tolist(), strict=True))
    assert live == {place: any(is_needed(row, claim) for claim in mine) for place, row in enumerate(drawn)}
    assert is_ended(segment, mine) == (not any(live.values())), (
        "statistics alone tell when the last row has ended"
    )


@given(
    st.integers(-9, 9), st.integers(-30, 30), st.integers(1, 15), st.integers(-15, 15), st.integers(-20, 30)
)
def test_a_row_let_go_has_no_partner_to_come_and_a_row_kept_may_have_one(t, lo, wide, watermark, ahead):
    """Against the window itself: a left row's partners have lo <= T_right - T < hi and T_right >= watermark."""
    window = Range(lo, lo + wide)
    left = WindowClaim((0,), (window.hi,), watermark)
    right = WindowClaim((0,), (1 - window.lo,), watermark)
    partner = watermark + abs(ahead)
    if t <= left.ended_before(0):
        assert partner - t not in window
    else:
        assert max(watermark, t + window.lo) - t in window
    if t <= right.ended_before(0):
        assert t - partner not in window
    else:
        assert t - max(watermark, t - window.hi + 1) in window


@examples(60)
@given(rows, claims)
def test_the_ended_share_counts_the_rows_of_patterns_that_have_wholly_ended(tmp_path_factory, drawn, mine):
    files = open_files(str(tmp_path_factory.getbasetemp()), sync=False)
    segment = write(files, drawn, f"share-{next(fresh)}.arrow")
    gone = [
        bits for bits in BITS if not any(is_needed(row, c) for row in drawn if row[2] == bits for c in mine)
    ]
    assert ended_share(segment, mine) == sum(row[2] in gone for row in drawn) / len(drawn)


def test_a_segment_with_too_many_patterns_to_count_ends_when_the_longest_query_lets_it(files):
    """Without counts nothing is known of a pattern, so every row might be the longest query's."""
    segment = write(files, [(1, 5, bits) for bits in range(65)])
    assert segment.patterns == ()
    short_and_long = WindowClaim((1, 2), (10, 50), 54)
    assert not is_ended(segment, [short_and_long])
    assert is_ended(segment, [WindowClaim((1, 2), (10, 50), 55)])
    assert not is_ended(segment, [WindowClaim((1,), (10,), 55), WindowClaim((2,), (50,), None)])


def test_a_segment_ends_by_time_alone_also_if_its_keys_are_never_seen_again(files):
    """::

    row (key 7)   T=0 |----------- reach 10 ----------->| 10
    partner stream:  other keys only, watermark 9 ... 10: the row goes, though no row of key 7 ever came
    """
    segment = write(files, [(7, 0, 0)])
    assert not is_ended(segment, [WindowClaim((0,), (10,), 9)])
    assert is_ended(segment, [WindowClaim((0,), (10,), 10)])


def test_nothing_ends_while_the_partner_has_sent_nothing(files):
    segment = write(files, [(7, -(1 << 50), 0)])
    assert not is_ended(segment, [WindowClaim((0,), (1,), None)])
    assert live_rows(read_segment(files, segment), [WindowClaim((0,), (1,), None)]).all()


# --- rewriting --------------------------------------------------------------------------------------------


@examples(60)
@given(st.lists(rows, min_size=1, max_size=4), claims, st.booleans())
def test_rewriting_keeps_the_live_rows_and_no_other_sorted_under_the_same_batches(
    tmp_path_factory, batches, mine, selective
):
    files = open_files(str(tmp_path_factory.getbasetemp()), sync=False)
    if not selective:
        batches = [[(h, t, 0) for h, t, _ in drawn] for drawn in batches]
        mine = [WindowClaim(tuple(0 for _ in each.masks), each.reaches, each.watermark) for each in mine]
    parts = [
        write(files, drawn, f"part-{next(fresh)}.arrow", 2 * place, 2 * place + 1, selective=selective)
        for place, drawn in enumerate(batches)
    ]
    made = RewriteTask("a", tuple(parts), tuple(mine)).run(files).segment
    kept = [row for drawn in batches for row in drawn if any(is_needed(row, claim) for claim in mine)]
    if not kept:
        assert made is None
        return
    back = read_segment(files, made)
    bits = [0] * made.rows
    if selective:
        table = [sum(int(word) << (64 * w) for w, word in enumerate(each)) for each in back.table]
        bits = [table[place] for place in back.rows.pattern]
    got = list(zip(back.rows.h.tolist(), back.rows.t.tolist(), bits, strict=True))
    assert sorted(got) == sorted(kept)
    assert [row[:2] for row in got] == sorted(row[:2] for row in kept)
    assert (made.first, made.last) == (0, 2 * len(batches) - 1)
    assert made.generation == (1 if len(batches) > 1 else 0)
    assert sum(each.rows for each in made.patterns) == made.rows == len(kept)


def test_rewriting_keeps_every_column_with_its_row(files):
    first = write(files, [(5, 0, 0), (1, 9, 0)], "1.arrow")
    second = write(files, [(3, 9, 0), (5, 9, 0)], "2.arrow")
    made = RewriteTask("a", (first, second), (WindowClaim((0,), (1,), 5),)).run(files).segment
    back = read_segment(files, made)
    assert list(zip(back.rows.h.tolist(), back.column("id").to_pylist(), strict=True)) == [
        (1, 1),
        (3, 0),
        (5, 1),
    ]


# --- the least state (paper 1, Theorems 3 and 4) --------------------------------------------------------------


@examples(60)
@given(
    rows,
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from(BITS)), min_size=1, max_size=4),
    st.none() | st.integers(-12, 22),
)
def test_every_live_row_is_in_the_one_slice_of_its_age(tmp_path_factory, drawn, queries, watermark):
    files = open_files(str(tmp_path_factory.getbasetemp()), sync=False)
    segment = write(files, drawn, f"census-{next(fresh)}.arrow")
    chain = Chain.from_windows({f"q{n}": Range(0, far) for n, (far, _) in enumerate(queries)})
    claim = WindowClaim(tuple(mask for _, mask in queries), tuple(far for far, _ in queries), watermark)
    ages = [piece.ages for _, piece in chain.side("l")]
    counts = rows_per_slice([segment], claim, [end for _, end in ages])
    needed = [0 if watermark is None else watermark - row[1] for row in drawn if is_needed(row, claim)]
    first = ages[0][1]
    assert counts[0] == sum(age < first for age in needed), "the youngest slice has what is younger, too"
    assert counts[1:].tolist() == [sum(start <= age < end for age in needed) for start, end in ages[1:]]
    assert counts.sum() == len(needed) == live_rows(read_segment(files, segment), [claim]).sum()


@pytest.mark.parametrize("both", [False, True], ids=["selection on A", "selection on A and B"])
def test_the_state_is_what_equation_3_says(files, both):
    """Q1: window W1; Q2: window W2, and only rows that satisfy a predicate (one in four: S = 1/4).

    One row a tick on each stream, so with watermark T a side holds::

        slice      [0, W1)          [W1, W2)                    rows with selection: W1 + S (W2 - W1)
        holds      every row        one row in four             rows without:        W2
    """
    small, large, now = 40, 120, 1000
    ticks = [(tick % 5, tick, 1 if tick % 4 == 0 else 0) for tick in range(1, now + 1)]
    segments = [write(files, ticks[place : place + 100], f"{place}.arrow") for place in range(0, now, 100)]
    ends, total = [small, large], 0
    for selective in (True, both):
        claim = WindowClaim((0, 1 if selective else 0), (small, large), now)
        counts = rows_per_slice(segments, claim, ends)
        assert counts.tolist() == [small, (large - small) // (4 if selective else 1)]
        total += int(counts.sum())
    assert total == 2 * small + (large - small) // 4 + (large - small) // (4 if both else 1)


@pytest.mark.parametrize("skew", [1, 3], ids=["evenly spread", "most rows young"])
def test_of_many_rows_the_count_is_within_a_thirtieth_of_a_segment(files, skew):
    """The statistics have 65 times of 20,000 rows: few rows are counted on the wrong side of a window."""
    random, size, now = Random(5), 20_000, 1_000_000
    drawn = [(number, int(now * random.random() ** (1 / skew)), number % 2) for number in range(size)]
    segment = write(files, drawn, f"many-{skew}.arrow")
    assert [len(each.times) for each in segment.patterns] == [32, 32], "their shares of 65"
    for reach in (10_000, 123_456, 500_000, 999_000):
        claim = WindowClaim((0, 1), (reach // 2, reach), now)
        needed = sum(is_needed(row, claim) for row in drawn)
        assert abs(int(rows_per_slice([segment], claim, [reach]).sum()) - needed) <= size / 30


def test_an_early_and_a_late_row_of_each_key_are_both_counted(files):
    """In a segment they stand side by side, so that every second row is an early one."""
    drawn = [(key, time, 0) for key in range(9000) for time in (key % 100, 100_000 + key % 100)]
    segment = write(files, drawn, "open-and-close.arrow")
    counts = rows_per_slice([segment], WindowClaim((0,), (50_000,), 100_000), [50_000])
    assert abs(int(counts.sum()) - 9000) <= 18_000 / 30


# --- how many segments there are ---------------------------------------------------------------------------


class Books:
    """A log's segments over time, by their statistics alone: thousands of batches in a moment."""

    def __init__(self, reaches: Sequence[int], masks: Sequence[int], patterns: Sequence[int]) -> None:
        self.reaches, self.masks, self.patterns = tuple(reaches), tuple(masks), tuple(patterns)
        self.segments: list[Segment] = []
        self.most = self.moved = self.added = self.number = 0

    def add(
        self, batch: int, counts: dict[int, PatternCount], generation: int = 0, last: int | None = None
    ) -> None:
        """Take note of a segment."""
        self.number += 1
        each = tuple(counts.values())
        times = min(c.min_t for c in each), max(c.max_t for c in each)
        rows = sum(c.rows for c in each)
        self.segments.append(
            Segment(
                f"{self.number:09d}",
                batch,
                batch if last is None else last,
                rows,
                *times,
                0,
                generation,
                each,
            )
        )

    def batch(self, number: int, oldest: int, newest: int, tasks: int = 1) -> None:
        """Add a batch of 10 rows a pattern and task."""
        for _ in range(tasks):
            self.add(number, {bits: PatternCount(bits, 10, oldest, newest) for bits in self.patterns})
            self.added += 10 * len(self.patterns)

    def tidy(self, passed: int, watermark: int | None) -> None:
        """Do what the joiner does between units."""
        mine = [WindowClaim(self.masks, self.reaches, watermark)]
        self.segments = [each for each in self.segments if not is_ended(each, mine)]
        for run in choose_rewrites(self.segments, mine, passed):
            assert len(run) > 1 or ended_share(run[0], mine) >= THIN_SHARE, (
                "no segment is rewritten for nothing"
            )
            assert len(run) <= limits.MERGE_FAN_IN
            self.moved += sum(each.rows for each in run)
            self.segments = [each for each in self.segments if each not in run]
            counts: dict[int, PatternCount] = {}
            for each in (
                c
                for segment in run
                for c in segment.patterns
                if not all(claim.ends_pattern(c) for claim in mine)
            ):
                had = counts.get(each.bits, each)
                rows = each.rows + (had.rows if had is not each else 0)
                counts[each.bits] = PatternCount(
                    each.bits, rows, min(had.min_t, each.min_t), max(had.max_t, each.max_t)
                )
            if counts:
                generation = run[0].generation + (len(run) > 1)
                self.add(min(s.first for s in run), counts, generation, max(s.last for s in run))
        self.most = max(self.most, len(self.segments))


BATCHES = 1200
STEP = 10


@pytest.mark.parametrize(
    "case",
    [
        ((200 * STEP,), (0,), (0,), 0, 0, 1),
        ((55 * STEP,), (0,), (0,), 0, 0, 1),
        ((1 << 60,), (0,), (0,), 0, 0, 1),
        ((3 * STEP,), (0,), (0,), 0, 0, 8),
        ((100 * STEP,), (0,), (0,), 100 * STEP, 0, 1),
        ((10 * STEP,), (0,), (0,), 1000 * STEP, 0, 1),
        ((10 * STEP,), (0,), (0,), 0, 1000 * STEP, 1),
        ((10 * STEP,), (0,), (0,), 0, None, 1),
        ((-5 * STEP,), (0,), (0,), 0, 1000 * STEP, 2),
        ((10 * STEP, 1000 * STEP), (0, 1), (0, 1), 0, 0, 1),
        ((STEP, 30 * STEP, 900 * STEP), (0, 1, 3), (0, 1, 3), 50 * STEP, 20 * STEP, 1),
    ],
    ids=[
        "in order", "just too few to merge", "a window without end", "many small tasks", "rows as late as the window",
        "rows far later than the window", "a partner far behind", "a partner that sends nothing",
        "a window that does not reach 0", "two queries, one with a predicate", "three queries, late and behind",
    ],
)  # fmt: skip
def test_a_probe_visits_few_segments_and_a_row_is_moved_seldom(case):
    """However long the window, however late the rows: the logarithm of the batches, and not their number."""
    reaches, masks, patterns, late, behind, tasks = case
    log_of = Books(reaches, masks, patterns)
    for number in range(BATCHES):
        newest = STEP * number
        log_of.batch(number, newest - late - STEP, newest, tasks)
        log_of.tidy(number + 1, None if behind is None else newest - late - behind)
    generations = log(BATCHES * tasks, limits.MERGE_FAN_IN)
    assert (
        log_of.most <= limits.MERGE_FAN_IN * limits.RETENTION_TIME_PARTS + limits.MERGE_FAN_IN * generations
    )
    assert log_of.moved <= (generations + len(patterns)) * log_of.added
    once_more = 1  # where a few filled the time that one segment may span, before the window grew
    assert max(each.generation for each in log_of.segments) <= generations + once_more


@examples(30)
@given(
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from((0, 1, 1, 5, 400))), min_size=20, max_size=80),
    st.integers(0, 500),
    st.integers(1, 12),
)
def test_bursts_silence_and_joining_late_leave_few_segments_too(window, batches, late, turn_every):
    log_of = Books((window,), (0,), (0,))
    now, number = 0, 0
    for tasks, pause in batches * 5:
        now += pause
        log_of.batch(number, now - late, now, tasks)
        number += 1
        if number % turn_every == 0:
            log_of.tidy(number, now - late)
    waiting = 3 * turn_every
    assert log_of.most <= 3 * limits.MERGE_FAN_IN * limits.RETENTION_TIME_PARTS + waiting
    log_of.tidy(number, now + window)
    assert not log_of.segments, "the last segment goes too, whatever came after"


def test_a_segment_that_some_slice_has_not_joined_yet_is_left_alone():
    log_of = Books((1000,), (0,), (0,))
    for number in range(2 * limits.MERGE_FAN_IN):
        log_of.batch(number, number, number)
    mine = [WindowClaim((0,), (1000,), 0)]
    assert choose_rewrites(log_of.segments, mine, limits.MERGE_FAN_IN - 1) == []
    (run,) = choose_rewrites(log_of.segments, mine, limits.MERGE_FAN_IN)
    assert [each.first for each in run] == list(range(limits.MERGE_FAN_IN))


def test_neighbours_are_merged_in_the_order_they_came_whatever_the_order_of_the_books():
    log_of = Books((1000,), (0,), (0,))
    for number in reversed(range(limits.MERGE_FAN_IN)):
        log_of.batch(number, number, number)
    (run,) = choose_rewrites(log_of.segments, [WindowClaim((0,), (1000,), 0)], limits.MERGE_FAN_IN)
    assert [each.first for each in run] == list(range(limits.MERGE_FAN_IN))


def test_a_segment_most_of_whose_rows_have_ended_is_thinned():
    """::

    pattern 0 (q1 only, 10)   |----|                       9 rows of 10: ended at 10
    pattern 1 (q2 too, 100)   |----------------------|     1 row of 10
    """
    counts = (PatternCount(0, 9, 0, 0), PatternCount(1, 1, 0, 0))
    segment = Segment("s", 0, 0, 10, 0, 0, 0, 0, counts)
    for watermark, chosen in ((9, []), (10, [(segment,)])):
        mine = [WindowClaim((0, 1), (10, 100), watermark)]
        assert choose_rewrites([segment], mine, 1) == chosen
        assert not is_ended(segment, mine)
