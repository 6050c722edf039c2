"""Committed output becomes visible in its sinks.

Tasks write files of a sink under ``_staging``, where no reader looks.  The unit's commit names them, and only then are
they moved into place, or handed over.  Publishing can be repeated: a file already in place is left alone.  So a sink's
directory holds committed results only, and after a crash the next start publishes what was committed and is not yet in
place.

In:  what tasks report, and `Publication`s of the ledger.  Out: `Publication`s for a commit, and files in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import RunError
from penstock.reporting import Logger
from penstock.state.files import open_files
from penstock.state.values import Move, Publication

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from penstock.state.files import Files
    from penstock.state.output_file import WrittenFile
    from penstock.state.tables import StoredFile

_log = Logger(__name__)


def publish_files(publication: Publication, state: Files) -> None:
    """Move committed files into place; a repetition changes nothing.

    All files are moved before a directory is synced, so that the disk is synced once and not for every file.
    """
    moved: dict[str, set[str]] = {}
    for move in publication.moves:
        try:
            open_files(move.root, sync=False).move(move.staged, move.final)
            moved.setdefault(move.root, set()).add(move.final.rpartition("/")[0])
        except FileNotFoundError:
            _check_removed(publication, move, state)
    for root, directories in moved.items():
        open_files(root).settle(directories)


def _check_removed(publication: Publication, move: Move, state: Files) -> None:
    """Accept a file that is neither staged nor in place: it was moved before, and a consumer has removed it.

    Consumers may remove files from a sink's directory only.  A file that is missing in the state is lost.
    """
    sink = open_files(move.root)
    path = sink.path(move.final)
    if publication.query or path.startswith(f"{state.root}/") or not sink.exists(""):
        raise RunError(
            f"file {path} of unit {publication.unit} is committed, and neither there nor staged: restore it from a "
            f"copy, or run `penstock repair --state {state.root}`"
        )
    _log.warning(
        "%s of unit %s is missing: taken as delivered, and then removed by its consumer",
        path,
        publication.unit,
    )


def delete_handed_over(publication: Publication) -> None:
    """Delete files that were handed over, after the commit that says so: a restart before it needs them."""
    for move in publication.moves:
        open_files(move.root).delete(move.final)


def clear_staging(roots: Iterable[str]) -> None:
    """Remove what tasks wrote and no commit names; no task may be running."""
    for root in roots:
        open_files(root).delete_tree("_staging")


def publications(
    unit: str, files: Iterable[WrittenFile], handed_over: Container[str] = ()
) -> tuple[Publication, ...]:
    """Return what a unit has to publish: one entry for all sinks with directories, one for each query handed over."""
    moves: dict[str, list[Move]] = {}
    for file in files:
        if file.move is not None:
            moves.setdefault(file.query if file.query in handed_over else "", []).append(file.move)
    return tuple(Publication(unit, tuple(some), query) for query, some in moves.items())


def kept_files(files: Iterable[WrittenFile]) -> dict[str, tuple[StoredFile, ...]]:
    """Return the files that the state keeps, by query; pairs of a group have no query."""
    kept: dict[str, tuple[StoredFile, ...]] = {}
    for file in files:
        if file.kept is not None:
            kept[file.query] = (*kept.get(file.query, ()), file.kept)
    return kept
