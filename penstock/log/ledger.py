"""All that the engine knows, as a fold over the journal.

Six kinds of commit, each making one thing true::

    opened     another engine took over this state
    plan       this state serves these streams and queries            (first commit of a state)
    batch      a stream's batch is in the logs; its watermark rose     (ingest)
    unit       slices advanced; this output is committed               (join)
    rewrite    these segments are replaced by that one, or gone        (merge, retention)
    published  output of these units has reached its sinks             (deliver)

The ledger is a value: a commit gives a new one, so a reader may keep what it has.

In:  commits, in order.  Out: segments, cursors, watermarks, counts, and output still to be published.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import RunError
from penstock.log.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Json = dict[str, Any]
Cursor = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far a stream is: the last source batch, its newest event time and watermark, and its counts."""

    source_batch: int = -1
    batches: int = 0
    newest: int | None = None
    watermark: int | None = None
    rows: int = 0
    late: int = 0
    no_time: int = 0
    no_key: int = 0
    unwanted: int = 0


@dataclass(frozen=True, slots=True)
class GroupState:
    """How far each slice of a group has joined the two logs, and how many units that took.

    `watermarks` are those of the left and right stream when the batches up to the cursors were all there were: no row
    still to be joined is older.  (The streams' own watermarks may be ahead, by batches not joined yet.)
    """

    cursors: tuple[Cursor, ...]
    watermarks: tuple[int | None, int | None] = (None, None)
    units: int = 0
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """A file of committed output: written at `staged`, to be seen at `final`, both under `root`."""

    root: str
    staged: str
    final: str


@dataclass(frozen=True, slots=True)
class Publication:
    """Output that is committed and must still reach its sink: moved into place, or handed to a callback.

    `query` is set where the files are for one query's console or callback rather than a directory.
    """

    unit: str
    moves: tuple[Move, ...]
    query: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The folded journal."""

    plan: Json = field(default_factory=dict)
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    logs: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)
    pending: tuple[Publication, ...] = ()

    def stream(self, name: str) -> StreamState:
        """Give a stream's state, the empty one before its first batch."""
        return self.streams.get(name, StreamState())

    def segments(self, log: str) -> tuple[Segment, ...]:
        """List a log's segments."""
        return self.logs.get(log, ())


def fold(ledger: Ledger, commit: Json) -> Ledger:
    """Apply one commit."""
    step = _STEPS.get(str(commit.get("kind")))
    if step is None:
        raise RunError(f"the journal has a commit of kind {commit.get('kind')!r}: it is from a newer version")
    return step(ledger, commit)


def _opened(ledger: Ledger, _commit: Json) -> Ledger:
    """Change nothing: the commit's number is what matters, it fences the engine before."""
    return ledger


def _plan(ledger: Ledger, commit: Json) -> Ledger:
    """Remember what this state serves."""
    groups = {
        group: GroupState(tuple((0, 0) for _ in range(slices))) for group, slices in commit["groups"].items()
    }
    return replace(ledger, plan=commit["plan"], groups={**groups, **ledger.groups})


def _batch(ledger: Ledger, commit: Json) -> Ledger:
    """Add a batch's segments to the logs and move its stream's watermark."""
    stream, state = commit["stream"], StreamState(**commit["state"])
    logs = dict(ledger.logs)
    for log, added in commit["segments"].items():
        logs[log] = logs.get(log, ()) + tuple(Segment.from_json(each) for each in added)
    return replace(ledger, streams={**ledger.streams, stream: state}, logs=logs)


def _unit(ledger: Ledger, commit: Json) -> Ledger:
    """Advance a group's cursors, count results, and take note of the output to publish."""
    group = ledger.groups[commit["group"]]
    advanced = replace(
        group,
        cursors=tuple((int(i), int(j)) for i, j in commit["cursors"]),
        watermarks=tuple(commit["watermarks"]),
        units=group.units + 1,
        pairs=group.pairs + commit["pairs"],
    )
    results = dict(ledger.results)
    for query, count in commit["results"].items():
        results[query] = results.get(query, 0) + count
    pending = ledger.pending + tuple(publication_from_json(each) for each in commit["publish"])
    return replace(
        ledger, groups={**ledger.groups, commit["group"]: advanced}, results=results, pending=pending
    )


def _rewrite(ledger: Ledger, commit: Json) -> Ledger:
    """Replace segments of a log by others that hold what is still of use of the same batches."""
    gone = set(commit["remove"])
    kept = tuple(each for each in ledger.segments(commit["log"]) if each.name not in gone)
    added = tuple(Segment.from_json(each) for each in commit["add"])
    return replace(ledger, logs={**ledger.logs, commit["log"]: added + kept})


def _published(ledger: Ledger, commit: Json) -> Ledger:
    """Forget output that has reached its sinks."""
    done = {tuple(each) for each in commit["units"]}
    return replace(ledger, pending=tuple(p for p in ledger.pending if (p.unit, p.query) not in done))


_STEPS: dict[str, Callable[[Ledger, Json], Ledger]] = {
    "opened": _opened,
    "plan": _plan,
    "batch": _batch,
    "unit": _unit,
    "rewrite": _rewrite,
    "published": _published,
}


def publication_from_json(data: Json) -> Publication:
    """Read one publication."""
    return Publication(data["unit"], tuple(Move(*each) for each in data["moves"]), data["query"])


def publication_to_json(publication: Publication) -> Json:
    """Write one publication."""
    moves = [[move.root, move.staged, move.final] for move in publication.moves]
    return {"unit": publication.unit, "moves": moves, "query": publication.query}


def dump(ledger: Ledger) -> Json:
    """Write the ledger as a snapshot."""
    return {
        "plan": ledger.plan,
        "streams": {name: asdict(state) for name, state in ledger.streams.items()},
        "logs": {log: [each.to_json() for each in segments] for log, segments in ledger.logs.items()},
        "groups": {name: asdict(state) for name, state in ledger.groups.items()},
        "results": dict(ledger.results),
        "pending": [publication_to_json(each) for each in ledger.pending],
    }


def load(data: Json) -> Ledger:
    """Read a snapshot."""
    return Ledger(
        plan=data["plan"],
        streams={name: StreamState(**state) for name, state in data["streams"].items()},
        logs={log: tuple(map(Segment.from_json, each)) for log, each in data["logs"].items()},
        groups={
            name: GroupState(
                tuple((i, j) for i, j in g["cursors"]), tuple(g["watermarks"]), g["units"], g["pairs"]
            )
            for name, g in data["groups"].items()
        },
        results=data["results"],
        pending=tuple(publication_from_json(each) for each in data["pending"]),
    )
