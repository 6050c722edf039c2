"""Read a damaged journal: every commit that a repair could go back to.

`Journal.recover` reads the newest snapshot and the commits after it, and stops at the first damaged file.  A scan reads
all files, because each commit has a copy of the commit before it, and a snapshot replaces all earlier commits::

    snapshot 64 . 65 . 66 . 67x 68 . 69          67 is damaged; 68 carries a copy of it: nothing is lost
    snapshot 64 . 65 . 66 . 67x 68x 69           69 has a copy of 68, 67 is lost: 66 is the last usable commit

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
    """The readable parts of a journal."""

    states: Mapping[int, S]
    """The state after each commit that can be folded."""
    last: int
    """The last number that any file has."""
    copies: Mapping[int, Envelope]
    """Damaged or missing commits, as copied in the commits after them."""
    commits: Mapping[int, Commit]
    """All readable commits, also those that cannot be folded because an earlier one is lost."""
    wrong: tuple[str, ...]
    """Damaged or missing files that are needed, in words."""
    torn_snapshots: tuple[int, ...]

    @property
    def end(self) -> int:
        """Return the number of the last commit that can be folded."""
        return max(self.states, default=0)


def survey(files: Files, fold: Callable[[S, Commit], S], empty: S, load: Callable[[JSON], S]) -> Survey[S]:
    """Read all files of a journal, damaged or not."""
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
    carried = {
        number - 1: envelope.before for number, envelope in envelopes.items() if envelope.before is not None
    }
    readable = {**carried, **envelopes}
    return Survey(
        states=_states(
            readable,
            {number: load(envelope.body) for number, envelope in snapshots.items()},
            fold,
            empty,
            last,
        ),
        last=last,
        copies={number: carried[number] for number in lost if number in carried},
        commits={number: as_commit(envelope.body) for number, envelope in readable.items()},
        wrong=(
            *(f"snapshot {number} {why}" for number, why in torn.items()),
            *(f"commit {number} {why}" for number, why in lost.items()),
        ),
        torn_snapshots=tuple(torn),
    )


def _read_all(
    files: Files, listed: list[int], name_of: Callable[[int], str]
) -> tuple[dict[int, Envelope], dict[int, str]]:
    """Read some files: return the intact ones, and the damage of the others."""
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
    """Fold all commits that can be folded; after a gap, continue from the next snapshot."""
    states: dict[int, S] = {0: empty} if 1 in readable or not snapshots else {}
    for number in range(1, last + 1):
        if number - 1 in states and number in readable:
            states[number] = fold(states[number - 1], as_commit(readable[number].body))
        elif number in snapshots:
            states[number] = snapshots[number]
    return states
