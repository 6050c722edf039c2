"""Streams shaped as NEXMark's: auctions, the bids on them, and in the stream of bids a row when an auction is closed.

An auction is open from `ts` to `expires`: usually for a few hours, sometimes for longer than the 12 hours of the query
of paper 3.  Its bids come while it is open, its ``closed`` row at `expires`, and no row of that item afterwards::

    Auction   ts ────────────── open ──────────────▶ expires
    Bid           bid   bid  bid       bid    bid       closed     (no more rows of this item)

Rows after the end of the span are left out: such auctions are still open when the streams end.

In:  a directory, and how much to make.  Out: Parquet files in order of time, in a directory for each of three streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cli.demos.files import START_SECONDS, timestamps, write_file
from penstock.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3_600_000_000
"""Microseconds of an hour."""

LONGEST_HOURS = 36
"""The longest time that an auction is open: a window of two days holds each one to its end."""

FIRST_ITEM = 1_000
CATEGORIES = ("art", "books", "cars", "coins", "games", "maps", "music", "stamps", "tools", "wine")


@dataclass(frozen=True, slots=True)
class Auctions:
    """The size of the demo: auctions and bids over `hours`, in `files` of equal length for each stream."""

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
        """Return the event time that the streams cover, in microseconds."""
        return self.hours * HOUR


def auction_streams(wanted: Auctions) -> dict[str, pa.Table]:
    """Make the streams ``auction``, ``bid`` and ``category``, each in order of time."""
    rng = np.random.default_rng(wanted.seed)
    auction = _auctions(wanted, rng)
    numbers = np.arange(len(CATEGORIES))
    category = {"category": numbers.astype(np.int32), "name": list(CATEGORIES), "ts": timestamps(numbers * 0)}
    return {"auction": auction, "bid": _bids(wanted, auction, rng), "category": pa.table(category)}


def make_auctions(folder: Path, wanted: Auctions | None = None) -> None:
    """Write the files of all streams below ``folder/data``, one for each span of time."""
    wanted = wanted or Auctions()
    for name, rows in auction_streams(wanted).items():
        files = 1 if name == "category" else wanted.files
        ends = np.searchsorted(
            _since_start(rows["ts"]), np.linspace(0, wanted.span, files + 1).astype(np.int64)
        )
        for number, (first, end) in enumerate(pairwise(ends)):
            write_file(folder / "data" / name, number, rows.slice(first, end - first))


def _auctions(wanted: Auctions, rng: np.random.Generator) -> pa.Table:
    """Open auctions at any time of the span; the time that they stay open has a long tail."""
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
            "ts": timestamps(opened),
            "expires": timestamps(opened + (hours * HOUR).astype(np.int64)),
        }
    )


def _bids(wanted: Auctions, auction: pa.Table, rng: np.random.Generator) -> pa.Table:
    """Bid on auctions while they are open, on some far more than on others; then close those that end in time."""
    item, opened, expires = (
        auction["item_id"].to_numpy(),
        *map(_since_start, (auction["ts"], auction["expires"])),
    )
    length = np.minimum(expires, wanted.span) - opened
    wish = length * rng.exponential(1, len(length))
    of = rng.choice(len(length), wanted.bids, p=wish / wish.sum())
    share = rng.random(wanted.bids)
    price = auction["initial"].to_numpy()[of] * (1 + 2 * share) * rng.uniform(0.9, 1.1, wanted.bids)
    ended = expires < wanted.span
    bids = {
        "item_id": item[of],
        "bidder": rng.integers(1, max(wanted.bids // 10, 2), wanted.bids),
        "price": price.round(2),
        "kind": np.repeat("bid", wanted.bids),
        "ts": timestamps(opened[of] + (share * length[of]).astype(np.int64)),
    }
    closings = {
        "item_id": item[ended],
        "kind": np.repeat("closed", ended.sum()),
        "ts": timestamps(expires[ended]),
    }
    rows = pa.concat_tables([pa.table(bids), pa.table(closings)], promote_options="default")
    return rows.take(np.argsort(_since_start(rows["ts"]), kind="stable")).combine_chunks()


def _since_start(stamps: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Turn timestamps into microseconds since the start."""
    micros: np.ndarray[tuple[int], np.dtype[np.int64]] = pc.cast(stamps, pa.int64()).to_numpy()
    return micros - START_SECONDS * 1_000_000
