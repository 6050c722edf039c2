"""Every kind of query on a cluster: executors are processes of their own, and all rows pass through their tasks.

The driver is a child process, guarded against opening files with rows (`tests/spark/driver_guard.py`).  What Spark's
event log says and what the tasks have counted is held against the input, and the results against DuckDB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.spark

CHILD = Path(__file__).with_name("cluster_child.py")
START = 1_704_096_000_000_000  # 2024-01-01 08:00 UTC, in microseconds
SECOND = 1_000_000
ROWS = 300
SCRIPT = """\
CREATE STREAM A (k BIGINT, v DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = '{root}/in/A', time = 'ts', lateness = '5 seconds', retain = '1 hour');
CREATE STREAM B (k BIGINT, v DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = '{root}/in/B', time = 'ts', lateness = '5 seconds', retain = '1 hour');
CREATE STREAM C (k BIGINT, v DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = '{root}/in/C', time = 'ts', lateness = '5 seconds', mergeSchema = 'false');
CREATE STREAM Auction (item_id BIGINT, seller BIGINT, ts TIMESTAMP)
  WITH (format = 'parquet', path = '{root}/in/Auction', time = 'ts', unique = 'item_id');
CREATE STREAM Bid (item_id BIGINT, price DOUBLE, kind STRING, ts TIMESTAMP)
  WITH (format = 'parquet', path = '{root}/in/Bid', time = 'ts', punctuation = 'kind = ''closed''',
        punctuates = 'item_id');
CREATE STREAM S1 (epoch BIGINT, v DOUBLE)
  WITH (format = 'parquet', path = '{root}/in/S1', scrambling = '40', multiplicity = '1');
CREATE STREAM S2 (epoch BIGINT, v DOUBLE)
  WITH (format = 'parquet', path = '{root}/in/S2', scrambling = '40', multiplicity = '1');
CREATE QUERY plain WITH (sink = 'parquet', path = '{root}/out/plain') AS
  SELECT A.k, A.v AS av, B.v AS bv FROM A, B WHERE A.k = B.k WINDOW 10 seconds;
CREATE QUERY table AS
  SELECT A.k, A.v + B.v AS both FROM A, B WHERE A.k = B.k AND A.v < B.v + 0.3 WINDOW 20 seconds;
CREATE QUERY ordered WITH (order = 'filter-order') AS
  SELECT A.k, A.ts AS ats, B.ts AS bts FROM A, B WHERE A.k = B.k AND A.v > 0.2 WINDOW 10 seconds;
CREATE QUERY dropped AS SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 1 second;
CREATE QUERY three WITH (sink = 'parquet', path = '{root}/out/three') AS
  SELECT A.k, A.v AS av, B.v AS bv, C.v AS cv FROM A, B, C WHERE A.k = B.k AND B.k = C.k WINDOW 2 seconds;
CREATE QUERY sliding WITH (sink = 'parquet', path = '{root}/out/sliding') AS
  SELECT A.k, COUNT(*) AS n, MAX(B.v) AS most FROM A, B WHERE A.k = B.k GROUP BY A.k
  WINDOW 20 seconds EVERY 10 seconds;
CREATE QUERY bids WITH (sink = 'parquet', path = '{root}/out/bids', emit = 'final') AS
  SELECT T.item_id, COUNT(*) AS bids FROM Auction T [RANGE 12 HOURS], Bid B [NOW]
  WHERE T.item_id = B.item_id GROUP BY T.item_id;
CREATE QUERY located WITH (sink = 'parquet', path = '{root}/out/located') AS
  SELECT S1.epoch, S1.v AS v1, S2.v AS v2 FROM S1, S2 WHERE S1.epoch = S2.epoch;
"""
ONLINE = """\
CREATE QUERY late_comer AS SELECT A.k, A.v AS av, B.v AS bv FROM A, B WHERE A.k = B.k AND A.v > 0.5 WINDOW 3 seconds;
DROP QUERY dropped;
"""
APART = "abs(epoch_us(A.ts) - epoch_us(B.ts))"
TRUTH = {
    "plain": f"SELECT A.k, A.v, B.v FROM A, B WHERE A.k = B.k AND {APART} < 10000000",
    "table": f"SELECT A.k, A.v + B.v FROM A, B WHERE A.k = B.k AND A.v < B.v + 0.3 AND {APART} < 20000000",
    "ordered": f"SELECT A.k, A.ts, B.ts FROM A, B WHERE A.k = B.k AND A.v > 0.2 AND {APART} < 10000000",
    "late_comer": f"SELECT A.k, A.v, B.v FROM A, B WHERE A.k = B.k AND A.v > 0.5 AND {APART} < 3000000",
    "three": """SELECT A.k, A.v, B.v, C.v FROM A, B, C WHERE A.k = B.k AND B.k = C.k AND
        greatest(A.ts, B.ts, C.ts) - least(A.ts, B.ts, C.ts) < INTERVAL 2 SECONDS""",
    "sliding": f"""WITH pairs AS (
        SELECT A.k, B.v, epoch_us(greatest(A.ts, B.ts)) AS born, epoch_us(least(A.ts, B.ts)) AS old
        FROM A, B WHERE A.k = B.k AND {APART} < 20000000),
      ends AS (SELECT unnest(generate_series({START}, (SELECT max(born) FROM pairs), 10000000)) AS e)
      SELECT make_timestamp(e), k, count(*), max(v) FROM ends, pairs WHERE born <= e AND old > e - 20000000
      GROUP BY e, k""",
    "bids": """SELECT T.item_id, count(*) FROM Auction T, Bid B WHERE T.item_id = B.item_id AND B.kind = 'bid'
        AND B.ts >= T.ts AND B.ts - T.ts < INTERVAL 12 HOURS GROUP BY T.item_id""",
    "located": "SELECT S1.epoch, S1.v, S2.v FROM S1, S2 WHERE S1.epoch = S2.epoch",
}


def write_input(root: Path, seed: int) -> dict[str, int]:
    """Write four files of each stream, two of them to be revealed later; return how many rows each has."""
    random = np.random.default_rng(seed)
    for part in range(4):
        for name in "ABC":
            at = np.sort(random.integers(part * 15 * SECOND, (part * 15 + 17) * SECOND, ROWS))
            columns = {"k": random.integers(0, 40, ROWS), "v": random.random(ROWS), "ts": times(at)}
            put(root, part, name, columns)
        items = np.arange(part * 50, part * 50 + 50)
        put(root, part, "Auction", {"item_id": items, "seller": items % 7, "ts": times(items * SECOND)})
        bids = np.sort(random.choice(items, ROWS))
        kinds = ["bid"] * ROWS + ["closed"] * items.size
        item_id = np.concatenate([bids, items])
        at = np.concatenate([bids * SECOND + random.integers(0, 400_000, ROWS), items * SECOND + 500_000])
        order = np.argsort(at, kind="stable")
        put(root, part, "Bid", {
            "item_id": item_id[order], "price": random.random(at.size),
            "kind": np.array(kinds)[order], "ts": times(at[order]),
        })  # fmt: skip
        for name in ("S1", "S2"):
            epochs = np.arange(part * ROWS, part * ROWS + ROWS)
            shuffled = epochs[np.argsort(np.arange(ROWS) + random.integers(0, 10, ROWS), kind="stable")]
            put(root, part, name, {"epoch": shuffled, "v": random.random(ROWS)})
    counts = Counter[str]()
    for file in root.rglob("*.parquet"):
        counts[file.parent.name] += pq.read_metadata(file).num_rows
    return counts


def times(micros: np.ndarray) -> pa.Array:
    """Return instants."""
    return pa.array(np.asarray(micros) + START).cast(pa.timestamp("us", "UTC"))


def put(root: Path, part: int, name: str, columns: dict[str, object]) -> None:
    """Write one file of a stream."""
    folder = root / ("in" if part < 2 else "later") / name
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"{part}.parquet", row_group_size=100)


def judged(root: Path, query: str) -> Counter:
    """Return DuckDB's answer."""
    with duckdb.connect() as connection:
        for folder in (root / "in").iterdir():
            timed = "" if folder.name.startswith("S") else "REPLACE (make_timestamp(epoch_us(ts)) AS ts)"
            connection.sql(
                f"CREATE VIEW {folder.name} AS SELECT * {timed} FROM read_parquet('{folder}/*.parquet')"
            )
        return Counter(map(plain, connection.sql(TRUTH[query]).fetchall()))


def plain(row: tuple) -> tuple:
    """Return a row whose instants have no zone and whose numbers are rounded."""
    values = (each.replace(tzinfo=None) if hasattr(each, "tzinfo") else each for each in row)
    return tuple(round(each, 9) if isinstance(each, float) else each for each in values)


def delivered(root: Path, query: str) -> Counter:
    """Return the results of a query."""
    return Counter(plain(tuple(row.values())) for row in pq.read_table(root / "out" / query).to_pylist())


def events(root: Path, kind: str) -> list[dict]:
    """Return the events of one kind of the event log."""
    (file,) = (each for each in (root / "events").rglob("*") if each.is_file() and each.stat().st_size)
    lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    return [each for each in lines if each["Event"] == f"SparkListener{kind}"]


@pytest.mark.timeout(600)  # a cluster of three JVMs
def test_on_a_cluster_all_rows_pass_through_tasks_of_the_executors(tmp_path):
    seed = int.from_bytes(np.random.default_rng().bytes(3))
    rows = write_input(tmp_path, seed)
    (tmp_path / "events").mkdir()
    (tmp_path / "script.sql").write_text(SCRIPT.format(root=tmp_path), encoding="utf-8")
    (tmp_path / "online.sql").write_text(ONLINE, encoding="utf-8")
    child = subprocess.run(
        [sys.executable, str(CHILD), str(tmp_path)], capture_output=True, text=True, check=False, timeout=580
    )
    assert child.returncode == 0, f"seed {seed}: {child.stderr[-4000:]}"
    for query in TRUTH:
        assert delivered(tmp_path, query) == judged(tmp_path, query), f"seed {seed}: {query}"
    counts = json.loads((tmp_path / "counts.json").read_text(encoding="utf-8"))
    assert counts["streams"] == rows, f"seed {seed}"
    tasks, queries = counts["tasks"], counts["queries"]
    assert tasks["rows ingested"] == sum(rows.values()), f"seed {seed}"
    assert tasks["results released"] == queries["ordered"], f"seed {seed}"
    assert tasks["answers"] == queries["sliding"] + queries["bids"], f"seed {seed}"
    joined = sum(queries[name] for name in ("plain", "table", "three", "located", "late_comer"))
    assert tasks["results"] >= joined, f"seed {seed}: some results were found outside of tasks"
    assert tasks["pairs joined"] >= counts["pairs"] > 0, f"seed {seed}"
    check_events(tmp_path)


def check_events(root: Path) -> None:
    """Hold the event log against what is promised: jobs are described, and no task runs in the driver."""
    ended = events(root, "TaskEnd")
    assert {each["Task Info"]["Executor ID"] for each in ended} == {"0", "1"}
    described = Counter(
        (each["Properties"].get("spark.job.description") or "").split(" ", maxsplit=1)[0]
        for each in events(root, "JobStart")
    )
    assert {"ingest", "join", "fold", "answer", "release", "evaluate", "start"} <= set(described), described
    for each in (job["Properties"] for job in events(root, "JobStart")):
        if "penstock.tasks" in each:
            assert all(
                each.get(f"spark.{name}") for name in ("job.description", "jobGroup.id", "scheduler.pool")
            )
    pools = {each["Properties"].get("spark.scheduler.pool") for each in events(root, "JobStart")}
    assert {"ingest", "join", "answer", "release", "change"} <= pools
