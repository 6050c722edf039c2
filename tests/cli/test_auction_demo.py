"""What the auction demo tells, of answers and moments made up here."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from penstock.cli.demos.auction import (
    ANSWERS,
    AuctionDemo,
    AuctionStep,
    closing,
    early,
    promise_table,
    sample_table,
    script_text,
    step_table,
    timed,
)
from penstock.cli.demos.auction_streams import HOUR, Auctions, auction_streams
from penstock.cli.demos.files import START_SECONDS
from penstock.cli.load import load
from penstock.engine.report.status import Status, StreamStatus
from tests.oracle import ask, bag, parquet_rows

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "nexmark" / "bids.sql"
START = START_SECONDS * 1_000_000


def moment(hour, answers, *, held=0, windows=0):
    """Make a moment: three auctions are there, and some answers are new."""
    auction = StreamStatus("Auction", 3, 1, START + (hour - 1) * HOUR, 0, 0, 0, 0)
    bid = StreamStatus("Bid", 90, 1, START + hour * HOUR, 0, 0, 0, 0)
    kept = replace(bid, punctuations=2, purged=1, discarded=80, dropped=7, broken=0)
    status = Status((auction, kept), (), (), state_rows=held, window_rows=windows)
    rows = pa.table({"item_id": list(answers), "bids": list(answers.values())}, ANSWERS)
    return AuctionStep(status, rows)


@pytest.fixture
def auction():
    """Auctions 1, 2 and 3, opened at 0, 1 and 2 o'clock."""
    times = pa.array([START, START + HOUR, START + 2 * HOUR]).cast(pa.timestamp("us", "UTC"))
    return pa.table({"item_id": [1, 2, 3], "ts": times, "expires": times})


MOMENTS = [moment(3, {}), moment(4, {2: 30}, held=20, windows=50), moment(12, {1: 40}, held=5, windows=60)]


def shown(table):
    out = Console(file=io.StringIO(), width=150)
    out.print(table)
    return [line.split() for line in out.file.getvalue().splitlines() if line.strip()]


def test_an_answer_is_early_before_the_12_hours_are_over_and_not_when_they_are(auction):
    """Auction 1 was opened at 0:00 and is answered at 12:00, auction 2 at 1:00 and 4:00."""
    answers = timed(MOMENTS, auction)
    assert answers["item_id"].to_pylist() == [2, 1]
    assert answers["sooner"].to_pylist() == [9 * HOUR, 0]
    assert early(answers)["item_id"].to_pylist() == [2]


def test_each_moment_shows_what_is_answered_by_then_and_what_is_held(auction):
    lines = shown(step_table(MOMENTS, timed(MOMENTS, auction)))[-3:]
    assert [line[1:] for line in lines] == [
        ["03:00", "3", "0", "0", "0", "0"],
        ["04:00", "3", "1", "1", "20", "50"],
        ["12:00", "3", "2", "1", "5", "60"],
    ]


def test_what_did_not_have_to_be_kept_is_shown_for_each_stream():
    lines = shown(promise_table(MOMENTS[-1].status))
    assert lines[-2:] == [["Auction", "3", *"00000"], ["Bid", "90", "2", "1", "80", "7", "0"]]


def test_samples_are_of_early_answers_and_of_others(auction):
    lines = shown(sample_table(timed(MOMENTS, auction)))
    assert [(line[0], line[-1]) for line in lines[-2:]] == [("2", "h"), ("1", "-")]


def test_no_answers_at_all_can_be_told_too(auction):
    answers = timed(MOMENTS[:1], auction)
    assert len(shown(sample_table(answers))) == 2
    assert closing(answers, MOMENTS[0], 9).startswith("0 of 3 auctions are answered, 0 of them before")


def test_the_demo_closes_with_what_the_promises_saved(auction):
    said = closing(timed(MOMENTS, auction), MOMENTS[-1], 50)
    assert said.startswith(
        "2 of 3 auctions are answered, 1 of them before their 12 hours were over, 9.0 hours"
    )
    assert (
        "holds 5 rows; with the window alone it would hold 60 (12.0 times as many). 50 seconds in all."
        in said
    )


def test_the_script_of_the_demo_is_that_of_the_examples(tmp_path):
    """But for the paths, and for comments and line breaks."""
    (tmp_path / "demo.sql").write_text(script_text(tmp_path))
    assert [each.name for each in load(tmp_path / "demo.sql").plan.queries] == ["bids"]
    text = re.sub(r"--.*", "", EXAMPLE.read_text(encoding="utf-8"))
    mine = script_text(tmp_path).replace(f"{tmp_path}/", "")
    assert mine.split() == text.split()


def test_files_come_one_by_one_in_their_order_and_with_their_dates(tmp_path):
    wanted = Auctions(auctions=20, bids=100, files=2)
    demo = AuctionDemo(wanted)
    demo.script(tmp_path)
    demo.arrive(tmp_path, 0)
    (there,) = (tmp_path / "data" / "bid").iterdir()
    assert there.stat().st_mtime == START_SECONDS
    assert auction_streams(wanted)["bid"].num_rows > pq.read_table(there).num_rows


@pytest.mark.spark
def test_the_demo_runs_to_its_end_and_its_early_answers_are_those_of_duckdb(tmp_path, capfd):
    kept = tmp_path / "kept"
    AuctionDemo(Auctions(auctions=300, bids=3_000, files=6)).run(kept)
    said = re.search(
        r"([\d,]+) of 300 auctions are answered, ([\d,]+) of them before", capfd.readouterr().out
    )
    answered, before = (int(each) for each in said.groups())
    assert answered > 150
    assert before > answered / 2
    meets = "A.item_id = B.item_id AND B.kind = 'bid' AND B.ts >= A.ts AND B.ts < A.ts + INTERVAL 12 HOURS"
    source = f"'{kept}/data/auction/*.parquet' A, '{kept}/data/bid/*.parquet' B"
    right = bag(ask(f"SELECT A.item_id, COUNT(*) FROM {source} WHERE {meets} GROUP BY ALL"))
    got = bag(parquet_rows(kept / "out" / "bids"))
    assert got.total() == answered
    assert got <= right
    assert not (kept / "to_come").exists()
