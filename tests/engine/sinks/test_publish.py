"""Committed output reaches its sink, whatever became of it since: consumers may remove what they have read."""

from __future__ import annotations

import logging
import os
import uuid
from itertools import product
from typing import TYPE_CHECKING

import pytest

from penstock.engine.sinks.publication import publish_files
from penstock.errors import RunError
from penstock.state.files import Files, open_files
from penstock.state.values import Move, Publication

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}"


def unit(root: str, query: str = "") -> Publication:
    return Publication("0a-1-7", tuple(Move(root, f"_staging/{n}", f"part-{n}.parquet") for n in "ab"), query)


def staged(root: str) -> Files:
    files = open_files(root)
    for name in "ab":
        files.put(f"_staging/{name}", name.encode())
    return files


def test_a_file_that_its_consumer_has_removed_is_delivered(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Crash after the move and before the journal knows; meanwhile a consumer reads the file and takes it away."""
    out, state = staged(f"{root}/out"), open_files(f"{root}/state")
    publish_files(unit(f"{root}/out"), state)
    out.delete("part-a.parquet")

    with caplog.at_level(logging.WARNING):
        publish_files(unit(f"{root}/out"), state)

    assert out.find("") == ["part-b.parquet"]
    (said,) = caplog.messages
    assert "out/part-a.parquet of unit 0a-1-7 is missing: taken as delivered" in said


def test_files_that_were_never_moved_are_moved(root: str) -> None:
    out = staged(f"{root}/out")
    out.move("_staging/a", "part-a.parquet")
    publish_files(unit(f"{root}/out"), open_files(f"{root}/state"))
    assert [out.read(f"part-{n}.parquet") for n in "ab"] == [b"a", b"b"]


@pytest.mark.parametrize("where", ["state/table/g/v1", "state/ordered/q", "elsewhere"])
def test_what_no_consumer_may_remove_is_missed(root: str, where: str) -> None:
    """Results in the state, and those of a directory that is gone altogether, as after moving a state."""
    with pytest.raises(
        RunError, match=r"part-a.parquet of unit 0a-1-7 is committed, and neither there nor staged"
    ):
        publish_files(unit(f"{root}/{where}"), open_files(f"{root}/state"))


def test_what_is_to_be_handed_over_must_be_there(root: str) -> None:
    staged(f"{root}/out")
    with pytest.raises(RunError, match="neither there nor staged"):
        publish_files(
            Publication("0a-1-7", (Move(f"{root}/out", "_staging/c", "c.parquet"),), "q"),
            open_files(f"{root}/s"),
        )


def test_all_files_of_a_unit_are_moved_before_the_disk_is_waited_for(tmp_path, monkeypatch):
    moves = []
    for query, part in product(("q0", "q1"), range(2)):
        files = open_files(str(tmp_path / query), sync=False)
        with files.writer(f"_staging/{part}.parquet") as file:
            file.write(b"rows")
        moves.append(Move(files.root, f"_staging/{part}.parquet", f"{part}.parquet"))
    seen, fsync = [], os.fsync

    def counted(descriptor):
        seen.append(len(list(tmp_path.glob("*/*.parquet"))))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    publish_files(Publication("u", tuple(moves), ""), open_files(str(tmp_path / "state")))
    assert seen == [4, 4]  # each directory once
