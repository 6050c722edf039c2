"""The auction: rows that are promises let state go and answers come early.  The query of Figure 1 of paper 3, live.

    make streams ──▶ a file of each stream comes, is joined, is answered ──▶ the next … ──▶ what the promises saved

The files come one after the other, each as soon as the one before is done with, so that what is answered and held at a
moment depends on the streams alone and not on how fast the machine is.

In:  nothing, or a directory to keep everything in.  Out: the terminal.  Ends by itself.
"""

from __future__ import annotations

import shutil
import time
from textwrap import indent
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.cli.auction_data import Auctions, make_auctions
from penstock.cli.auction_report import Moment, closing, moment_table, promise_table, sample_table, timed
from penstock.cli.demo import demo_folder
from penstock.cli.look import State
from penstock.cli.progress import Display
from penstock.cli.run import Signals
from penstock.cli.show import console
from penstock.engine.api import Engine
from penstock.engine.spark.session import QUICK_START

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from rich.console import Console

QUERY = """\
SELECT A.item_id, COUNT(*) AS bids FROM Auction A [RANGE 12 HOURS], Bid B [NOW]
WHERE A.item_id = B.item_id GROUP BY A.item_id;
"""

STREAMS = ("auction", "bid")


def run_demo(keep: Path | None = None, *, wanted: Auctions | None = None) -> None:
    """Run the whole demo; its files go to `keep`, or away at the end."""
    started, out, wanted = time.monotonic(), console(), wanted or Auctions()
    with demo_folder(keep) as folder, Signals() as signals:
        make_auctions(folder / "to_come", wanted)
        text = script_text(folder)
        (folder / "demo.sql").write_text(text, encoding="utf-8")
        _introduce(wanted, out)
        with Engine(folder / "state", settings=QUICK_START) as engine:
            engine.script(text)
            moments = _play(engine, signals, folder)
        shutil.rmtree(folder / "to_come")
        if signals.asked.is_set():
            out.print("stopped")
            return
        _report(moments, pq.read_table(folder / "data" / "auction"), out, started)
    if keep is not None:
        out.print(f"\nKept in {keep}: data, demo.sql, state and out. Look around, for example with\n")
        out.print(f"  penstock results bids --state {keep}/state", markup=False)


def script_text(folder: Path) -> str:
    """Write the demo's script: two streams with their promises, and the query."""
    auction, bid = (folder / "data" / name for name in STREAMS)
    return (
        "CREATE STREAM Auction (item_id BIGINT, seller BIGINT, ts TIMESTAMP)\n"
        f"  WITH (format = 'parquet', path = '{auction}', time = 'ts', unique = 'item_id');\n"
        "CREATE STREAM Bid (item_id BIGINT, bidder BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)\n"
        f"  WITH (format = 'parquet', path = '{bid}', time = 'ts', punctuation = 'kind = ''closed''', "
        "punctuates = 'item_id');\n\n"
        f"CREATE QUERY bids WITH (sink = 'parquet', path = '{folder / 'out' / 'bids'}', emit = 'final') AS\n{QUERY}"
    )


def _introduce(wanted: Auctions, out: Console) -> None:
    """Say what is about to run."""
    out.print(
        f"{wanted.hours} hours of an online auction: {wanted.auctions:,} auctions and {wanted.bids:,} bids. "
        "How many bids does each auction get within 12 hours of its opening?\n"
    )
    out.print(indent(QUERY, "  "), markup=False)
    out.print(
        "Two promises are declared. An item is auctioned once, so no bid is kept for auctions to come. And a row of "
        "kind 'closed' in the stream of bids says that no more bids on its item come: the auction is let go then, and "
        "its answer is there, however much of its 12 hours is left.\n\n"
        f"The streams come in {wanted.files} steps of {wanted.hours / wanted.files:g} hours.\n"
    )


def _play(engine: Engine, signals: Signals, folder: Path) -> list[Moment]:
    """Let the files come, step by step, and look after each at what is answered and held."""
    for name in STREAMS:
        (folder / "data" / name).mkdir(parents=True)
    engine.start()
    signals.arm()
    state, moments = State.open(str(folder / "state")), list[Moment]()
    with Display() as display:
        for file in sorted(each.name for each in (folder / "to_come" / "data" / "bid").iterdir()):
            if not signals.asked.is_set():
                _arrive(folder, file)
                engine.process_available()
                moments.append(Moment(engine.status(), _new_answers(state, moments)))
                display.show(engine, moments[-1].status)
    return moments


def _arrive(folder: Path, file: str) -> None:
    """Put the next file of each stream where its stream reads."""
    for name in STREAMS:
        shutil.move(folder / "to_come" / "data" / name / file, folder / "data" / name / file)


def _new_answers(state: State, moments: list[Moment]) -> pa.Table:
    """Read the answers that were not there at the moments before."""
    answers = state.results("bids", None).rows
    for each in moments:
        answers = answers.filter(pc.invert(pc.is_in(answers["item_id"], each.answers["item_id"])))
    return answers


def _report(moments: list[Moment], auction: pa.Table, out: Console, started: float) -> None:
    """Show when answers came, what was let go for promises, and some of the answers."""
    answers = timed(moments, auction)
    out.print(moment_table(moments, answers))
    out.print(promise_table(moments[-1].status))
    out.print(
        "Some answers; the last two came when the 12 hours were over:",
        sample_table(answers),
        sep="\n",
    )
    out.print(closing(answers, moments[-1], time.monotonic() - started))
