"""Match the entries of either side's rows: which entries meet by the join's key, and to which group they belong.

Groups are the join's keys, or columns of one side.  In the second case a group has several keys, and a key may be in
several groups.  A *member* is one key in one group.  An entry of the side that has the group columns belongs to one
member.  An entry of the other side belongs to all members with its key::

    left, by key and group      7 x     7 y     9 x         members     0: 7 x     1: 9 x     2: 7 y     (by group)
    right, by key               7       9                   left        7 x: 0     7 y: 2     9 x: 1
                                                            right       7: 0 and 2            9: 1

Where groups are the join's keys, each group has one member.

In:  tables of entries, for either side one or several.  Out: members by number, and the member of each entry.
Always true: members are in the order of their groups, and each has entries on both sides.  Groups have numbers without
gaps, so n neighbouring members span at most n group numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.pane_entries import ints, sharing
from penstock.engine.aggregate.window_requests import accepted_by
from penstock.kernels.aggregates.count import counted
from penstock.kernels.aggregates.folded import Folded
from penstock.kernels.fold import codes_of, number_groups
from penstock.kernels.slide import Sliding, order_by
from penstock.kernels.sorting import lay_ranges
from penstock.state.pane_columns import whole_column
from penstock.state.panes import CLASS, ORDER, PANE, ROWS, keys_in, measures_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.engine.aggregate.answer_task import AnswerTask
    from penstock.engine.aggregate.window_requests import WindowRequests
    from penstock.kernels.fold import Mask
    from penstock.kernels.key_hash import Ints


@dataclass(frozen=True, slots=True)
class RowRun:
    """The entries of one table of one side.

    An entry that belongs to several members is listed once for each of them.
    """

    member: Ints
    """Of each listed entry; -1 where the other side does not have its key."""
    born: Ints
    pane: Ints
    classes: Ints
    count: Ints
    """The number of rows of each entry of the table."""
    measures: list[Folded]
    source: Ints | None = None
    """The entry of the table that each listed entry is; None where they are the same."""

    @classmethod
    def of(cls, table: pa.Table, places: tuple[Ints, Ints | None], functions: Sequence[str]) -> RowRun:
        """Read a table; `places` are the member of each listed entry, and its entry of the table."""
        member, source = places
        born, pane, classes, n = (ints(table, name) for name in (ORDER, PANE, CLASS, ROWS))
        count = counted(n)
        measures = [sharing(measure, count) for measure in measures_in(table, functions)]
        if source is not None:
            is_one = classes.strides == (0,)
            born, pane = born[source], pane[source]
            classes = np.broadcast_to(classes[:1], source.size) if is_one else classes[source]
        return cls(member, born, pane, classes, n, measures, source)

    def blocks(self, requests: WindowRequests, members: int) -> Iterator[tuple[Ints, Sliding]]:
        """Divide the entries that the readers accept by member, a block of members at a time."""
        rows = accepted_by(requests.readers[0], self.classes, self.member.size)
        for order, sliding in requests.blocks((self.member, self.born, self.pane), rows, members):
            yield order if self.source is None else self.source[order], sliding


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The members that both sides have, their groups, and the entries of either side."""

    size: int
    """The number of members."""
    keys: list[pa.Array]
    """The keys of each group."""
    sides: list[list[RowRun]]
    group_of_member: Ints | None
    """None where each member is a group."""

    def keys_of(self, groups: Ints) -> list[pa.Array]:
        """Return the keys of some groups."""
        return [column.take(pa.array(groups)) for column in self.keys]

    @classmethod
    def of(cls, task: AnswerTask, sides: Sequence[Sequence[pa.Table]]) -> RowGroups:
        """Find the keys that both sides have, and the members with these keys."""
        tables = [table for runs in sides for table in runs]
        grouped, parts = task.spec.group_table, task.spec.key_parts
        names = keys_in(tables[0], "k") if grouped is None else [f"k{number}" for number in range(parts)]
        keys = pa.concat_tables([table.select(names) for table in tables]).combine_chunks()
        key_of_entry, entry_of_key = number_groups([codes_of(whole_column(keys, name)) for name in names])
        divided = _divided(key_of_entry, sides)
        on_both = np.ones(entry_of_key.size, np.bool_)
        for of_side in divided:
            on_this = np.zeros(entry_of_key.size, np.bool_)
            on_this[np.concatenate(of_side)] = True
            on_both &= on_this
        if grouped is None:
            members = Members.of_keys(on_both, keys, entry_of_key)
        else:
            members = Members.of_groups(on_both, sides[grouped], np.concatenate(divided[grouped]), parts)
        runs_of = [
            [
                RowRun.of(table, members.places(side == grouped, keys_of_table), task.spec.functions(side))
                for table, keys_of_table in zip(runs, of_side, strict=True)
            ]
            for side, (runs, of_side) in enumerate(zip(sides, divided, strict=True))
        ]
        kinds = [task.schema.field(f"g{number}").type for number in range(len(members.group_keys))]
        columns = [column.cast(kind) for column, kind in zip(members.group_keys, kinds, strict=True)]
        listed = [[run for run in runs if run.member.size] for runs in runs_of]
        return cls(members.size, columns, listed, members.group_of_member)


def _divided(numbers: Ints, sides: Sequence[Sequence[pa.Table]]) -> list[list[Ints]]:
    """Divide the numbers of all entries by side and table."""
    sizes = [[table.num_rows for table in runs] for runs in sides]
    ends = np.cumsum([0, *(size for runs in sizes for size in runs)]).tolist()
    by_table = iter([numbers[first:last] for first, last in pairwise(ends)])
    return [[next(by_table) for _ in runs] for runs in sizes]


@dataclass(slots=True)
class Members:
    """Members by number, and for entries the members that they belong to."""

    size: int
    group_keys: list[pa.Array]
    group_of_member: Ints | None
    listed: Ints
    """The members, sorted by key."""
    first: Ints
    """For each key, the place of its first member in `listed`; -1 where it has none."""
    count: Ints
    """For each key, the number of its members."""
    member_of_entry: Ints
    """For the side that has the group columns, table by table."""
    entries_done: int = 0
    """Entries of that side that have got their member."""

    @classmethod
    def of_keys(cls, on_both: Mask, keys: pa.Table, entry_of_key: Ints) -> Members:
        """Return one member for each key that both sides have: it is a group."""
        rows = pa.array(entry_of_key[on_both])
        columns = [whole_column(keys, name).take(rows) for name in keys.column_names]
        size, none = int(on_both.sum()), np.zeros(0, np.int64)
        first = np.where(on_both, np.cumsum(on_both) - 1, -1)
        return cls(size, columns, None, np.arange(size), first, on_both.astype(np.int64), none)

    @classmethod
    def of_groups(cls, on_both: Mask, tables: Sequence[pa.Table], key_of_entry: Ints, parts: int) -> Members:
        """Return the members by the entries of the side that has the group columns, which follow the key's."""
        names = keys_in(tables[0], "k")[parts:]
        columns = pa.concat_tables([table.select(names) for table in tables]).combine_chunks()
        group_of_entry, entry_of_group = np.zeros(key_of_entry.size, np.int64), np.zeros(1, np.int64)
        if names:
            codes = [codes_of(whole_column(columns, name)) for name in names]
            group_of_entry, entry_of_group = number_groups(codes)

        # number the combinations of key and group; where each key has one group, the key's number is enough
        group, key, member_of_entry = np.zeros(on_both.size, np.int64), np.arange(on_both.size), key_of_entry
        group[key_of_entry] = group_of_entry
        if not np.array_equal(group[key_of_entry], group_of_entry):
            member_of_entry, entry_of_member = number_groups([key_of_entry, group_of_entry])
            group, key = group_of_entry[entry_of_member], key_of_entry[entry_of_member]

        # keep the members whose key both sides have, and the groups that have such members
        kept = np.flatnonzero(on_both[key])
        is_kept = np.zeros(entry_of_group.size, np.bool_)
        is_kept[group[kept]] = True
        group, entry_of_group = (np.cumsum(is_kept) - 1)[group], entry_of_group[is_kept]

        # number the members again, by group
        by_group = kept[order_by(group[kept], entry_of_group.size)[0]]
        new_number = np.full(key.size, -1, np.int64)
        new_number[by_group] = np.arange(by_group.size)

        listed, ends = order_by(key[by_group], on_both.size)
        count = np.diff(ends, prepend=0)
        first = np.where(count > 0, ends - count, -1)
        group_keys = [whole_column(columns, name).take(pa.array(entry_of_group)) for name in names]
        return cls(
            by_group.size, group_keys, group[by_group], listed, first, count, new_number[member_of_entry]
        )

    def places(self, has_groups: bool, key_of_entry: Ints) -> tuple[Ints, Ints | None]:
        """Return the member of each entry of the next table; also the entry, where some belong to several members."""
        if has_groups:
            done, self.entries_done = self.entries_done, self.entries_done + key_of_entry.size
            return self.member_of_entry[done : self.entries_done], None
        first, count = self.first[key_of_entry], self.count[key_of_entry]
        if (self.count <= 1).all():
            members = self.listed[np.maximum(first, 0)] if self.size else -1
            return np.where(first >= 0, members, -1), None
        places, entries = lay_ranges(first, first + count)
        return self.listed[places], entries
