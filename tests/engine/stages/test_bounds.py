"""However narrow the bounds on bytes and rows are, results, order and state are the same; and wide rows fit."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.engine.sinks import shared_files
from penstock.sql.options import STRATEGIES
from penstock.sql.query import OutputColumn
from penstock.state.hold import TIMES, in_order, sort_by_time, write_hold
from tests.engine.stages.test_simulation import eager, folders, in_folder, run, workloads
from tests.engine.world import World
from tests.kernels.drawn import examples


@contextmanager
def bounds(most_bytes, most_rows):
    """Let everything be taken in pieces of a few bytes and rows."""
    with (
        patch.object(limits, "MAX_PIECE_BYTES", most_bytes),
        patch.object(limits, "MAX_PROBE_PAIRS", most_rows),
        patch.object(limits, "MAX_ROWS_PER_SORT", most_rows),
        patch.object(limits, "MAX_ROWS_PER_ROW_GROUP", most_rows),
        patch.multiple(shared_files, MOST_WAITING=most_rows, LEAST_OF_FILE=most_rows),
    ):
        yield


def widened(query, *, ordered=False):
    """Let a query also select text of both rows, and perhaps want its results in order."""
    outputs = (OutputColumn("an", "l.name", ("l", "name")), OutputColumn("bn", "r.name", ("r", "name")))
    return replace(
        query,
        outputs=query.outputs + outputs,
        left_columns=query.left_columns | {"name"},
        right_columns=query.right_columns | {"name"},
        options=(("order", "filter-order"),) if ordered else query.options,
    )


@examples(35)
@given(
    queries=workloads(),
    lateness=st.sampled_from((0, 12, 100)),
    bound=st.tuples(st.sampled_from((1, 60, 200, 1000)), st.sampled_from((1, 3, 1000))),
    how=st.tuples(st.sampled_from(STRATEGIES), st.booleans()),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((5, 10, 20, 40))),
)
def test_every_query_is_exact_and_in_order_whatever_fits_in_one_go(queries, lateness, bound, how, happening):
    strategy, ordered = how
    with folders() as folder, eager(3, 0.5, 1), bounds(*bound):
        wide = [widened(each, ordered=ordered) for each in in_folder(queries, folder)]
        run(World(folder / "state", wide, lateness=lateness, strategy=strategy), *happening)


def held(files, rows):
    """Write results ``(time, text)`` as a hold file."""
    times = pa.array([time for time, _ in rows], pa.int64())
    columns = [times, times, times, pa.array([text for _, text in rows], pa.string())]
    batch = pa.RecordBatch.from_arrays(columns, [*TIMES, "x"])
    return write_hold(files, "hold/q", [sort_by_time([batch])])


results = st.lists(st.tuples(st.integers(0, 3), st.text("ab", max_size=6)), min_size=1, max_size=12)


@given(st.lists(results, min_size=1, max_size=4), st.sampled_from((1, 50, 10_000)))
def test_results_of_one_instant_stay_together_and_sorted_though_they_do_not_fit_in_one_go(
    tmp_path_factory, runs, most
):
    from penstock.state.files import open_files

    files = open_files(str(tmp_path_factory.mktemp("hold")), sync=False)
    holds = [held(files, rows) for rows in runs]
    with bounds(most, 4):
        tables = list(in_order(files, holds, 0, 9))
    got = [(row[TIMES[0]], row["x"]) for table in tables for row in table.to_pylist()]
    assert got == sorted(each for rows in runs for each in rows)
    assert all(table.nbytes <= 64 + 2 * most or table.num_rows == 1 for table in tables)


WIDE = """
import resource, sys
from dataclasses import replace
from pathlib import Path
from penstock.sql.query import Range, Sink
from tests.engine.stages.test_bounds import widened
from tests.engine.world import Row, World, query

text = "x" * 2100
queries = [widened(query(f"q{n}", Range.window(w, w), sink=Sink("noop"))) for n, w in enumerate((50, 2000))]
world = World(Path(sys.argv[1]) / "state", queries, parts=1)
world.name = lambda row: text
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for stream in "AB":
    world.ingest(stream, [Row(n, 1, n) for n in range(1100)])
world.turn()
assert world.ledger.query("q1").results == 1100 * 1100
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units elsewhere")
def test_pairs_of_more_text_than_an_arrow_column_holds_take_little_memory(tmp_path):
    """1,100 x 1,100 rows of one key with 2,100 bytes on either side: 2.5 GB in each of two columns."""
    made = subprocess.run(
        [sys.executable, "-c", WIDE, str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-2000:]
    assert int(made.stdout) < 600 << 10, f"{int(made.stdout) >> 10} MiB for pieces of 64 MiB"
