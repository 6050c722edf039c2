"""The sketch of missed results against nested loops: exact while all fits, without bias and within its error beyond."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.accuracy_sketch import AccuracySketch
from penstock.kernels.value_sample import SampledRows
from penstock.state.codec import from_json, to_json
from tests.plan.arrivals import streams

batches = st.integers(2, 3).flatmap(
    lambda n: st.lists(
        st.tuples(
            st.lists(streams(most=5, values=4), min_size=n, max_size=n),
            st.lists(st.integers(0, 3), min_size=n, max_size=n),
        ),
        min_size=1,
        max_size=5,
    )
)


def reference(given_batches):
    """Join batch by batch in nested loops: results found, and results that exist."""
    count = len(given_batches[0][0])
    rows: list[list[int]] = [[] for _ in range(count)]
    gone, found = [0] * count, set()
    for batch, more in given_batches:
        gone = [min(len(each), before + some) for each, before, some in zip(rows, gone, more, strict=True)]
        start = [len(each) for each in rows]
        for each, new in zip(rows, batch, strict=True):
            each.extend(new)
        for result in product(*(range(first, len(each)) for first, each in zip(gone, rows, strict=True))):
            same = len({each[n] for each, n in zip(rows, result, strict=True)}) == 1
            if same and any(n >= first for n, first in zip(result, start, strict=True)):
                found.add(result)
    exist = sum(len(set(each)) == 1 for each in product(*rows))
    return len(found), exist


@given(batches)
def test_while_all_rows_fit_it_counts_exactly(given_batches):
    count = len(given_batches[0][0])
    sketch, gone, taken = AccuracySketch(count), [0] * count, [0] * count
    for batch, more in given_batches:
        gone = [min(each, before + some) for each, before, some in zip(taken, gone, more, strict=True)]
        sketch = sketch.then([np.array(each) for each in batch], gone)
        taken = [each + len(rows) for each, rows in zip(taken, batch, strict=True)]
    found, exist = reference(given_batches)
    assert (sketch.found, sketch.lost, sketch.error) == (found, exist - found, 0)
    assert sketch.accuracy == (found / exist if exist else 1)


def lossy(seed, capacity, *, late=0.1, rows=4_000, buffer=200):
    """Join two streams of which some rows of the second come 300 late, with buffers too small for that."""
    random = np.random.default_rng(seed)
    first = np.arange(rows)
    second = np.argsort(np.arange(rows) + np.where(random.random(rows) < late, 300, 0), kind="stable")
    first, second = (each * 7919 + seed * 104_729 for each in (first, second))  # other hashes for other seeds
    sketch, missed = AccuracySketch(2, capacity=capacity), 0
    for start in range(0, rows, 50):
        gone = (max(0, start - buffer), max(0, start - buffer))
        part = slice(start, start + 50)
        missed += int(np.isin(second[part], first[: gone[0]]).sum()) + int(
            np.isin(first[part], second[: gone[1]]).sum()
        )
        sketch = sketch.then([first[part], second[part]], gone)
        assert len(sketch.held.value) <= capacity
    return sketch, missed


@pytest.mark.parametrize(("capacity", "buffer"), [(256, 200), (1024, 200), (100, 100)])
def test_in_bounded_memory_estimates_have_no_bias_and_errors_hold(capacity, buffer):
    """Of forty joins nineteen in twenty should be within two standard errors; thirty-four must be."""
    made = [lossy(seed, capacity, buffer=buffer) for seed in range(40)]
    assert sum(abs(sketch.missed - true) <= sketch.error + 1e-9 for sketch, true in made) >= 34
    estimated, true = (
        sum(each) for each in zip(*((sketch.missed, true) for sketch, true in made), strict=True)
    )
    assert estimated == pytest.approx(true, rel=0.08)
    assert all(sketch.found + sketch.missed == pytest.approx(4_000, rel=0.5) for sketch, _ in made)


@given(batches, st.integers(0, 1 << 20))
def test_in_the_least_memory_no_loss_is_reported_only_if_there_is_none(given_batches, shift):
    """A batch is in doubt if it has a value that was let go of another stream, as a caller can see it."""
    count = len(given_batches[0][0])
    sketch, rows, gone = AccuracySketch(count, capacity=4), [[] for _ in range(count)], [0] * count
    for given_batch, more in given_batches:
        batch = [[each + shift for each in values] for values in given_batch]
        gone = [min(len(each), was + some) for each, was, some in zip(rows, gone, more, strict=True)]
        doubt = any(
            set(values) & set(rows[other][: gone[other]])
            for number, values in enumerate(batch)
            for other in range(count)
            if other != number
        )
        sketch = sketch.then([np.array(each, np.int64) for each in batch], gone, doubt=doubt)
        assert len(sketch.held.value) <= 4
        assert len(sketch.far.held.value) <= 1
        for each, new in zip(rows, batch, strict=True):
            each.extend(new)
    found, exist = reference(given_batches)
    assert sketch.lost > 0 or found == exist
    assert from_json(to_json(sketch), AccuracySketch) == sketch


def values_from(start, rows, seed=0):
    """Return ascending values, others for other seeds."""
    return np.arange(start, start + rows) * 7919 + seed * 104_729


def closed(seed=0, *, capacity=256):
    """Join two streams in order, 2,000 rows of each with buffers of one batch, until most values are closed."""
    sketch = AccuracySketch(2, capacity=capacity)
    for start in range(0, 2_000, 40):
        new = values_from(start, 40, seed)
        sketch = sketch.then([new, new], (start, start))
    assert (sketch.lost, sketch.unjudged) == (0, 0)
    return sketch


@pytest.mark.parametrize("both", [False, True])
def test_rows_of_closed_values_are_estimated_by_a_sample_of_closed_values(both):
    """Late rows of one stream miss a result each; where both streams bring them again, two of four are missed."""
    none, estimated, true = np.array([], np.int64), 0.0, 1_000 * (2 if both else 1)
    for seed in range(12):
        sketch = closed(seed)
        for start in range(0, 1_000, 100):
            late = values_from(start, 100, seed)
            sketch = sketch.then([late if both else none, late], (2_000, 2_000), doubt=True)
        assert sketch.unjudged
        assert abs(sketch.lost - true) <= 1.5 * sketch.error
        estimated += sketch.lost / 12
    assert estimated == pytest.approx(true, rel=0.1)


def test_a_few_rows_that_nobody_can_judge_count_as_missed():
    late = closed().then([np.array([], np.int64), values_from(0, 30)], (2_000, 2_000), doubt=True)
    assert late.unjudged
    assert late.lost == pytest.approx(30, rel=0.3)
    assert late.error > 0


def test_a_batch_in_doubt_leaves_a_doubt_where_not_all_values_are_sampled():
    sketch = AccuracySketch(2, capacity=64, halvings=3)
    assert sketch.then([np.array([], np.int64)] * 2, (0, 0)).lost == 0
    doubtful = sketch.then([np.array([], np.int64)] * 2, (0, 0), doubt=True)
    assert (doubtful.lost, doubtful.accuracy) == (8, 0)


def test_rows_set_aside_are_in_results_that_exist_and_in_none_that_is_found():
    rows = SampledRows((5, 5, 5, 6, 6), (0, 1, 1, 0, 1), (1, 1, 0, 0, 2))
    sketch = AccuracySketch(2).then_sampled(rows, 0, gone=(0, 0))
    assert (sketch.found, sketch.lost, sketch.accuracy) == (1, 2, 1 / 3)
    later = sketch.then_sampled(SampledRows((6,), (0,), (2,)), 0, gone=(0, 0))
    assert (later.found, later.lost) == (2, 2)


def test_large_batches_need_not_thin_the_sample_out():
    """A batch is a hundred times what buffers hold: told what is left of it, more values stay in the sample."""
    made = []
    for told in (False, True):
        sketch = AccuracySketch(2, capacity=256)
        for start in range(0, 50_000, 10_000):
            new = np.arange(start, start + 10_000)
            gone, after = max(0, start - 100), start + 9_900
            sketch = sketch.then([new, new], (gone, gone), (after, after) if told else None)
            assert len(sketch.held.value) <= 256
        assert sketch.missed == 0
        made.append(sketch.halvings)
    assert made[1] < made[0]


def test_values_closed_at_zero_stay_closed_when_negative_ones_follow():
    sketch = AccuracySketch(1).then([np.array([0, -5])], gone=(0,))
    only_zero = sketch.closing(sketch.held.arrays()[0] == 0)
    assert only_zero.closed_to == 0
    assert only_zero.closing(only_zero.held.arrays()[0] == -5).closed_to == 0
