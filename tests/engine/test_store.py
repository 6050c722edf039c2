"""Opening a state: it is claimed before anything in it is touched, and what others left is not taken for one's own."""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from penstock import limits
from penstock.engine.api import Engine
from penstock.engine.control import Listener, ask
from penstock.engine.stages.turn_context import UnitDone
from penstock.engine.store import Store
from penstock.errors import InputError, RunError, StateBusyError
from penstock.state.commits import EngineOpened
from penstock.state.files import LocalFiles, open_files
from penstock.state.remote_files import FsspecFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHANGES = ("put_if_absent", "put", "writer", "make_dirs", "move", "delete", "delete_tree")


@pytest.fixture
def remote() -> str:
    return f"memory://{uuid.uuid4().hex}/state"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Note, in order, whatever changes something in a store."""
    made: list[tuple[str, str]] = []

    def noting(name: str) -> Any:
        original = getattr(FsspecFiles, name)

        def call(self: FsspecFiles, *args: Any) -> Any:
            made.append((name, args[0]))
            return original(self, *args)

        return call

    for name in CHANGES:
        monkeypatch.setattr(FsspecFiles, name, noting(name))
    return made


def leave_behind(url: str) -> None:
    """Leave a state as one that others wrote to: a segment without a commit, a request and an answer."""
    files = open_files(url)
    files.put("log/a-k-00000000/0000000000-x.arrow", b"rows")
    files.put("hold/q/x.arrow", b"results")
    files.put("requests/r.json", json.dumps({"do": "drop", "query": "q"}).encode())
    files.put("answers/s.json", b"{}")


def test_without_a_lock_the_claim_comes_before_anything_is_touched(
    remote: str, calls: list[tuple[str, str]]
) -> None:
    leave_behind(remote)
    calls.clear()

    Store(remote)

    assert calls[0] == ("put_if_absent", "journal/000000000001.json")
    assert ("delete", "log/a-k-00000000/0000000000-x.arrow") in calls[1:]


def test_an_engine_that_lost_its_state_touches_nothing_and_commits_nothing(
    remote: str, calls: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two open at once: both have read the journal, one claims it first."""
    leave_behind(remote)
    claim = Store._claim

    def late(self: Store) -> None:
        monkeypatch.setattr(Store, "_claim", claim)
        Store(remote)
        calls.clear()
        claim(self)

    monkeypatch.setattr(Store, "_claim", late)
    with pytest.raises(StateBusyError, match="was written by another engine"):
        Store(remote)
    assert [name for name, _ in calls] == ["put_if_absent"], "only the claim was tried"


def test_the_engine_before_is_shut_out_by_the_one_after(remote: str) -> None:
    first = Store(remote)
    second = Store(remote)
    with pytest.raises(StateBusyError):
        first.commit(EngineOpened())
    second.commit(EngineOpened())


def test_with_a_lock_a_start_makes_no_commit(tmp_path: Path) -> None:
    Store(str(tmp_path)).close()
    assert open_files(str(tmp_path)).list("journal") == []


def test_what_no_commit_names_is_removed_however_deep_it_lies(tmp_path: Path) -> None:
    """A query called ``a/b`` once made a directory in a directory, and no start got over it."""
    files = open_files(str(tmp_path))
    for name in ("hold/a/b/x.arrow", "hold/q/x.arrow", "log/l/x.arrow"):
        files.put(name, b"")
    Store(str(tmp_path)).close()
    assert files.find("hold") == files.find("log") == []


def test_a_file_that_a_commit_does_without_goes_with_the_next_one(tmp_path: Path) -> None:
    """Until then one can go back to before that commit, and after it the next one has a copy of it."""
    store = Store(str(tmp_path))
    store.files.put("log/l/x.arrow", b"")
    store.let_go("log/l/x.arrow")
    assert store.files.exists("log/l/x.arrow")
    store.commit(EngineOpened())
    assert not store.files.exists("log/l/x.arrow")
    store.close()


def test_a_start_removes_what_the_last_commit_let_go_only_after_one_of_its_own(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.files.put("log/l/x.arrow", b"")
    store.commit(EngineOpened())
    store.let_go("log/l/x.arrow")
    store.close()
    again = Store(str(tmp_path))
    assert again.journal.number == 2
    assert again.files.find("log") == []
    again.close()


# Requests


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONTROL_POLL_SECONDS", 0.01)


@pytest.fixture
def listening(tmp_path: Path, quick: None) -> Iterator[list[Any]]:  # noqa: ARG001 - used for its effect
    """Let a store listen, and give what it was asked to do."""
    leave_behind(str(tmp_path))
    store = Store(str(tmp_path))
    done: list[Any] = []

    def handle(request: Any) -> str:
        assert store.files.list("requests") == [], "what was read is gone before it is carried out"
        if request["do"] == "fail":
            raise InputError("no")
        done.append(request)
        return "done"

    listener = Listener(store.files, handle)
    listener.start()
    yield done
    listener.finish()
    store.close()


def test_what_was_asked_before_the_engine_ran_is_refused_and_not_carried_out(
    tmp_path: Path, listening: list[Any]
) -> None:
    assert ask(str(tmp_path), {"do": "add"}) == "done"

    assert listening == [{"do": "add"}]
    files = open_files(str(tmp_path))
    assert files.list("answers") == ["r.json"], "and answers that nobody came for are gone"
    answer = json.loads(files.read("answers/r.json"))
    assert not answer["ok"]
    assert "asked before this engine ran, and was not carried out: ask again" in answer["say"]


def test_what_is_wrong_with_a_request_is_said_to_who_asked(tmp_path: Path, listening: list[Any]) -> None:
    with pytest.raises(InputError, match="no"):
        ask(str(tmp_path), {"do": "fail"})
    assert listening == []


@pytest.mark.usefixtures("quick")
def test_a_request_that_nobody_takes_is_taken_back(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is it running"):
        ask(str(tmp_path), {"do": "add"}, patience=0.05)
    assert open_files(str(tmp_path)).list("requests") == []


@pytest.mark.usefixtures("quick")
def test_a_request_that_was_taken_and_not_answered_is_not_called_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file goes at once, as when an engine has read it and is at work."""
    monkeypatch.setattr(LocalFiles, "put_if_absent", lambda *_: None)
    with pytest.raises(RunError, match="it may still carry it out"):
        ask(str(tmp_path), {"do": "add"}, patience=0.05)


def unreadable(path: Path, kind: str) -> None:
    """Put something that is not a request where requests are."""
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "broken link":
            path.symlink_to(path.with_name("nowhere"))
        case "of another user":
            path.write_bytes(b"{}")
        case content:
            path.write_bytes({"not JSON": b"{", "not UTF-8": b"\xff\xfe{", "a list": b"[]"}[content])


UNREADABLE = {
    "directory": "cannot be read: Not a regular file. Ask with penstock add or penstock drop",
    "pipe": "cannot be read: Not a regular file. Ask with penstock add or penstock drop",
    "broken link": "cannot be read: No such file or directory. Ask with penstock add or penstock drop",
    "of another user": "cannot be read: Permission denied. Ask as the user that the engine runs as (uid ",
    "not JSON": "is not JSON: ",
    "not UTF-8": "is not JSON: ",
    "a list": "is not a JSON object. Ask with penstock add or penstock drop",
}


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_request_that_cannot_be_read_is_answered_and_the_next_one_is_heard(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "of another user":  # tests may run as root, who may read everything
        read = LocalFiles.read

        def refusing(self: LocalFiles, name: str) -> bytes:
            if name == "requests/x.json":
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return read(self, name)

        monkeypatch.setattr(LocalFiles, "read", refusing)
    unreadable(tmp_path / "requests" / "x.json", kind)
    files = open_files(str(tmp_path))
    until = time.monotonic() + 20
    while not files.exists("answers/x.json"):
        assert time.monotonic() < until, "nobody listens"
        time.sleep(0.01)
    answer = json.loads(files.read("answers/x.json"))
    assert (answer["ok"], answer["input"]) == (False, True)
    assert UNREADABLE[kind] in answer["say"]

    if kind == "directory":  # which stays, and is answered once
        files.delete("answers/x.json")
        with pytest.raises(RunError, match="what was read is gone"):
            ask(str(tmp_path), {"do": "add"})
        assert files.list("answers") == ["r.json"]
        (tmp_path / "requests" / "x.json").rmdir()
    assert ask(str(tmp_path), {"do": "add"}) == "done"


def test_a_start_gets_over_a_request_and_an_answer_that_are_no_files(tmp_path: Path) -> None:
    for folder in ("requests/x.json", "answers/x.json"):
        (tmp_path / folder).mkdir(parents=True)
    Store(str(tmp_path)).close()


@pytest.mark.usefixtures("quick")
def test_a_listener_that_fails_starts_again_and_says_why_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listed, failing = LocalFiles.list, [SystemExit(1)] * 3

    def list_(self: LocalFiles, name: str) -> list[str]:
        if name == "requests" and failing:
            raise failing.pop()
        return listed(self, name)

    monkeypatch.setattr(LocalFiles, "list", list_)
    listener = Listener(open_files(str(tmp_path)), lambda _: "done")
    listener.start()
    assert ask(str(tmp_path), {"do": "add"}, patience=10) == "done"
    listener.finish()
    assert [each.message for each in caplog.records] == [
        "cannot listen for requests (penstock add, drop), and tries again: standard output was closed"
    ]


@pytest.mark.usefixtures("quick")
def test_who_may_not_ask_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(LocalFiles, "put_if_absent", refuse)
    with pytest.raises(
        InputError, match=r"cannot be asked: Permission denied\. Ask as the user that it runs as"
    ):
        ask(str(tmp_path), {"do": "add"})


def test_an_engine_that_ends_by_itself_refuses_changes(tmp_path: Path) -> None:
    """It once heard nobody, and whoever asked waited for two minutes."""
    with Engine(str(tmp_path)) as engine:
        engine._once = True
        with pytest.raises(InputError, match=r"reads what is there and ends \(--once\): edit its script"):
            engine._handle({"do": "drop", "query": "q"})


def test_a_watcher_that_fails_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Engine(str(tmp_path)) as engine:
        engine.watch(lambda unit: 1 // unit.rows)  # type: ignore[arg-type, return-value]
        for _ in range(2):
            engine._watchers[0](UnitDone("g", "u", 0, 0, 0.0))
    assert [each.message for each in caplog.records] == [
        "a watcher of units failed, and the run goes on: ZeroDivisionError: integer division or modulo by zero"
    ]
