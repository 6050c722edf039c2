"""From pairs to sinks: route each pair to the queries that want it, write files, report what was written.

Runs inside a unit's tasks, on Arrow record batches of pairs with these columns::

    l, r      structs of the left and right columns that somebody reads
    level     smallint, the slice of the pair
    s0, s1 …  bigint, the set of queries that want it (only where some query has a predicate)
    o0, o1 …  struct of a query's own output, computed by Spark SQL (only where the query has an expression or a
              residual condition); null where the pair is not one of its results
    tl, tr    bigint, the event times of the two rows (only where some query wants its results in order)

Results that are wanted in order do not go to a sink yet: they are held (`penstock.log.hold`).

A file of a sink is written under ``_staging``, where no reader looks, and becomes visible only after the journal holds
the commit that names it.  A file that the state keeps is read only because a commit names it.  A pair goes to the
group's table once, however many queries read it there: with the set of those that do (`table_sets`), or by its level
alone where that says it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.join import width
from penstock.join.sets import count_members, members, to_words, words_for
from penstock.log.files import open_files
from penstock.log.hold import ARRIVED, MOST_ROWS, TIMES, sort_by_time, write_hold
from penstock.log.output_file import OutputFile
from penstock.log.spark_schema import SPARK_SCHEMA
from penstock.log.tally import Delays, delays_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.log.hold import Held


@dataclass(frozen=True, slots=True)
class Target:
    """One query's delivery: its number in the group, its slices, and where its rows go.

    `root` is empty where the result is only counted (``noop``) or read from the group's table.  `computed` says that
    Spark SQL made the output (column ``o<number>``), or decided whether there is one; else `columns` lists ``(name,
    side, column)``.
    """

    number: int
    query: str
    levels: tuple[int, int]
    root: str = ""
    columns: tuple[tuple[str, str, str], ...] = ()
    computed: bool = False
    in_table: bool = False
    compression: str = "snappy"
    hold: str = ""
    """Where its results are held until it is their turn, empty if they need not wait."""
    kept: str = ""
    """The directory of the state where its results are kept, if it is one that has files of its own there."""
    types: str = ""
    """Spark's description of its columns (JSON), where a file does not tell by itself."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """What waits on the way to a query: input rows, results held for their turn, and results not yet published."""

    waiting: int = 0
    held: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """What every task of a unit is told about its output."""

    unit: str
    queries: int
    targets: tuple[Target, ...]
    table: str = ""
    """The directory of the state where pairs are kept, empty if no query reads any."""
    table_sets: bool = False
    """Whether pairs are kept with the set of queries that read them, and not by their level."""
    state: str = ""
    """Where the state is, which hold files are named from."""
    arrived: float = 0.0
    """When the unit's last batch arrived: for pairs that come through Spark SQL and no longer know their own."""
    buffers: Mapping[str, Buffers] = field(default_factory=dict)
    """What waited for each query when the unit began."""


class _HoldRuns:
    """A query's results of one task that wait for their turn, written a run at a time."""

    def __init__(self, state: str, folder: str) -> None:
        """Say where the runs go; nothing is created yet."""
        self._files, self._folder = open_files(state, sync=False), folder
        self.waiting = 0
        """Bytes of the results taken and not written yet."""
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self.made: list[Held] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take some results with their times."""
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.waiting += batch.nbytes
        if self._waiting_rows >= MOST_ROWS or self.waiting >= width.MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was taken as one run."""
        if self._waiting and (made := write_hold(self._files, self._folder, [sort_by_time(self._waiting)])):
            self.made.append(made)
        self._waiting, self._waiting_rows, self.waiting = [], 0, 0


@dataclass(slots=True)
class _Made:
    """What a task makes: files by query, runs of results to be held by query, and the number of results of each."""

    files: dict[str, OutputFile]
    holds: dict[str, _HoldRuns]
    counts: NDArray[np.int64]
    arrivals: dict[float, NDArray[np.int64]]
    """The same number, by when the later row of the pair arrived."""
    pairs: Counter[float]
    """The number of pairs, by the same."""
    waiting: int = 0
    """Bytes that wait to be written, of all queries together."""

    def put(self, where: OutputFile | _HoldRuns, rows: pa.RecordBatch) -> None:
        """Give rows to a file; write out the fullest ones if too much waits in all of them."""
        before = where.waiting
        where.write(rows)
        self.waiting += where.waiting - before
        if self.waiting > width.MOST_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        """Write out the fullest files until half of what may wait is left."""
        files: list[OutputFile | _HoldRuns] = [*self.files.values(), *self.holds.values()]
        for each in sorted(files, key=lambda each: -each.waiting):
            self.waiting -= each.waiting
            each.flush()
            if 2 * self.waiting <= width.MOST_BYTES:
                return


def run_delivery(
    delivery: Delivery, part: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Route all pairs of one task, and report files and counts as one line of JSON."""
    made = _Made(
        {},
        {each.query: _HoldRuns(delivery.state, each.hold) for each in delivery.targets if each.hold},
        np.zeros(delivery.queries, np.int64),
        {},
        Counter(),
    )
    for batch in width.bounded(batches):
        if batch.num_rows:
            before = made.counts.copy()
            _route(delivery, part, batch, made)
            arrived = _arrival(batch, delivery)
            made.arrivals[arrived] = made.arrivals.get(arrived, 0) + made.counts - before
            made.pairs[arrived] += batch.num_rows
    for query, file in made.files.items():
        file.close(_note_on(delivery, query, made))
    for runs in made.holds.values():
        runs.flush()
    summary: dict[str, Any] = {
        "pairs": made.pairs.total(),
        "results": made.counts.tolist(),
        "arrivals": [[arrived, counts.tolist()] for arrived, counts in made.arrivals.items()],
        "files": [file.report(query) for query, file in made.files.items() if file.rows],
        "held": {
            query: [asdict(run) for run in runs.made] for query, runs in made.holds.items() if runs.made
        },
    }
    yield pa.RecordBatch.from_pydict({"summary": [json.dumps(summary)]})


def _note_on(delivery: Delivery, query: str, made: _Made) -> dict[str, object]:
    """Describe a query's file, or one of the group's table: by its pairs, however many queries read them."""
    if not query:
        waiting = max((each.waiting for each in delivery.buffers.values()), default=0)
        return note("", delivery.unit, list(made.pairs.items()), Buffers(waiting))
    number = next(each.number for each in delivery.targets if each.query == query)
    arrivals = [(arrived, int(counts[number])) for arrived, counts in made.arrivals.items()]
    return note(query, delivery.unit, arrivals, delivery.buffers.get(query, Buffers()))


def note(query: str, unit: str, arrivals: Sequence[tuple[float, int]], buffers: Buffers) -> dict[str, object]:
    """Describe a file of results: how long they took from arrival until now, and what waited when their unit began."""
    delays = Delays().then(delays_of(arrivals, time.time()))
    return {
        "query": query,
        "unit": unit,
        "results": sum(count for _, count in arrivals),
        "response": delays.figures() if delays.seen else None,
        **asdict(buffers),
    }


def _route(delivery: Delivery, part: int, batch: pa.RecordBatch, made: _Made) -> None:
    """Send one batch of pairs where it is wanted, and count what each query gets."""
    level = batch.column("level").to_numpy()
    sets = _sets(batch)
    made.counts[:] += _count_plain(delivery, level, sets)
    readers = _readers(delivery, level, sets) if delivery.table else None
    for target in delivery.targets:
        if not (target.root or target.computed or target.hold or target.kept):
            continue
        mine = _mask(batch, target, level, sets)
        if target.hold:
            if mine.any():
                rows = _output(batch, target, mine, _arrival(batch, delivery))
                made.put(made.holds[target.query], rows)
            continue
        if target.computed:
            made.counts[target.number] += int(mine.sum())
        if target.in_table and readers is not None:
            bit = target.number if delivery.table_sets else 0
            readers[:, bit // 64] |= mine.astype(np.uint64) << np.uint64(bit % 64)
        elif (target.root or target.kept) and mine.any():
            rows = _output(batch, target, mine)
            made.put(_file(made.files, delivery, part, target), rows)
    if readers is not None and readers.any():
        made.put(_table(made.files, delivery), _table_rows(batch, readers, with_sets=delivery.table_sets))


def _readers(
    delivery: Delivery, level: NDArray[np.int16], sets: NDArray[np.uint64] | None
) -> NDArray[np.uint64]:
    """Say for each pair which queries read it from the group's table; not yet those of which Spark SQL decides.

    Where pairs are kept by their level, the first bit says whether anybody does.
    """
    plain = [each for each in delivery.targets if each.in_table and not each.computed]
    if sets is not None:
        (mine,) = to_words([sum(1 << each.number for each in plain)], delivery.queries)
        return sets & mine
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
    found: NDArray[np.uint64] = words[np.minimum(level, last)]
    return found


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
    if sets is not None:
        counts = count_members(sets, delivery.queries)
    else:
        upto = np.concatenate(([0], np.cumsum(np.bincount(level))))
        counts = np.zeros(delivery.queries, np.int64)
        for target in delivery.targets:
            first, last = (min(end, upto.size - 1) for end in target.levels)
            counts[target.number] = upto[last] - upto[first]
    for target in delivery.targets:
        if target.computed or target.hold:
            counts[target.number] = 0
    return counts


def _mask(
    batch: pa.RecordBatch, target: Target, level: NDArray[np.int16], sets: NDArray[np.uint64] | None
) -> NDArray[np.bool_]:
    """Say which pairs of a batch a query gets."""
    if target.computed:
        return batch.column(f"o{target.number}").is_valid().to_numpy(zero_copy_only=False)
    if sets is not None:
        return members(sets, target.number)
    first, last = target.levels
    return (level >= first) & (level < last)


def _output(
    batch: pa.RecordBatch, target: Target, mine: NDArray[np.bool_], arrival: float = 0.0
) -> pa.RecordBatch:
    """Make a query's own rows: the columns of its SELECT, for the pairs it gets; with their times if they are held."""
    if target.computed:
        column = batch.column(f"o{target.number}")
        names = [column.type.field(place).name for place in range(column.type.num_fields)]
        arrays = column.flatten()
    else:
        names = [name for name, _, _ in target.columns]
        arrays = [batch.column(side).field(column) for _, side, column in target.columns]
    if target.hold:
        left, right = batch.column("tl"), batch.column("tr")
        arrived = pa.array(np.full(batch.num_rows, arrival))
        names = [*TIMES, *names, ARRIVED]
        arrays = [pc.max_element_wise(left, right), left, right, *arrays, arrived]
    if not mine.all():
        keep = pa.array(mine)
        arrays = [array.filter(keep) for array in arrays]
    metadata = {SPARK_SCHEMA: target.types} if target.types else None
    return pa.RecordBatch.from_arrays(arrays, names).replace_schema_metadata(metadata)


def _file(files: dict[str, OutputFile], delivery: Delivery, part: int, target: Target) -> OutputFile:
    """Open (once) the file for a query's rows of this task."""
    if target.query not in files:
        final = f"part-{delivery.unit}-{part:04d}"
        files[target.query] = (
            OutputFile(delivery.state, f"{target.kept}/{final}-{uuid.uuid4().hex}.parquet", kept=True)
            if target.kept
            else OutputFile(target.root, f"{final}.parquet", target.compression)
        )
    return files[target.query]


def _table(files: dict[str, OutputFile], delivery: Delivery) -> OutputFile:
    """Open (once) the file for the pairs of this task that some reader of the group's table wants."""
    if "" not in files:
        files[""] = OutputFile(delivery.state, f"{delivery.table}/{uuid.uuid4().hex}.parquet", kept=True)
    return files[""]


def _table_rows(batch: pa.RecordBatch, readers: NDArray[np.uint64], *, with_sets: bool) -> pa.RecordBatch:
    """Choose what the group's table stores: the pairs that somebody reads there, each once, and who does."""
    wanted = np.asarray(readers[:, 0] != 0 if readers.shape[1] == 1 else readers.any(axis=1))
    rows = batch.select(["l", "r", "level"])
    if with_sets:
        names, columns = zip(*set_columns(readers).items(), strict=True)
        rows = pa.RecordBatch.from_arrays([*rows.columns, *columns], [*rows.schema.names, *names])
    return rows if wanted.all() else rows.filter(pa.array(wanted))


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
