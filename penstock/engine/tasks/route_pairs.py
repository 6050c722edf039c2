"""From pairs to sinks: each pair goes the way of every query that wants it (`penstock.engine.sinks.routes`).

Runs inside a unit's tasks, on Arrow record batches of pairs with these columns::

    l, r      structs of the left and right columns that somebody reads; of more than two streams i0, i1, i2 …
    level     smallint, the slice of the pair
    s0, s1 …  bigint, the set of queries that want it (only where some query has a predicate)
    o0, o1 …  struct of a query's own output, computed by Spark SQL (only where the query has an expression or a
              residual condition); null where the pair is not one of its results
    tl, tr    bigint, the event times of the rows (only where some query wants its results in order)

Results that are wanted in order do not go to a sink yet: they are held (`penstock.state.hold`).

A file of a sink is written under ``_staging``, where no reader looks, and becomes visible only after the journal holds
the commit that names it.  A file that the state keeps is read only because a commit names it.  A pair goes to the
group's table once, however many queries read it there: with the set of those that do (`table_sets`), or by its level
alone where that says it.
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
    """What one task of a unit has found and written."""

    pairs: int
    results: tuple[int, ...]
    """Of each query of the group, by its number."""
    arrivals: tuple[tuple[float, tuple[int, ...]], ...]
    """The same, by when the later of a pair's rows arrived."""
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
        """Return what the runner adds up."""
        return {PAIRS: self.pairs, RESULTS: sum(self.results)}


class HoldRuns:
    """A query's results of one task that wait for their turn, written a run at a time."""

    def __init__(self, state: str, folder: str) -> None:
        """Say where the runs go; nothing is created yet."""
        self._files, self._folder = open_files(state, sync=False), folder
        self._waiting = RowBuffer(limits.MAX_ROWS_PER_SORT)
        self.made: list[Held] = []

    @property
    def waiting(self) -> int:
        """Count the bytes of the results taken and not written yet."""
        return self._waiting.bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Take some results with their times."""
        if self._waiting.add(batch):
            self.flush()

    def flush(self) -> None:
        """Write what was taken as one run."""
        batches = self._waiting.drain()
        if batches and (made := write_hold(self._files, self._folder, [sort_by_time(batches)])):
            self.made.append(made)


class TaskOutput:
    """What one task makes of its pairs: files, runs of results to be held, and the number of each query's results."""

    def __init__(self, delivery: Delivery, part: int) -> None:
        """Begin with nothing; a file is opened when the first row goes into it."""
        self.delivery = delivery
        self.part_name = f"part-{delivery.unit}-{part:04d}"
        self.files: dict[str, OutputFile] = {}
        self.holds: dict[str, HoldRuns] = {}
        self.feeds: dict[str, OutputFile] = {}
        self.counts = np.zeros(delivery.queries, np.int64)
        self.arrivals: dict[float, NDArray[np.int64]] = {}
        """The same number, by when the later row of the pair arrived."""
        self.pairs = Counter[float]()
        """The number of pairs, by the same."""
        self.waiting = 0
        """Bytes that wait to be written, of all queries together."""
        self.folds = folds_of(delivery.targets)
        self.shared = shared_files(self, delivery.targets)
        together = {target.number for each in self.shared for target in each.targets}
        self.alone = [
            each
            for each in delivery.targets
            if (each.route.makes_rows or each.computed) and not each.is_folded and each.number not in together
        ]
        """The queries whose rows are made for them alone."""

    def count_computed(self, target: Target, wanted: NDArray[np.bool_]) -> None:
        """Count the results that Spark SQL has decided about; all others are counted together."""
        if target.computed:
            self.counts[target.number] += int(wanted.sum())

    def file(self, query: str, destination: Destination) -> OutputFile:
        """Open (once) the file for a query's rows."""
        if query not in self.files:
            self.files[query] = destination.file(self.part_name)
        return self.files[query]

    def table(self) -> OutputFile:
        """Open (once) the file for the pairs that some reader of the group's table wants."""
        if "" not in self.files:
            name = f"{self.delivery.table}/{uuid.uuid4().hex}.parquet"
            self.files[""] = OutputFile(self.delivery.state, name, kept=True)
        return self.files[""]

    def hold(self, query: str, folder: str) -> HoldRuns:
        """Open (once) the runs of a query's results that wait for their turn."""
        if query not in self.holds:
            self.holds[query] = HoldRuns(self.delivery.state, folder)
        return self.holds[query]

    def feed(self, query: str, destination: Destination) -> OutputFile:
        """Open (once) the file of a query's results that others read; files of later units have later names."""
        if query not in self.feeds:
            self.feeds[query] = destination.file(self.part_name)
        return self.feeds[query]

    def put(self, where: Waiting, rows: pa.RecordBatch) -> None:
        """Give rows to a file; write out the fullest ones if too much waits in all of them."""
        before = where.waiting
        where.write(rows)
        self.waiting += where.waiting - before
        if self.waiting > width.MOST_BYTES:
            self._make_room()

    def flush(self, where: Waiting) -> None:
        """Write out the rows that wait in a file."""
        self.waiting -= where.waiting
        where.flush()

    def _make_room(self) -> None:
        """Write out the fullest files until half of what may wait is left."""
        files: list[Waiting] = [
            *self.files.values(),
            *self.feeds.values(),
            *self.holds.values(),
            *self.shared,
            *(file for each in self.shared for file in each.files.values()),
        ]
        for each in sorted(files, key=lambda each: -each.waiting):
            self.flush(each)
            if 2 * self.waiting <= width.MOST_BYTES:
                return

    def report(self) -> UnitReport:
        """Finish all files, and say what there is."""
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
        """Write what was folded, by pane set."""
        if not self.folds:
            return {}
        files = open_files(self.delivery.state, sync=False)
        made = {each.spec.panes.id: tuple(each.write(files)) for each in self.folds}
        return {panes: written for panes, written in made.items() if written}

    def _note(self, query: str) -> dict[str, object]:
        """Describe a query's file, or one of the group's table: by its pairs, however many queries read them."""
        delivery = self.delivery
        if not query:
            known = max(delivery.buffers.values(), key=lambda each: each.waiting, default=Buffers())
            return note("", delivery.unit, self.pairs.items(), replace(known, held=0, output=0))
        number = next(each.number for each in delivery.targets if each.query == query)
        elsewhere = sum((each.in_files(number) for each in self.shared), Counter[float]())
        arrivals = [(at, int(counts[number]) - elsewhere[at]) for at, counts in self.arrivals.items()]
        return note(query, delivery.unit, arrivals, delivery.buffers.get(query, Buffers()))


def _kept(file: OutputFile) -> tuple[StoredFile, ...]:
    """Give what the state keeps of a file: nothing, if no row was written."""
    kept = file.report("").kept if file.rows else None
    return (kept,) if kept else ()


def run_delivery(delivery: Delivery, part: int, batches: Iterable[pa.RecordBatch | FoundPairs]) -> UnitReport:
    """Route all pairs of one task, and report files and counts."""
    task = TaskOutput(delivery, part)
    for pairs in _pair_batches(delivery, batches):
        before = task.counts.copy()
        _route(task, pairs)
        task.arrivals[pairs.arrived] = task.arrivals.get(pairs.arrived, 0) + task.counts - before
        task.pairs[pairs.arrived] += pairs.batch.num_rows
    report = task.report()
    return replace(report, fanouts=delivery.survey()) if delivery.survey and part == 0 else report


def run_row_folds(delivery: Delivery, found: Iterable[NewRows]) -> UnitReport:
    """Fold the new rows of one task for the queries that want no pairs, and report files; nothing is counted yet."""
    return UnitReport(0, (0,) * delivery.queries, (), (), {}, fold_rows(delivery, found))


def _pair_batches(delivery: Delivery, batches: Iterable[pa.RecordBatch | FoundPairs]) -> Iterator[PairBatch]:
    """Give pairs in batches of bounded bytes; those that come from the probe are bounded already."""
    for each in batches:
        if isinstance(each, FoundPairs):
            if each.batch.num_rows:
                yield _pair_batch(delivery, each.batch, each)
        else:
            yield from (_pair_batch(delivery, some) for some in width.bounded([each]) if some.num_rows)


def _pair_batch(delivery: Delivery, batch: pa.RecordBatch, found: FoundPairs | None = None) -> PairBatch:
    level, sets = batch.column("level").to_numpy(), _sets(batch)
    readers = _readers(delivery, level, sets) if delivery.table else None
    return PairBatch(batch, level, sets, readers, delivery.table_sets, _arrival(batch, delivery), found)


def _route(task: TaskOutput, pairs: PairBatch) -> None:
    """Send one batch of pairs where it is wanted, and count what each query gets."""
    delivery = task.delivery
    task.counts += _count_plain(delivery, pairs.level, pairs.sets)
    for fold in task.folds:
        fold.take(pairs)
    for each in task.shared:
        each.take(pairs)
    for target in task.alone:
        target.route.take(task, target, pairs, pairs.wanted_by(target))
    if pairs.readers is not None and _is_read(pairs.readers).any():
        task.put(task.table(), _table_rows(pairs.batch, pairs.readers, with_sets=delivery.table_sets))


def _readers(
    delivery: Delivery, level: NDArray[np.int16], sets: NDArray[np.uint64] | None
) -> NDArray[np.uint64]:
    """Say for each pair which queries read it from the group's table; not yet those of which Spark SQL decides.

    Where pairs are kept by their level, the first bit says whether anybody does.  If all pairs have the same
    readers and none is added later, one row, which is read only, stands for all.
    """
    plain = [each for each in delivery.targets if each.in_table and not each.computed]
    if sets is not None:
        (plain_set,) = to_words([sum(1 << each.number for each in plain)], delivery.queries)
        return sets & plain_set
    last = max((each.levels[1] for each in delivery.targets), default=0)
    of_level = [
        sum(1 << each.number for each in plain if each.levels[0] <= number < each.levels[1])
        for number in range(last + 1)
    ]
    words = (
        to_words(of_level, delivery.queries)
        if delivery.table_sets
        else to_words([int(each > 0) for each in of_level], 1)
    )
    is_noted_later = any(each.computed for each in delivery.targets)
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
    """Count the results of every query that takes each pair of its set; those computed or held are counted apart."""
    counts = np.zeros(delivery.queries, np.int64)
    plain = [each for each in delivery.targets if each.route.at_once and not each.computed]
    if sets is not None:
        numbers = [each.number for each in plain]
        counts[numbers] = count_members(sets, delivery.queries)[numbers]
        return counts
    upto = np.concatenate(([0], np.cumsum(np.bincount(level))))
    for target in plain:
        first, last = (min(end, upto.size - 1) for end in target.levels)
        counts[target.number] = upto[last] - upto[first]
    return counts


def _table_rows(batch: pa.RecordBatch, readers: NDArray[np.uint64], *, with_sets: bool) -> pa.RecordBatch:
    """Choose what the group's table stores: the pairs that somebody reads there, each once, and who does.

    Its columns are declared without nulls, so that Parquet writes no definition levels of them.
    """
    wanted = _is_read(readers)
    columns = {name: batch.column(name) for name in (*sides_in(batch), "level")}
    if with_sets:
        columns |= set_columns(readers)
    fields = [pa.field(name, each.type, nullable=False) for name, each in columns.items()]
    schema = pa.schema(fields, batch.schema.metadata)
    rows = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def _is_read(readers: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Say which pairs somebody reads from the table; one value stands for all if it is the same."""
    some = readers[:1] if readers.strides[0] == 0 else readers
    return np.asarray(some[:, 0] != 0 if some.shape[1] == 1 else some.any(axis=1))


def with_arrival(batch: pa.RecordBatch, arrived: float) -> pa.RecordBatch:
    """Note when the later rows of a batch of pairs arrived: they are all of the same two segments."""
    return batch.replace_schema_metadata({_ARRIVAL: repr(arrived)})


def _arrival(batch: pa.RecordBatch, delivery: Delivery) -> float:
    """Read when the later rows of a batch of pairs arrived, to a tenth of a second; the unit's last if not noted."""
    noted = float((batch.schema.metadata or {}).get(_ARRIVAL, b"0"))
    return round(noted or delivery.arrived, 1)


_ARRIVAL = b"penstock.arrived"


def set_columns(sets: NDArray[np.uint64]) -> dict[str, pa.Array]:
    """Lay out query sets as the columns ``s0, s1 …`` of a batch of pairs."""
    return {
        f"s{word}": pa.array(np.ascontiguousarray(sets[:, word]).view(np.int64))
        for word in range(sets.shape[1])
    }


def set_names(queries: int) -> list[str]:
    """Name the columns that hold the set of so many queries."""
    return [f"s{word}" for word in range(words_for(queries))]
