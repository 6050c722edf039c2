"""Make two days of an online auction: data/auction, data/bid and data/category, Parquet files in order of time."""  # noqa: INP001

from pathlib import Path

from penstock.cli.demos.auction_streams import make_auctions

make_auctions(Path())
