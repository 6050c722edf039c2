"""A segment gives back what was put in, sorted, mapped and not copied, and its statistics are true."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.kernels.sets import find_patterns, to_words
from penstock.state.codec import from_json, to_json
from penstock.state.files import open_files
from penstock.state.segment import KEY, Segment, SegmentColumns, concat_segments, read_segment, write_segment
from tests.kernels.drawn import HASHES, examples

POINT = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
TYPES = {
    pa.int8(): [1, None, -128],
    pa.int16(): [1, None, 2**15 - 1],
    pa.int32(): [None, 7, -(2**31)],
    pa.int64(): [2**63 - 1, None, -(2**63)],
    pa.float32(): [0.5, None, float("inf")],
    pa.float64(): [0.1, -0.0, None],
    pa.string(): ["", None, "Zürich"],
    pa.binary(): [b"\0", None, b""],
    pa.bool_(): [True, None, False],
    pa.date32(): [date(2024, 2, 29), None, date(1, 1, 1)],
    pa.timestamp("us", "UTC"): [0, None, -1],
    pa.timestamp("us"): [0, None, 2**50],
    pa.decimal128(10, 2): [Decimal("1.10"), None, Decimal("-99999999.99")],
    pa.decimal128(38, 0): [Decimal(10) ** 37, None, Decimal(0)],
    pa.list_(pa.int64()): [[], None, [1, None]],
    POINT: [{"x": 1, "y": ["a", None]}, None, {"x": None, "y": None}],
    pa.map_(pa.string(), pa.int32()): [[("a", 1)], None, []],
    pa.null(): [None, None, None],
}


def content(h, t, columns=None, bits=None, *, wide=0, time_columns=None):
    """Put rows together as ingest does."""
    table, pattern = (to_words([0], 0), None) if bits is None else find_patterns(to_words(bits, wide))
    return SegmentColumns(
        np.array(h, np.uint64), np.array(t, np.int64), pattern, table, columns or {}, time_columns or {}
    )


def bits_of(rows):
    """Read each row's predicate bits back."""
    if rows.rows.pattern is None:
        return [0] * rows.rows.t.size
    numbers = [sum(int(word) << (64 * w) for w, word in enumerate(each)) for each in rows.table]
    return [numbers[place] for place in rows.rows.pattern]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_column_of_any_type_comes_back_in_the_order_of_the_rows(kind, tmp_path):
    files = open_files(str(tmp_path), sync=False)
    column = pa.array(TYPES[kind], kind)
    made = write_segment(
        files, "log/a/1.arrow", content([9, 1, 5], [0, 0, 0], {"it": column}), first=3, last=4
    )
    back = read_segment(files, made).column("it")
    assert back.type == kind
    assert back.to_pylist() == column.take(pa.array([1, 2, 0])).to_pylist()
    assert (made.first, made.last, made.rows) == (3, 4, 3)


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Oslo"), pa.timestamp("us")]
)
def test_the_event_time_is_stored_once_and_read_as_the_column_it_was(kind, tmp_path):
    files = open_files(str(tmp_path), sync=False)
    made = write_segment(
        files, "s.arrow", content([2, 1], [-5, 10**15], time_columns={"ts": kind}), first=0, last=0
    )
    rows = read_segment(files, made)
    assert rows.column("ts").equals(pa.array([10**15, -5], pa.int64()).cast(kind))
    assert rows.batch.schema.names == ["penstock.h", "penstock.t"]


def test_a_mapped_segment_is_a_view_of_its_file_and_cannot_be_written_to(tmp_path):
    files = open_files(str(tmp_path), sync=False)
    size = 100_000
    values = {"v": pa.array(np.arange(size))}
    made = write_segment(
        files, "s.arrow", content(np.arange(size), np.zeros(size), values, [0] * size), first=0, last=0
    )
    before = pa.total_allocated_bytes()
    rows = read_segment(files, made)
    assert pa.total_allocated_bytes() - before < made.bytes / 10, "nothing of it was copied"
    for view, name in (
        (rows.rows.h, "penstock.h"),
        (rows.rows.t, "penstock.t"),
        (rows.rows.pattern, "penstock.p"),
    ):
        assert not view.flags.writeable
        assert not view.flags.owndata
        assert view.ctypes.data == rows.batch.column(name).buffers()[1].address
    part = rows.rows.part(slice(10, 20))
    assert part.t.ctypes.data == rows.rows.t.ctypes.data + 80


def test_the_key_itself_is_stored_where_the_hash_does_not_hold_all_of_it(tmp_path):
    files = open_files(str(tmp_path), sync=False)
    keys = {f"{KEY}0": pa.array(["b", "a"]), f"{KEY}1": pa.array([1, 2]), "penstock": pa.array([0, 0])}
    made = write_segment(files, "s.arrow", content([2, 1], [0, 0], keys), first=0, last=0)
    stored = read_segment(files, made).keys()
    assert [each.to_pylist() for each in stored] == [["a", "b"], [2, 1]]


rows_drawn = st.lists(
    st.tuples(st.sampled_from(HASHES), st.integers(-9, 9), st.sampled_from((0, 1, 3, 1 << 64))),
    min_size=1,
    max_size=12,
)


def write(files, name, drawn, *, selective=True):
    """Write drawn rows, numbered in the order drawn."""
    columns = {"id": pa.array([number for number, _ in enumerate(drawn)], pa.int64())}
    bits = [each[2] for each in drawn] if selective else None
    return write_segment(
        files,
        name,
        content([each[0] for each in drawn], [each[1] for each in drawn], columns, bits, wide=65),
        first=0,
        last=0,
    )


@examples(40)
@given(rows_drawn)
def test_statistics_say_what_the_rows_are(tmp_path_factory, drawn):
    files = open_files(str(tmp_path_factory.mktemp("s")), sync=False)
    made = write(files, "s.arrow", drawn)
    times = [t for _, t, _ in drawn]
    assert (made.rows, made.min_t, made.max_t) == (len(drawn), min(times), max(times))
    assert made.bytes > 0
    counted = {each.bits: (each.rows, each.min_t, each.max_t) for each in made.patterns}
    assert len(counted) == len(made.patterns)
    for bits in {each[2] for each in drawn}:
        mine = [t for _, t, b in drawn if b == bits]
        assert counted.pop(bits) == (len(mine), min(mine), max(mine))
    assert not counted, "no pattern that no row has"
    assert from_json(json.loads(json.dumps(to_json(made))), Segment) == made


@examples(40)
@given(rows_drawn)
def test_rows_come_back_with_their_own_bits_in_segment_order(tmp_path_factory, drawn):
    files = open_files(str(tmp_path_factory.mktemp("s")), sync=False)
    rows = read_segment(files, write(files, "s.arrow", drawn))
    order = rows.column("id").to_pylist()
    assert order == sorted(range(len(drawn)), key=lambda place: drawn[place][:2])
    got = zip(rows.rows.h.tolist(), rows.rows.t.tolist(), bits_of(rows), strict=True)
    assert list(got) == [drawn[place] for place in order]


def test_a_segment_without_predicates_counts_all_its_rows_as_one_pattern(tmp_path):
    made = write(open_files(str(tmp_path), sync=False), "s.arrow", [(1, 5, 0), (1, 7, 0)], selective=False)
    (count,) = made.patterns
    assert (count.bits, count.rows, count.min_t, count.max_t) == (0, 2, 5, 7)


def test_more_patterns_than_can_be_counted_are_not_counted(tmp_path):
    files = open_files(str(tmp_path), sync=False)
    for patterns in (limits.MAX_SEGMENT_PATTERNS, limits.MAX_SEGMENT_PATTERNS + 1):
        made = write(files, f"{patterns}.arrow", [(1, 0, bits) for bits in range(patterns)])
        assert len(made.patterns) == (patterns if patterns <= limits.MAX_SEGMENT_PATTERNS else 0)


@examples(40)
@given(st.lists(rows_drawn, min_size=1, max_size=4), st.booleans())
def test_segments_laid_end_to_end_keep_every_rows_bits_under_one_table(tmp_path_factory, batches, selective):
    files = open_files(str(tmp_path_factory.mktemp("s")), sync=False)
    parts = [
        read_segment(files, write(files, f"{number}.arrow", drawn, selective=selective))
        for number, drawn in enumerate(batches)
    ]
    together = concat_segments(parts)
    assert together.h.tolist() == [h for part in parts for h in part.rows.h.tolist()]
    assert together.columns["id"].to_pylist() == [
        each for part in parts for each in part.column("id").to_pylist()
    ]
    if not selective:
        assert together.pattern is None
        return
    table = [sum(int(word) << (64 * w) for w, word in enumerate(each)) for each in together.table]
    assert len(set(table)) == len(table), "no pattern twice"
    assert [table[place] for place in together.pattern] == [bits for part in parts for bits in bits_of(part)]


def test_segments_of_which_one_has_more_columns_are_laid_end_to_end_with_those_of_both(tmp_path):
    """The first got the bits of a later layout, and kept what that one has no use for."""
    files, time = open_files(str(tmp_path)), {"ts": pa.timestamp("us")}
    old = content([1], [10], {"v": pa.array([5]), "gone": pa.array([7])}, time_columns=time)
    new = content([2], [20], {"v": pa.array([6])})
    made = [write_segment(files, name, each, first=0, last=0) for name, each in (("old", old), ("new", new))]
    laid = concat_segments([read_segment(files, each) for each in made])
    assert list(laid.columns) == ["v"]
    assert laid.columns["v"].to_pylist() == [5, 6]
    assert laid.time_columns == {}
