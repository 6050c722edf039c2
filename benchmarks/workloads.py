"""Workloads: streams and query sets made by a seed, the same for every engine, every test and every figure.

| name      | streams                                                                                       |
|-----------|-----------------------------------------------------------------------------------------------|
| `w1`      | two of the same kind: a million rows each, 10,000 a second of event time, 50,000 keys at random |
| `zipf`    | as `w1`, but the key of rank r is drawn in proportion to r^-0.5: the first 112 times the average |
| `nexmark` | shaped as NEXMark's: 3 auctions to 46 bids, an auction's key its own, half of the bids on a hot one |
| `ending`  | as `w1`, but keys end one after the other: two rows in five have the next one, others a later one |

A file holds ten seconds of event time: one micro-batch of a run takes one file of each stream, 200,000 rows in all.
A query joins ``a`` and ``b`` on the key within a window, and may keep rows of ``a`` above a value only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Pair = tuple["Columns", "Columns"]

EPOCH = 1_700_000_000_000_000  # event time of a workload's first row, microseconds
STREAMS = ("a", "b")

NOOP = "sink = 'noop'"  # the clause of a query whose results are only counted
AUCTIONS_OF_NEXMARK = 3 / 49  # the share of auctions among auctions and bids
OPEN_SECONDS = 40  # how long ago an auction of `nexmark` may have been opened to get a bid still
HOT_EVERY = 100  # one auction of so many is hot
OF_THE_NEXT = 0.4  # the share of rows of `ending` that have the key which is next to end


@dataclass(frozen=True, slots=True)
class Columns:
    """The rows of a stream in order of event time: keys, values from 0 to 100, microseconds since `EPOCH`."""

    key: NDArray[np.int64]
    value: NDArray[np.float64]
    time: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Workload:
    """Two streams ``a`` and ``b`` with columns ``k bigint, v double, ts timestamp``.

    `rows` and `rate` (rows per second of event time) are those of one stream, or of both on average; `rows_per_file`
    likewise is what one micro-batch takes of a stream.
    """

    rows: int = 1_000_000
    rate: int = 10_000
    keys: int = 50_000
    rows_per_file: int = 100_000
    seed: int = 7
    name: str = "w1"
    skew: float = 0.5
    """The exponent of `zipf`: with more, the pairs of the first few keys are all there is."""

    def __post_init__(self) -> None:
        """Refuse a name that is none."""
        if self.name not in MAKERS:
            raise InputError(f"there is no workload {self.name}: {did_you_mean(self.name, MAKERS)}")

    @property
    def span(self) -> int:
        """Give the event time that the streams cover, microseconds."""
        return self.rows * 1_000_000 // self.rate

    def streams(self) -> Mapping[str, Columns]:
        """Make both streams."""
        return dict(zip(STREAMS, MAKERS[self.name](self, np.random.default_rng(self.seed)), strict=True))

    @property
    def label(self) -> str:
        """Name the directory of the data: everything they depend on."""
        return f"{self.name}-{self.rows}-{self.rate}-{self.keys}-{self.rows_per_file}-{self.seed}-{self.skew}"

    def write(self, parent: Path) -> Path:
        """Write both streams as files in order of event time, unless they are there already; give their directory."""
        directory = (parent / self.label).resolve()
        if (directory / "done").exists():
            return directory
        for name, rows in self.streams().items():
            table = pa.table({"k": rows.key, "v": rows.value, "ts": stamps(rows.time)})
            write_files(directory / name, table, self.bounds(rows))
        (directory / "done").touch()
        return directory

    def bounds(self, rows: Columns) -> NDArray[np.int64]:
        """Say before which rows of a stream its files begin, and where the last one ends."""
        batches = -(-self.rows // self.rows_per_file)
        return np.linspace(0, len(rows.time), batches + 1).astype(np.int64)


def write_files(folder: Path, rows: pa.Table, bounds: Iterable[int]) -> None:
    """Write the files of a stream; their times of change are in order too, for sources that go by them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (start, end) in enumerate(pairwise(map(int, bounds))):
        path = folder / f"{number:05d}.parquet"
        pq.write_table(rows.slice(start, end - start), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def stamps(micros: NDArray[np.int64]) -> pa.Array:
    """Turn times since the beginning of a workload into timestamps."""
    return pa.array(micros + EPOCH).cast(pa.timestamp("us", tz="UTC"))


def _alike(load: Workload, random: np.random.Generator) -> Columns:
    time = np.sort(random.integers(0, load.span, load.rows))
    key = random.integers(0, load.keys, load.rows)
    return Columns(key, random.random(load.rows) * 100, time)


def _zipf(load: Workload, random: np.random.Generator) -> Pair:
    """Draw keys by Zipf's law, then shuffle their numbers so that likely keys are not neighbours."""
    weight = np.arange(1, load.keys + 1) ** -load.skew
    upto = np.cumsum(weight / weight.sum())
    number = random.permutation(load.keys)

    def drawn() -> Columns:
        rows = _alike(load, random)
        rank = np.searchsorted(upto, random.random(load.rows), side="right")
        return Columns(number[np.minimum(rank, load.keys - 1)], rows.value, rows.time)

    return drawn(), drawn()


def _auctions_and_bids(load: Workload, random: np.random.Generator) -> Pair:
    """Open auctions one after the other, and bid on those opened in the last `OPEN_SECONDS`.

    Every `HOT_EVERY`-th is a hot one; half of the bids go to the latest of these, as in NEXMark.  A bid's value is its
    price, an auction's the reserve.
    """
    auctions = max(1, round(2 * load.rows * AUCTIONS_OF_NEXMARK))
    bids = 2 * load.rows - auctions
    opened = np.sort(random.integers(0, load.span, auctions))
    bid_at = np.sort(random.integers(0, load.span, bids))
    last = np.maximum(np.searchsorted(opened, bid_at, side="right") - 1, 0)
    first = np.searchsorted(opened, bid_at - OPEN_SECONDS * 1_000_000)
    cold = first + (random.random(bids) * (last - first + 1)).astype(np.int64)
    chosen = np.where(random.random(bids) < 0.5, last - last % HOT_EVERY, cold)
    reserves, prices = random.random(auctions) * 100, random.random(bids) * 100
    return Columns(np.arange(auctions), reserves, opened), Columns(chosen, prices, bid_at)


def _ending(load: Workload, random: np.random.Generator) -> Columns:
    """Let keys end in their order, each after its stretch of rows: paper 3's punct-asc-100-40 with 100 rows a key."""
    rows = _alike(load, random)
    following = np.arange(load.rows) * load.keys // load.rows  # the key that is next to end
    later = following + 1 + (random.random(load.rows) * (load.keys - 1 - following)).astype(np.int64)
    own = (random.random(load.rows) < OF_THE_NEXT) | (later >= load.keys)
    return Columns(np.where(own, following, later), rows.value, rows.time)


MAKERS: dict[str, Callable[[Workload, np.random.Generator], Pair]] = {
    "w1": lambda load, random: (_alike(load, random), _alike(load, random)),
    "nexmark": _auctions_and_bids,
    "zipf": _zipf,
    "ending": lambda load, random: (_ending(load, random), _ending(load, random)),
}
"""How each workload's streams are made, by its name."""


@dataclass(frozen=True, slots=True)
class WindowQuery:
    """A window join of ``a`` and ``b``: seconds to both sides, in whole milliseconds, and what ``a.v`` must exceed.

    An aggregate of it has a `group`: what of ``a`` its pairs are grouped by.
    """

    window: float
    above: float | None = None
    group: str | None = None

    @property
    def micros(self) -> int:
        """Give the window in microseconds."""
        return round(self.window * 1_000_000)

    def condition(self, column: str) -> str:
        """Write the predicate on a column as SQL that every engine reads; true if there is none."""
        return "TRUE" if self.above is None else f"{column} > {self.above}"


def _every(count: int, choosy_from: float = np.inf) -> tuple[WindowQuery, ...]:
    """Spread windows evenly up to 30 s; above `choosy_from` seconds a predicate keeps a fifth of ``a``."""
    windows = [round(30 * (number + 1) / count, 3) for number in range(count)]
    return tuple(WindowQuery(each, 80 if each > choosy_from else None) for each in windows)


def _at_random(count: int, seed: int) -> tuple[WindowQuery, ...]:
    """Draw windows from 1 to 30 s; half of the queries have a predicate, whose bound is drawn too."""
    random = np.random.default_rng(seed)
    windows = random.integers(1_000, 30_001, count) / 1000
    bounds = random.integers(1, 100, count)
    choosy = random.random(count) < 0.5
    drawn = zip(windows.tolist(), bounds.tolist(), choosy, strict=True)
    return tuple(WindowQuery(window, bound if has else None) for window, bound, has in drawn)


QUERY_SETS: dict[str, tuple[WindowQuery, ...]] = {
    "N1": _every(1),
    "N12": _every(12),
    "N12f": _every(12, choosy_from=5.0),
    "N36": _every(36),
    "N200": _at_random(200, seed=200),
}
"""The query sets of the benchmark."""


def query_sets(names: Iterable[str]) -> dict[str, tuple[WindowQuery, ...]]:
    """Find query sets by their names."""
    for name in (wanted := list(names)):
        if name not in QUERY_SETS:
            raise InputError(f"there is no query set {name}: {did_you_mean(name, QUERY_SETS)}")
    return {name: QUERY_SETS[name] for name in wanted}


def as_script(data: Path, queries: Sequence[WindowQuery], sink: str, files: int | None = 1) -> str:
    """Write queries over a workload's files as a Penstock script; they are named q0, q1 and so on.

    `sink` is the clause that says where results go; `files` of a stream are a micro-batch, or all that are there.
    """
    return streams_in(data, files) + queries_in(queries, sink)


def queries_in(queries: Sequence[WindowQuery], sink: str, *conditions: str) -> str:
    """Write queries as the end of a Penstock script; `conditions` hold for each of them, beside its own."""
    written = []
    for number, query in enumerate(queries):
        wanted = [*conditions, *([query.condition("a.v")] if query.above is not None else [])]
        where = f"WHERE {' AND '.join(wanted)} " if wanted else ""
        written.append(
            f"CREATE QUERY q{number} WITH ({sink}) AS SELECT a.k, a.v AS av, b.v AS bv, a.ts AS ats, b.ts AS bts "
            f"FROM a JOIN b ON a.k = b.k {where}WINDOW {query.window} seconds;\n"
        )
    return "".join(written)


def streams_in(
    data: Path, files: int | None = 1, columns: str = "k BIGINT, v DOUBLE, ts TIMESTAMP", options: str = ""
) -> str:
    """Write both streams of a workload's files as the beginning of a Penstock script; `options` are further ones."""
    further = ("" if files is None else f", maxFilesPerTrigger = '{files}'") + (
        f", {options}" if options else ""
    )
    return "".join(
        f"CREATE STREAM {name} ({columns}) WITH (format = 'parquet', path = '{data / name}', time = 'ts'{further});\n"
        for name in STREAMS
    )
