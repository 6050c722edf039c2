"""Whatever is damaged or lost of a journal, all that can be told from the rest is told, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.envelope import Commit, commit_name, numbers, snapshot_name, unwrap, wrap
from penstock.state.files import Files, open_files
from penstock.state.journal import Journal
from penstock.state.journal_scan import survey
from tests.state.test_checksum import damage

State = tuple[object, ...]


def fold(state: State, commit: Commit) -> State:
    return (*state, commit["value"])


def load(dumped: object) -> State:
    assert isinstance(dumped, list)
    return tuple(dumped)


def journal_of(files: Files, snapshot_every: int) -> Journal[State]:
    journal = Journal[State](files, fold, (), dump=list, load=load, snapshot_every=snapshot_every)
    journal.recover()
    return journal


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 25), st.integers(2, 9), st.integers(0, 1 << 32))
def test_every_point_that_is_said_to_be_reachable_is_as_it_was(commits: int, every: int, seed: int) -> None:
    random = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        files = open_files(folder, sync=False)
        for number in range(1, commits + 1):
            if number == 1 or random.random() < 0.2:
                journal = journal_of(files, every)
            journal.commit({"value": number})
        hurt = harm(random, files, Path(folder))
        found = survey(files, fold, (), load)

        for number, state in found.states.items():
            assert state == tuple(range(1, number + 1))
        present = numbers(files)
        whole = {each for each in present.commits if commit_name(each) not in hurt}
        start = max((each for each in present.snapshots if snapshot_name(each) not in hurt), default=0)
        end = start
        while end + 1 in whole or end + 2 in whole:  # the next one has a copy
            end += 1
        assert found.end == end or (start == 0 and present.snapshots)
        assert bool(found.wrong) or found.end == found.last


def harm(random: Random, files: Files, folder: Path) -> set[str]:
    """Damage or remove some of a journal's files, and name those that are not whole any more."""
    names = [f"journal/{each}" for each in files.list("journal")]
    hurt = set()
    for name in random.sample(names, random.randint(0, min(4, len(names)))):
        whole = files.read(name)
        (folder / name).write_bytes(damage(random, whole))
        if random.random() < 0.3:
            files.delete(name)
        elif files.read(name) != whole and not same(name, whole, files.read(name)):
            hurt.add(name)
    return hurt


def same(name: str, one: bytes, other: bytes) -> bool:
    """Say whether two texts are one JSON: damage may hit white space."""
    number = int(name.rpartition("/")[2].removeprefix("snapshot-").removesuffix(".json"))
    try:
        return unwrap(one, number) == unwrap(other, number)
    except Exception:  # noqa: BLE001 - then it is damaged
        return False


def test_a_commit_that_is_lost_is_written_again_as_the_next_one_has_it(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    journal = journal_of(files, 64)
    for number in range(1, 6):
        journal.commit({"value": number})
    files.delete(commit_name(3))
    found = survey(files, fold, (), load)
    assert found.wrong == ("commit 3 is missing",)
    assert found.end == 5
    copy = found.copies[3]
    files.put(commit_name(3), wrap(3, copy.writer, copy.body))
    assert journal_of(files, 64).state == (1, 2, 3, 4, 5)


def test_what_only_old_snapshots_needed_is_nothing_wrong(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    journal = journal_of(files, 4)
    for number in range(1, 11):
        journal.commit({"value": number})
    assert numbers(files).snapshots == [4, 8]
    files.delete(commit_name(6))
    files.delete(commit_name(7))
    found = survey(files, fold, (), load)
    assert found.wrong == ()
    assert sorted(found.states) == [4, 5, 8, 9, 10]


def test_a_restarted_journal_carries_the_last_commit_along(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    journal_of(files, 1).commit({"value": 1})  # its snapshot holds all of it
    journal_of(files, 64).commit({"value": 2})
    before = unwrap(files.read(commit_name(2)), 2).before
    assert before is not None
    assert before.body == {"value": 1}
