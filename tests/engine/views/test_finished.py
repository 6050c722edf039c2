"""Which values are finished, by brute force: over all times at which rows may still come, is there a pair to come?

left      rows up to e_l | none         e: the least p of a side's promises about a value
right     rows up to e_r | none         a row may still come at T if T >= the watermark, and T <= e
"""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.views.finished import FinishedKeys, PromisedSide
from penstock.kernels.key_hash import mix
from penstock.state.files import open_files
from penstock.state.promises import PromiseFiles, ValuePromises, write_exact, write_patterns
from tests.kernels.drawn import examples

FAR = 40
"""After all times there are."""


def may_have_a_pair(ends, marks, window):
    """Say whether a pair may come: one row is still to come, its partner may be there or is to come as well."""
    low, high = window
    for left, right in product(range(-5, FAR), repeat=2):
        if low is not None and not low <= right - left < high:
            continue
        in_time = left <= ends[0] and right <= ends[1]
        if in_time and (left >= marks[0] or right >= marks[1]):
            return True
    return False


def side(files, ends, mark, reach):
    """Write the promises of one side: each value has its end, some none; a range says it again, later."""
    some = [(value, end) for value, end in enumerate(ends) if end < FAR]
    order = sorted(some, key=lambda each: mix(np.array([each[0]]))[0])
    exact = None
    if order:
        h = mix(np.array([value for value, _ in order], np.int64))
        exact = write_exact(files, "i", ValuePromises(h, np.array([end for _, end in order], np.int64)), 0)
    wide = write_patterns(files, "i", np.array([FAR]), [(pa.array([0]), pa.array([2]))], 0)
    return PromisedSide(PromiseFiles((exact,) if exact else (), (wide,) if wide else ()), mark, reach)


@examples(40)
@given(st.integers(0, 2**31), st.booleans())
def test_a_value_is_finished_when_no_pair_may_come(tmp_path_factory, seed, is_endless):
    random = Random(seed)
    files = open_files(str(tmp_path_factory.mktemp("finished")), sync=False)
    low, high = random.choice((-8, -3, 0, 1)), random.choice((2, 5, 9))
    ends = [[random.choice((3, 8, 15, 22, FAR)) for _ in range(5)] for _ in "lr"]
    marks = [random.choice((-5, 3, 4, 9, 16, 30)) for _ in "lr"]
    reaches = (None, None) if is_endless else (high, 1 - low)
    keys = FinishedKeys((1,), True, *(side(files, *each) for each in zip(ends, marks, reaches, strict=True)))
    got = keys.is_finished(files, [pa.array(["x"] * 5), pa.array(range(5), pa.int32())]).tolist()
    assert keys.bare().is_finished(files, [pa.nulls(5), pa.array(range(5))]).tolist() == got
    for value in range(5):
        mine = ends[0][value], ends[1][value]
        window = (None, None) if is_endless else (low, high)
        unfinished = may_have_a_pair(mine, marks, window)
        assert not (got[value] and unfinished), "answered, and a pair may still come"
        said = [end < mark for end, mark in zip(mine, marks, strict=True)]
        if all(said):
            assert got[value], "both have spoken, and their watermarks have passed it"


@pytest.mark.parametrize(("mark", "done"), [(5, False), (6, True)])
def test_a_promise_takes_effect_when_the_watermark_has_passed_it(tmp_path, mark, done):
    """A row at p = 5 is in time while the watermark is 5."""
    files = open_files(str(tmp_path), sync=False)
    both = [side(files, [5, FAR, FAR, FAR, FAR], mark, None) for _ in "lr"]
    assert FinishedKeys((0,), True, *both).is_finished(files, [pa.array([0])]).tolist() == [done]


@pytest.mark.parametrize(("mark", "done"), [(14, False), (15, True)])
def test_one_side_is_enough_when_its_last_row_has_left_its_window(tmp_path, mark, done):
    """A left row at 5 of a window of 10 meets a right row at 14, and none at 15."""
    files = open_files(str(tmp_path), sync=False)
    left = side(files, [5, FAR, FAR, FAR, FAR], 30, 10)
    keys = FinishedKeys((0,), True, left, PromisedSide(PromiseFiles(), mark, 10))
    assert keys.is_finished(files, [pa.array([0])]).tolist() == [done]
