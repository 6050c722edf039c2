"""What slides by group is what slides by member, added up."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.slide import Sliding
from penstock.kernels.slide_pass import SideParts, slide_groups, slide_parts

INSTANTS, WINDOWS, CUTS = 3, 2, 3


def random_side(random, members):
    """Make entries in cells, born by some instant; a few sums are no numbers."""
    size = random.integers(0, 4 * members)
    sliding = Sliding(
        random.integers(0, CUTS * members, size),
        np.sort(random.integers(0, size + 1, INSTANTS)),
        np.sort(random.integers(-1, CUTS, (INSTANTS, WINDOWS)))[:, ::-1].copy(),
        groups=members,
        cuts=CUTS,
    )
    floats = np.where(random.random(size) < 0.1, np.nan, random.integers(-9, 9, size) / 2)
    whole = [random.integers(-9, 9, size) for _ in range(2)]
    return sliding, SideParts(random.integers(1, 4, size), [whole[0]], [floats], [whole[1]], [(0, 0)])


@given(st.integers(0, 2**31), st.integers(1, 9))
def test_groups_are_their_members_added_up(seed, members):
    random = np.random.default_rng(seed)
    (left, left_parts), (right, right_parts) = (random_side(random, members) for _ in "lr")
    right = Sliding(right.at, right.upto, left.asked, members, CUTS)
    bounds = np.unique(np.concatenate([[0, members], random.integers(0, members, 2)]))
    pairs, sides = slide_groups([[left], [right]], [left_parts, right_parts], bounds)

    slid = slide_parts([[left], [right]], [left_parts, right_parts])
    groups = np.searchsorted(bounds, slid.seen.groups, "right") - 1
    cells = np.repeat(np.arange(INSTANTS * WINDOWS), slid.seen.sizes.T.ravel())
    ids, size = cells * (bounds.size - 1) + groups, INSTANTS * WINDOWS * (bounds.size - 1)
    assert pairs.tolist() == np.bincount(ids, slid.seen.counts, size).astype(int).tolist()
    for own, by_member in zip(sides, slid.sides, strict=True):
        assert own.ints[0].tolist() == np.bincount(ids, by_member.ints[0], size).astype(int).tolist()
        np.testing.assert_allclose(own.floats[0], np.bincount(ids, by_member.floats[0], size))
        least = np.full(size, np.iinfo(np.int64).max)
        np.minimum.at(least, ids, by_member.leasts[0])
        assert own.leasts[0].tolist() == least.tolist()
