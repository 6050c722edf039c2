"""Constant columns of pane tables: omitted in memory and in files.

Most tables have one set of readers, and often each entry counts one pair.  Such a column is omitted, and the table's
metadata has its value::

    o    p    c     k0   n   m0.n  m0.s             o    p    k0   m0.s        c 4095   n 1   m0.n 1
    90   89   4095  17   1   1     2.5      ──▶     90   89   17   2.5
    90   89   4095  23   1   1     0.5              90   89   23   0.5

Only integers are omitted: sets of readers, and counts.

In:  tables of entries (`penstock.state.panes`).  Out: the same tables, with fewer columns or all of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.kernels.fold import Mask
    from penstock.kernels.key_hash import Ints

_SAME = b"penstock.same"


def same_in(table: pa.Table) -> dict[str, int]:
    """Return the omitted columns of a table, and the value of each."""
    found: dict[str, int] = json.loads((table.schema.metadata or {}).get(_SAME, b"{}"))
    return found


def saying(table: pa.Table, same: Mapping[str, int]) -> pa.Table:
    """Return a table whose metadata names the omitted columns."""
    metadata = {name: text for name, text in (table.schema.metadata or {}).items() if name != _SAME}
    if same:
        metadata[_SAME] = json.dumps(dict(same), sort_keys=True).encode()
    return table.replace_schema_metadata(metadata)


def without_same(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Omit those of some columns that are constant.

    >>> narrow = without_same(pa.table({"c": [3, 3], "n": [1, 2]}), ["c", "n"])
    >>> narrow.column_names, same_in(narrow), filled(narrow).column("c").to_pylist()
    (['n'], {'c': 3}, [3, 3])
    """
    same = same_in(table)
    for name in names:
        if name in table.column_names and table.num_rows:
            first = table.column(name)[0].as_py()
            if all(_is_all(np.asarray(chunk), first) for chunk in table.column(name).chunks):
                same[name] = first
    return saying(table.drop_columns([name for name in same if name in table.column_names]), same)


def _is_all(numbers: Ints, value: int) -> bool:
    return bool((numbers == value).all())


def filled(table: pa.Table, names: Sequence[str] | None = None) -> pa.Table:
    """Add omitted columns, all or some."""
    same = same_in(table)
    wanted = [name for name in same if names is None or name in names]
    laid_out = {value: pa.array(np.full(table.num_rows, value)) for value in {same[name] for name in wanted}}
    for name in wanted:
        table = table.append_column(name, laid_out[same.pop(name)])
    return saying(table, same) if wanted else table


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables of one kind; columns that differ between them are added first.

    >>> one, other = (without_same(pa.table({"o": [9], "c": [c], "n": [1]}), ["c", "n"]) for c in (3, 5))
    >>> whole = together([one, other])
    >>> whole.to_pydict(), same_in(whole)
    ({'o': [9, 9], 'c': [3, 5]}, {'n': 1})
    """
    known = [same_in(part) for part in tables]
    alike = {name for name, value in known[0].items() if all(same.get(name) == value for same in known)}
    laid_out = [
        filled(table, [name for name in same if name not in alike])
        for table, same in zip(tables, known, strict=True)
    ]
    names = laid_out[0].column_names
    return pa.concat_tables([table.select(names) for table in laid_out])


def some_of(table: pa.Table, wanted: Mask) -> pa.Table:
    """Return some rows, without a copy if they are neighbours, as they mostly are in a sorted table.

    >>> table = pa.table({"o": [5, 6, 7]})
    >>> some_of(table, np.array([False, True, True])).to_pydict(), some_of(table, np.zeros(3, bool)).num_rows
    ({'o': [6, 7]}, 0)
    """
    if not wanted.any():
        return table.slice(0, 0)
    first, last = int(wanted.argmax()), wanted.size - int(wanted[::-1].argmax())
    if wanted[first:last].all():
        return table.slice(first, last - first)
    return table.filter(pa.array(wanted))


def whole_column(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array, without a copy if it has one chunk."""
    column = table.column(name)
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def column_ints(table: pa.Table, name: str) -> Ints:
    """Read a column of integers, omitted or not; an omitted one takes no memory."""
    if name in (same := same_in(table)):
        return np.broadcast_to(np.int64(same[name]), table.num_rows)
    numbers: Ints = whole_column(table, name).to_numpy(zero_copy_only=False)
    return numbers
