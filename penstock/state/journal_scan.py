"""What can be read of a journal that has been damaged: every point that one could go on from.

`Journal.recover` reads the newest snapshot and what follows it, and stops at the first file that is not whole.  Here
all files are read, and what one lacks another may have: a commit carries the one before it along, and a snapshot holds
all that came before::

    snapshot 64 . 65 . 66 . 67x 68 . 69          67 is damaged; 68 carries a copy of it: nothing is lost
    snapshot 64 . 65 . 66 . 67x 68x 69           68 is whole in 69, 67 is gone: one can go back to 66

In:  the files of a state.  Out: a `Survey`; nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.state.envelope import TornError, as_commit, commit_name, numbers, snapshot_name, unwrap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.state.envelope import JSON, Commit, Envelope
    from penstock.state.files import Files

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Survey(Generic[S]):
    """What there is of a journal."""

    states: Mapping[int, S]
    """The state after each commit up to which the journal can be read."""
    last: int
    """The last number that any file has."""
    copies: Mapping[int, Envelope]
    """Commits that are damaged or missing, as the next ones have them."""
    commits: Mapping[int, Commit]
    """All commits that can be read, also those that nothing leads to any more."""
    wrong: tuple[str, ...]
    """What is needed and is damaged or missing, in words."""
    torn_snapshots: tuple[int, ...]

    @property
    def end(self) -> int:
        """Give the number of the last commit up to which the journal can be read."""
        return max(self.states, default=0)


def survey(files: Files, fold: Callable[[S, Commit], S], empty: S, load: Callable[[JSON], S]) -> Survey[S]:
    """Read all of a journal, whatever state it is in."""
    present = numbers(files)
    snapshots, torn = _read_all(files, present.snapshots, snapshot_name)
    envelopes, damaged = _read_all(files, present.commits, commit_name)
    last = max((*present.commits, *present.snapshots), default=0)
    start = max(snapshots, default=0)
    lost = {
        number: damaged.get(number, "is missing")
        for number in range(start + 1, last + 1)
        if number not in envelopes
    }
    carried = {number - 1: each.before for number, each in envelopes.items() if each.before is not None}
    readable = {**carried, **envelopes}
    return Survey(
        states=_states(
            readable, {number: load(each.body) for number, each in snapshots.items()}, fold, empty, last
        ),
        last=last,
        copies={number: carried[number] for number in lost if number in carried},
        commits={number: as_commit(each.body) for number, each in readable.items()},
        wrong=(
            *(f"snapshot {number} {why}" for number, why in torn.items()),
            *(f"commit {number} {why}" for number, why in lost.items()),
        ),
        torn_snapshots=tuple(torn),
    )


def _read_all(
    files: Files, listed: list[int], name_of: Callable[[int], str]
) -> tuple[dict[int, Envelope], dict[int, str]]:
    """Read some files; give those that are whole, and what is wrong with the others."""
    whole: dict[int, Envelope] = {}
    torn: dict[int, str] = {}
    for number in listed:
        try:
            whole[number] = unwrap(files.read(name_of(number)), number)
        except TornError as error:
            torn[number] = f"is damaged ({files.path(name_of(number))}: {error})"
    return whole, torn


def _states(
    readable: Mapping[int, Envelope],
    snapshots: Mapping[int, S],
    fold: Callable[[S, Commit], S],
    empty: S,
    last: int,
) -> dict[int, S]:
    """Fold what can be folded; after a gap, the next snapshot goes on."""
    states: dict[int, S] = {0: empty} if 1 in readable or not snapshots else {}
    for number in range(1, last + 1):
        if number - 1 in states and number in readable:
            states[number] = fold(states[number - 1], as_commit(readable[number].body))
        elif number in snapshots:
            states[number] = snapshots[number]
    return states
