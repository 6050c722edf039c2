"""What the auction demo tells: when auctions were answered, what was let go, and what the window alone would hold.

An answer is *early* when it is there before the 12 hours of its auction are over::

    Auction    opened ──────── closed                12 hours over
    answer                        │◀──── sooner by ────▶│

In:  a `Moment` for each step of the demo, and the auctions.  Out: Rich tables, and the sentence at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.table import Table

from penstock.cli.auction_data import HOUR
from penstock.cli.show import show_time, times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.report.status import Status

WINDOW_HOURS = 12
"""How long after its opening the bids on an auction count."""

ANSWERS = pa.schema({"item_id": pa.int64(), "bids": pa.int64()})
"""What an answer is."""

SAMPLES = 4
"""Early answers that are shown; of the others, half as many."""


@dataclass(frozen=True, slots=True)
class Moment:
    """How things stood when all rows so far were joined, and the answers that were new then."""

    status: Status
    answers: pa.Table
    """Columns as in `ANSWERS`."""

    @property
    def at(self) -> int:
        """Give the event time of the newest row, microseconds."""
        return max(each.watermark or 0 for each in self.status.streams)

    @property
    def opened(self) -> int:
        """Count the auctions so far."""
        return next(each.rows for each in self.status.streams if each.name == "Auction")


def timed(moments: Sequence[Moment], auction: pa.Table) -> pa.Table:
    """Put beside each answer when it was there (``at``), and how long before the end of its window (``sooner``)."""
    known = pa.concat_tables(_stamped(each) for each in moments).join(
        auction.select(["item_id", "ts", "expires"]), "item_id", join_type="inner"
    )
    ends = pc.add(known["ts"].cast(pa.int64()), WINDOW_HOURS * HOUR)
    timed = known.append_column("sooner", pc.subtract(ends, known["at"]))
    return timed.sort_by([("at", "ascending"), ("item_id", "ascending")])


def _stamped(moment: Moment) -> pa.Table:
    """Put the moment beside its answers."""
    at = pa.array(np.full(moment.answers.num_rows, moment.at, np.int64))
    return moment.answers.select(ANSWERS.names).cast(ANSWERS).append_column("at", at)


def early(answers: pa.Table) -> pa.Table:
    """Leave the answers that came before their window ended."""
    return answers.filter(pc.greater(answers["sooner"], 0))


def moment_table(moments: Sequence[Moment], answers: pa.Table) -> Table:
    """Show step by step what came, what was answered, and what is held."""
    titles = ("auctions", "answered", "of these early", "rows held", "by the window alone")
    table = _table("event time", *titles)
    for each in moments:
        so_far = answers.filter(pc.less_equal(answers["at"], each.at))
        counts = (each.opened, so_far.num_rows, early(so_far).num_rows)
        rows = (each.status.state_rows, each.status.window_rows)
        table.add_row(_minute(each.at), *(f"{count:,}" for count in (*counts, *rows)))
    return table


def promise_table(status: Status) -> Table:
    """Show of each stream what it promised, and which rows did not have to be kept for that."""
    titles = ("rows in", "promises", "purged", "joined, never kept", "never stored", "promises broken")
    table = _table("stream", *titles)
    for each in status.streams:
        counts = (each.rows, each.punctuations, each.purged, each.discarded, each.dropped, each.broken)
        table.add_row(each.name, *(f"{count:,}" for count in counts))
    return table


def sample_table(answers: pa.Table) -> Table:
    """Show some answers that were early, and some auctions that were open for the whole of their window."""
    table = _table("auction", "opened", "closes", "bids", "answered by", "sooner by")
    late = answers.filter(pc.less_equal(answers["sooner"], 0))
    for row in (*_spread(early(answers), SAMPLES), *_spread(late, SAMPLES // 2)):
        moments = [f"{row[name]:%d. %H:%M}" for name in ("ts", "expires")]
        sooner = f"{row['sooner'] / HOUR:.1f} h" if row["sooner"] > 0 else "-"
        table.add_row(str(row["item_id"]), *moments, str(row["bids"]), _minute(row["at"]), sooner)
    return table


def closing(answers: pa.Table, last: Moment, seconds: float) -> str:
    """Say in one paragraph what the promises were good for."""
    sooner = early(answers)
    hours = (pc.mean(sooner["sooner"]).as_py() or 0) / HOUR
    held, alone = last.status.state_rows, last.status.window_rows
    return (
        f"{answers.num_rows:,} of {last.opened:,} auctions are answered, {sooner.num_rows:,} of them before their "
        f"{WINDOW_HOURS} hours were over, {hours:.1f} hours sooner on average. The others are still open, or nobody "
        f"bid on them. The state holds {held:,} rows; by the window alone it would hold {alone:,}"
        f"{times(alone, held)}. {seconds:.0f} seconds in all."
    )


def _minute(micros: int) -> str:
    """Write an event time to the minute.

    >>> _minute(1_717_212_345_678_900)
    '2024-06-01 03:25'
    """
    return show_time(micros)[: len("2024-06-01 03:25")]


def _spread(rows: pa.Table, count: int) -> list[dict[str, Any]]:
    """Take some rows from all over a table."""
    chosen = np.unique(np.linspace(0, rows.num_rows - 1, min(count, rows.num_rows)).astype(np.int64))
    listed: list[dict[str, Any]] = rows.take(chosen).to_pylist()
    return listed


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for title in numbers:
        table.add_column(title, justify="right")
    return table
