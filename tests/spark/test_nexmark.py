"""The scripts of ``examples/nexmark`` give what DuckDB gives, step by step, with `--once`."""

import re
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from penstock.cli.demos.auction_streams import Auctions, make_auctions
from penstock.cli.main import main
from tests.answers import applied, bag, same
from tests.oracle import parquet_rows

pytestmark = pytest.mark.spark

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "nexmark"
PROMISES = re.compile(r", (?:unique|punctuates) = '\w+'|, punctuation = 'kind = ''closed'''")

MEETS = "FROM A, B WHERE A.item_id = B.item_id AND B.kind = 'bid'"
RIGHT = {
    "bids": (
        f"SELECT A.item_id, COUNT(*) {MEETS} AND B.ts >= A.ts AND B.ts < A.ts + INTERVAL 12 HOURS GROUP BY ALL"
    ),
    "q9": (
        "SELECT A.item_id, A.seller, MAX(B.price), MAX(B.price) >= MAX(A.reserve), COUNT(*), "
        f"COUNT(DISTINCT B.bidder) {MEETS} AND B.ts BETWEEN A.ts AND A.expires GROUP BY ALL"
    ),
    "closing": (
        "SELECT A.item_id, A.category, A.expires, MAX(B.price) AS final "
        f"{MEETS} AND B.ts >= A.ts AND B.ts < A.expires GROUP BY ALL"
    ),
}
RIGHT["q4"] = (
    f"SELECT category, C.name, AVG(Q.final), COUNT(*) FROM ({RIGHT['closing']}) Q "
    "JOIN C USING (category) GROUP BY ALL"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two days of an auction, a third of a day to a file."""
    made = tmp_path_factory.mktemp("nexmark")
    make_auctions(made, Auctions(auctions=300, bids=4_000, files=6))
    return made


@pytest.fixture(scope="module")
def judge(folder):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for alias, name in {"A": "auction", "B": "bid", "C": "category"}.items():
            connection.execute(f"CREATE TABLE {alias} AS SELECT * FROM '{folder}/data/{name}/*.parquet'")
        yield lambda query: bag(connection.sql(RIGHT[query]).to_arrow_table().to_pylist())


def prepared(name, folder, out, *, promises):
    """Read a script, its paths made absolute, a file to a batch; without promises, WHERE leaves closings out."""
    text = (SCRIPTS / f"{name}.sql").read_text(encoding="utf-8")
    if not promises:
        text, count = PROMISES.subn("", text)
        assert count
        text = text.replace("WHERE A.item_id = B.item_id", "WHERE A.item_id = B.item_id AND B.kind = 'bid'")
    text = text.replace("'data/", f"'{folder}/data/").replace("'out/", f"'{out}/out/")
    path = out / f"{name}.sql"
    path.write_text(text.replace("format =", "maxFilesPerTrigger = '1', format ="), encoding="utf-8")
    return path


@pytest.fixture(params=[False, True], ids=["without promises", "with promises"])
def run(request, folder, tmp_path):
    """Give a function that runs a script to its end and reads what it has written."""

    def run(name, query):
        script = prepared(name, folder, tmp_path, promises=request.param)
        assert main(["run", str(script), "--once", "--state", str(tmp_path / "state" / name)]) == 0
        return parquet_rows(tmp_path / "out" / query).to_pylist()

    return run


@pytest.mark.parametrize("query", ["bids", "q9"])
def test_each_auction_is_answered_once_and_as_duckdb_answers(query, run, judge):
    right = judge(query)
    assert right.total() > 200
    same(bag(run(query, query)), right, query)


def test_the_average_closing_price_of_each_category_in_two_steps(run, judge):
    same(bag(run("q4", "closing")), judge("closing"), "what auctions were closed at")
    latest = applied(run("q4b", "q4"), 2)
    same(Counter(latest.values()), judge("q4"), "the average of each category")
    assert len(latest) == 10
