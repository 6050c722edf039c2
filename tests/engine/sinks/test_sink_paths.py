"""Two queries never write to one directory, whatever they call it, and none into its own input."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from penstock.engine.sinks.sink_kind import settled
from penstock.engine.sinks.sink_paths import OWNER, check_directories, check_paths, claim_sinks, undo_claims
from penstock.errors import InputError
from penstock.plan.build import build_plan
from penstock.sql.script import parse_script
from penstock.state.files import open_files

STREAMS = """
CREATE STREAM A (k BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = '{root}/a', time = 'ts');
CREATE STREAM B (k BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = '{root}/b', time = 'ts');
CREATE STREAM C (k BIGINT, ts TIMESTAMP) WITH (format = 'parquet', path = '{c}', time = 'ts');
"""


def plan_of(root, paths):
    """Plan one query for each path, all of the same join."""
    text = STREAMS.format(root=root, c=f"{root}/c")
    for name, path in paths.items():
        text += (
            f"CREATE QUERY {name} WITH (sink = 'parquet', path = '{path}') AS "
            "SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 1 s;"
        )
    script = parse_script(text)
    return build_plan(script.streams, [replace(each, sink=settled(each.sink)) for each in script.queries])


@pytest.mark.parametrize(
    "other",
    ["{}/out", "file:{}/out", "file://{}/out", "{}/out/", "{}/x/../out", "{}/link", "{}/link/../out"],
)
def test_two_names_of_one_directory_are_refused(tmp_path, other):
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    plan = plan_of(tmp_path, {"one": tmp_path / "out", "two": other.format(tmp_path)})
    with pytest.raises(InputError, match="queries one and two both write to"):
        check_paths(plan, open_files(str(tmp_path / "state")))


def test_a_sink_below_another_is_refused(tmp_path):
    plan = plan_of(tmp_path, {"one": tmp_path / "out", "two": tmp_path / "out" / "deeper"})
    with pytest.raises(InputError, match="above or below"):
        check_paths(plan, open_files(str(tmp_path / "state")))


@pytest.mark.parametrize("path", ["state", "state/out", ""])
def test_a_sink_in_the_state_or_around_it_is_refused(tmp_path, path):
    plan = plan_of(tmp_path, {"one": tmp_path / path})
    with pytest.raises(InputError, match="where the state is"):
        check_paths(plan, open_files(str(tmp_path / "state")))


def test_a_query_that_would_read_its_own_results_is_refused(tmp_path):
    plan = plan_of(tmp_path, {"one": tmp_path / "a" / "out"})
    with pytest.raises(InputError, match="which stream A reads"):
        check_paths(plan, open_files(str(tmp_path / "state")))


def chained(root, second):
    """Plan a query whose results are the rows of stream C, and one that joins C and writes to `second`."""
    text = STREAMS.format(root=root, c=f"{root}/out")
    for name, reads, path in (("one", "A", "out"), ("two", "C", second)):
        text += (
            f"CREATE QUERY {name} WITH (sink = 'parquet', path = '{root}/{path}') AS "
            f"SELECT {reads}.* FROM {reads}, B WHERE {reads}.k = B.k WINDOW 1 s;"
        )
    script = parse_script(text)
    return build_plan(script.streams, script.queries)


def test_queries_that_feed_each_other_in_a_circle_are_refused(tmp_path):
    with pytest.raises(InputError, match="without end"):
        check_paths(chained(tmp_path, "a"), open_files(str(tmp_path / "state")))


def test_a_query_may_read_what_another_one_writes(tmp_path):
    check_paths(chained(tmp_path, "out2"), open_files(str(tmp_path / "state")))


def test_a_sink_that_is_a_file_or_lies_below_one_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in ("file", "file/below"):
        with pytest.raises(InputError, match="is not a directory"):
            check_directories(plan_of(tmp_path, {"one": tmp_path / path}).queries, None)


def test_a_sink_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, _mode: os.fspath(path) != str(tmp_path))
    with pytest.raises(InputError, match="cannot be written to"):
        check_directories(plan_of(tmp_path, {"one": tmp_path / "out"}).queries, None)


def test_results_that_are_there_are_not_added_to_by_a_new_query(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-1.parquet").touch()
    plan = plan_of(tmp_path, {"one": tmp_path / "out"})
    with pytest.raises(InputError, match="already holds results"):
        check_directories(plan.queries, None)
    check_directories(plan.queries, plan)


def test_a_sink_on_a_filesystem_of_one_process_is_refused(tmp_path):
    with pytest.raises(InputError, match="exists in one process only"):
        check_paths(plan_of(tmp_path, {"one": "memory://out"}), open_files(str(tmp_path / "state")))


class TestClaims:
    """A sink's directory knows whose it is."""

    def state(self, root):
        return open_files(str(root / "state"))

    def test_another_state_cannot_write_there(self, tmp_path):
        plan = plan_of(tmp_path, {"one": tmp_path / "out"})
        claim_sinks(plan.queries, self.state(tmp_path), "first")
        with pytest.raises(InputError, match="belongs to query one of the state"):
            claim_sinks(plan.queries, self.state(tmp_path), "second")

    def test_the_same_query_goes_on(self, tmp_path):
        plan = plan_of(tmp_path, {"one": tmp_path / "out"})
        assert claim_sinks(plan.queries, self.state(tmp_path), "first")
        assert claim_sinks(plan.queries, self.state(tmp_path), "first") == []

    def test_two_names_that_no_filesystem_tells_apart_are_found(self, tmp_path, monkeypatch):
        """As if /one and /two were one directory mounted twice."""
        plan = plan_of(tmp_path, {"one": tmp_path / "one", "two": tmp_path / "two"})
        real = open_files
        monkeypatch.setattr(
            "penstock.engine.sinks.sink_paths.open_files",
            lambda path, **given: real(path.replace("/two", "/one"), **given),
        )
        with pytest.raises(InputError, match="by different names"):
            claim_sinks(plan.queries, self.state(tmp_path), "first")
        assert not (tmp_path / "one" / OWNER).exists()

    def test_a_start_that_fails_leaves_nothing_claimed(self, tmp_path):
        plan = plan_of(tmp_path, {"one": tmp_path / "out", "two": tmp_path / "out2"})
        undo_claims(claim_sinks(plan.queries, self.state(tmp_path), "first"))
        assert claim_sinks(plan.queries, self.state(tmp_path), "second")

    def test_a_directory_whose_query_was_dropped_can_be_taken_by_another_of_the_state(self, tmp_path):
        claim_sinks(plan_of(tmp_path, {"one": tmp_path / "out"}).queries, self.state(tmp_path), "first")
        assert claim_sinks(
            plan_of(tmp_path, {"two": tmp_path / "out"}).queries, self.state(tmp_path), "first"
        )

    def test_a_note_that_is_not_ours_is_somebody_elses(self, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / OWNER).write_text("garbage")
        with pytest.raises(InputError, match="belongs to"):
            claim_sinks(plan_of(tmp_path, {"one": tmp_path / "out"}).queries, self.state(tmp_path), "first")
