"""The past does not cost: however many units, changes of plan and batches there were, files and ledger stay small.

unit  unit  unit ...  change  unit ...  change        files of pairs and results, tables by ways of reading them
  |     |     |          |      |          |
  `-----+-----'          `------'          `--------- merged by generations, what nobody reads is left out
"""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.engine.stages import compact
from penstock.sql.options import STRATEGIES
from penstock.sql.query import OutputColumn, Range, Sink
from penstock.state import ledger as books
from penstock.state import tables
from penstock.state.codec import encode_ledger
from tests.engine.change.test_changes import changed
from tests.engine.stages.test_simulation import (
    MANY,
    PREDICATES,
    folders,
    in_folder,
    random_row,
    run,
    workloads,
)
from tests.engine.world import Row, World, query
from tests.kernels.drawn import examples


@contextmanager
def eager(fan=2, many=2, full=1 << 40):
    """Merge far more often than one would, and let nothing lie about."""
    with (
        patch.multiple(
            limits,
            MERGE_FAN_IN=fan,
            TABLE_MERGE_FAN_IN=many,
            MAX_MERGED_FILE_BYTES=full,
            WAITING_FILES_PER_TASK=0,
        ),
        patch.object(limits, "REPLACED_FILE_SECONDS", 0.0),
    ):
        yield


def stored_files(world):
    """List the files of results that are there."""
    return {
        f"{kind}/{owner}/{file}"
        for kind in ("pairs", "results")
        for owner in world.files.list(kind)
        for file in world.files.list(f"{kind}/{owner}")
    }


def named_files(world):
    """List the files of results that the ledger names."""
    return {each.name for each in world.ledger.result_files()}


def selecting(one, source):
    """Let a query select other columns than it did, now and then."""
    more = (OutputColumn("n", "l.name", ("l", "name")),) if source.random() < 0.5 else ()
    wide = replace(one, outputs=one.outputs[:3] + more, left_columns=one.left_columns | {"name"})
    return wide if source.random() < 0.3 else one


@examples(35)
@given(
    spare=workloads(),
    lateness=st.sampled_from((0, 12, 100)),
    policy=st.tuples(st.integers(2, 4), st.integers(2, 4), st.sampled_from((1, 4000, 1 << 40))),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((10, 20, 40, 60))),
)
def test_every_query_is_exact_over_its_life_however_its_files_are_merged(spare, lateness, policy, happening):
    with folders() as folder, eager(*policy):
        spare = in_folder([replace(each, sink=Sink("table")) for each in spare], folder)
        world = World(folder / "state", spare[:1], lateness=lateness)
        queries = list(spare[:1])

        def change(source):
            for _ in range(source.choice((1, 1, 2, 3))):
                if source.random() < 0.3:
                    world.share(source.choice(STRATEGIES), source)
                    continue
                queries[:] = [selecting(each, source) for each in changed(queries, spare, source)]
                world.change(queries)
                world.check_results()

        run(world, *happening, change)
        assert stored_files(world) >= named_files(world)
        while world.context.untidy:
            world.step()
        assert stored_files(world) == named_files(world)
        world.check_results()


def parts_of(snapshot):
    """Say how large each part of a snapshot is."""
    return {name: len(json.dumps(part)) for name, part in snapshot.items()}


def changing(world, source, number, queries):
    """Send a batch of each stream, join them, and change the plan."""
    for stream in "AB":
        world.ingest(stream, [random_row(source, 10 * number + place, 5 * number) for place in range(2)])
    world.turn()
    window = Range.window(5 + source.randrange(20), 5 + source.randrange(20))
    predicates = tuple(sorted(source.sample((*PREDICATES, *MANY[:20]), source.randrange(3))))
    place = source.randrange(1, len(queries))
    queries[place] = replace(
        queries[place],
        window=window,
        left_predicates=predicates,
        name=source.choice(("q1", "q2", "q3", "q4")) if source.random() < 0.05 else queries[place].name,
        options=(("order", source.choice(("none", "none", "filter-order"))),),
    )
    distinct = {each.name: each for each in queries}
    world.change([selecting(each, source) for each in distinct.values()])
    world.context.untidy = True
    while world.context.untidy:
        world.step()


@pytest.mark.parametrize("reach", [20, 100_000])
def test_ledger_and_files_do_not_grow_with_the_changes_and_batches_there_have_been(tmp_path, reach):
    """Also where rows are kept for ever, and with them the segments of every layout there has been."""
    source = random.Random(11)
    queries = [query("stays", Range.window(reach, reach))]
    queries += [query(f"q{number}", Range.window(9, 9)) for number in (1, 2, 3)]
    with patch.object(limits, "REPLACED_FILE_SECONDS", 0.0):
        world = World(tmp_path, queries, lateness=5, parts=1)
        sizes, files = {}, {}
        for number in range(91):
            changing(world, source, number, queries)
            if number % 30 == 0 and number:
                sizes[number] = parts_of(encode_ledger(world.ledger))
                files[number] = len(stored_files(world))
        world.check_results()
    assert world.ledger.version > 70
    for part, size in sizes[90].items():
        before = max(each[part] for each in (sizes[30], sizes[60]))
        assert size <= 1.5 * before + 2000, f"{part} grows: {sizes}"
    assert files[90] <= files[30] + 30, files
    assert max(map(len, world.ledger.layouts.values())) < 30
    assert max(map(len, world.ledger.tables.values())) < 4 * limits.TABLE_MERGE_FAN_IN
    assert max(map(len, world.ledger.logs.values())) < 60


def test_a_long_run_without_changes_keeps_few_files(tmp_path):
    ordered = query("ordered", Range.window(9, 9), order="filter-order")
    with patch.object(limits, "REPLACED_FILE_SECONDS", 0.0):
        world = World(tmp_path, [query("q", Range.window(9, 9)), ordered], parts=2)
        for number in range(300):
            for place, stream in enumerate("AB"):
                world.ingest(stream, [Row(4 * number + 2 * place + key, key, 3 * number) for key in range(2)])
            world.turn()
        world.check_results()
        world.check_order()
    assert world.ledger.query("q").results > 300
    assert len(named_files(world)) < 2 * 3 * limits.MERGE_FAN_IN
    assert stored_files(world) == named_files(world)


def test_what_a_dropped_query_alone_could_read_is_gone(tmp_path):
    """::

    pairs    q reads 2, wide reads 4     wide is dropped, its table merged with others: 2 are left
    """
    narrow, wide = query("q", Range.window(5, 5)), query("wide", Range.window(100, 100))
    with eager(2, 2):
        world = World(tmp_path, [narrow, wide], parts=1)
        for number, queries in enumerate(([narrow, wide], [wide, narrow], [narrow])):
            world.change(queries)
            world.ingest("A", [Row(number, 1, 10 * number)])
            world.ingest("B", [Row(100 + number, 1, 10 * number)])
            world.turn()
            for _ in range(4):
                world.step()
        rows = [row for name in named_files(world) for row in world._stored_rows(name)]
        world.check_results()
        assert world.results(narrow).total() == 3
        assert len(rows) < 9, "pairs that only wide had wanted"


def test_files_whose_columns_do_not_fit_together_stay_as_they_are(tmp_path):
    import pyarrow as pa

    from penstock.engine.tasks.merge import CONFLICT, MergeTask
    from penstock.state.files import open_files
    from penstock.state.output_file import OutputFile

    files = open_files(str(tmp_path), sync=False)
    made = []
    for number, value in enumerate((1, "one")):
        out = OutputFile(files.root, f"results/q/part-{number}.parquet", kept=True)
        out.write(pa.record_batch({"x": [value]}))
        out.close()
        made.append(out.report("q").kept)
    assert made[0].shape != made[1].shape
    assert MergeTask(tables.FileMerge(tuple(made), "results/q/part-", 1)).run(files) == CONFLICT
    assert files.list("results/q") == ["part-0.parquet", "part-1.parquet"]


@pytest.mark.parametrize("rows", [3, 1 << 14], ids=["few", "many"])
def test_files_of_an_earlier_version_whose_columns_may_be_null_are_read_and_merged_with_new_ones(
    tmp_path, rows
):
    """Before, the columns of a table's files did not say that they have no nulls; the columns of rows never do."""
    import duckdb
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstock.engine.tasks.merge import merge_files
    from penstock.engine.tasks.route_pairs import _table_rows
    from penstock.state.files import open_files
    from penstock.state.output_file import OutputFile

    files = open_files(str(tmp_path), sync=False)
    values = pa.array([None, *range(1, rows)], pa.int64())
    pairs = pa.record_batch(
        {
            "l": pa.StructArray.from_arrays([values], ["x"]),
            "r": pa.StructArray.from_arrays([values], ["y"]),
            "level": pa.array(np.arange(rows, dtype=np.int16) % 3),
        }
    )
    new = _table_rows(pairs, np.ones((rows, 1), np.uint64), with_sets=False)
    assert not any(new.schema.field(name).nullable for name in ("l", "r", "level"))
    made = []
    for number, batch in enumerate((pairs, new, new, pairs)):
        out = OutputFile(files.root, f"pairs/g/{number}.parquet", kept=True)
        out.write(batch)
        out.close()
        made.append(out.report("").kept)
    both = [files.path(each.name) for each in made]
    counted = duckdb.sql(f"SELECT count(l.x), sum(r.y), count(*) FROM read_parquet({both})").fetchall()
    assert counted == [(4 * (rows - 1), 4 * sum(range(rows)), 4 * rows)]
    for some in (made, made[1:3], made[:2]):
        merged = merge_files(files, tables.FileMerge(tuple(some), "pairs/g/", 1))
        assert pq.read_table(files.path(merged.name)).to_pylist() == pairs.to_pylist() * len(some)


@pytest.mark.parametrize("busy", [False, True])
def test_while_there_is_something_to_join_only_what_presses_is_merged(busy):
    files = tuple(tables.StoredFile(str(number), 10) for number in range(limits.MERGE_FAN_IN))
    table = tables.StoredTable("v1", 1, "", selective=False, members={"q": ()}, files=files)
    ledger = books.Ledger(tables={"g": (table,)}, writes={"g": "v1"})
    chosen = compact.choose_steps(ledger, 1, busy=busy)
    assert bool(chosen.steps) != busy


@pytest.mark.parametrize("busy", [False, True])
def test_a_few_large_files_are_merged_only_while_there_is_nothing_to_join(busy):
    files = tuple(tables.StoredFile(str(number), limits.MAX_MERGED_FILE_BYTES // 3) for number in range(3))
    table = tables.StoredTable("v1", 1, "", selective=False, members={"q": ()}, files=files)
    ledger = books.Ledger(tables={"g": (table,)}, writes={"g": "v1"}, kept={"q": files})
    chosen = compact.choose_steps(ledger, 2, busy=busy)
    assert len(chosen.steps) == (0 if busy else 2)


def all_files(folder):
    """List the files below a directory."""
    return [each for each in folder.rglob("*") if each.is_file()]


def send(world, numbers):
    """Send a row of each stream for each number, joined one after the other."""
    for number in numbers:
        for place, stream in enumerate("AB"):
            world.ingest(stream, [Row(2 * number + place, 1, 3 * number)])
        world.turn()
