"""The streams of the auction: what their rows promise is kept."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from penstock.cli.demos.auction_streams import Auctions, auction_streams, make_auctions
from penstock.cli.load import load
from penstock.errors import InputError
from tests.oracle import ask

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "nexmark"

SMALL = Auctions(auctions=150, bids=2_000, files=4)


@pytest.fixture(scope="module")
def streams():
    return auction_streams(SMALL)


@pytest.fixture(scope="module")
def judge(streams):
    """Ask DuckDB for one number about the streams."""
    import duckdb

    with duckdb.connect() as connection:
        for name, rows in streams.items():
            connection.register(name, rows)
        yield lambda sql: connection.sql(sql).fetchall()[0][0]


def test_the_streams_are_the_same_every_time_but_for_another_seed(streams):
    again, other = (
        auction_streams(SMALL),
        auction_streams(Auctions(auctions=150, bids=2_000, files=4, seed=7)),
    )
    assert all(streams[name].equals(again[name]) for name in streams)
    assert not streams["bid"].equals(other["bid"])


def test_there_are_as_many_auctions_and_bids_as_are_asked_for(streams):
    assert streams["auction"].num_rows == SMALL.auctions
    kinds = {each["values"]: each["counts"] for each in pc.value_counts(streams["bid"]["kind"]).to_pylist()}
    assert kinds["bid"] == SMALL.bids
    assert 100 < kinds["closed"] < SMALL.auctions, "some are still open at the end"


def test_every_bid_comes_while_its_auction_is_open(judge):
    assert judge("SELECT count(*) FROM bid JOIN auction A USING (item_id) WHERE kind = 'bid'") == SMALL.bids
    outside = "bid.ts NOT BETWEEN A.ts AND A.expires"
    assert judge(f"SELECT count(*) FROM bid JOIN auction A USING (item_id) WHERE {outside}") == 0


def test_an_auction_is_closed_once_when_it_expires_and_nothing_comes_after(judge):
    closed = "SELECT item_id, ts FROM bid WHERE kind = 'closed'"
    assert judge(f"SELECT count(*) - count(DISTINCT item_id) FROM ({closed})") == 0
    same = f"SELECT count(*) FROM ({closed}) C JOIN auction A USING (item_id) WHERE A.expires = C.ts"
    assert judge(same) == judge(f"SELECT count(*) FROM ({closed})")
    assert judge(f"SELECT count(*) FROM bid JOIN ({closed}) C USING (item_id) WHERE bid.ts > C.ts") == 0


def test_most_auctions_are_open_for_well_below_12_hours_and_some_for_longer(judge):
    for least, most, hours in ((0.5, 0.95, 6), (0.8, 0.98, 12)):
        share = judge(f"SELECT avg((expires < ts + INTERVAL {hours} HOURS)::INT) FROM auction")
        assert least < share < most
    assert judge("SELECT max(expires - ts) <= INTERVAL 36 HOURS FROM auction")


def test_files_hold_all_rows_in_order_of_time_and_are_dated_in_that_order(tmp_path, streams):
    make_auctions(tmp_path, SMALL)
    for name, rows in streams.items():
        files = sorted((tmp_path / "data" / name).glob("*.parquet"))
        assert len(files) == (1 if name == "category" else SMALL.files)
        assert ds.dataset(files).to_table().equals(rows)
        assert np.all(np.diff(rows["ts"].cast("int64").to_numpy()) >= 0)
        dates = [each.stat().st_mtime for each in files]
        assert dates == sorted(set(dates))
    spans = f"SELECT max(ts) - min(ts) FROM '{tmp_path}/data/bid/*.parquet' GROUP BY filename"
    assert ask(f"SELECT max(COLUMNS(*)) <= INTERVAL 12 HOURS FROM ({spans})").column(0)[0].as_py()


@pytest.mark.parametrize("wrong", [{"auctions": 0}, {"files": 0}, {"hours": -1}, {"usual_hours": 0}])
def test_nothing_cannot_be_made(wrong):
    with pytest.raises(InputError, match="must be positive"):
        Auctions(**wrong)


def test_the_example_makes_every_stream_that_its_scripts_read(tmp_path):
    subprocess.run([sys.executable, EXAMPLES / "make_auctions.py"], check=True, cwd=tmp_path)
    scripts = sorted(EXAMPLES.glob("*.sql"))
    assert [each.stem for each in scripts] == ["bids", "q4", "q4b", "q9"]
    streams = [stream for each in scripts for stream in load(each).plan.streams]
    paths = {dict(each.options)["path"] for each in streams} - {"out/closing"}
    assert paths == {"data/auction", "data/bid", "data/category"}
    assert all(list((tmp_path / each).glob("*.parquet")) for each in paths)
