"""Hashes: one to one for whole keys, and dealt out to tasks so that each row is somebody's and nobody's twice."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.key_hash import hash_range, mix, rows_in_range
from tests.kernels.drawn import HASHES

WORD = 1 << 64
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
EDGES = [-(1 << 63), -1, 0, 1, (1 << 63) - 1]


def unmix(x):
    """Undo `mix` in Python's integers: a function that can be undone is one to one."""
    x ^= x >> 31 ^ x >> 62
    x = x * pow(0x94D049BB133111EB, -1, WORD) % WORD
    x ^= x >> 27 ^ x >> 54
    x = x * pow(0xBF58476D1CE4E5B9, -1, WORD) % WORD
    x ^= x >> 30 ^ x >> 60
    return (x - 0x9E3779B97F4A7C15) % WORD


@given(st.lists(INT64) | st.just(EDGES))
def test_mix_can_be_undone_for_every_64_bit_key(keys):
    hashes = mix(np.array(keys, np.int64))
    assert hashes.dtype == np.uint64
    assert [unmix(each) for each in hashes.tolist()] == [key % WORD for key in keys]


def test_mix_spreads_neighbouring_keys_over_all_parts():
    """A thousand keys in a row on 8 parts: were they not spread, one part would get them all."""
    parts = mix(np.arange(1000)) >> np.uint64(61)
    assert np.bincount(parts.astype(np.int64), minlength=8).min() > 80


@given(st.integers(1, 5000))
def test_the_parts_cover_every_hash_exactly_once(parts):
    ranges = [hash_range(part, parts) for part in range(parts)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == WORD - 1
    assert all(one[1] + 1 == other[0] for one, other in pairwise(ranges))
    widths = {last - first for first, last in ranges}
    assert max(widths) - min(widths) <= 1, "equal shares"


@given(st.lists(st.integers(0, WORD - 1) | st.sampled_from(HASHES)), st.integers(1, 9))
def test_every_row_of_a_segment_belongs_to_exactly_one_part(hashes, parts):
    segment = np.sort(np.array(hashes, np.uint64))
    rows = [rows_in_range(segment, *hash_range(part, parts)) for part in range(parts)]
    assert [place for each in rows for place in range(len(segment))[each]] == list(range(len(segment)))


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_a_key_is_in_the_same_part_of_both_streams(parts):
    """Or a task would miss the partner: the part depends on the hash and on nothing else."""
    one, other = (
        np.array([2**63 - 1, 2**63], np.uint64),
        np.array([0, 2**63 - 1, 2**63, 2**64 - 1], np.uint64),
    )
    for part in range(parts):
        first, last = hash_range(part, parts)
        mine = set(one[rows_in_range(one, first, last)].tolist())
        assert mine == set(other[rows_in_range(other, first, last)].tolist()) & set(one.tolist())
