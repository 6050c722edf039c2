"""Partial aggregates on disk: measures of pairs, by group, pane and set of readers.

A pane file is Arrow IPC with one record batch, sorted by its first column and mapped, so that a reader finds its
entries by binary search.  Columns:

    o           the sort order: the birth of pairs that are not answered yet, or the node of a pane, or the end of a
                bucket, or a hash of the group
    p           the pane
    c           the set of readers, a bit each
    k0, k1 …    the group's key, structs laid out field by field
    v0, v1 …    values of a DISTINCT aggregate, in tables of their own
    n           how many pairs
    m0.n …      the parts of each measure (`penstock.kernels.aggregates.folded`)

Columns `c`, `n` and ``m0.n`` are omitted if they are constant (`penstock.state.pane_columns`).

A pane set has one table of groups, and one table of values for each DISTINCT aggregate.

*Nodes.*  Once every reader has seen a pair at its birth, only its pane matters.  Such entries are kept by pane, and
also by nodes of eight panes, of 64 panes, and so on.  So a long run of panes is read as a few nodes::

    level 1     |        0        |        1        |         from 5 to 18:  5 6 7 | node 1 | 16 17
    level 0     |0|1|2|3|4|5|6|7|8|9| …

In:  folded pairs.  Out: `PaneFile`, the journal's entry for a file, and tables.
Always true: the result does not depend on the order in which tables are reduced, nor on where they are divided.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.kernels.aggregates.folded import Folded, folded_class
from penstock.kernels.fold import codes_of, group_sums, number_groups
from penstock.kernels.key_hash import mix
from penstock.kernels.ordered_values import Ordered
from penstock.kernels.slide import order_by
from penstock.plan.panes import PaneSet
from penstock.state.checksum import map_whole, summed_writer
from penstock.state.pane_columns import column_ints, filled, same_in, whole_column, without_same

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.kernels.key_hash import Ints
    from penstock.sql.query import Measure
    from penstock.state.files import Files

ORDER, PANE, CLASS, ROWS = "o", "p", "c", "n"
RADIX_BITS = 3
"""Eight panes make a node of the next level, and so on."""

_KEYS, _KINDS = b"penstock.keys", b"penstock.kinds"
_LEVEL_SHIFT = 56
_MIDDLE = 1 << 54

FIRST_NODE = 1 << _LEVEL_SHIFT
"""The first number of a node above the panes."""


@dataclass(frozen=True, slots=True)
class PaneFile:
    """The journal's entry for a pane file: rows from `first` on count, those before it are answered."""

    name: str
    table: int
    """0: groups; from 1 on: the values of a DISTINCT aggregate."""
    rows: int
    first: int
    last: int
    """The first and the last value of its sort column."""
    newest: int = 0
    """The newest pane."""
    folded: bool = False
    """Whether births are dropped, and the file is sorted by node."""
    generation: int = 0
    arrived: float = 0.0
    """The arrival of the last of its pairs, in seconds since the epoch."""
    checksum: int | None = None
    part: int = 0
    """The part of the set that has its groups."""


@dataclass(frozen=True, slots=True)
class PaneState:
    """A pane set and its files."""

    panes: PaneSet
    files: tuple[PaneFile, ...] = ()
    promises_seen: float = 0.0
    """If promises end groups: the number of promises that its groups were compared with."""


def panes_folder(panes: str) -> str:
    """Return the directory of a pane set."""
    return f"panes/{panes}"


# --- tables ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a table: the types of its keys, the number of values, and its measures."""

    keys: tuple[pa.DataType, ...]
    values: int
    functions: tuple[str, ...]
    kinds: tuple[pa.DataType | None, ...]

    def metadata(self) -> dict[bytes, bytes]:
        """Return metadata with the types that the columns do not show."""
        keys = pa.schema([(f"k{n}", kind) for n, kind in enumerate(self.keys)])
        kinds = pa.schema([(f"m{n}", kind or pa.null()) for n, kind in enumerate(self.kinds)])
        return {_KEYS: keys.serialize().to_pybytes(), _KINDS: kinds.serialize().to_pybytes()}


def key_types(table: pa.Table) -> list[pa.DataType]:
    """Read the types of a table's group keys."""
    return [field.type for field in pa.ipc.read_schema(pa.py_buffer(table.schema.metadata[_KEYS]))]


def measure_kinds(table: pa.Table) -> list[pa.DataType]:
    """Read the types of the arguments of a table's measures."""
    return [field.type for field in pa.ipc.read_schema(pa.py_buffer(table.schema.metadata[_KINDS]))]


def laid_out(column: pa.Array, name: str) -> dict[str, pa.Array]:
    """Return comparable columns for a key: a struct field by field, with a column of its validity."""
    if not pa.types.is_struct(column.type):
        return {name: column}
    columns = {f"{name}?": column.is_valid()}
    for number, field in enumerate(column.flatten()):
        columns |= laid_out(field, f"{name}.{number}")
    return columns


def put_together(kind: pa.DataType, columns: Mapping[str, pa.Array], name: str) -> pa.Array:
    """Build a key from its comparable columns.

    >>> key = pa.array([{"a": 1, "b": None}, None])
    >>> put_together(key.type, laid_out(key, "k"), "k").equals(key)
    True
    """
    if not pa.types.is_struct(kind):
        return columns[name]
    fields = [kind.field(number) for number in range(kind.num_fields)]
    parts = [put_together(field.type, columns, f"{name}.{number}") for number, field in enumerate(fields)]
    missing = np.asarray(columns[f"{name}?"].to_numpy(zero_copy_only=False)) == 0
    return pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array(missing.astype(np.bool_)))


def keys_in(table: pa.Table, letters: str = "kv") -> list[str]:
    """Name the columns of a table that make up its keys and values."""
    return [name for name in table.column_names if name[0] in letters and name != "v"]


def measures_in(table: pa.Table, functions: Sequence[str]) -> list[Folded]:
    """Read the parts of a table's measures."""
    kinds, same = measure_kinds(table), same_in(table)
    measures = []
    for number, function in enumerate(functions):
        start = f"m{number}."
        stored = {
            name.removeprefix(start): whole_column(table, name)
            for name in table.column_names
            if name.startswith(start)
        }
        left_out = {
            name.removeprefix(start): column_ints(table, name) for name in same if name.startswith(start)
        }
        measures.append(folded_class(function).from_stored(function, stored, kinds[number], left_out))
    return measures


def reduce_table(table: pa.Table, by: Sequence[str], functions: Sequence[str]) -> pa.Table:
    """Fold the rows of a table that are equal in some columns."""
    if not table.num_rows:
        return table
    return _reduced(table, by, functions, [codes_of(whole_column(table, name)) for name in by])[0]


def _reduced(
    table: pa.Table, by: Sequence[str], functions: Sequence[str], codes: Sequence[Ints]
) -> tuple[pa.Table, Ints | None]:
    """Fold rows with equal codes, and return the first row of each; None if all are distinct."""
    ids, firsts = number_groups(codes)
    if firsts.size == table.num_rows:
        return table, None
    columns = {name: whole_column(table, name).take(pa.array(firsts)) for name in by}
    if ROWS in table.column_names:
        columns[ROWS] = pa.array(group_sums(ids, _numbers(table, ROWS), firsts.size))
    for number, measure in enumerate(measures_in(table, functions)):
        stored = measure.by(ids, firsts.size).stored()
        columns |= {f"m{number}.{name}": column for name, column in stored.items()}
    return pa.table(columns).replace_schema_metadata(table.schema.metadata), firsts


def _numbers(table: pa.Table, name: str) -> Ints:
    numbers: Ints = whole_column(table, name).to_numpy(zero_copy_only=False)
    return numbers


def functions_of(measures: Iterable[Measure]) -> list[str]:
    """Return the functions of the measures in the table of groups: those without DISTINCT."""
    return [measure.function for measure in measures if measure.arguments and not measure.distinct]


def group_hashes(table: pa.Table) -> Ints:
    """Return a hash of each entry's group: the same in every table, and below 2 ** 61."""
    code = np.zeros(table.num_rows, np.int64)
    for name in keys_in(table, "k"):
        code = mix(code ^ _value_hashes(whole_column(table, name))).view(np.int64)
    return code & (1 << 61) - 1


def _value_hashes(column: pa.Array) -> Ints:
    """Return hashes of values, independent of other values in the column; 0 for null.

    >>> _value_hashes(pa.array([7, None])).tolist(), _value_hashes(pa.array([7])).tolist()
    ([7, 0], [7])
    """
    ordered = Ordered.of(column)
    numbers = ordered.numbers
    if ordered.values is not None and len(ordered.values):
        values = ordered.values
        texts = values if pa.types.is_binary(values.type) else values.cast(pa.string())
        from pandas.util import hash_array  # noqa: PLC0415 - its import takes a quarter of the engine's

        numbers = hash_array(texts.to_numpy(zero_copy_only=False)).view(np.int64)[numbers]
    return np.where(ordered.valid, numbers, 0)


# --- nodes ----------------------------------------------------------------------------------------------------------


def node_of(level: int, pane: Ints | int) -> Ints | int:
    """Return the number of a node; nodes of one level are in the order of their panes."""
    return (level << _LEVEL_SHIFT) + (pane >> (RADIX_BITS * level)) + _MIDDLE


def levels_for(panes: int) -> int:
    """Return the number of levels above the panes that are useful for reads of so many panes.

    >>> levels_for(8), levels_for(60), levels_for(3600)
    (0, 1, 3)
    """
    return max(0, (max(1, panes) - 1).bit_length() - 1) // RADIX_BITS


def with_nodes(table: pa.Table, levels: int, functions: Sequence[str]) -> pa.Table:
    """Replace births by nodes, and add the nodes of the levels above."""
    keys = keys_in(table)
    group = np.zeros(table.num_rows, np.int64)
    if keys and table.num_rows:  # keys may be texts, so they are compared once
        group = number_groups([codes_of(whole_column(table, name)) for name in keys])[0]
    tables = []
    for level in range(levels + 1):
        if level:
            table = _set(table, PANE, _numbers(table, PANE) >> RADIX_BITS * level << RADIX_BITS * level)
        codes = [_numbers(table, PANE), _numbers(table, CLASS), group]
        table, firsts = _reduced(table, [PANE, CLASS, *keys], functions, codes)
        group = group if firsts is None else group[firsts]
        tables.append(_set(table, ORDER, np.asarray(node_of(level, _numbers(table, PANE)))))
    names = [ORDER, *(name for name in tables[0].column_names if name != ORDER)]
    return pa.concat_tables([part.select(names) for part in tables])


def in_nodes(table: pa.Table) -> pa.Table:
    """Replace births by nodes, without folding entries that become equal."""
    return _set(table, ORDER, np.asarray(node_of(0, _numbers(table, PANE))))


def _set(table: pa.Table, name: str, values: Ints) -> pa.Table:
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, pa.array(values))
    return table.append_column(name, pa.array(values))


def nodes_between(since: int, until: int, levels: int) -> list[tuple[int, int, int]]:
    """Cover the panes ``since <= p < until`` with the fewest runs of nodes: (level, first, last + 1) by pane.

    >>> nodes_between(5, 18, 1)
    [(0, 5, 8), (1, 8, 16), (0, 16, 18)]
    """
    below: list[tuple[int, int, int]] = []
    above: list[tuple[int, int, int]] = []
    level = 0
    while since < until:
        size = 1 << RADIX_BITS * (level + 1)
        first, last = -(-since // size) * size, until // size * size
        if level == levels or first >= last:
            below.append((level, since, until))
            break
        if since < first:
            below.append((level, since, first))
        if last < until:
            above.append((level, last, until))
        since, until, level = first, last, level + 1
    return below + above[::-1]


# --- files ----------------------------------------------------------------------------------------------------------


def write_panes(
    files: Files,
    panes: str,
    table: pa.Table,
    number: int,
    *,
    folded: bool = False,
    generation: int = 0,
    arrived: float = 0.0,
    part: int = 0,
    step: int = 1,
) -> PaneFile | None:
    """Write a table sorted by its first column, whose values are multiples of `step`; None if it is empty."""
    if not table.num_rows:
        return None
    counts = [name for name in table.column_names if name.startswith("m") and name.endswith(".n")]
    table = without_same(table, [CLASS, ROWS, *counts])
    order = _numbers(table, ORDER)
    if (order[1:] < order[:-1]).any():
        table = table.take(pa.array(sorted_rows(order, step=step)[0]))
    batch = table.combine_chunks()
    name = f"{panes_folder(panes)}/{uuid.uuid4().hex}.arrow"
    with summed_writer(files, name) as sink, pa.ipc.new_file(sink, batch.schema) as out:
        out.write_table(batch, max_chunksize=batch.num_rows)
    newest = int(_numbers(table, PANE).max()) if PANE in table.column_names else 0
    first, last = int(order.min()), int(order.max())
    return PaneFile(
        name, number, batch.num_rows, first, last, newest, folded, generation, arrived, sink.checksum, part
    )


def sorted_rows(order: Ints, parts: Ints | None = None, count: int = 1, step: int = 1) -> tuple[Ints, Ints]:
    """Sort rows within each part: the rows, and the end of each part.

    Rows are sorted by multiples of `step`, of which there are few.

    >>> [each.tolist() for each in sorted_rows(np.array([9, 7, 8]), np.array([1, 0, 1]), 2)]
    [[1, 2, 0], [1, 3]]
    """
    parts = np.zeros(order.size, np.int64) if parts is None else parts
    low, span = int(order.min()), int(order.max() - order.min()) // step + 1
    if span <= order.size:
        rows, ends = order_by(parts * span + (order - low) // step, count * span)
        return rows, ends[span - 1 :: span]
    steps, firsts = number_groups([order])
    ranks = np.empty(firsts.size, np.int64)
    ranks[np.argsort(order[firsts])] = np.arange(firsts.size)
    rows, ends = order_by(parts * firsts.size + ranks[steps], count * firsts.size)
    return rows, ends[firsts.size - 1 :: firsts.size]


def read_panes(files: Files, file: PaneFile) -> pa.Table:
    """Map a pane file, with all its columns."""
    return filled(map_panes(files, file))


def map_panes(files: Files, file: PaneFile) -> pa.Table:
    """Map a pane file, without its constant columns."""
    return pa.ipc.open_file(map_whole(files, file)).read_all()


def rows_between(table: pa.Table, since: int, until: int) -> pa.Table:
    """Return the rows of a sorted table with ``since <= o < until``."""
    first, last = np.searchsorted(_numbers(table, ORDER), (since, until))
    return table.slice(first, last - first)


def choose_merges(files: Iterable[PaneFile]) -> list[tuple[PaneFile, ...]]:
    """Choose the files to merge: all of a table, a kind and a generation that has enough of them."""
    alike: dict[tuple[int, bool, int], list[PaneFile]] = {}
    for file in files:
        alike.setdefault((file.table, file.folded, file.generation), []).append(file)
    return [tuple(some) for some in alike.values() if len(some) >= limits.MERGE_FAN_IN]
