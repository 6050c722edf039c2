"""The promises of `penstock.state.files`, the same on every kind of root."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pytest

from penstock.errors import InputError, StateBusyError
from penstock.state import cache
from penstock.state.files import Files, LocalFiles, open_files
from penstock.state.remote_files import FsspecFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = ["local", "memory", "no exclusive create"]


def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let copies of remote files go where the test is."""
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "cache")
    (tmp_path / "cache").mkdir()


@pytest.fixture(params=KINDS)
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Give a fresh root of each kind; the third has, like hdfs://, a driver that can only look and rename."""
    own_cache(tmp_path, monkeypatch)
    if request.param == "local":
        return open_files(str(tmp_path / "state"))
    if request.param == "memory":
        return open_files(f"memory://{uuid.uuid4().hex}/state")
    return FsspecFiles(f"file://{tmp_path}/state")


def test_what_was_put_is_read_listed_and_measured(files: Files) -> None:
    files.put("a/b/two", b"22")
    files.put_if_absent("a/b/one", b"1")

    assert files.read("a/b/one") == b"1"
    assert files.list("a/b") == ["one", "two"]
    assert files.list("a") == ["b"]
    assert files.list("") == ["a"]
    assert files.exists("a/b/two")


def test_all_files_below_a_directory_are_found_however_deep(files: Files) -> None:
    for name in ("a/b/two", "a/one", "c"):
        files.put(name, b"")
    assert files.find("a") == ["a/b/two", "a/one"]
    assert files.find("") == ["a/b/two", "a/one", "c"]
    assert files.find("x") == []


def test_what_is_not_there_is_said_to_be_missing(files: Files) -> None:
    assert not files.exists("x")
    assert files.list("x") == []
    for look in (files.read, files.memory_map):
        with pytest.raises(FileNotFoundError):
            look("x")
    with pytest.raises(FileNotFoundError):
        files.move("x", "y")


def test_put_if_absent_keeps_the_first_file(files: Files) -> None:
    files.put_if_absent("commit", b"first")

    with pytest.raises(FileExistsError):
        files.put_if_absent("commit", b"second")

    assert files.read("commit") == b"first"
    assert files.list("") == ["commit"]


def test_put_replaces(files: Files) -> None:
    files.put("name", b"first")
    files.put("name", b"second")
    assert files.read("name") == b"second"


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_of_many_that_put_at_once_one_wins_and_readers_see_it_whole(kind: str, tmp_path: Path) -> None:
    files = open_files(str(tmp_path) if kind == "local" else f"memory://{uuid.uuid4().hex}")
    for turn in range(20):
        name, seen, won = f"commits/{turn}", set[bytes](), list[bytes]()
        barrier = threading.Barrier(6)

        def put(
            data: bytes, name: str = name, won: list[bytes] = won, barrier: threading.Barrier = barrier
        ) -> None:
            barrier.wait()
            try:
                files.put_if_absent(name, data)
                won.append(data)
            except FileExistsError:
                pass

        def watch(name: str = name, seen: set[bytes] = seen, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            for _ in range(200):
                if files.exists(name):
                    seen.add(files.read(name))

        threads = [threading.Thread(target=put, args=(bytes([i]) * 10_000,)) for i in range(5)]
        _run_all([*threads, threading.Thread(target=watch)])

        assert len(won) == 1
        assert seen <= {won[0]}
        assert files.read(name) == won[0]


def test_a_writer_that_finishes_leaves_the_whole_file_to_be_mapped(files: Files) -> None:
    table = pa.table({"key": [1, 2, 3]})

    with files.writer("segments/one.arrow") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)

    assert pa.ipc.open_file(files.memory_map("segments/one.arrow")).read_all() == table
    assert pa.ipc.open_file(files.memory_map("segments/one.arrow")).read_all() == table


def test_a_writer_that_fails_leaves_no_file(files: Files) -> None:
    def fail(sink: BinaryIO) -> None:
        sink.write(b"torso")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), files.writer("segments/one") as sink:
        fail(sink)

    assert files.list("segments") == []


def test_a_map_survives_the_removal_of_its_file(files: Files) -> None:
    """A probe that has mapped a segment goes on while retention deletes it."""
    files.put("segment", b"bytes")
    mapped = files.memory_map("segment")

    files.delete("segment")

    assert mapped.read() == b"bytes"
    with pytest.raises(FileNotFoundError):
        files.memory_map("segment")


def test_a_remote_file_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_cache(tmp_path, monkeypatch)
    files = FsspecFiles(f"file://{tmp_path}/state")
    files.put("segments/one", b"bytes")
    files.memory_map("segments/one")

    (tmp_path / "state/segments/one").unlink()

    assert files.memory_map("segments/one").read() == b"bytes"


def test_deleting_twice_is_harmless(files: Files) -> None:
    files.put("a/b/c", b"")
    for _ in range(2):
        files.delete("a/b/c")
        assert not files.exists("a/b/c")
    files.put("a/b/c", b"")
    for _ in range(2):
        files.delete_tree("a")
        assert files.list("a/b") == []


def test_a_directory_is_published_once_however_often_it_is_asked(files: Files) -> None:
    files.put("staging/7/part-0", b"0")
    files.put("staging/7/deep/part-1", b"1")

    for _ in range(2):
        files.move("staging/7", "output/7")

    assert files.list("output/7") == ["deep", "part-0"]
    assert files.read("output/7/deep/part-1") == b"1"
    assert files.list("staging/7") == []


def test_a_file_is_published_once_however_often_it_is_asked(files: Files) -> None:
    files.put("staging/one", b"1")
    for _ in range(2):
        files.move("staging/one", "output/one")
    assert files.read("output/one") == b"1"
    assert files.list("staging") == []


def test_a_file_has_one_more_name_in_another_directory_or_it_is_said_that_it_cannot(
    files: Files, tmp_path: Path
) -> None:
    files.put("a/one", b"1")
    other = open_files(str(tmp_path / "other"))
    can = files.link("a/one", other, "b/two")
    assert can == isinstance(files, LocalFiles)
    assert not files.link("a/one", open_files(f"memory://{uuid.uuid4().hex}/other"), "b/two")
    if can:
        files.delete("a/one")
        assert other.read("b/two") == b"1"
        assert other.link("b/two", other, "b/two")  # as good as done
        other.put("b/three", b"3")
        with pytest.raises(FileExistsError):
            other.link("b/two", other, "b/three")
        with pytest.raises(FileNotFoundError):
            files.link("a/one", other, "c")


def test_a_move_cut_short_is_finished_by_moving_again() -> None:
    """An object store moves file by file; the process may die between two of them."""
    files = open_files(f"memory://{uuid.uuid4().hex}")
    files.put("output/7/part-0", b"0")
    files.put("staging/7/part-1", b"1")

    files.move("staging/7", "output/7")

    assert files.list("output/7") == ["part-0", "part-1"]


def test_a_local_directory_is_not_merged_into_a_published_one(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    files.put("staging/7/part-0", b"again")
    files.put("output/7/part-0", b"published")

    with pytest.raises(FileExistsError, match="already has files"):
        files.move("staging/7", "output/7")

    assert files.read("output/7/part-0") == b"published"


def test_temporary_files_of_a_killed_process_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".000000000001.json.0123.tmp").write_bytes(b"torso")
    assert open_files(str(tmp_path)).list("") == []


def test_files_are_pickled_by_value(files: Files) -> None:
    files.put("name", b"bytes")

    copy = pickle.loads(pickle.dumps(files))  # noqa: S301  (ours, a line ago)

    assert copy == files
    assert copy.read("name") == b"bytes"
    assert len(pickle.dumps(files)) < 500


def test_a_name_may_not_leave_the_root(files: Files) -> None:
    for name in ("../x", "a/../../x", "/etc/passwd"):
        with pytest.raises(ValueError, match="leaves the root"):
            files.read(name)
        with pytest.raises(ValueError, match="leaves the root"):
            files.delete_tree(name)


@pytest.mark.parametrize("url", ["{}/a b", "file://{}/a b", "file:{}/a b", "{}/a b/"])
def test_every_spelling_of_a_local_directory_is_the_same_root(url: str, tmp_path: Path) -> None:
    assert open_files(url.format(tmp_path)) == LocalFiles(f"file://{tmp_path}/a b")


def test_a_relative_directory_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_files("state").root == f"file://{tmp_path}/state"
    with pytest.raises(InputError, match="not absolute"):
        LocalFiles("state")


def test_a_url_without_a_driver_is_refused_when_it_is_opened() -> None:
    with pytest.raises(InputError, match="nosuch://x cannot be opened"):
        open_files("nosuch://x")


def test_credentials_are_not_printed() -> None:
    assert "hush" not in repr(open_files("memory://x", options={"secret": "hush"}))


# Locks


def test_a_second_owner_in_the_same_process_is_refused(tmp_path: Path) -> None:
    files = open_files(str(tmp_path / "state"))

    with files.lock("lock"):
        with pytest.raises(StateBusyError, match=f"this very process, {os.getpid()},.*since 20.*Stop that"):
            files.lock("lock")
        with pytest.raises(StateBusyError):
            open_files(str(tmp_path / "state")).lock("lock")

    files.lock("lock").release()


def test_a_released_lock_may_be_released_again(tmp_path: Path) -> None:
    """The second release must not close a descriptor that is somebody else's by now."""
    files = open_files(str(tmp_path))
    first = files.lock("lock")
    first.release()
    second = files.lock("lock")

    first.release()

    with pytest.raises(StateBusyError):
        files.lock("lock")
    second.release()


HOLD = """
import os, sys, time
from penstock.state.files import open_files
lock = open_files(sys.argv[1]).lock("lock")
if sys.argv[2] == "alone" or os.fork() == 0:
    os.write(1, b"%d\\n" % os.getpid())
time.sleep(60)
"""


@contextmanager
def holding(state: Path, how: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a process that owns `state`, alone or with a forked child; give it, and the pid of the last."""
    command = [sys.executable, "-c", HOLD, str(state), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        last = int(owner.stdout.readline())
        try:
            yield owner, last
        finally:
            owner.kill()
            with suppress(ProcessLookupError):
                os.kill(last, signal.SIGKILL)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    with holding(tmp_path, "alone") as (owner, _):
        with pytest.raises(StateBusyError, match=f"owned by process {owner.pid} on"):
            files.lock("lock")

        owner.send_signal(signal.SIGKILL)
        owner.wait()

        files.lock("lock").release()


def test_a_forked_child_does_not_keep_the_lock_of_its_killed_parent(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    with holding(tmp_path, "with a child") as (owner, child):
        with pytest.raises(StateBusyError, match=f"owned by process {owner.pid} on"):
            files.lock("lock")

        owner.send_signal(signal.SIGKILL)
        owner.wait()

        files.lock("lock").release()
        os.kill(child, 0)  # it is alive all the while


def test_a_remote_lock_excludes_nobody() -> None:
    files = open_files(f"memory://{uuid.uuid4().hex}")
    with files.lock("lock"), files.lock("lock"):
        pass


def _run_all(threads: list[threading.Thread]) -> None:
    """Run the threads to their end."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
