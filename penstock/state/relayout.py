"""Rewrite a segment in another layout: the same rows, with the predicate bits of a new plan.

A bit of the old layout is copied; a new one was evaluated over the stored rows and is an input here.  Order, keys and
columns are unchanged, so the segment stays sorted.

Segments of several old layouts are merged by leaving out all bits and columns that the current layout does not have
(`CommonLayout`).

In:  a segment, the meaning of its old and new bits, and the answers of new predicates.
Out: a segment of the new layout.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.kernels.sets import find_patterns, to_words, words_for
from penstock.state.segment import (
    HASH,
    KEY,
    PATTERN,
    TIME,
    SegmentRows,
    concat_segments,
    read_segment,
    write_ordered,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.kernels.sets import Words
    from penstock.state.claims import Claim
    from penstock.state.files import Files
    from penstock.state.segment import Segment, SegmentColumns


@dataclass(frozen=True, slots=True)
class BitMeaning:
    """The predicates of a segment's old and new bits, and the number of the new layout."""

    before: Sequence[str]
    after: Sequence[str]
    layout: int


@dataclass(frozen=True, slots=True)
class CommonLayout:
    """A layout that segments of several layouts are merged into.

    `bits` has, by old layout, the old number of each bit; `claims` has, by old layout, the claims on its rows.
    """

    layout: int
    columns: tuple[str, ...]
    bits: Mapping[int, tuple[int, ...]]
    claims: Mapping[int, Sequence[Claim]]

    def of(self, rows: SegmentRows, layout: int) -> SegmentRows:
        """Convert the rows of a segment to this layout."""
        time_columns = {name: kind for name, kind in rows.time_columns.items() if name in self.columns}
        names = [HASH, TIME, *([PATTERN] if self.bits[layout] else [])]
        names += [name for name in rows.batch.schema.names if name.startswith(KEY)]
        names += [name for name in self.columns if name not in time_columns]
        pattern = rows.rows.pattern if self.bits[layout] else None
        table = _moved_bits(rows.table, self.bits[layout])
        return SegmentRows(replace(rows.rows, pattern=pattern), table, rows.batch.select(names), time_columns)


def _moved_bits(table: Words, old_bits: Sequence[int]) -> Words:
    """Return the patterns with the remaining bits in their new order.

    >>> _moved_bits(to_words([0b101, 0b110], 3), (2, 0)).tolist()
    [[3], [1]]
    """
    if not old_bits:
        return to_words([0], 0)
    out = np.zeros((len(table), words_for(len(old_bits))), np.uint64)
    for bit, old in enumerate(old_bits):
        one = (table[:, old // 64] >> np.uint64(old % 64)) & np.uint64(1)
        out[:, bit // 64] |= one << np.uint64(bit % 64)
    return out


def relayout_segment(
    files: Files, log: str, segment: Segment, meaning: BitMeaning, answers: Mapping[str, NDArray[np.bool_]]
) -> Segment:
    """Write a segment in the new layout; `answers` has the new predicates, row by row."""
    rows = read_segment(files, segment)
    content = concat_segments([rows])
    carried = {
        predicate: _answers(content, bit)
        for bit, predicate in enumerate(meaning.before)
        if predicate in meaning.after
    }
    table, pattern = _patterns({**carried, **answers}, meaning.after, content.t.size)
    fresh = type(content)(content.h, content.t, pattern, table, content.columns, content.time_columns)
    return write_ordered(
        files,
        f"log/{log}/{segment.first:010d}-{uuid.uuid4().hex}.arrow",
        fresh,
        np.arange(content.t.size),
        first=segment.first,
        last=segment.last,
        generation=segment.generation,
        layout=meaning.layout,
    )


def _answers(content: SegmentColumns, bit: int) -> NDArray[np.bool_]:
    """Return one predicate's answers from the patterns."""
    if content.pattern is None:
        return np.zeros(content.t.size, np.bool_)
    word = content.table[:, bit // 64] >> np.uint64(bit % 64)
    answers: NDArray[np.bool_] = ((word & np.uint64(1)) != 0)[content.pattern]
    return answers


def _patterns(
    answers: Mapping[str, NDArray[np.bool_]], order: Sequence[str], size: int
) -> tuple[NDArray[np.uint64], NDArray[np.int32] | None]:
    """Pack answers into bits in the given order, and number the distinct combinations."""
    if not order:
        return to_words([0], 0), None
    words = np.zeros((size, words_for(len(order))), np.uint64)
    for bit, predicate in enumerate(order):
        words[:, bit // 64] |= answers[predicate].astype(np.uint64) << np.uint64(bit % 64)
    return find_patterns(words)
