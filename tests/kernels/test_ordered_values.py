"""Ordered attributes as integers: in the order of DuckDB, which is Spark's here, and equal where values are."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import product

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.kernels.ordered_values import ordered_values

digits = st.integers(-(10**18) + 1, 10**18 - 1)
COLUMNS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0]),
    pa.float32(): st.floats(width=32),
    pa.date32(): st.dates(dt.date(1600, 1, 1)),
    pa.timestamp("us"): st.datetimes(dt.datetime(1600, 1, 1)),  # noqa: DTZ001  (a column without a zone)
    pa.decimal128(18, 4): digits.map(lambda each: Decimal(each).scaleb(-4)),
    pa.decimal128(18, 18): digits.map(lambda each: Decimal(each).scaleb(-18)),
}
columns = st.sampled_from(list(COLUMNS)).flatmap(
    lambda kind: st.lists(st.none() | COLUMNS[kind], min_size=1, max_size=6).map(
        lambda rows: pa.array(rows, kind)
    )
)


@given(columns)
def test_integers_compare_as_the_values_do(column):
    there = column.drop_null()
    integers = ordered_values(column).tolist()
    assert len(integers) == len(there)
    pairs = pa.table({"n": list(range(len(there))), "v": there})
    with duckdb.connect() as db:
        db.register("rows", pairs)
        said = db.execute("SELECT a.n, b.n, a.v < b.v, a.v = b.v FROM rows a, rows b").fetchall()
    for first, second, less, same in said:
        assert (integers[first] < integers[second], integers[first] == integers[second]) == (less, same)
    assert len(said) == len(list(product(integers, repeat=2)))


def test_a_piece_of_a_column_gives_its_own_values():
    column = pa.array([Decimal("1.5"), None, Decimal("-2.5"), Decimal("9.0")], pa.decimal128(5, 1))
    assert ordered_values(column.slice(2)).tolist() == [-25, 90]
    assert ordered_values(column.slice(1, 1)).tolist() == []


@pytest.mark.parametrize("kind", [pa.string(), pa.bool_(), pa.decimal128(30, 2), pa.binary()])
def test_a_column_without_an_order_of_64_bits_is_refused_with_the_ways_out(kind):
    with pytest.raises(InputError, match=r"Write a WINDOW, declare punctuations, or add \[UNBOUNDED\]"):
        ordered_values(pa.array([], kind))
