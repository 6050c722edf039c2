"""The peers: what people use today for many window joins, each set up as its users would at their best.

`PEERS` is read from top to bottom, and so are the tables.  Every peer runs in processes of its own, gets the same rows,
the same cores and the same queries, discards its results after making every column of them, and reports how many there
were.
"""

from benchmarks.peers.flink import FLINK, FLINK_WIDEST
from benchmarks.peers.peer import Job, Peer, started_early

OWN = "one shared plan; results counted by the noop sink; its own default settings"
PLAIN = (
    "stream-stream join, default state store, a streaming query per query, shuffle partitions twice the cores"
)
BEST = "as above, with the RocksDB store, the newest state format, changelog checkpoints, rows not counted, FAIR pools"
WIDEST = "a join at the widest window with the default store; each query's filter evaluated once per pair, in one pass"
BATCH = "a join of the whole input at the widest window, read as Arrow batches"

_ALL = (
    Peer("penstock", "Penstock", OWN, command=started_early),
    Peer("spark", "Spark, one query each", PLAIN),
    Peer("spark-best", "Spark at its best, one query each", BEST),
    Peer("spark-widest", "one Spark join, filters behind", WIDEST),
    FLINK,
    FLINK_WIDEST,
    Peer("duckdb", "DuckDB, one batch (the limit)", BATCH, counts="pairs"),
)
PEERS = {peer.name: peer for peer in _ALL}

__all__ = ["PEERS", "Job", "Peer"]
