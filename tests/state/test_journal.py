"""The journal folds to the same state however often it is cut, killed, torn or contended."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RunError, StateBusyError
from penstock.state import envelope as envelope_module
from penstock.state import files as files_module
from penstock.state.envelope import JSON, Commit, TornError, unwrap, wrap
from penstock.state.files import Files, open_files
from penstock.state.journal import Journal, read_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

State = tuple[JSON, ...]
"""The simplest state that forgets nothing: every commit's value, in order."""


def fold(state: State, commit: Commit) -> State:
    """Append; a commit without a value cannot be folded."""
    return (*state, commit["value"])


def load(dumped: JSON) -> State:
    """Read what `list` dumped."""
    assert isinstance(dumped, list)
    return tuple(dumped)


def open_journal(files: Files, snapshot_every: int = 64) -> Journal[State]:
    """Give a recovered journal, as an engine that starts does."""
    journal = Journal[State](files, fold, (), dump=list, load=load, snapshot_every=snapshot_every)
    journal.recover()
    return journal


def look(files: Files) -> State:
    """Read the state as one who does not own it."""
    empty: State = ()
    return read_only(files, fold, empty, load=load)


@contextmanager
def fresh(kind: str) -> Iterator[Files]:
    """Give an empty root (for Hypothesis, which runs one test on many)."""
    if kind == "memory":
        yield open_files(f"memory://{uuid.uuid4().hex}")
    else:
        with tempfile.TemporaryDirectory() as directory:
            yield open_files(directory, sync=False)


@pytest.fixture(params=["local", "memory"])
def files(request: pytest.FixtureRequest) -> Iterator[Files]:
    """Give an empty root of each kind."""
    with fresh(request.param) as made:
        yield made


on_disk = settings(deadline=None, max_examples=60)
kinds = st.sampled_from(["local", "memory"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@on_disk
@given(kinds, st.lists(st.tuples(values, st.booleans(), st.integers(1, 5)), max_size=30))
def test_restarts_and_snapshots_anywhere_change_nothing(
    kind: str, steps: list[tuple[JSON, bool, int]]
) -> None:
    with fresh(kind) as files:
        journal = open_journal(files)
        for number, (value, crash, snapshot_every) in enumerate(steps, 1):
            if crash:
                journal = open_journal(files, snapshot_every)
            assert journal.commit({"value": value}) == number
        expected = tuple(value for value, _, _ in steps)

        assert journal.state == expected
        assert open_journal(files).state == expected
        assert open_journal(files).number == len(steps)
        assert look(files) == expected


def test_memory_holds_what_a_recovery_would_read(files: Files) -> None:
    journal = open_journal(files)
    journal.commit({"value": (1, 2)})  # type: ignore[dict-item]  # a tuple, which JSON makes a list
    assert journal.state == open_journal(files).state == ([1, 2],)


def test_a_commit_that_cannot_be_written_or_folded_is_not_made(files: Files) -> None:
    journal = open_journal(files)

    for bad, error in (
        ({"value": float("nan")}, ValueError),
        ({"value": object()}, TypeError),
        ({}, KeyError),
    ):
        with pytest.raises(error):
            journal.commit(bad)  # type: ignore[arg-type]

    assert journal.commit({"value": 1}) == 1
    assert open_journal(files).state == (1,)


def test_a_commit_is_built_on_the_state_it_follows(files: Files) -> None:
    journal = open_journal(files)

    def add_once(state: State) -> Commit | None:
        return None if "q1" in state else {"value": "q1"}

    assert journal.commit_with(add_once) == 1
    assert journal.commit_with(add_once) is None
    assert journal.state == ("q1",)


# What lies in the directory


def test_two_snapshots_are_kept_and_the_commits_since_the_older(files: Files) -> None:
    """Commits: 1 2 S 4 5 S 7 8 S 10 - the snapshot at 9 made 1..6 needless but for the one at 6."""
    journal = open_journal(files, snapshot_every=3)
    for value in range(10):
        journal.commit({"value": value})

    assert files.list("journal") == [
        "000000000007.json",
        "000000000008.json",
        "000000000009.json",
        "000000000010.json",
        "snapshot-000000000006.json",
        "snapshot-000000000009.json",
    ]


@on_disk
@given(kinds, st.integers(1, 4), st.integers(1, 20), st.integers(0, 10), st.floats(0, 0.98))
def test_a_torn_snapshot_is_survived_and_never_relied_on(
    kind: str, snapshot_every: int, before: int, after: int, cut: float
) -> None:
    """Tear the newest, go on, and tear the newest again: the commits were kept for this."""
    with fresh(kind) as files:
        expected: list[JSON] = []
        for commits in (before, after):
            journal = open_journal(files, snapshot_every)
            for _ in range(commits):
                expected.append(len(expected))
                journal.commit({"value": expected[-1]})
            snapshots = [each for each in files.list("journal") if each.startswith("snapshot")]
            if snapshots:
                newest = f"journal/{snapshots[-1]}"
                files.put(newest, files.read(newest)[: int(cut * len(files.read(newest)))])

            assert open_journal(files).state == tuple(expected)


def test_a_gap_is_named(files: Files) -> None:
    journal = open_journal(files)
    for value in range(3):
        journal.commit({"value": value})
    files.delete("journal/000000000002.json")

    with pytest.raises(RunError, match=r"gap: .*/journal/000000000002.json is missing; restore it"):
        open_journal(files)


def test_a_gap_behind_torn_snapshots_names_them(files: Files) -> None:
    journal = open_journal(files, snapshot_every=1)
    for value in range(3):
        journal.commit({"value": value})
    for name in files.list("journal"):
        if name.startswith("snapshot"):
            files.put(f"journal/{name}", b"")

    with pytest.raises(RunError, match=r"000001.json is missing \(unreadable: .*03.json, .*02.json\)"):
        open_journal(files)


def test_a_damaged_commit_is_named_with_the_way_out(files: Files) -> None:
    journal = open_journal(files)
    for value in (10, 20):
        journal.commit({"value": value})
    files.put("journal/000000000002.json", files.read("journal/000000000002.json").replace(b"20", b"21"))

    with pytest.raises(
        RunError, match=r"commit 2 is damaged: .*2.json: its checksum.*penstock repair --state"
    ):
        open_journal(files)


@given(values, st.data())
def test_damage_is_found_wherever_it_is(value: JSON, data: st.DataObject) -> None:
    sealed = wrap(7, "writer", {"value": value})
    place = data.draw(st.integers(0, len(sealed) - 1))
    damaged = sealed[:place] + data.draw(st.binary(max_size=2)) + sealed[place + 1 :]

    with suppress(TornError):  # or it means the same: white space, \u00AA for \u00aa
        assert unwrap(damaged, 7).body == {"value": value}


def test_a_commit_under_another_number_is_damage(files: Files) -> None:
    open_journal(files).commit({"value": 1})
    files.put("journal/000000000002.json", files.read("journal/000000000001.json"))

    with pytest.raises(RunError, match=r"commit 2 is damaged.*it holds number 1"):
        open_journal(files)


def test_a_journal_of_a_later_format_is_not_taken_for_a_torn_one(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        later.setattr(envelope_module, "FORMAT", 2)
        open_journal(files, snapshot_every=1).commit({"value": 1})

    with pytest.raises(RunError, match="format 2, and this version of Penstock reads 1"):
        open_journal(files)


def test_files_of_others_in_the_directory_are_left_alone(files: Files) -> None:
    files.put("journal/README", b"hands off")
    journal = open_journal(files, snapshot_every=1)
    for value in range(3):
        journal.commit({"value": value})
    assert files.read("journal/README") == b"hands off"


# Two engines


def test_the_second_engine_to_write_is_fenced_for_good(files: Files) -> None:
    first, second = open_journal(files), open_journal(files)
    first.commit({"value": "first"})

    for _ in range(2):
        with pytest.raises(StateBusyError, match=r"commit 1 of .* another engine"):
            second.commit({"value": "second"})
    with pytest.raises(StateBusyError):
        second.recover()

    assert second.fenced
    assert not first.fenced
    assert second.state == ()
    assert open_journal(files).state == ("first",)


@on_disk
@given(kinds, st.integers(1, 5), st.integers(0, 12), st.integers(1, 12))
def test_an_engine_that_slept_through_snapshots_is_fenced(
    kind: str, snapshot_every: int, before: int, during: int
) -> None:
    """Its next number may be free again, because a snapshot has replaced that commit."""
    with fresh(kind) as files:
        sleeper = open_journal(files)
        for value in range(before):
            sleeper.commit({"value": value})
        rival = open_journal(files, snapshot_every)
        for value in range(before, before + during):
            rival.commit({"value": value})

        with pytest.raises(StateBusyError):
            sleeper.commit({"value": "lost"})

        rival.commit({"value": before + during})
        assert open_journal(files).state == rival.state == tuple(range(before + during + 1))


def test_a_driver_that_tries_twice_does_not_fence_itself() -> None:
    """The first request was served, its answer lost; the second finds the file there."""

    class Stutter(Failing):
        def put_if_absent(self, name: str, data: bytes) -> None:
            super().put_if_absent(name, data)
            super().put_if_absent(name, data)

    with fresh("memory") as inner:
        journal = open_journal(cast("Files", Stutter(inner)))
        assert [journal.commit({"value": value}) for value in range(3)] == [1, 2, 3]


def test_threads_that_commit_at_once_lose_nothing(files: Files) -> None:
    journal = open_journal(files, snapshot_every=7)
    numbers: list[int] = []

    def work(worker: int) -> None:
        numbers.extend(journal.commit({"value": [worker, turn]}) for turn in range(25))

    _run_all([threading.Thread(target=work, args=(worker,)) for worker in range(8)])

    assert sorted(numbers) == list(range(1, 201))
    assert sorted(map(str, journal.state)) == sorted(str([w, t]) for w in range(8) for t in range(25))
    assert open_journal(files).state == journal.state


def test_a_reader_sees_prefixes_while_the_owner_commits_and_clears_up(files: Files) -> None:
    journal = open_journal(files, snapshot_every=2)
    done = threading.Event()

    def work() -> None:
        for value in range(300):
            journal.commit({"value": value})
        done.set()

    owner = threading.Thread(target=work)
    owner.start()
    lengths = []
    while not done.is_set():
        state = look(files)
        assert state == tuple(range(len(state)))
        lengths.append(len(state))
    owner.join()

    assert lengths == sorted(lengths)
    assert look(files) == tuple(range(300))


# Failure and death at any point


class Crash(BaseException):
    """The process died here."""


class Mortal:
    """An object whose owner dies at its `calls`-th call, just before or just after it has effect.

    From then on every call dies, so no clean-up runs that a kill -9 would not have let run.
    """

    def __init__(self, inner: object, calls: int, *, after: bool) -> None:
        self._inner, self._left, self._after = inner, calls, after

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        return self._mortal(attribute) if callable(attribute) else attribute

    def _mortal(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left < 0 or (self._left == 0 and not self._after):
                raise Crash
            result = function(*args, **kwargs)
            if self._left == 0:
                raise Crash
            return result

        return call


def commit_until_death(files: Files, snapshot_every: int) -> list[int]:
    """Commit 0, 1, 2, ...; return what was acknowledged before the end."""
    acknowledged: list[int] = []
    try:
        journal = open_journal(files, snapshot_every)
        for value in range(len(journal.state), len(journal.state) + 20):
            journal.commit({"value": value})
            acknowledged.append(value)
    except Crash:
        pass
    return acknowledged


def check_recovery(files: Files, acknowledged: list[int]) -> None:
    """Whatever was acknowledged is there, at most the one commit under way is there too, and life goes on."""
    journal = open_journal(files)
    assert journal.state == tuple(range(len(journal.state)))
    assert len(acknowledged) <= len(journal.state) <= len(acknowledged) + 1
    journal.commit({"value": len(journal.state)})
    assert open_journal(files).state == journal.state


@on_disk
@given(
    kinds, st.integers(1, 5), st.lists(st.tuples(st.integers(1, 80), st.booleans()), min_size=1, max_size=3)
)
def test_death_between_any_two_file_operations_loses_nothing(
    kind: str, snapshot_every: int, deaths: list[tuple[int, bool]]
) -> None:
    with fresh(kind) as files:
        for calls, after in deaths:
            before = len(open_journal(files).state)
            mortal = cast("Files", Mortal(files, calls, after=after))
            acknowledged = commit_until_death(mortal, snapshot_every)
            check_recovery(files, [*range(before), *acknowledged])


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 5), st.integers(1, 400), st.booleans())
def test_death_between_any_two_system_calls_loses_nothing(
    snapshot_every: int, calls: int, after: bool
) -> None:
    """As above, one floor down: inside the temporary file, link, rename and sync of `LocalFiles`."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        files = open_files(directory)
        mortal = SystemCalls(os, calls, after=after)
        with patch.context() as dying:
            dying.setattr(files_module, "os", mortal)
            acknowledged = commit_until_death(files, snapshot_every)
        check_recovery(files, acknowledged)


class SystemCalls(Mortal):
    """The `os` module, mortal where it changes the disk (a sync changes nothing a process can see)."""

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name == "fsync":
            return self._mortal(lambda _: None)
        return (
            self._mortal(attribute) if name in {"link", "replace", "unlink", "mkdir", "open"} else attribute
        )


@on_disk
@given(kinds, st.integers(1, 5), st.integers(0, 12), st.booleans())
def test_after_a_failed_put_nothing_is_committed_until_recovery(
    kind: str, snapshot_every: int, good: int, landed: bool
) -> None:
    """A put that raised may have worked all the same; memory claims neither."""
    with fresh(kind) as inner:
        files = Failing(inner)
        journal = open_journal(cast("Files", files), snapshot_every)
        for value in range(good):
            journal.commit({"value": value})

        files.failing = "after" if landed else "before"
        with pytest.raises(TimeoutError):
            journal.commit({"value": good})
        files.failing = ""
        assert journal.state == tuple(range(good))
        with pytest.raises(RunError, match=r"may or may not exist\. Recover"):
            journal.commit({"value": good})

        assert journal.recover() == tuple(range(good + landed))
        assert journal.commit({"value": good + landed}) == good + landed + 1


class Failing:
    """Files whose `put_if_absent` can be made to fail, before or after it works."""

    def __init__(self, inner: Files) -> None:
        self._inner, self.failing = inner, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, name: str, data: bytes) -> None:
        if self.failing != "before":
            self._inner.put_if_absent(name, data)
        if self.failing:
            raise TimeoutError


def test_a_snapshot_that_fails_does_not_fail_the_commit_and_is_tried_again(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = open_journal(files, snapshot_every=2)
    with monkeypatch.context() as full:
        full.setattr(type(files), "put", _no_space)
        for value in range(5):
            journal.commit({"value": value})
    assert "snapshot 4 of" in caplog.text
    assert "No space left" in caplog.text

    journal.commit({"value": 5})

    assert "snapshot-000000000006.json" in files.list("journal")
    assert open_journal(files).state == tuple(range(6))


COMMIT = """
import sys
from penstock.state.files import open_files
from penstock.state.journal import Journal
files = open_files(sys.argv[1], sync=False)
with files.lock("lock"):
    fold = lambda state, commit: (*state, commit["value"])
    journal = Journal(files, fold, (), dump=list, load=tuple, snapshot_every=3)
    journal.recover()
    while True:
        value = len(journal.state)
        journal.commit({"value": value})
        print(value, flush=True)
"""


def test_kill_minus_nine_loses_no_acknowledged_commit(tmp_path: Path) -> None:
    """A real process, killed after it has spoken a while, four times over the same state."""
    files, dice = open_files(str(tmp_path)), random.Random(7)
    for _ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", COMMIT, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(dice.uniform(0, 0.05))
            child.send_signal(signal.SIGKILL)
            said = child.stdout.read().split("\n")

        with files.lock("lock"):
            state = open_journal(files).state
        assert state == tuple(range(len(state)))
        acknowledged = [int(each) for each in said[:-1]]  # the last line may be cut short
        assert not acknowledged or acknowledged[-1] < len(state) <= acknowledged[-1] + 2


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _run_all(threads: list[threading.Thread]) -> None:
    """Run the threads to their end."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
