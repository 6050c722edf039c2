"""Small worlds for the tests of this room: few keys, few instants, so that ties and edges are the rule.

Rows are `Event`s of the reference, named by their place; `as_rows` lays them out as a segment does.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from penstock.kernels.probe import Rows
from penstock.kernels.reference import Event, nested_loop_join
from penstock.kernels.sets import to_words
from penstock.sql.query import Range

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

HASHES = (0, 1, 2**63 - 1, 2**63, 2**64 - 1)
"""Keys, at once their own hashes: both ends of the range and the place where a signed number would turn over."""


def examples(count: int) -> settings:
    """Ask for so many examples in a hundred of the profile's: a slow test asks for fewer, in every profile."""
    return settings(max_examples=max(1, count * settings.default.max_examples // 100))


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows of one stream with the predicates (as bits) that each satisfies."""

    events: tuple[Event, ...]
    bits: tuple[int, ...]


@st.composite
def events(draw, keys=HASHES, most=12, around=12):
    """A bag of rows of one stream, named 0, 1, 2 …"""
    rows = draw(st.lists(st.tuples(st.sampled_from(keys), st.integers(-around, around)), max_size=most))
    return [Event(key, time, place) for place, (key, time) in enumerate(rows)]


def cuts(around=14):
    """The cuts of some chain, also one that does not reach 0."""
    return st.lists(st.integers(-around, around), min_size=2, max_size=6, unique=True).map(sorted)


def ranges(around=14):
    """Some window, also one that does not contain 0."""
    ends = st.lists(st.integers(-around, around), min_size=2, max_size=2, unique=True)
    return ends.map(lambda two: Range(min(two), max(two)))


def as_rows(
    rows: Sequence[Event], bits: Sequence[int] | None = None, wide: int = 0
) -> tuple[Rows, list[Event], np.ndarray]:
    """Lay rows out in segment order; give the segment, the rows in its order, and its table of patterns."""
    order = sorted(range(len(rows)), key=lambda place: (rows[place].key, rows[place].time))
    ordered = [rows[place] for place in order]
    h = np.array([each.key for each in ordered], np.uint64)
    t = np.array([each.time for each in ordered], np.int64)
    if bits is None:
        return Rows(h, t), ordered, to_words([0], 0)
    distinct = sorted(set(bits)) or [0]
    pattern = np.array([distinct.index(bits[place]) for place in order], np.int32)
    return Rows(h, t, pattern), ordered, to_words(distinct, wide)


def levels_of(left: Sequence[Event], right: Sequence[Event], edges: Sequence[int]) -> Counter[tuple]:
    """Say in nested loops which pairs the slices between the cuts hold: (left name, right name, level)."""
    from collections import Counter

    return Counter(
        (a.name, b.name, level)
        for level, (lo, hi) in enumerate(pairwise(edges))
        for a, b in nested_loop_join(left, right, Range(lo, hi)).elements()
    )
