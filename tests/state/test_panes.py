"""Partial aggregates on disk: reduced, cut, merged and read by node, they come to what they were.

pane        0 1 2 3 4 5 6 7 8 9 …
level 1     |       0       |       1       |          nodes_between(5, 18, 1):  5 6 7 | node 1 | 16 17
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.kernels.aggregates.folded import fold_values
from penstock.state.files import open_files
from penstock.state.panes import (
    CLASS,
    ORDER,
    PANE,
    PaneFile,
    Shape,
    choose_merges,
    group_hashes,
    keys_in,
    laid_out,
    levels_for,
    node_of,
    nodes_between,
    put_together,
    read_panes,
    reduce_table,
    rows_between,
    with_nodes,
    write_panes,
)
from tests.kernels.drawn import examples
from tests.kernels.test_fold import TYPES

SUMS = ("sum",)


def table_of(rows):
    """Lay out entries: birth, pane, class, key, and the value that is summed."""
    born, pane, classes, key, value = zip(*rows, strict=True) if rows else ([],) * 5
    column = pa.array(value, pa.int64())
    folded = fold_values("sum", column, np.arange(len(rows)), len(rows))
    columns = {
        ORDER: pa.array(born, pa.int64()),
        PANE: pa.array(pane, pa.int64()),
        CLASS: pa.array(classes, pa.int64()),
        "k0": pa.array(key, pa.string()),
        "n": pa.array([1] * len(rows), pa.int64()),
        **{f"m0.{name}": each for name, each in folded.stored().items()},
    }
    shape = Shape((pa.string(),), 0, SUMS, (pa.int64(),))
    return pa.table(columns).replace_schema_metadata(shape.metadata())


def totals(table, by=(ORDER, PANE, CLASS, "k0")):
    """Count pairs and sum values by some columns."""
    total = Counter()
    for row in table.to_pylist():
        key = tuple(row[name] for name in by)
        total[(*key, "n")] += row["n"]
        total[(*key, "s")] += (row["m0.1"] << 32) + row["m0.0"]
    return total


small = st.integers(-9, 9)
entries = st.lists(
    st.tuples(small, st.integers(-70, 70), st.integers(1, 7), st.sampled_from(["a", "b", None]), small),
    max_size=30,
)


@examples(40)
@given(entries, st.integers(0, 30))
def test_reduced_in_parts_and_then_together_is_reduced_at_once(rows, cut):
    by = [ORDER, PANE, CLASS, "k0"]
    parts = [reduce_table(table_of(some), by, SUMS) for some in (rows[:cut], rows[cut:])]
    names = parts[0].column_names
    together = reduce_table(pa.concat_tables([each.select(names) for each in parts]), by, SUMS)
    assert totals(together) == totals(table_of(rows))
    assert together.num_rows == len({row[:4] for row in rows})


@examples(60)
@given(st.integers(-5000, 5000), st.integers(0, 5000), st.integers(0, 4))
def test_nodes_cover_exactly_the_panes_between(since, length, levels):
    covered = []
    for level, first, last in nodes_between(since, since + length, levels):
        assert first < last
        assert level <= levels
        assert first % 8**level == 0
        assert last % 8**level == 0
        covered += range(first, last)
    assert covered == list(range(since, since + length))


@given(st.integers(1, 10**6), st.integers(-(10**6), 10**6))
def test_as_few_nodes_are_read_as_there_are_levels(panes, since):
    levels = levels_for(panes)
    runs = nodes_between(since, since + panes, levels)
    assert sum((last - first) // 8**level for level, first, last in runs) <= 2 * 7 * levels + 8 + 8


@examples(40)
@given(entries.filter(bool), st.integers(-70, 70), st.integers(0, 140), st.integers(0, 2))
def test_what_nodes_come_to_is_what_their_panes_come_to(rows, since, length, levels):
    noded = with_nodes(table_of(rows), levels, SUMS)
    noded = noded.take(pa.array(np.argsort(noded.column(ORDER).to_numpy(), kind="stable")))
    parts = [
        rows_between(noded, int(node_of(level, first)), int(node_of(level, last - 1)) + 1)
        for level, first, last in nodes_between(since, since + length, levels)
    ]
    got = Counter()
    for each in parts:
        got.update(totals(each, (CLASS, "k0")))  # adding counters would leave out what is below 0
    right = totals(table_of([row for row in rows if since <= row[1] < since + length]), (CLASS, "k0"))
    assert {name: each for name, each in got.items() if each} == {
        name: each for name, each in right.items() if each
    }


@given(st.integers(0, 3), st.lists(st.integers(-(2**40), 2**40), min_size=2))
def test_nodes_of_a_level_are_in_the_order_of_their_panes_and_levels_apart(level, panes):
    nodes = node_of(level, np.array(panes, np.int64))
    for one, node in zip(panes, nodes, strict=True):
        for other, theirs in zip(panes, nodes, strict=True):
            assert (node < theirs) == (one >> 3 * level < other >> 3 * level)
        assert node < int(node_of(level + 1, -(2**40)))


# --- keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
@examples(10)
@given(data=st.data())
def test_the_hash_of_a_group_does_not_depend_on_who_is_beside_it(kind, data):
    """A group is looked for by its hash in another file, and is in one part only."""
    arrow, values = TYPES[kind]
    key = data.draw(st.none() | st.sampled_from(values))
    beside = data.draw(st.lists(st.none() | st.sampled_from(values), max_size=5))
    alone = group_hashes(pa.table({"k0": pa.array([key], arrow)}))
    among = group_hashes(pa.table({"k0": pa.array([*beside, key], arrow)}))
    assert alone[0] == among[-1]
    assert (among >= 0).all()


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_zeros_of_both_signs_are_one_group(kind):
    zeros = pa.array([0.0, -0.0], kind)
    assert len(set(group_hashes(pa.table({"k0": zeros})).tolist())) == 1


def test_keys_of_several_columns_have_other_hashes_the_other_way_round():
    one = group_hashes(pa.table({"k0": [1, 2], "k1": [2, 1]}))
    assert one[0] != one[1]


struct = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])


@given(
    st.lists(
        st.none()
        | st.fixed_dictionaries(
            {
                "a": st.none() | small,
                "b": st.none() | st.fixed_dictionaries({"c": st.none() | st.text(max_size=3)}),
            }
        )
    )
)
def test_a_struct_is_laid_out_field_by_field_and_put_together_again(values):
    key = pa.array(values, struct)
    assert put_together(struct, laid_out(key, "k0"), "k0").to_pylist() == values


def test_keys_and_values_are_told_from_the_other_columns():
    names = [ORDER, PANE, CLASS, "n", "k0", "k1?", "k1.0", "v0", "v1.0", "m0.v", "m1.n"]
    table = pa.table({name: [0] for name in names})
    assert keys_in(table) == ["k0", "k1?", "k1.0", "v0", "v1.0"]
    assert keys_in(table, "k") == ["k0", "k1?", "k1.0"]


# --- files --------------------------------------------------------------------------------------------------------


@examples(15)
@given(rows=entries, since=small, until=small)
def test_a_file_is_in_order_and_says_where_it_begins_and_ends(tmp_path_factory, rows, since, until):
    files = open_files(str(tmp_path_factory.mktemp("panes")))
    file = write_panes(files, "set", table_of(rows), 0, folded=True, generation=3, arrived=7.0, part=2)
    if not rows:
        assert file is None
        return
    births = sorted(row[0] for row in rows)
    assert (file.rows, file.first, file.last) == (len(rows), births[0], births[-1])
    assert (file.newest, file.folded, file.generation, file.arrived, file.part) == (
        max(row[1] for row in rows), True, 3, 7.0, 2,
    )  # fmt: skip
    table = read_panes(files, file)
    assert table.column(ORDER).to_pylist() == births
    assert totals(table) == totals(table_of(rows))
    between = rows_between(table, since, until).column(ORDER).to_pylist()
    assert between == [each for each in births if since <= each < until]


def file_of(table, generation, *, folded=False):
    return PaneFile(f"{table}-{generation}-{folded}", table, 1, 0, 0, folded=folded, generation=generation)


@given(st.lists(st.builds(file_of, st.integers(0, 2), st.integers(0, 2), folded=st.booleans()), max_size=60))
def test_only_files_of_one_kind_and_generation_are_merged_and_only_enough_of_them(files):
    files = [replace(each, name=f"f{number}") for number, each in enumerate(files)]
    runs = choose_merges(files)
    for run in runs:
        assert len(run) >= limits.MERGE_FAN_IN
        assert len({(each.table, each.folded, each.generation) for each in run}) == 1
    merged = {each.name for run in runs for each in run}
    left = Counter((each.table, each.folded, each.generation) for each in files if each.name not in merged)
    assert all(count < limits.MERGE_FAN_IN for count in left.values())
