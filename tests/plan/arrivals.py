"""Streams by the paper's definitions, in nested loops: scrambling, multiplicity, lag, and a join with FIFO buffers.

A stream is a list of values in the order of arrival; positions begin at 1, as in the paper.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import product
from math import inf

from hypothesis import strategies as st


@st.composite
def streams(draw, *, most=9, values=6, early=4):
    """Draw a stream that is more or less in order, with values that come more than once, or not at all."""
    ordered = sorted(draw(st.lists(st.integers(1, values), min_size=1, max_size=most)))
    early = draw(st.lists(st.integers(0, early), min_size=len(ordered), max_size=len(ordered)))
    moved = sorted((n - back, value) for n, (value, back) in enumerate(zip(ordered, early, strict=True)))
    return [value for _, value in moved]


def scrambling(values):
    """Definition 2.2: the most positions by which a row comes after one that is not smaller."""
    pairs = ((p, q) for p, q in product(range(len(values)), repeat=2) if values[p] <= values[q])
    return max((p - q for p, q in pairs), default=0)


def multiplicity(values):
    return max(Counter(values).values(), default=1)


def lag(own, other, own_rows, other_rows):
    """Definition 2.6: how far `own` is ahead when so many rows of both have arrived."""
    turn = sorted(other)[other_rows - 1]
    return own_rows - sum(value <= turn for value in own)


def arrivals(*given, rates, phases):
    """Lay streams with rows at even intervals out in the order of arrival: (time, stream, value)."""
    rows = [
        (phase + position / rate, stream, value)
        for stream, (values, rate, phase) in enumerate(zip(given, rates, phases, strict=True))
        for position, value in enumerate(values, 1)
    ]
    return sorted(rows, key=lambda row: row[:2])


def largest_lag(given, order, i, j):
    """Give the largest lag from stream i to j at an arrival of j; without one, nothing is ever ahead."""
    seen, found = Counter(), -inf
    for _, stream, _ in order:
        seen[stream] += 1
        if stream == j:
            found = max(found, lag(given[i], given[j], seen[i], seen[j]))
    return found


def fifo_join(order, buffers):
    """Join rows as they come with the last so many rows of the other streams: (time, value) of each result."""
    kept = [deque(maxlen=rows) for rows in buffers]
    results = []
    for time, stream, value in order:
        met = 1
        for other, rows in enumerate(kept):
            met *= rows.count(value) if other != stream else 1
        results += [(time, value)] * met
        kept[stream].append(value)
    return results


def full_join(given):
    """Count the results that exist."""
    return sum(len(set(row)) == 1 for row in product(*given))
