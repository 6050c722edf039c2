"""Fold pairs into the partial results of a pane set, in the tasks that find the pairs.

Each pane set has one fold in each task.  It takes a pair once for all queries that accept it, and adds the pair to the
entry of its group (`penstock.engine.aggregate.fold_spec` describes entries)::

    pairs ──▶ born, pane, readers, group ──▶ number of the entry ──▶ count, sum, least … ──▶ a pane file

Where Spark SQL computes no output of the unit, values are read from the segments by the pairs' row numbers, and no row
of a pair is ever put together.

In:  batches of pairs (`penstock.engine.tasks.route_pairs`).  Out: `PaneFile`s, which the unit's commit names.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.aggregate.fold_spec import entry_table, fold_route, targets_by_set
from penstock.engine.aggregate.running_fold import RunningFold
from penstock.kernels.aggregates.folded import folded_class
from penstock.kernels.fold import codes_of, number_groups
from penstock.kernels.sets import members
from penstock.sql.query import FOREVER
from penstock.state.pane_columns import whole_column
from penstock.state.panes import (
    CLASS,
    ORDER,
    PANE,
    Shape,
    group_hashes,
    keys_in,
    laid_out,
    reduce_table,
    sorted_rows,
    write_panes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.engine.aggregate.fold_spec import FoldSpec
    from penstock.engine.sinks.pair_batch import PairBatch, Target
    from penstock.kernels.fold import Mask
    from penstock.kernels.key_hash import Ints
    from penstock.state.files import Files
    from penstock.state.panes import PaneFile

MOST_ENTRIES = 1 << 18
"""Entries that wait before they are folded with each other."""


class PairFold:
    """The fold of one pane set in one task.

    Sliding answers begin with a `RunningFold`, which adds to entries in place.  When it cannot take a batch, the fold
    goes on with a table of entries for each batch.
    """

    def __init__(self, spec: FoldSpec, targets: Sequence[Target]) -> None:
        """Begin with nothing; the targets are the queries of the unit that read the set."""
        self.spec, self.targets = spec, targets
        self.computed = targets[0].computed
        self.source = f"o{min(target.number for target in targets)}"
        """The column of outputs that Spark SQL has computed."""
        self.arrived = 0.0
        self._tables: dict[int, list[pa.Table]] = {}
        """Entries that wait to be written, by the number of their table."""
        self._entries, self._most_entries = 0, MOST_ENTRIES
        self._hardly_shared = False
        """Whether most pairs have an entry of their own, so that folding entries with each other saves nothing."""
        adds_in_place = all(
            folded_class(measure.function).adds_in_place and not measure.distinct for measure in spec.measures
        )
        is_running = spec.panes.emit == "sliding" and adds_in_place
        self._running: RunningFold | None = RunningFold(spec) if is_running else None

    def take(self, pairs: PairBatch) -> None:
        """Fold a batch of pairs."""
        readers = self._readers(pairs)
        wanted = readers != 0
        if self.computed:
            wanted &= pairs.batch.column(self.source).is_valid().to_numpy(zero_copy_only=False)
        if self._running is not None:
            if self._running.take(
                pairs, np.where(wanted, readers, 0), lambda rows: PairOutputs(self, pairs, rows)
            ):
                self.arrived = max(self.arrived, pairs.arrived)
                if self._running.is_full:
                    self._stop_running()
                    self._running = RunningFold(self.spec)
                return
            self._stop_running()
        born, pane = self._times(pairs, wanted)
        if not wanted.any():
            return
        self.arrived = max(self.arrived, pairs.arrived)
        rows = None if wanted.all() else np.flatnonzero(wanted)
        columns = {ORDER: born, PANE: pane, CLASS: readers}
        chosen = {
            name: pa.array(column if rows is None else column[rows]) for name, column in columns.items()
        }
        self._fold(chosen, PairOutputs(self, pairs, rows))

    def _readers(self, pairs: PairBatch) -> Ints:
        """Return the set of queries that accept each pair, as bits."""
        if pairs.sets is not None:
            readers = np.zeros(len(pairs.level), np.int64)
            for target in self.targets:
                bits = np.int64(fold_route(target).bits)
                readers |= np.where(members(pairs.sets, target.number), bits, np.int64(0))
            return readers
        last = max(target.levels[1] for target in self.targets)
        of_level = np.zeros(last + 1, np.int64)
        for target in self.targets:
            of_level[slice(*target.levels)] |= fold_route(target).bits
        return of_level[np.minimum(pairs.level, last)]

    def _times(self, pairs: PairBatch, wanted: Mask) -> tuple[Ints, Ints]:
        """Return when pairs are born, and their panes; pairs that no window reaches are no longer wanted.

        Answers that do not slide have one pane.  A pair of a final answer is born when the bucket of its group ends.
        """
        panes, zeros = self.spec.panes, np.zeros(len(pairs.level), np.int64)
        if panes.emit == "changes":
            return zeros, zeros
        if panes.emit == "final":
            if self.spec.bucket is None:
                return zeros + FOREVER, zeros
            ends = PairOutputs(self, pairs, None)[self.spec.bucket]
            return ends.fill_null(FOREVER).to_numpy(zero_copy_only=False).astype(np.int64), zeros
        left, right = pairs.ends(panes.skews)
        newer, older = np.maximum(left, right), np.minimum(left + panes.skew, right)
        born = -(-newer // panes.step) * panes.step
        pane = (older - 1) // panes.pane
        wanted &= pane >= (born - panes.width) // panes.pane
        return born, pane

    def _fold(self, columns: dict[str, pa.Array], outputs: PairOutputs) -> None:
        """Fold pairs into the table of groups, and the values of DISTINCT into tables of their own."""
        spec = self.spec
        keys = [outputs[number] for number in range(spec.groups)]
        for number, key in enumerate(keys):
            columns |= laid_out(key, f"k{number}")
        types = tuple(key.type for key in keys)
        plain = [measure for measure in spec.measures if measure.arguments and not measure.distinct]
        grouped = number_groups([codes_of(column) for column in columns.values()])
        self._keep(0, entry_table(columns, types, plain, outputs.__getitem__, grouped))
        for number, measure in enumerate(spec.distinct, 1):
            values = {f"v{n}": outputs[argument] for n, argument in enumerate(measure.arguments)}
            table = pa.table(_distinct(columns, values))
            shape = Shape(types, len(values), (), ())
            self._keep(number, table.replace_schema_metadata(shape.metadata()))

    def _stop_running(self) -> None:
        """Take the entries of the running fold as a table."""
        running, self._running = self._running, None
        if running is not None and (table := running.table()) is not None:
            self._hardly_shared = running.hardly_shared
            self._keep(0, table)

    def _keep(self, number: int, table: pa.Table) -> None:
        """Keep entries until they are written; fold them with each other if there are many."""
        self._tables.setdefault(number, []).append(table)
        self._entries += table.num_rows
        if self._entries > self._most_entries and not self._hardly_shared and len(self._tables[number]) > 1:
            self._tables = {number: [self._together(number)] for number in self._tables}
            self._entries = sum(tables[0].num_rows for tables in self._tables.values())
            self._most_entries = max(MOST_ENTRIES, 2 * self._entries)

    def _together(self, number: int) -> pa.Table:
        """Return the entries of one table, folded with each other where that saves anything."""
        if len(self._tables[number]) == 1:
            return self._tables[number][0]
        table = pa.concat_tables(self._tables[number])
        if self._hardly_shared:
            return table
        return reduce_table(table, [ORDER, PANE, CLASS, *keys_in(table)], self.spec.functions(number))

    def write(self, files: Files) -> list[PaneFile]:
        """Write the entries."""
        self._stop_running()
        made = (
            write_panes(files, self.spec.panes.id, table, number, arrived=self.arrived, part=part)
            for number in sorted(self._tables)
            for part, table in self._parts(self._together(number))
        )
        return [file for file in made if file]

    def _parts(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Divide entries among the parts of their pane set by a hash of the group, each in order of birth."""
        parts = self.spec.panes.parts
        if parts == 1 or not table.num_rows:
            yield 0, table
            return
        of_part = group_hashes(table) % parts
        rows, ends = sorted_rows(whole_column(table, ORDER).to_numpy(), of_part, parts)
        for part, (first, last) in enumerate(pairwise([0, *ends.tolist()])):
            yield part, table.take(pa.array(rows[first:last]))


def _distinct(columns: Mapping[str, pa.Array], values: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return each combination of values once for each entry; one with a null does not count."""
    valid = np.logical_and.reduce(
        [value.is_valid().to_numpy(zero_copy_only=False) for value in values.values()]
    )
    entries = dict(columns)
    for name, value in values.items():
        entries |= laid_out(value, name)
    if not valid.all():
        entries = {name: column.filter(pa.array(valid)) for name, column in entries.items()}
    _, firsts = number_groups([codes_of(column) for column in entries.values()])
    return {name: column.take(pa.array(firsts)) for name, column in entries.items()}


class PairOutputs:
    """The outputs of some pairs; each is read once, when it is asked for."""

    def __init__(self, fold: PairFold, pairs: PairBatch, rows: Ints | None) -> None:
        """Read nothing yet; without `rows`, all pairs are meant."""
        self._fold, self._pairs, self._rows = fold, pairs, rows
        self._read: dict[int, pa.Array] = {}

    def __getitem__(self, number: int) -> pa.Array:
        """Return one output of each pair."""
        if number not in self._read:
            self._read[number] = self._output(number)
        return self._read[number]

    def _output(self, number: int) -> pa.Array:
        if self._fold.computed:
            computed = self._pairs.batch.column(self._fold.source).field(number)
            return computed if self._rows is None else computed.take(pa.array(self._rows))
        column = self._fold.spec.columns[number]
        assert column is not None  # noqa: S101 - else Spark SQL has computed it
        return column.of_rows(self._pairs.column(column.side, column.name, column.kind, self._rows))


def folds_of(targets: Iterable[Target]) -> list[PairFold]:
    """Return a fold for each pane set of pairs that queries of a unit read."""
    return [PairFold(spec, some) for spec, some in targets_by_set(targets) if not spec.panes.by_rows]
