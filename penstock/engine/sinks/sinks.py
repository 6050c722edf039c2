"""Where results go, and how committed output becomes visible there.

Every sink is fed by files that a unit's tasks wrote under ``_staging`` and that the unit's commit names.  Publishing
comes after the commit and can be repeated: a file already in place is left alone.  So at any moment a `parquet` sink
holds committed results only, and after a crash the next start publishes what was committed and not yet in place.

| sink      | a result is                                              | after a crash            |
|-----------|----------------------------------------------------------|--------------------------|
| parquet   | a row in a file of the query's directory                 | exactly once             |
| table     | a row of a file that the state keeps and a commit names  | exactly once             |
| callback  | in the DataFrame of one call ``fn(df, unit_id)``         | the last unit may come again, by its id |
| console   | printed                                                  | as for a callback        |
| noop      | counted                                                  | counted exactly once     |

A query that wants its results in order gets them by releases (`penstock.engine.stages.release`), not by units: a
parquet sink as files whose names ascend, a table as such files of its own in the state, a callback or console call by
call.

With the table sink, pairs are stored once for all queries whose results follow from the pair alone, and such a query is
a view over them.  Results that are settled when they are found (`penstock.sql.bind.safety`) have files of their own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import RunError
from penstock.reporting import Logger
from penstock.sql.bind.safety import Constancy, constancy_of
from penstock.sql.options import check_value
from penstock.sql.query import Sink
from penstock.state.files import open_files, safe_name
from penstock.state.locations import absolute
from penstock.state.output_file import WrittenFile
from penstock.state.values import Move, Publication

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from penstock.sql.query import Query, Stream
    from penstock.state.files import Files
    from penstock.state.output_file import WrittenFile
    from penstock.state.tables import StoredFile

    Handler = Callable[[DataFrame, str], object]

_log = Logger(__name__)

SPOOLED = frozenset({"console", "callback"})
"""Sinks that get their results as a DataFrame after the commit."""


@dataclass(frozen=True, slots=True)
class Callback:
    """A sink that is a Python function: called with a DataFrame of new results and the unit's id."""

    function: Handler


def parquet(path: str | os.PathLike[str], *, compression: str = "snappy", punctuations: bool = False) -> Sink:
    """Deliver to a directory of Parquet files; with `punctuations`, also which values have no more results."""
    check_value("compression", compression)
    options = [("path", os.fspath(path)), ("compression", compression.lower())]
    return Sink("parquet", (*options, *([("punctuations", "true")] if punctuations else [])))


def table() -> Sink:
    """Keep results in the state: pairs stored once, the query a view over them (the default)."""
    return Sink("table")


def console() -> Sink:
    """Print results as they come."""
    return Sink("console")


def noop() -> Sink:
    """Count results and keep none."""
    return Sink("noop")


def callback(function: Handler) -> Callback:
    """Hand results to ``function(df, unit_id)``, unit by unit."""
    return Callback(function)


def settled(sink: Sink) -> Sink:
    """Make a sink's path absolute, so that it means the same wherever the state is opened from."""
    path = sink.option("path")
    if not path:
        return sink
    return Sink(sink.kind, tuple({**dict(sink.options), "path": absolute(path)}.items()))


def sink_root(query: Query, files: Files) -> str:
    """Say under which directory a query's own files are written; empty if it has none."""
    if query.sink.kind == "parquet":
        return query.sink.option("path")
    if query.sink.kind in SPOOLED:
        return files.path(f"spool/{safe_name(query.name)}")
    return ""


def is_view(query: Query, streams: tuple[Stream, ...]) -> bool:
    """Say whether a query is read from the pairs that its group stores: its results are the same at every read.

    Which pairs are its results is settled when they are found, so its conditions need not be.
    """
    return query.in_table and constancy_of(replace(query, residual=()), streams) == Constancy.ALWAYS


def results_folder(query: str) -> str:
    """Say where the state keeps the results of a query that has files of its own there."""
    return f"results/{safe_name(query)}"


def feed_folder(query: str) -> str:
    """Say where the state keeps the results of a query that others read, until their rows are in the logs."""
    return f"feed/{safe_name(query)}"


def pairs_folder(group: str) -> str:
    """Say where the state keeps the pairs of a group."""
    return f"pairs/{group}"


def publish_files(publication: Publication, state: Files) -> None:
    """Move committed files into place; doing it again changes nothing.

    All are moved before the first directory is synced: a disk then has one thing to write, and not one for each file.
    """
    moved: dict[str, set[str]] = {}
    for move in publication.moves:
        try:
            open_files(move.root, sync=False).move(move.staged, move.final)
            moved.setdefault(move.root, set()).add(move.final.rpartition("/")[0])
        except FileNotFoundError:
            _pass_over(publication, move, state)
    for root, directories in moved.items():
        open_files(root).settle(directories)


def _pass_over(publication: Publication, move: Move, state: Files) -> None:
    """Take a file that is neither staged nor in place as moved before, and removed since by who reads the sink.

    Only a sink's own directory is anybody's to remove files from; in the state it is a loss.
    """
    sink = open_files(move.root)
    path = sink.path(move.final)
    if publication.query or path.startswith(f"{state.root}/") or not sink.exists(""):
        raise RunError(
            f"file {path} of unit {publication.unit} is committed, and neither there nor staged: restore it from a "
            f"copy, or run `penstock repair --state {state.root}`"
        )
    _log.warning(
        "%s of unit %s is not there: taken as delivered, and removed since by who reads it",
        path,
        publication.unit,
    )


def delete_spooled(publication: Publication) -> None:
    """Delete files that were handed over; only after the commit that says so, as a restart before it needs them."""
    for move in publication.moves:
        open_files(move.root).delete(move.final)


def clear_staging(roots: Iterable[str]) -> None:
    """Remove what tasks wrote and no commit names; only when nothing is running."""
    for root in roots:
        open_files(root).delete_tree("_staging")


def publications(unit: str, files: Iterable[WrittenFile], spooled: set[str]) -> tuple[Publication, ...]:
    """Turn what the tasks of a unit wrote for sinks into what is to be published.

    One entry is for all directories of the unit, and one for each query that gets a DataFrame.
    """
    moves: dict[str, list[Move]] = {}
    for file in files:
        if file.move is not None:
            moves.setdefault(file.query if file.query in spooled else "", []).append(file.move)
    return tuple(Publication(unit, tuple(each), query) for query, each in moves.items())


def kept_files(files: Iterable[WrittenFile]) -> dict[str, tuple[StoredFile, ...]]:
    """List what the tasks of a unit wrote that the state keeps, by query; pairs of a group have no query."""
    kept: dict[str, tuple[StoredFile, ...]] = {}
    for file in files:
        if file.kept is not None:
            kept[file.query] = (*kept.get(file.query, ()), file.kept)
    return kept


PUNCTUATIONS = "_punctuations"
"""The directory below a sink's own where its punctuations are; Spark passes over names that begin so."""
