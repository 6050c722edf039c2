"""Folding by group: as plain dictionaries do it, of every type, in one go or in parts."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.fold import (
    carried,
    codes_of,
    count,
    group_sums,
    is_too_large,
    least,
    limbs_of,
    number_groups,
    to_decimals,
    to_ints,
)
from penstock.kernels.ordered_values import Ordered
from tests.kernels.drawn import examples

BIG = 2**63 - 1
DIGITS = 10**38 - 1
WIDE = Context(prec=80)
INTS = (0, 1, -1, 2**31, -(2**31), 2**32 - 1, 2**32, BIG, BIG - 1, -BIG - 1, -BIG)
NAN = float("nan")
FLOATS = (0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, NAN, 5e-324, 1.7e308, -1.7e308)
UTC = dt.UTC
TYPES = {
    "tinyint": (pa.int8(), (0, -128, 127)),
    "int": (pa.int32(), (0, 1, 2**31 - 1, -(2**31))),
    "bigint": (pa.int64(), INTS),
    "float": (pa.float32(), (0.0, -0.0, 1.5, -math.inf, NAN)),
    "double": (pa.float64(), FLOATS),
    "decimal": (pa.decimal128(38, 0), tuple(map(Decimal, (DIGITS, -DIGITS, 0, 7, 2**64)))),
    "cents": (pa.decimal128(10, 2), tuple(map(Decimal, ("0.00", "-0.01", "99999999.99", "2.50")))),
    "string": (pa.string(), ("", "a", "A", "é", "z", "\U0001f600", "￿", "a" * 40)),
    "binary": (pa.binary(), (b"", b"\x00", b"\xff", b"a")),
    "boolean": (pa.bool_(), (True, False)),
    "date": (pa.date32(), (dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31))),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        (dt.datetime(1, 1, 2, tzinfo=UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    ),
    "clock time": (
        pa.timestamp("us"),
        tuple(map(dt.datetime.fromisoformat, ("1969-12-31T23:00", "2026-01-01"))),
    ),
    "interval": (pa.duration("us"), (dt.timedelta(0), dt.timedelta(days=-3), dt.timedelta(microseconds=1))),
}


def column_of(kind):
    """Columns of a type, with nulls and many repetitions."""
    arrow, values = TYPES[kind]
    return st.lists(st.none() | st.sampled_from(values), max_size=30).map(lambda some: pa.array(some, arrow))


def same(one, other):
    """Say whether Spark would put two values in one group."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other


@pytest.mark.parametrize("kind", TYPES)
@examples(8)
@given(data=st.data())
def test_equal_values_have_equal_codes_and_others_have_not(kind, data):
    column = data.draw(column_of(kind))
    codes, values = codes_of(column), column.to_pylist()
    for i, one in enumerate(values):
        for j, other in enumerate(values):
            assert (codes[i] == codes[j]) == same(one, other)


@pytest.mark.parametrize("kind", TYPES)
@examples(8)
@given(data=st.data())
def test_codes_of_a_part_of_a_column_are_of_that_part(kind, data):
    """A slice has an offset into its buffers, which must not be read from their beginning."""
    column = data.draw(column_of(kind))
    first = data.draw(st.integers(0, len(column)))
    part = column.slice(first)
    again = pa.array(part.to_pylist(), part.type)
    ids, _ = number_groups([codes_of(part)])
    assert ids.tolist() == number_groups([codes_of(again)])[0].tolist()


ints = st.sampled_from(INTS) | st.integers(-3, 3)


@examples(40)
@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[ints] * width), min_size=0, max_size=40)))
def test_groups_are_numbered_in_the_order_of_first_sight(rows):
    columns = [np.array(each, np.int64) for each in zip(*rows, strict=True)] or [np.zeros(0, np.int64)]
    ids, firsts = number_groups(columns)
    seen = list(dict.fromkeys(rows))
    assert [seen[each] for each in ids] == rows
    assert [rows[each] for each in firsts] == seen


def test_more_groups_than_the_first_table_has_slots_are_told_apart():
    far = np.arange(20_000, dtype=np.int64) * 1_000_003 - BIG
    for codes in (far, np.concatenate([far, far[::-1]])):
        ids, firsts = number_groups([codes])
        assert firsts.size == far.size
        assert (codes[firsts][ids] == codes).all()


grouped = st.lists(st.tuples(st.integers(0, 3), st.none() | ints), max_size=40)


@examples(40)
@given(grouped)
def test_counts_and_least_values_are_those_of_plain_loops(rows):
    ids = np.array([group for group, _ in rows], np.int64)
    values = np.array([value or 0 for _, value in rows], np.int64)
    valid = np.array([value is not None for _, value in rows], np.bool_)
    found, seen = least(ids, values, valid, 4)
    for group in range(4):
        mine = [value for each, value in rows if each == group and value is not None]
        assert seen[group] == bool(mine)
        if mine:
            assert found[group] == min(mine)
    assert count(ids, 4).tolist() == [ids.tolist().count(group) for group in range(4)]


@examples(40)
@given(grouped)
def test_whole_numbers_are_summed_exactly_whatever_their_size(rows):
    ids = np.array([group for group, _ in rows], np.int64)
    limbs = [
        group_sums(ids, each, 4) for each in limbs_of(pa.array([value for _, value in rows], pa.int64()))
    ]
    for group in range(4):
        total = sum(value or 0 for each, value in rows if each == group)
        mine = [each[group : group + 1] for each in limbs]
        assert is_too_large(mine) == (not -BIG - 1 <= total <= BIG)
        if not is_too_large(mine):
            assert to_ints(mine).tolist() == [total]


decimals = st.integers(-DIGITS, DIGITS) | st.sampled_from([DIGITS, -DIGITS, 0])


@examples(40)
@given(st.lists(st.none() | decimals, min_size=1, max_size=12), st.integers(0, 38), st.integers(0, 3))
def test_decimals_are_summed_exactly_up_to_38_digits(values, scale, first):
    scaled = [None if each is None else WIDE.scaleb(Decimal(each), -scale) for each in values]
    first = min(first, len(values) - 1)
    column = pa.array(scaled, pa.decimal128(38, scale)).slice(first)
    total = sum(each or 0 for each in values[first:])
    limbs = [group_sums(np.zeros(len(column), np.int64), each, 1) for each in limbs_of(column)]
    if abs(total) <= DIGITS:
        assert not is_too_large(limbs)
        assert to_decimals(limbs, column.type).to_pylist() == [WIDE.scaleb(Decimal(total), -scale)]


@examples(40)
@given(st.lists(st.tuples(ints, ints), min_size=1, max_size=5))
def test_carrying_changes_no_sum(pairs):
    low, high = (np.array(each, np.int64) // 4 for each in zip(*pairs, strict=True))
    for one, other in zip(zip(low, high, strict=True), zip(*carried([low, high]), strict=True), strict=True):
        assert int(one[0]) + (int(one[1]) << 32) == int(other[0]) + (int(other[1]) << 32)
        assert 0 <= other[0] < 1 << 32


def order_of(value):
    """Give what Python sorts a value by as Spark does: NaN comes last, texts by their bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("kind", TYPES)
@examples(8)
@given(data=st.data())
def test_numbers_are_in_the_order_of_the_values_and_lead_back_to_them(kind, data):
    column = data.draw(column_of(kind))
    ordered, values = Ordered.of(column), column.to_pylist()
    assert ordered.valid.tolist() == [each is not None for each in values]
    known = [n for n, each in enumerate(values) if each is not None]
    for i in known:
        for j in known:
            one, other = order_of(values[i]), order_of(values[j])
            assert (ordered.numbers[i] < ordered.numbers[j]) == (one < other)
    back = ordered.back(ordered.numbers, ordered.valid)
    assert back.type == column.type
    assert all(same(one, other) for one, other in zip(back.to_pylist(), values, strict=True))
