"""From pairs to sinks: each pair takes the route of every query that wants it (`penstock.engine.sinks.routes`).

Runs inside a unit's tasks, on Arrow record batches of pairs with these columns::

    l, r      structs of the left and right columns that queries read; of more than two streams i0, i1, i2 …
    level     smallint, the slice of the pair
    s0, s1 …  bigint, the set of queries that want it (only where some query has a predicate)
    o0, o1 …  struct of a query's own output, computed by Spark SQL (only where the query has an expression or a
              residual condition); null where the pair is not one of its results
    tl, tr    bigint, the event times of the rows (only where some query wants its results in order)

Results that a query wants in order are held first (`penstock.state.hold`).

A file of a sink is written under ``_staging``, where no reader looks, and becomes visible only after the journal holds
the commit that names it.  A file that the state keeps is read only if a commit names it.  A pair is written to the
group's table once, however many queries read it there: with the set of these queries (`table_sets`), or with its level
alone where the level decides.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock import limits
from penstock.engine.aggregate.pane_fold import folds_of
from penstock.engine.aggregate.row_fold import NewRows, fold_rows
from penstock.engine.runners.runner import PAIRS, RESULTS
from penstock.engine.sinks.notes import Buffers, note
from penstock.engine.sinks.pair_batch import (
    Delivery,
    Fanouts,
    FoundPairs,
    PairBatch,
    Target,
    Waiting,
    sides_in,
)
from penstock.engine.sinks.shared_files import shared_files
from penstock.kernels import width
from penstock.kernels.sets import count_members, to_words, words_for
from penstock.state.files import open_files
from penstock.state.hold import Held, sort_by_time, write_hold
from penstock.state.output_file import OutputFile, RowBuffer, WrittenFile
from penstock.state.panes import PaneFile
from penstock.state.tables import StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstock.engine.sinks.destination import Destination


@dataclass(frozen=True, slots=True)
class UnitReport:
    """The report of one task of a unit: results by query, and the files that it has written."""

    pairs: int
    results: tuple[int, ...]
    """By the number of the query in the group."""
    arrivals: tuple[tuple[float, tuple[int, ...]], ...]
    """The same, by the arrival of the later of a pair's rows."""
    files: tuple[WrittenFile, ...]
    held: Mapping[str, tuple[Held, ...]]
    """By query."""
    panes: Mapping[str, tuple[PaneFile, ...]] = field(default_factory=dict)
    """Partial aggregates, by pane set."""
    fanouts: Fanouts = field(default_factory=dict)
    fed: Mapping[str, tuple[StoredFile, ...]] = field(default_factory=dict)
    """Files of results that other queries read, by query."""

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts for the runner's accumulators."""
        return {PAIRS: self.pairs, RESULTS: sum(self.results)}


class HoldRuns:
    """The results of a query that one task holds, written in sorted runs."""

    def __init__(self, state: str, folder: str) -> None:
        """Write runs to this directory; create nothing yet."""
        self._files, self._folder = open_files(state, sync=False), folder
        self._waiting = RowBuffer(limits.MAX_ROWS_PER_SORT)
        self.made: list[Held] = []

    @property
    def waiting(self) -> int:
        """Return the bytes of the results that are not written yet."""
        return self._waiting.bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Add some results with their times."""
        if self._waiting.add(batch):
            self.flush()

    def flush(self) -> None:
        """Write the results that wait as one run."""
        batches = self._waiting.drain()
        if batches and (made := write_hold(self._files, self._folder, [sort_by_time(batches)])):
            self.made.append(made)


class TaskOutput:
    """The output of one task: files, runs of results to be held, and the number of each query's results."""

    def __init__(self, delivery: Delivery, part: int) -> None:
        """Begin without files; a file is opened for its first row."""
        self.delivery = delivery
        self.part_name = f"part-{delivery.unit}-{part:04d}"
        self.files: dict[str, OutputFile] = {}
        self.holds: dict[str, HoldRuns] = {}
        self.feeds: dict[str, OutputFile] = {}
        self.counts = np.zeros(delivery.queries, np.int64)
        self.arrivals: dict[float, NDArray[np.int64]] = {}
        """The same number, by the arrival of the later row of the pair."""
        self.pairs = Counter[float]()
        """The number of pairs, by the same."""
        self.waiting = 0
        """Bytes that are not written yet, of all queries together."""
        self.folds = folds_of(delivery.targets)
        self.shared = shared_files(self, delivery.targets)
        together = {target.number for shared in self.shared for target in shared.targets}
        self.alone = [
            target
            for target in delivery.targets
            if (target.route.makes_rows or target.computed)
            and not target.is_folded
            and target.number not in together
        ]
        """The queries that share no file."""

    def count_computed(self, target: Target, wanted: NDArray[np.bool_]) -> None:
        """Count the results of a query whose condition Spark SQL has computed; others are counted together."""
        if target.computed:
            self.counts[target.number] += int(wanted.sum())

    def file(self, query: str, destination: Destination) -> OutputFile:
        """Open (once) the file for a query's rows."""
        if query not in self.files:
            self.files[query] = destination.file(self.part_name)
        return self.files[query]

    def table(self) -> OutputFile:
        """Open (once) the file of the group's table."""
        if "" not in self.files:
            name = f"{self.delivery.table}/{uuid.uuid4().hex}.parquet"
            self.files[""] = OutputFile(self.delivery.state, name, kept=True)
        return self.files[""]

    def hold(self, query: str, folder: str) -> HoldRuns:
        """Open (once) the runs of a query's results that are held."""
        if query not in self.holds:
            self.holds[query] = HoldRuns(self.delivery.state, folder)
        return self.holds[query]

    def feed(self, query: str, destination: Destination) -> OutputFile:
        """Open (once) the file of a query's results that others read; files of later units have later names."""
        if query not in self.feeds:
            self.feeds[query] = destination.file(self.part_name)
        return self.feeds[query]

    def put(self, where: Waiting, rows: pa.RecordBatch) -> None:
        """Add rows to a file; flush the fullest files if too many bytes wait."""
        before = where.waiting
        where.write(rows)
        self.waiting += where.waiting - before
        if self.waiting > limits.MAX_PIECE_BYTES:
            self._make_room()

    def flush(self, where: Waiting) -> None:
        """Write the rows that wait in a file."""
        self.waiting -= where.waiting
        where.flush()

    def _make_room(self) -> None:
        """Flush the fullest files until half of the bytes that may wait are left."""
        files: list[Waiting] = [
            *self.files.values(),
            *self.feeds.values(),
            *self.holds.values(),
            *self.shared,
            *(file for shared in self.shared for file in shared.files.values()),
        ]
        for file in sorted(files, key=lambda file: -file.waiting):
            self.flush(file)
            if 2 * self.waiting <= limits.MAX_PIECE_BYTES:
                return

    def report(self) -> UnitReport:
        """Close all files and return the report."""
        common = [written for shared in self.shared for written in shared.close()]
        for query, file in self.files.items():
            file.close(self._note(query))
        for file in self.feeds.values():
            file.close()
        for runs in self.holds.values():
            runs.flush()
        return UnitReport(
            self.pairs.total(),
            tuple(self.counts.tolist()),
            tuple((arrived, tuple(counts.tolist())) for arrived, counts in self.arrivals.items()),
            (*common, *(file.report(query) for query, file in self.files.items() if file.rows)),
            {query: tuple(runs.made) for query, runs in self.holds.items() if runs.made},
            self._write_folds(),
            fed={query: made for query, file in self.feeds.items() if (made := _kept(file))},
        )

    def _write_folds(self) -> dict[str, tuple[PaneFile, ...]]:
        """Write the partial aggregates, by pane set."""
        if not self.folds:
            return {}
        files = open_files(self.delivery.state, sync=False)
        made = {fold.spec.panes.id: tuple(fold.write(files)) for fold in self.folds}
        return {panes: written for panes, written in made.items() if written}

    def _note(self, query: str) -> dict[str, object]:
        """Return the note of a query's file, or of the group's table: the arrivals of its results and what waited."""
        delivery = self.delivery
        if not query:
            known = max(delivery.buffers.values(), key=lambda buffers: buffers.waiting, default=Buffers())
            return note("", delivery.unit, self.pairs.items(), replace(known, held=0, output=0))
        number = next(target.number for target in delivery.targets if target.query == query)
        elsewhere = sum((shared.in_files(number) for shared in self.shared), Counter[float]())
        arrivals = [(at, int(counts[number]) - elsewhere[at]) for at, counts in self.arrivals.items()]
        return note(query, delivery.unit, arrivals, delivery.buffers.get(query, Buffers()))


def _kept(file: OutputFile) -> tuple[StoredFile, ...]:
    """Return the stored file; nothing if no row was written."""
    kept = file.report("").kept if file.rows else None
    return (kept,) if kept else ()


def run_delivery(delivery: Delivery, part: int, batches: Iterable[pa.RecordBatch | FoundPairs]) -> UnitReport:
    """Route all pairs of one task, and return the report."""
    task = TaskOutput(delivery, part)
    for pairs in _pair_batches(delivery, batches):
        before = task.counts.copy()
        _route(task, pairs)
        task.arrivals[pairs.arrived] = task.arrivals.get(pairs.arrived, 0) + task.counts - before
        task.pairs[pairs.arrived] += pairs.batch.num_rows
    report = task.report()
    return replace(report, fanouts=delivery.survey()) if delivery.survey and part == 0 else report


def run_row_folds(delivery: Delivery, found: Iterable[NewRows]) -> UnitReport:
    """Fold the new rows of one task for the queries that want no pairs, and return the report, without counts."""
    return UnitReport(0, (0,) * delivery.queries, (), (), {}, fold_rows(delivery, found))


def _pair_batches(delivery: Delivery, batches: Iterable[pa.RecordBatch | FoundPairs]) -> Iterator[PairBatch]:
    """Yield pairs in batches of bounded bytes; batches of the probe are bounded already."""
    for batch in batches:
        if isinstance(batch, FoundPairs):
            if batch.batch.num_rows:
                yield _pair_batch(delivery, batch.batch, batch)
        else:
            yield from (_pair_batch(delivery, some) for some in width.bounded([batch]) if some.num_rows)


def _pair_batch(delivery: Delivery, batch: pa.RecordBatch, found: FoundPairs | None = None) -> PairBatch:
    level, sets = batch.column("level").to_numpy(), _sets(batch)
    readers = _readers(delivery, level, sets) if delivery.table else None
    return PairBatch(batch, level, sets, readers, delivery.table_sets, _arrival(batch, delivery), found)


def _route(task: TaskOutput, pairs: PairBatch) -> None:
    """Route one batch of pairs to the queries that want it, and count their results."""
    delivery = task.delivery
    task.counts += _count_plain(delivery, pairs.level, pairs.sets)
    for fold in task.folds:
        fold.take(pairs)
    for shared in task.shared:
        shared.take(pairs)
    for target in task.alone:
        target.route.take(task, target, pairs, pairs.wanted_by(target))
    if pairs.readers is not None and _is_read(pairs.readers).any():
        task.put(task.table(), _table_rows(pairs.batch, pairs.readers, with_sets=delivery.table_sets))


def _readers(
    delivery: Delivery, level: NDArray[np.int16], sets: NDArray[np.uint64] | None
) -> NDArray[np.uint64]:
    """Return for each pair the set of queries that read it from the group's table, without computed outputs.

    Where pairs are kept by their level, the first bit says whether any query reads the pair.  If all pairs have the
    same readers and none is added later, the result is one row, broadcast and read only.
    """
    plain = [target for target in delivery.targets if target.in_table and not target.computed]
    if sets is not None:
        (plain_set,) = to_words([sum(1 << target.number for target in plain)], delivery.queries)
        return sets & plain_set
    last = max((target.levels[1] for target in delivery.targets), default=0)
    of_level = [
        sum(1 << target.number for target in plain if target.levels[0] <= number < target.levels[1])
        for number in range(last + 1)
    ]
    if delivery.table_sets:
        words = to_words(of_level, delivery.queries)
    else:
        words = to_words([int(readers > 0) for readers in of_level], 1)
    is_noted_later = any(target.computed for target in delivery.targets)
    if not is_noted_later and level.max() < last and (words[:last] == words[0]).all():
        return np.broadcast_to(words[0], (level.size, words.shape[1]))
    readers: NDArray[np.uint64] = words[np.minimum(level, last)]
    return readers


def _sets(batch: pa.RecordBatch) -> NDArray[np.uint64] | None:
    """Collect the words of the pairs' query sets."""
    names = [name for name in batch.schema.names if name.startswith("s") and name[1:].isdigit()]
    if not names:
        return None
    return np.stack([batch.column(name).to_numpy().view(np.uint64) for name in names], axis=1)


def _count_plain(
    delivery: Delivery, level: NDArray[np.int16], sets: NDArray[np.uint64] | None
) -> NDArray[np.int64]:
    """Count the results of each query that takes all pairs of its set; computed and held results are counted later."""
    counts = np.zeros(delivery.queries, np.int64)
    plain = [target for target in delivery.targets if target.route.at_once and not target.computed]
    if sets is not None:
        numbers = [target.number for target in plain]
        counts[numbers] = count_members(sets, delivery.queries)[numbers]
        return counts
    upto = np.concatenate(([0], np.cumsum(np.bincount(level))))
    for target in plain:
        first, last = (min(end, upto.size - 1) for end in target.levels)
        counts[target.number] = upto[last] - upto[first]
    return counts


def _table_rows(batch: pa.RecordBatch, readers: NDArray[np.uint64], *, with_sets: bool) -> pa.RecordBatch:
    """Select the pairs that some query reads from the group's table, with the set of these queries.

    The columns are declared without nulls, so that Parquet writes no definition levels.
    """
    wanted = _is_read(readers)
    columns = {name: batch.column(name) for name in (*sides_in(batch), "level")}
    if with_sets:
        columns |= set_columns(readers)
    fields = [pa.field(name, values.type, nullable=False) for name, values in columns.items()]
    schema = pa.schema(fields, batch.schema.metadata)
    rows = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def _is_read(readers: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which pairs some query reads from the table; one value stands for all if it is the same."""
    some = readers[:1] if readers.strides[0] == 0 else readers
    return np.asarray(some[:, 0] != 0 if some.shape[1] == 1 else some.any(axis=1))


def with_arrival(batch: pa.RecordBatch, arrived: float) -> pa.RecordBatch:
    """Note the arrival of the later rows of a batch of pairs, which are all of the same two segments."""
    return batch.replace_schema_metadata({_ARRIVAL: repr(arrived)})


def _arrival(batch: pa.RecordBatch, delivery: Delivery) -> float:
    """Return the arrival of the later rows of some pairs, to a tenth of a second; if not noted, the unit's last."""
    noted = float((batch.schema.metadata or {}).get(_ARRIVAL, b"0"))
    return round(noted or delivery.arrived, 1)


_ARRIVAL = b"penstock.arrived"


def set_columns(sets: NDArray[np.uint64]) -> dict[str, pa.Array]:
    """Return query sets as the columns ``s0, s1 …`` of a batch of pairs."""
    return {
        f"s{word}": pa.array(np.ascontiguousarray(sets[:, word]).view(np.int64))
        for word in range(sets.shape[1])
    }


def set_names(queries: int) -> list[str]:
    """Name the columns of the set of so many queries."""
    return [f"s{word}" for word in range(words_for(queries))]
