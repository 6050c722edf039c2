"""Every pair of a unit is met in one task, and no task goes empty-handed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.key_hash import Division
from penstock.kernels.probe import Rows, probe
from tests.kernels.drawn import examples

times = st.lists(st.integers(0, 40), max_size=30).map(sorted)


def keyless(t):
    """Rows of a log without a key, mapped as a segment's are."""
    rows = Rows(np.zeros(len(t), np.uint64), np.array(t, np.int64))
    for column in (rows.h, rows.t):
        column.flags.writeable = False
    return rows


@examples(50)
@given(times, times, st.integers(1, 5), st.integers(0, 9))
def test_the_tasks_together_meet_every_pair_in_the_window_once(mine, theirs, parts, number):
    met = Counter()
    batch, state = keyless(mine), keyless(theirs)
    for part in range(parts):
        division = Division(part, parts, keyed=False)
        probing, probed = division.probing(batch.h, number), division.probed(state.h)
        for found in probe(
            batch.part(probing), state.part(probed), np.array([-9, 0, 10]), batch_is_left=True
        ):
            places = np.arange(batch.t.size)[probing][found.batch]
            met.update(zip(places.tolist(), found.state.tolist(), strict=True))
    assert met == Counter(
        (i, j) for i, t in enumerate(mine) for j, u in enumerate(theirs) if -9 <= u - t < 10
    )


@given(st.integers(0, 200), st.integers(1, 8), st.integers(0, 9))
def test_probing_rows_are_dealt_evenly(rows, parts, number):
    hashes = np.zeros(rows, np.uint64)
    dealt = [
        len(range(rows)[Division(part, parts, keyed=False).probing(hashes, number)]) for part in range(parts)
    ]
    assert sum(dealt) == rows
    assert max(dealt) - min(dealt) <= 1


def test_segments_of_one_row_go_to_different_tasks():
    hashes = np.zeros(1, np.uint64)
    takers = [
        [part for part in range(4) if range(1)[Division(part, 4, keyed=False).probing(hashes, number)]]
        for number in range(4)
    ]
    assert sorted(takers) == [[0], [1], [2], [3]]


@pytest.mark.parametrize("part", [0, 1, 2])
def test_with_a_key_a_task_probes_and_is_probed_in_its_range_of_hashes(part):
    hashes = np.sort(np.random.default_rng(0).integers(0, 1 << 63, 50).astype(np.uint64) * np.uint64(2))
    division = Division(part, 3, keyed=True)
    assert division.probing(hashes, 5) == division.probed(hashes)
