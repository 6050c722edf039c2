"""Equal hashes are not equal keys: the keys themselves decide, as Spark's ``=`` has it."""

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.column_checks import with_equal_keys
from penstock.kernels.probe import Pairs, Rows, probe

NAN = float("nan")


def all_pairs(one, other):
    """Every row of one side with every row of the other: what equal hashes would give."""
    i, j = np.divmod(np.arange(len(one) * len(other)), max(1, len(other)))
    return Pairs(i, j, np.zeros(i.size, np.int16))


def equal(one, other, kind):
    """Ask which pairs of values are equal."""
    found = with_equal_keys(all_pairs(one, other), [pa.array(one, kind)], [pa.array(other, kind)])
    return [(one[i], other[j]) for i, j in zip(found.batch, found.state, strict=True)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["", "a", "A", "a ", "ä", "a\u0308"]),
        (pa.binary(), [b"", b"\0", b"\0\0"]),
        (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
        (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("1.11"), Decimal("-1.10")]),
        (pa.date32(), [date(1970, 1, 1), date(2024, 2, 29)]),
        (pa.bool_(), [True, False]),
        (pa.float64(), [0.1, float("inf"), -float("inf"), 5e-324]),
    ],
    ids=str,
)
def test_a_key_equals_itself_and_nothing_else(kind, values):
    assert equal(values, values, kind) == [(each, each) for each in values]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_equals_nan_and_minus_zero_equals_zero(kind):
    found = equal([NAN, 0.0, 1.0], [NAN, -0.0, None], kind)
    assert len(found) == 2
    assert all(np.isnan(both).all() or both == (0.0, -0.0) for both in found)


def test_null_equals_nothing():
    assert equal([None, "a"], [None, "a"], pa.string()) == [("a", "a")]


words = st.lists(st.sampled_from(["a", "b", ""]), max_size=5)


@given(words, words, st.data())
def test_a_key_of_two_columns_is_equal_where_both_are(one, other, data):
    numbers = st.integers(0, 1)
    mine = [data.draw(numbers) for _ in one]
    theirs = [data.draw(numbers) for _ in other]
    found = with_equal_keys(
        all_pairs(one, other),
        [pa.array(one, pa.string()), pa.array(mine, pa.int64())],
        [pa.array(other, pa.string()), pa.array(theirs, pa.int64())],
    )
    expected = {
        (i, j)
        for i in range(len(one))
        for j in range(len(other))
        if (one[i], mine[i]) == (other[j], theirs[j])
    }
    assert set(zip(found.batch.tolist(), found.state.tolist(), strict=True)) == expected
    assert len(found) == len(expected)


def test_keys_that_collide_are_told_apart_after_the_probe():
    """One hash for all rows, as if every digest collided."""
    mine, theirs = ["x", "y", "x"], ["y", "x", "z"]
    left, right = (Rows(np.full(3, 42, np.uint64), np.arange(3)) for _ in range(2))
    (found,) = probe(left, right, np.array([-9, 10]), batch_is_left=True)
    assert len(found) == 9
    kept = with_equal_keys(found, [pa.array(mine)], [pa.array(theirs)])
    assert {(int(i), int(j)) for i, j in zip(kept.batch, kept.state, strict=True)} == {(0, 1), (2, 1), (1, 0)}
