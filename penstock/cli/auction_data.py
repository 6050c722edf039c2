"""Streams shaped as NEXMark's: auctions, the bids on them, and in the stream of bids a row when an auction is closed.

An auction is open from `ts` to `expires`; most for a few hours, some for longer than the 12 hours that the query of
paper 3 looks at.  Its bids come while it is open, its ``closed`` row at `expires`, and nothing about it after that::

    Auction   ts ────────────── open ──────────────▶ expires
    Bid           bid   bid  bid       bid    bid       closed     (no more rows of this item)

What would come after the end of the span is left out: such auctions are still open when the streams end.

In:  a directory, and how much to make.  Out: Parquet files in order of time, three directories of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

START_SECONDS = 1_717_200_000
"""When the streams begin, in seconds since the epoch: 2024-06-01 00:00:00 UTC."""

HOUR = 3_600_000_000
"""Microseconds of an hour."""

LONGEST_HOURS = 36
"""No auction is open for longer: a window of two days holds every one to its end."""

FIRST_ITEM = 1_000
CATEGORIES = ("art", "books", "cars", "coins", "games", "maps", "music", "stamps", "tools", "wine")


@dataclass(frozen=True, slots=True)
class Auctions:
    """How much to make: so many auctions and bids over `hours`, in `files` of equal length for each stream."""

    auctions: int = 2_000
    bids: int = 40_000
    hours: int = 48
    files: int = 16
    usual_hours: float = 3.0
    """Half of the auctions are open for less."""
    seed: int = 42

    def __post_init__(self) -> None:
        """Refuse to make nothing."""
        if min(self.auctions, self.bids, self.hours, self.files) < 1 or self.usual_hours <= 0:
            raise InputError(f"auctions, bids, hours and files must be positive: {self}")

    @property
    def span(self) -> int:
        """Give the event time that the streams cover, microseconds."""
        return self.hours * HOUR


def auction_streams(wanted: Auctions) -> dict[str, pa.Table]:
    """Make the streams ``auction``, ``bid`` and ``category``, each in order of time."""
    rng = np.random.default_rng(wanted.seed)
    auction = _auctions(wanted, rng)
    return {"auction": auction, "bid": _bids(wanted, auction, rng), "category": _categories()}


def make_auctions(folder: Path, wanted: Auctions | None = None) -> None:
    """Write the files of all streams below ``folder/data``."""
    wanted = wanted or Auctions()
    for name, rows in auction_streams(wanted).items():
        bounds = np.linspace(0, wanted.span, wanted.files + 1).astype(np.int64)
        _write(folder / "data" / name, rows, bounds if name != "category" else bounds[[0, -1]])


def _auctions(wanted: Auctions, rng: np.random.Generator) -> pa.Table:
    """Open auctions at any time of the span; how long they stay open has a long tail."""
    count = wanted.auctions
    opened = np.sort(rng.integers(0, wanted.span, count))
    hours = np.clip(wanted.usual_hours * np.exp(1.1 * rng.standard_normal(count)), 0.1, LONGEST_HOURS)
    initial = rng.lognormal(3, 1, count).round(2)
    return pa.table(
        {
            "item_id": np.arange(FIRST_ITEM, FIRST_ITEM + count),
            "seller": rng.integers(1, max(count // 4, 2), count),
            "category": rng.integers(0, len(CATEGORIES), count).astype(np.int32),
            "initial": initial,
            "reserve": (initial * rng.uniform(1, 2, count)).round(2),
            "ts": _stamps(opened),
            "expires": _stamps(opened + (hours * HOUR).astype(np.int64)),
        }
    )


def _bids(wanted: Auctions, auction: pa.Table, rng: np.random.Generator) -> pa.Table:
    """Bid on auctions while they are open, on some far more than on others; then close those that end in time."""
    opened, expires = (_since_start(auction[name]) for name in ("ts", "expires"))
    length = np.minimum(expires, wanted.span) - opened
    wish = length * rng.exponential(1, len(length))
    of = rng.choice(len(length), wanted.bids, p=wish / wish.sum())
    share = rng.random(wanted.bids)
    price = auction["initial"].to_numpy()[of] * (1 + 2 * share) * rng.uniform(0.9, 1.1, wanted.bids)
    bids = {
        "item_id": auction["item_id"].to_numpy()[of],
        "bidder": rng.integers(1, max(wanted.bids // 10, 2), wanted.bids),
        "price": price.round(2),
        "ts": opened[of] + (share * length[of]).astype(np.int64),
    }
    return _in_order(bids, _closings(wanted, auction, expires))


def _closings(wanted: Auctions, auction: pa.Table, expires: Ints) -> Mapping[str, NDArray[np.generic]]:
    """Name the auctions that end within the span, and when."""
    ended = expires < wanted.span
    return {"item_id": auction["item_id"].to_numpy()[ended], "ts": expires[ended]}


def _in_order(
    bids: Mapping[str, NDArray[np.generic]], closings: Mapping[str, NDArray[np.generic]]
) -> pa.Table:
    """Bring bids and closings into one stream by time, a closing after the bids of its moment."""
    none = pa.nulls(len(closings["ts"]))
    times = np.concatenate([bids["ts"], closings["ts"]])
    rows = pa.table(
        {
            "item_id": np.concatenate([bids["item_id"], closings["item_id"]]),
            "bidder": pa.concat_arrays([pa.array(bids["bidder"]), none.cast(pa.int64())]),
            "price": pa.concat_arrays([pa.array(bids["price"]), none.cast(pa.float64())]),
            "kind": pa.array(np.repeat(["bid", "closed"], [len(bids["ts"]), len(none)])),
            "ts": _stamps(times),
        }
    )
    return rows.take(np.argsort(times, kind="stable"))


def _categories() -> pa.Table:
    """Name the categories; all are there from the beginning."""
    numbers = np.arange(len(CATEGORIES))
    return pa.table(
        {"category": numbers.astype(np.int32), "name": list(CATEGORIES), "ts": _stamps(numbers * 0)}
    )


def _write(folder: Path, rows: pa.Table, bounds: Ints) -> None:
    """Write a file for each span of time, dated by its number: Spark reads files in the order of their dates."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = np.searchsorted(_since_start(rows["ts"]), bounds)
    for number, (first, end) in enumerate(pairwise(ends)):
        path = folder / f"{number:03d}.parquet"
        pq.write_table(rows.slice(first, end - first), path)
        os.utime(path, (START_SECONDS + number, START_SECONDS + number))


def _stamps(micros: NDArray[np.generic]) -> pa.Array:
    """Turn times since the start into timestamps."""
    return pa.array(micros + START_SECONDS * 1_000_000).cast(pa.timestamp("us", "UTC"))


def _since_start(stamps: pa.ChunkedArray) -> Ints:
    """Turn timestamps into times since the start."""
    micros: Ints = pc.cast(stamps, pa.int64()).to_numpy() - START_SECONDS * 1_000_000
    return micros
