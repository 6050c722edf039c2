"""Check before a start that the directory of each sink belongs to one query.

A path is refused if it

* is the directory of another query, or above or below it, also under another name;
* is in the state, or above it;
* is read by a stream from which the query gets its rows, directly or through other queries;
* is a file, cannot be written to, or has results already;
* belongs to a query of another state.

For the last rule, a sink's directory has a file ``.penstock`` that names the state and the query which write there.  It
is written before the first result.  It also finds two names for one directory where the filesystem does not (mounts,
object stores).

In:  the plan, and the state.  Out: nothing, or the `InputError`; `claim_sinks` gives what to undo if the start fails.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engine.sinks.sink_kind import sink_of
from penstock.errors import InputError
from penstock.state.files import open_files
from penstock.state.locations import absolute, directory_of, is_local, refuse_one_process

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.plan.build import Plan
    from penstock.sql.query import Query, Stream
    from penstock.state.files import Files

OWNER = ".penstock"
"""The file in a sink's directory that names its state and query."""


def file_sinks(queries: Iterable[Query]) -> dict[str, str]:
    """Return the directory of each query whose sink has one, by the query's name."""
    return {query.name: path for query in queries if (path := sink_of(query).directory)}


def check_paths(plan: Plan, state: Files) -> None:
    """Refuse paths by which queries would overwrite each other, the state, or their own input."""
    paths = file_sinks(plan.queries)
    home = directory_of(absolute(state.root))
    directories = {name: directory_of(path) for name, path in paths.items()}
    for name, path in paths.items():
        refuse_one_process(path, f"path {path!r} of query {name}")
        if directories[name].overlaps(home):
            raise InputError(
                f"query {name} writes to {path!r}, where the state is ({state.root}): give it another path"
            )
    for one, other in combinations(paths, 2):
        if directories[one].overlaps(directories[other]):
            raise _clash(one, other, paths)
    _refuse_loops(plan, paths)


def _clash(one: str, other: str, paths: dict[str, str]) -> InputError:
    """Return the error that two queries write to one directory, or one below the other's."""
    first, second = paths[one], paths[other]
    how = "" if first == second else f", and {second!r} leads there too"
    if directory_of(first) != directory_of(second):
        how = f", and {second!r} is above or below it"
    return InputError(f"queries {one} and {other} both write to {first!r}{how}: give each its own path")


def _refuse_loops(plan: Plan, paths: dict[str, str]) -> None:
    """Refuse a query that reads its own results."""
    feeds = {stream.name: _writers(stream, paths) for stream in plan.streams}
    inputs = {query.name: set(query.streams) for query in plan.queries}
    for name, path in paths.items():
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            for stream in inputs[waiting.pop()] - seen:
                seen.add(stream)
                if name in feeds[stream]:
                    raise InputError(
                        f"query {name} writes to {path!r}, which stream {stream} reads, and gets its rows from "
                        "there: its results would come back without end; give it another path"
                    )
                waiting += feeds[stream]


def _writers(stream: Stream, paths: dict[str, str]) -> list[str]:
    """Return the queries whose results a stream reads."""
    if stream.results is not None:
        return [stream.name]
    path = dict(stream.options).get("path", "")
    if not path:
        return []
    source = directory_of(absolute(path))
    return [name for name, path in paths.items() if directory_of(path).overlaps(source)]


# --- the directories themselves -----------------------------------------------------------------------------------


def check_directories(queries: Iterable[Query], before: Plan | None) -> None:
    """Refuse a path of a new query that cannot be a directory of results, or already has results."""
    standing = file_sinks([*before.queries, *(stopped.query for stopped in before.stopped)]) if before else {}
    for name, path in file_sinks(queries).items():
        if name in standing and directory_of(standing[name]) == directory_of(path):
            continue
        if is_local(path):
            _check_local(name, path)
        results = [file for file in open_files(path).list("") if file.endswith(".parquet")]
        if results:
            raise InputError(
                f"path {path!r} of query {name} already holds results ({results[0]}), of another state or of a "
                "query that was dropped, and a new query does not add to them: move them away, choose another path, or "
                "go on with the state they belong to (--state)"
            )


def _check_local(query: str, path: str) -> None:
    """Refuse a local path that is a file, or that cannot be written to."""
    nearest = next(place for place in (Path(path), *Path(path).parents) if os.path.lexists(place))
    if not nearest.is_dir():
        raise InputError(f"path {path!r} of query {query}: {nearest} is not a directory; choose another path")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(
            f"path {path!r} of query {query}: {nearest} cannot be written to; choose another path"
        )


@dataclass(frozen=True, slots=True)
class ClaimedSink:
    """A sink's directory that was claimed just now, and the content of its ``.penstock`` before."""

    path: str
    before: bytes | None

    def undo(self) -> None:
        """Restore the file as it was."""
        files = open_files(self.path, sync=False)
        if self.before is None:
            files.delete(OWNER)
        else:
            files.put(OWNER, self.before)


def claim_sinks(queries: Iterable[Query], state: Files, identity: str) -> list[ClaimedSink]:
    """Claim the directories of some queries for this state; if one cannot be claimed, none is."""
    claims: list[ClaimedSink] = []
    paths = file_sinks(queries)
    try:
        for name, path in paths.items():
            claims += _claim(name, path, state, identity)
        for name, path in paths.items():
            _refuse_shared(name, path)
    except BaseException:
        undo_claims(claims)
        raise
    return claims


def _refuse_shared(query: str, path: str) -> None:
    """Refuse a directory that another query of this start has claimed under another name."""
    owner = _owner(open_files(path).read(OWNER))
    if owner["query"] != query:
        raise InputError(
            f"queries {query} and {owner['query']} both write to {path!r}, by different names: give each its own path"
        )


def undo_claims(claims: Sequence[ClaimedSink]) -> None:
    """Undo the claims of a start that failed."""
    for claim in reversed(claims):
        claim.undo()


def _claim(query: str, path: str, state: Files, identity: str) -> list[ClaimedSink]:
    """Write a query's name into its directory, unless it is there already."""
    files = open_files(path, sync=False)
    mark = json.dumps({"state": identity, "query": query, "at": state.root}).encode()
    try:
        files.put_if_absent(OWNER, mark)
    except FileExistsError:
        before = files.read(OWNER)
        owner = _owner(before)
        if owner.get("state") != identity:
            raise InputError(
                f"path {path!r} of query {query} belongs to query {owner.get('query')} of the state "
                f"{owner.get('at')}: choose another path, or remove the directory if that state is gone"
            ) from None
        if owner.get("query") == query:
            return []
        files.put(OWNER, mark)
        return [ClaimedSink(path, before)]
    return [ClaimedSink(path, None)]


def _owner(data: bytes) -> dict[str, str]:
    """Read the owner of a directory; an unreadable file belongs to an unknown owner."""
    try:
        owner = json.loads(data)
    except ValueError:
        owner = None
    return owner if isinstance(owner, dict) else {"query": "?", "at": "?"}
