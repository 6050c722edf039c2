"""Columns that are the same in all entries are left out of tables and files, and are there again when they are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.files import open_files
from penstock.state.pane_columns import column_ints, filled, same_in, saying, some_of, together, without_same
from penstock.state.panes import map_panes, read_panes, sorted_rows, write_panes
from tests.kernels.drawn import examples

NAMES = ["o", "c", "n"]
few = st.integers(1, 2)
tables = st.lists(st.tuples(st.integers(-9, 9), few, few), min_size=1, max_size=6).map(
    lambda rows: pa.table({
        name: pa.array(column, pa.int64())
        for name, column in zip(NAMES, zip(*rows, strict=True), strict=True)
    })
)  # fmt: skip


def plain(table):
    """Give the rows of a table with all its columns."""
    whole = filled(table)
    assert not same_in(whole)
    return whole.select(NAMES).to_pylist()


@examples(40)
@given(tables)
def test_what_is_left_out_is_what_is_the_same_and_comes_back(table):
    narrow = without_same(table, ["c", "n"])
    assert plain(narrow) == plain(table)
    for name in ("c", "n"):
        values = set(table.column(name).to_pylist())
        assert same_in(narrow).get(name) == (values.pop() if len(values) == 1 else None)
        assert column_ints(narrow, name).tolist() == table.column(name).to_pylist()


@examples(60)
@given(st.lists(st.tuples(tables, st.lists(st.sampled_from(["c", "n"]))), min_size=1, max_size=4))
def test_tables_that_leave_different_columns_out_are_laid_end_to_end(some):
    narrow = [without_same(table, names) for table, names in some]
    assert plain(together(narrow)) == [row for table, _ in some for row in plain(table)]


@examples(20)
@given(table=tables)
def test_a_file_has_them_again_and_one_with_all_its_columns_is_read_as_it_is(tmp_path_factory, table):
    files = open_files(str(tmp_path_factory.mktemp("state")), sync=False)
    made = write_panes(files, "set", table, 0)
    in_order = sorted(plain(table), key=lambda row: row["o"])
    assert plain(read_panes(files, made)) == in_order
    assert same_in(map_panes(files, made)) == same_in(without_same(table, ["c", "n"]))
    with files.writer("panes/set/old.arrow") as out, pa.ipc.new_file(out, table.schema) as file:
        file.write_table(table)  # as earlier versions did
    old = read_panes(files, type(made)("panes/set/old.arrow", 0, table.num_rows, 0, 0))
    assert old.equals(table)


@examples(40)
@given(st.lists(st.booleans(), max_size=12))
def test_some_rows_of_a_table_are_those_that_are_wanted(wanted):
    table = pa.table({"o": pa.array(range(len(wanted)), pa.int64())})
    got = some_of(table, np.array(wanted, np.bool_))
    assert got.column("o").to_pylist() == [row for row, is_wanted in enumerate(wanted) if is_wanted]


def test_a_table_says_what_it_leaves_out_beside_what_it_said_before():
    table = saying(pa.table({"o": [1]}).replace_schema_metadata({"a": "b"}), {"n": 1})
    assert table.schema.metadata[b"a"] == b"b"
    assert same_in(filled(table)) == {}
    assert filled(table).schema.metadata == {b"a": b"b"}


@examples(40)
@given(
    steps=st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 1)), min_size=1, max_size=20),
    step=st.sampled_from((1, 7, 1 << 40)),
)
def test_rows_are_put_in_order_whatever_the_step(steps, step):
    order = np.array([each * step for each, _ in steps], np.int64)
    parts = np.array([part for _, part in steps], np.int64)
    rows, ends = sorted_rows(order, parts, 2, step)
    right = sorted(range(len(steps)), key=lambda row: (parts[row], order[row]))
    assert rows.tolist() == right
    assert ends.tolist() == [int((parts == 0).sum()), len(steps)]
