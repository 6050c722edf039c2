"""The demo of promises: rows that are promises free state and bring answers early (the query of Figure 1 of paper 3).

The next files come when all rows before them are joined.  So the answers and the rows held at each step depend on the
streams alone, and not on the speed of the machine.

An answer is *early* when it comes before the 12 hours of its auction are over::

    Auction    opened ──────── closed                12 hours over
    answer                        │◀──── sooner by ────▶│
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.cli.demos.auction_streams import HOUR, Auctions, make_auctions
from penstock.cli.demos.frame import SteppedDemo
from penstock.cli.look import State
from penstock.cli.show import new_table, show_time, times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from penstock.engine.api import Engine
    from penstock.engine.report.status import Status

QUERY = """\
SELECT A.item_id, COUNT(*) AS bids FROM Auction A [RANGE 12 HOURS], Bid B [NOW]
WHERE A.item_id = B.item_id GROUP BY A.item_id;
"""

WINDOW_HOURS = 12
"""How long after its opening the bids on an auction count."""

STREAMS = ("auction", "bid")
ANSWERS = pa.schema({"item_id": pa.int64(), "bids": pa.int64()})

SAMPLES = 4
"""Early answers that are shown; of the others, half as many."""


@dataclass(frozen=True, slots=True)
class AuctionStep:
    """The state when all rows so far were joined, and the answers that were new then."""

    status: Status
    answers: pa.Table
    """Columns as in `ANSWERS`."""

    @property
    def at(self) -> int:
        """Return the event time of the newest row, in microseconds."""
        return max(stream.watermark or 0 for stream in self.status.streams)

    @property
    def opened(self) -> int:
        """Count the auctions so far."""
        return next(stream.rows for stream in self.status.streams if stream.name == "Auction")


class AuctionDemo(SteppedDemo):
    """A file of each stream comes at each step."""

    to_try = ("penstock results bids --state {keep}/state",)

    def __init__(self, wanted: Auctions | None = None) -> None:
        """Prepare a demo of that many auctions."""
        self.wanted = wanted or Auctions()
        self.steps = self.wanted.files
        self.done: list[AuctionStep] = []

    def script(self, folder: Path) -> str:
        """Write the files to come, and return the script."""
        make_auctions(folder / "to_come", self.wanted)
        for name in STREAMS:
            (folder / "data" / name).mkdir(parents=True)
        return script_text(folder)

    def introduce(self, engine: Engine, out: Console) -> None:  # noqa: ARG002
        """Print the query and its promises."""
        wanted = self.wanted
        out.print(
            f"{wanted.hours} hours of an online auction: {wanted.auctions:,} auctions and {wanted.bids:,} bids. "
            "How many bids does each auction get within 12 hours of its opening?\n"
        )
        out.print(indent(QUERY, "  "), markup=False)
        out.print(
            "Two promises are declared. An item is auctioned once, so no bid is kept for later auctions. A row of "
            "kind 'closed' among the bids says that no more bids on its item will come. Then the auction is no longer "
            "kept, and its answer is complete, however much of its 12 hours is left.\n\n"
            f"The streams come in {wanted.files} steps of {wanted.hours / wanted.files:g} hours.\n"
        )

    def arrive(self, folder: Path, step: int) -> None:
        """Move the next file of each stream to its source directory."""
        for name in STREAMS:
            file = f"{step:03d}.parquet"
            shutil.move(folder / "to_come" / "data" / name / file, folder / "data" / name / file)

    def look(self, folder: Path, status: Status) -> None:
        """Read the answers that are new."""
        answers = State.open(str(folder / "state")).results("bids", None).rows
        for before in self.done:
            answers = answers.filter(pc.invert(pc.is_in(answers["item_id"], before.answers["item_id"])))
        self.done.append(AuctionStep(status, answers))

    def report(self, engine: Engine, folder: Path, out: Console) -> None:  # noqa: ARG002
        """Print the steps, the rows that promises spared, and some answers."""
        shutil.rmtree(folder / "to_come")
        self.answers = timed(self.done, pq.read_table(folder / "data" / "auction"))
        out.print(step_table(self.done, self.answers))
        out.print(promise_table(self.done[-1].status))
        out.print(
            "Some answers; the last two came when the 12 hours were over:",
            sample_table(self.answers),
            sep="\n",
        )

    def closing(self, seconds: float) -> str:
        """Return what the promises saved."""
        return closing(self.answers, self.done[-1], seconds)


def script_text(folder: Path) -> str:
    """Return the script: two streams with their promises, and the query."""
    auction, bid = (folder / "data" / name for name in STREAMS)
    return (
        "CREATE STREAM Auction (item_id BIGINT, seller BIGINT, ts TIMESTAMP)\n"
        f"  WITH (format = 'parquet', path = '{auction}', time = 'ts', unique = 'item_id');\n"
        "CREATE STREAM Bid (item_id BIGINT, bidder BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)\n"
        f"  WITH (format = 'parquet', path = '{bid}', time = 'ts', punctuation = 'kind = ''closed''', "
        "punctuates = 'item_id');\n\n"
        f"CREATE QUERY bids WITH (sink = 'parquet', path = '{folder / 'out' / 'bids'}', emit = 'final') AS\n{QUERY}"
    )


def timed(steps: Sequence[AuctionStep], auction: pa.Table) -> pa.Table:
    """Add to each answer when it came (``at``), and how long before the end of its window (``sooner``)."""
    answers = pa.concat_tables(
        step.answers.select(ANSWERS.names)
        .cast(ANSWERS)
        .append_column("at", pa.array(np.full(step.answers.num_rows, step.at, np.int64)))
        for step in steps
    ).join(auction.select(["item_id", "ts", "expires"]), "item_id", join_type="inner")
    ends = pc.add(answers["ts"].cast(pa.int64()), WINDOW_HOURS * HOUR)
    answers = answers.append_column("sooner", pc.subtract(ends, answers["at"]))
    return answers.sort_by([("at", "ascending"), ("item_id", "ascending")])


def early(answers: pa.Table) -> pa.Table:
    """Keep the answers that came before their window ended."""
    return answers.filter(pc.greater(answers["sooner"], 0))


def step_table(steps: Sequence[AuctionStep], answers: pa.Table) -> Table:
    """Show for each step the rows that came, the answers, and the rows held."""
    table = new_table(
        "event time", "auctions", "answered", "of these early", "rows held", "by the window alone"
    )
    for step in steps:
        so_far = answers.filter(pc.less_equal(answers["at"], step.at))
        counts = (step.opened, so_far.num_rows, early(so_far).num_rows)
        rows = (step.status.state_rows, step.status.window_rows)
        table.add_row(_minute(step.at), *(f"{count:,}" for count in (*counts, *rows)))
    return table


def promise_table(status: Status) -> Table:
    """Show the promises of each stream, and the rows that were not kept because of them."""
    table = new_table(
        "stream", "rows in", "promises", "purged", "joined, never kept", "never stored", "promises broken"
    )
    names = ("rows", "punctuations", "purged", "discarded", "dropped", "broken")
    for stream in status.streams:
        table.add_row(stream.name, *(f"{getattr(stream, name):,}" for name in names))
    return table


def sample_table(answers: pa.Table) -> Table:
    """Show some answers that were early, and some auctions that were open for the whole of their window."""
    table = new_table("auction", "opened", "closes", "bids", "answered by", "sooner by")
    late = answers.filter(pc.less_equal(answers["sooner"], 0))
    for row in (*_spread(early(answers), SAMPLES), *_spread(late, SAMPLES // 2)):
        moments = [f"{row[name]:%d. %H:%M}" for name in ("ts", "expires")]
        sooner = f"{row['sooner'] / HOUR:.1f} h" if row["sooner"] > 0 else "-"
        table.add_row(str(row["item_id"]), *moments, str(row["bids"]), _minute(row["at"]), sooner)
    return table


def closing(answers: pa.Table, last: AuctionStep, seconds: float) -> str:
    """Return in one paragraph what the promises saved."""
    sooner = early(answers)
    hours = (pc.mean(sooner["sooner"]).as_py() or 0) / HOUR
    held, alone = last.status.state_rows, last.status.window_rows
    return (
        f"{answers.num_rows:,} of {last.opened:,} auctions are answered, {sooner.num_rows:,} of them before their "
        f"{WINDOW_HOURS} hours were over, {hours:.1f} hours sooner on average. The others are still open, or have no "
        f"bids. The state holds {held:,} rows; with the window alone it would hold {alone:,}"
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
