"""The rows of either side that are answered together: which of them meet, and to which group they belong.

Groups are the join's own keys, or columns of one side.  In the second case a group has several keys, and a key may be
in several groups.  A key in a group is a *member* of it.  Each entry of the side that has the groups belongs to one
member, and one of the other side to all members of its key::

    left, by key and group      7 x     7 y     9 x         members     0: 7 x     1: 9 x     2: 7 y     (by group)
    right, by key               7       9                   left        7 x: 0     7 y: 2     9 x: 1
                                                            right       7: 0 and 2            9: 1

Where groups are keys, each group is its one member.

In:  tables of entries, those of a side file by file.  Out: members with numbers, and entries by member.
True: members are in the order of their groups, and each has entries on both sides.  Groups are numbered without gaps,
so n neighbouring members span at most n group numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.pane_entries import ints, sharing
from penstock.kernels.fold import codes_of, number_groups
from penstock.kernels.measures import Folded
from penstock.kernels.slide import Sliding, lay_out, order_by
from penstock.kernels.sorting import lay_ranges
from penstock.state.pane_columns import whole_column
from penstock.state.panes import CLASS, ORDER, PANE, ROWS, keys_in, measures_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.engine.aggregate.answer_task import AnswerTask, Due
    from penstock.engine.aggregate.pane_sliding import Asked
    from penstock.kernels.fold import Mask
    from penstock.kernels.key_hash import Ints


@dataclass(frozen=True, slots=True)
class RowRun:
    """Entries of one side's rows that are in one table."""

    member: Ints
    """That of each; -1 where the other side does not have the key."""
    born: Ints
    pane: Ints
    classes: Ints
    count: Ints
    """Of each entry of the table: of how many rows it is."""
    measures: list[Folded]
    source: Ints | None = None
    """Which entry of the table each of them is, where some belong to several members; None where all to one."""

    @classmethod
    def of(cls, table: pa.Table, places: tuple[Ints, Ints | None], functions: Sequence[str]) -> RowRun:
        """Read a table; the places are the member of each entry, and which entry that is."""
        member, source = places
        born, pane, classes, n = (ints(table, name) for name in (ORDER, PANE, CLASS, ROWS))
        count = Folded("count", {"n": n})
        measures = [sharing(each, count) for each in measures_in(table, functions)]
        if source is not None:
            is_one = classes.strides == (0,)
            born, pane = born[source], pane[source]
            classes = np.broadcast_to(classes[:1], source.size) if is_one else classes[source]
        return cls(member, born, pane, classes, n, measures, source)

    def seen_by(self, reader: Due) -> Ints:
        """Give the entries that are for a reader."""
        if self.classes.strides == (0,):  # one set for all of them
            return np.arange(self.member.size if self.classes[0] >> reader.bit & 1 else 0)
        mine = (self.classes >> reader.bit & 1).astype(np.bool_)
        return np.arange(mine.size) if mine.all() else np.flatnonzero(mine)

    def blocks(self, rows: Ints, asked: Asked, members: int, width: int) -> Iterator[tuple[Ints, Sliding]]:
        """Divide entries by member, so many members at a time: entries of the table, and what slides over them."""
        cuts, instants = asked.cuts.size, asked.instants.size
        places = self.member, self.born, self.pane
        order, cells, ends = lay_out(places, rows, asked.instants, asked.cuts, width, members)
        if self.source is not None:
            order = self.source[order]
        first = 0
        for block in range(-(-members // width)):
            upto = ends[block * instants : (block + 1) * instants]
            last = int(upto[-1])
            size = min(width, members - block * width)
            yield order[first:last], Sliding(cells[first:last], upto - first, asked.windows, size, cuts)
            first = last


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The members that both sides have: how many, the keys of groups, and the entries of either side."""

    size: int
    keys: list[pa.Array]
    sides: list[list[RowRun]]
    group_of_member: Ints | None
    """None where each member is a group of its own."""

    def keys_of(self, groups: Ints) -> list[pa.Array]:
        """Give the keys of some groups."""
        return [each.take(pa.array(groups)) for each in self.keys]

    @classmethod
    def of(cls, task: AnswerTask, sides: Sequence[Sequence[pa.Table]]) -> RowGroups:
        """Find what both sides have, and give it numbers."""
        tables = [table for runs in sides for table in runs]
        grouped, parts = task.spec.group_table, task.spec.key_parts
        names = keys_in(tables[0], "k") if grouped is None else [f"k{number}" for number in range(parts)]
        keys = pa.concat_tables([table.select(names) for table in tables]).combine_chunks()
        ids, firsts = number_groups([codes_of(whole_column(keys, name)) for name in names])
        ids_of = _divided(ids, sides)
        met = np.ones(firsts.size, np.bool_)
        for mine in ids_of:
            has = np.zeros(firsts.size, np.bool_)
            has[np.concatenate(mine)] = True
            met &= has
        if grouped is None:
            found = _Members.of_keys(met, keys, firsts)
        else:
            found = _Members.of_groups(met, sides[grouped], np.concatenate(ids_of[grouped]), parts)
        read = [
            [
                RowRun.of(table, found.places(number == grouped, each), task.spec.functions(number))
                for table, each in zip(runs, mine, strict=True)
            ]
            for number, (runs, mine) in enumerate(zip(sides, ids_of, strict=True))
        ]
        kinds = [task.schema.field(f"g{number}").type for number in range(len(found.keys))]
        columns = [each.cast(kind) for each, kind in zip(found.keys, kinds, strict=True)]
        return cls(
            found.size, columns, [[each for each in runs if each.member.size] for runs in read], found.groups
        )


def _divided(ids: Ints, sides: Sequence[Sequence[pa.Table]]) -> list[list[Ints]]:
    """Divide the numbers of all entries by side and table."""
    sizes = [[table.num_rows for table in runs] for runs in sides]
    ends = np.cumsum([0, *(size for runs in sizes for size in runs)]).tolist()
    by_table = iter([ids[first:last] for first, last in pairwise(ends)])
    return [[next(by_table) for _ in runs] for runs in sizes]


@dataclass(slots=True)
class _Members:
    """Members by number: the keys of their groups, and how the entries of a table find theirs."""

    size: int
    keys: list[pa.Array]
    groups: Ints | None
    first: Ints
    """Of each key the first of its members; -1 where it has none."""
    count: Ints
    """Of each key the number of its members."""
    listed: Ints
    """Members, key by key."""
    own: Ints
    """The member of each entry of the side that has the groups, table by table."""
    done: int = 0

    @classmethod
    def of_keys(cls, met: Mask, keys: pa.Table, firsts: Ints) -> _Members:
        """Let each key that both sides have be a group of its own."""
        rows = pa.array(firsts[met])
        columns = [whole_column(keys, name).take(rows) for name in keys.column_names]
        size, none = int(met.sum()), np.zeros(0, np.int64)
        first = np.where(met, np.cumsum(met) - 1, -1)
        return cls(size, columns, None, first, met.astype(np.int64), np.arange(size), none)

    @classmethod
    def of_groups(cls, met: Mask, tables: Sequence[pa.Table], ids: Ints, parts: int) -> _Members:
        """Give the keys of each group numbers, by the entries of the side that has them; `ids` are their keys."""
        names = keys_in(tables[0], "k")[parts:]
        values = pa.concat_tables([each.select(names) for each in tables]).combine_chunks()
        own, of_group = np.zeros(ids.size, np.int64), np.zeros(1, np.int64)
        if names:
            own, of_group = number_groups([codes_of(whole_column(values, name)) for name in names])
        groups, keys = np.zeros(met.size, np.int64), np.arange(met.size)
        groups[ids] = own
        members = ids
        if not np.array_equal(groups[ids], own):  # some key has several groups
            members, firsts = number_groups([ids, own])
            groups, keys = own[firsts], ids[firsts]
        wanted = np.flatnonzero(met[keys])
        has_members = np.zeros(of_group.size, np.bool_)
        has_members[groups[wanted]] = True
        groups, of_group = (np.cumsum(has_members) - 1)[groups], of_group[has_members]
        order, _ = order_by(groups[wanted], of_group.size)
        order = wanted[order]
        numbers = np.full(keys.size, -1, np.int64)
        numbers[order] = np.arange(order.size)
        listed, ends = order_by(keys[order], met.size)
        count = np.diff(ends, prepend=0)
        first = np.where(count > 0, ends - count, -1)
        columns = [whole_column(values, name).take(pa.array(of_group)) for name in names]
        return cls(order.size, columns, groups[order], first, count, listed, numbers[members])

    def places(self, has_groups: bool, ids: Ints) -> tuple[Ints, Ints | None]:
        """Give the member of each entry of the next table, by its key; and which entry it is, if some have several."""
        if has_groups:
            first, self.done = self.done, self.done + ids.size
            return self.own[first : self.done], None
        if (self.count <= 1).all():
            only = np.where(self.first >= 0, self.listed[np.maximum(self.first, 0)] if self.size else -1, -1)
            return only[ids], None
        found, source = lay_ranges(self.first[ids], self.first[ids] + self.count[ids])
        return self.listed[found], source
