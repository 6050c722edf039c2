"""The joiner's thread: it takes turns for as long as there is something to do."""

import datetime as dt
import threading

from penstock import testing
from penstock.engine.supervisor import Joiner

SCRIPT = """
CREATE STREAM A (k BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = 'a', time = 'ts');
CREATE STREAM B (k BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = 'b', time = 'ts');
CREATE QUERY counted WITH (emit = 'final') AS
SELECT A.k, COUNT(*) AS n FROM A [RANGE 6 HOURS], B [NOW] WHERE A.k = B.k GROUP BY A.k, A.ts;
"""
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def rows(step):
    """Make ten rows of an hour, each of another key; the keys come again after five hours."""
    minutes = [60 * step + 6 * place for place in range(10)]
    return [
        {"k": minute % 300, "ts": START + dt.timedelta(minutes=minute, seconds=place)}
        for place, minute in enumerate(minutes)
    ]


def test_what_an_answer_leaves_to_do_is_done_without_news():
    """An answer may leave so many files of incomplete groups that they should be merged, in a turn to come."""
    with testing.Session(SCRIPT) as session:
        joiner = Joiner(session._context)
        joiner.start()
        try:
            for step in range(30):
                for stream in ("A", "B"):
                    session.send(stream, rows(step))
                joiner.notify()
                waiting = threading.Thread(target=joiner.drain, daemon=True)
                waiting.start()
                waiting.join(timeout=20)
                assert not waiting.is_alive(), f"step {step}: it waits for work that nobody does"
        finally:
            joiner.finish()
        assert len(session.results("counted")) > 100
