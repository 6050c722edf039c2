"""A state is its owner's: no secret is in it, nobody else may read it, and options may change that change no row."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.engine.api import Engine
from penstock.errors import InputError
from tests.oracle import Feed, Spec, Window
from tests.spark.runner import Run
from tests.spark.world import COLUMNS, GRID, LATENESS, random_rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

HUSH = "hush-4711"


@pytest.fixture
def specs(tmp_path):
    """Make queries of which each leaves something else in the state; Spark passes over options it does not know."""
    from random import Random

    options = {"my.password": HUSH, "maxFilesPerTrigger": "1"}
    a, b = (Feed(name, tmp_path / name, COLUMNS, LATENESS, options=options) for name in ("Alpha", "beta"))
    for feed in (a, b):
        rows = random_rows(Random(15), 60)
        feed.append_cut([*rows[30:], *rows[:30]], [20, 40])  # some come late
    both = Window("both", 8 * GRID)
    chosen = (("a.id", "i"), ("b.id", "j"))
    return [
        Spec("plain", a, b, ("a.k = b.k",), both, (), chosen, sink="parquet"),
        Spec("viewed", a, b, ("a.k = b.k",), both, (), chosen),
        Spec("steady", a, b, ("a.k = b.k",), both, (), chosen, order="filter-order"),
        Spec("called", a, b, ("a.k = b.k",), both, (), chosen, sink="callback"),
    ]


def reachable(folder: Path) -> list[Path]:
    """List what others may get at: from each directory that they may enter."""
    found = []
    for each in folder.iterdir():
        mode = each.stat().st_mode
        if each.is_dir() and mode & 0o011:
            found += reachable(each)
        if mode & 0o066:
            found.append(each)
    return found


@pytest.mark.parametrize("made_before", [False, True])
def test_nobody_else_may_read_a_state_and_everybody_the_results(spark, tmp_path, specs, made_before):
    run = Run(spark, tmp_path, specs)
    before = os.umask(0o022)
    try:
        if made_before:
            (run.state / "journal").mkdir(parents=True)  # as an earlier version left it
        with run.engine() as engine:
            engine.start()
            engine.process_available()
            assert reachable(run.state) == []
        run.once()
        assert reachable(run.state) == []
        assert run.state.stat().st_mode & 0o777 == (0o755 if made_before else 0o700)
        assert (run.out / "plain").stat().st_mode & 0o777 == 0o755
        assert {each.stat().st_mode & 0o777 for each in (run.out / "plain").glob("*.parquet")} == {0o644}
    finally:
        os.umask(before)


def test_a_secret_is_in_no_file_of_a_state_and_has_to_be_given_again(spark, tmp_path, specs):
    run = Run(spark, tmp_path, specs)
    run.once()
    for file in run.state.rglob("*"):
        assert file.is_dir() or HUSH.encode() not in file.read_bytes(), file
    with Engine(run.state, spark) as engine:  # by the state alone
        assert HUSH not in engine.explain()
        with pytest.raises(
            InputError, match=r"option my.password of stream Alpha is secret.*declare the stream again"
        ):
            engine.start()
    with Engine(run.state, spark) as engine:
        engine.script(specs[0].a.declare() + specs[0].b.declare())
        engine.start()
        engine.process_available()


def test_options_that_change_no_row_may_change_and_take_effect(spark, tmp_path, specs):
    """Two runs of one file at a time, the third of all that is there."""
    plain = specs[:1]
    Run(spark, tmp_path, plain).once()
    options = {"maxFilesPerTrigger": "5", "my.password": "another"}
    a, b = (replace(feed, options=options) for feed in (specs[0].a, specs[0].b))
    again = Run(spark, tmp_path, [replace(plain[0], a=a, b=b)])
    for feed in (a, b):
        for _ in range(3):
            feed.append([])
    again.once()
    with Engine(again.state, spark) as engine:
        assert [each.batches for each in engine.status().streams] == [4, 4]
        assert dict(engine.plan.stream("Alpha").options)["maxFilesPerTrigger"] == "5", "and the state knows"


def test_a_stream_that_no_query_reads_any_more_stays_what_it_was(spark, tmp_path, specs):
    """Its checkpoint is there still, and says how far the stream of that name was read."""
    spec = specs[0]
    other = Feed("gamma", tmp_path / "gamma", COLUMNS, LATENESS)
    unread = replace(spec, name="other", b=other, sink="noop")
    Run(spark, tmp_path, [spec, unread]).once()
    Run(spark, tmp_path, [spec]).once()

    anew = replace(unread, b=replace(other, folder=tmp_path / "delta"))
    with Run(spark, tmp_path, [spec, anew]).engine() as engine:
        with pytest.raises(InputError) as error:
            engine.start()
        assert "stream gamma is not declared as it was: its option path was" in str(error.value)
        assert "give it another name" in str(error.value)
    Run(spark, tmp_path, [spec, unread]).once()
