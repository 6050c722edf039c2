"""Bytes of rows are those that the values have, and pieces of bounded bytes lose nothing."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.width import bounded, gathered, pieces, row_widths, take_rows

LEAVES = {
    "int": (pa.int32(), st.integers(-9, 9)),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=9)),
    "long": (pa.large_string(), st.text(max_size=9)),
    "bytes": (pa.binary(), st.binary(max_size=9)),
}


@st.composite
def kinds(draw, depth=2):
    """A type and the values it has: plain, or nested up to a depth."""
    shape = draw(st.sampled_from(("leaf", "leaf", "list", "fixed", "struct", "map") if depth else ("leaf",)))
    if shape == "leaf":
        return LEAVES[draw(st.sampled_from(sorted(LEAVES)))]
    inner, values = draw(kinds(depth=depth - 1))
    if shape == "list":
        return pa.list_(inner), st.lists(st.none() | values, max_size=3)
    if shape == "fixed":
        return pa.list_(inner, 2), st.lists(values, min_size=2, max_size=2)
    if shape == "map":
        return pa.map_(pa.string(), inner), st.lists(st.tuples(st.text(max_size=3), values), max_size=2)
    other, more = draw(kinds(depth=depth - 1))
    return pa.struct({"x": inner, "y": other}), st.fixed_dictionaries({"x": values, "y": st.none() | more})


def width(value, kind):
    """Count the bytes of one value, by what it is."""
    types = pa.types
    if types.is_struct(kind):
        return sum(width((value or {}).get(each.name), each.type) for each in kind)
    if types.is_fixed_size_list(kind):
        return sum(width(each, kind.value_type) for each in (value or [None, None]))
    if types.is_map(kind):
        return 4 + sum(width(key, kind.key_type) + width(item, kind.item_type) for key, item in value or ())
    if types.is_list(kind):
        return 4 + sum(width(each, kind.value_type) for each in value or ())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind):
        own = 8 if types.is_large_string(kind) else 4
        return own + len(value.encode() if isinstance(value, str) else value or b"")
    return max(1, kind.bit_width // 8)


@given(st.data())
def test_the_bytes_of_a_row_are_those_of_its_values_also_in_a_part_of_a_column(data):
    kind, values = data.draw(kinds())
    content = data.draw(st.lists(st.none() | values, min_size=1, max_size=8))
    whole = pa.array(content, kind)
    first = data.draw(st.integers(0, len(content) - 1))
    part = whole.slice(first, data.draw(st.integers(1, len(content) - first)))
    rows = np.array(data.draw(st.lists(st.integers(0, len(part) - 1), max_size=9)), np.int64)
    found = np.broadcast_to(row_widths([part, part], rows), rows.size)
    assert found.tolist() == [2 * width(content[first + row], kind) for row in rows]


widths = st.lists(st.integers(0, 40), max_size=30).map(lambda found: np.array(found, np.int64))


@given(widths, st.integers(1, 60))
def test_pieces_cover_all_rows_in_order_and_are_bounded_or_one_row(found, most):
    cut = list(pieces(found.size, found, most))
    assert [row for piece in cut for row in range(piece.start, piece.stop)] == list(range(found.size))
    for piece in cut:
        assert found[piece].sum() <= most or piece.stop - piece.start == 1
    for one, other in pairwise(cut):
        assert found[one].sum() + found[other][0] > most, "no more pieces than there need be"


@given(st.integers(0, 40), st.integers(0, 9), st.integers(1, 60))
def test_rows_of_one_width_are_cut_without_counting(rows, each, most):
    cut = list(pieces(rows, each, most))
    assert [row for piece in cut for row in range(piece.start, piece.stop)] == list(range(rows))
    assert all((piece.stop - piece.start) * each <= most or piece.stop - piece.start == 1 for piece in cut)


batches = st.lists(
    st.lists(st.text(max_size=12), max_size=6).map(
        lambda found: pa.record_batch({"x": pa.array(found, pa.string())})
    ),
    max_size=6,
)


@given(batches, st.integers(8, 80))
def test_batches_are_cut_and_brought_together_without_losing_a_row(found, most):
    rows = [value for batch in found for value in batch.column(0).to_pylist()]
    assert [value for batch in bounded(found, most) for value in batch.column(0).to_pylist()] == rows
    stretches = list(gathered(found, most))
    assert [
        value for stretch in stretches for batch in stretch for value in batch.column(0).to_pylist()
    ] == rows
    for stretch in stretches:
        count = sum(batch.num_rows for batch in stretch)
        assert sum(batch.nbytes for batch in stretch) <= most + 8 or count <= 1


@given(batches.filter(lambda found: any(each.num_rows for each in found)), st.data())
def test_rows_of_many_batches_come_in_the_order_asked_for(found, data):
    rows = [value for batch in found for value in batch.column(0).to_pylist()]
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=12))
    taken = take_rows(found, np.array(order, np.int64))
    assert taken.column(0).to_pylist() == [rows[place] for place in order]
