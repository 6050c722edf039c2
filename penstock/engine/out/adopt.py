"""Files of results that an earlier version left in directories: found once, and named by a commit from then on.

Before, readers read whatever was in ``table/<group>/<version>`` and ``ordered/<query>/<version>``.  Such files stay
where they are, under their names, until they are merged into others.

In:  a state.  Out: the ``adopt`` commit, and a ledger in which all files are named.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from penstock.engine.out.sinks import publish_files
from penstock.engine.store import OF_BEFORE
from penstock.log.commits import Adopted
from penstock.log.folder_names import folder_of
from penstock.log.ledger import fold
from penstock.log.output_file import shape_of
from penstock.log.tables import StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.store import Store
    from penstock.log.files import Files
    from penstock.log.ledger import Ledger


def adopt(store: Store) -> None:
    """Name the files of an earlier version, if that has not been done, and remove what it left besides them."""
    ledger, files = store.ledger, store.files
    if ledger.plan and not ledger.adopted:
        for publication in ledger.pending:  # committed, and to be found where it belongs
            if not publication.query:
                publish_files(publication, files)
        store.commit(_adoption(files, ledger))
    if ledger.plan:
        _remove_strays(store)


def with_all_named(files: Files, ledger: Ledger) -> Ledger:
    """Give a ledger that names the files of an earlier version too, for a reader who may not commit."""
    return ledger if ledger.adopted or not ledger.plan else fold(ledger, _adoption(files, ledger))


def _adoption(files: Files, ledger: Ledger) -> Adopted:
    """Say which files there are."""
    stored = {
        group: {
            table.id: tuple(_described(files, name) for name in _parquet(files, f"table/{group}/{table.id}"))
            for table in tables
            if table.files is None
        }
        for group, tables in ledger.tables.items()
    }
    kept = {query: tuple(_released(files, query, state.born)) for query, state in ledger.queries.items()}
    return Adopted(stored, {query: files for query, files in kept.items() if files})


def _released(files: Files, query: str, born: int) -> Iterator[StoredFile]:
    """List the results of a query that an earlier version kept in order, in their order."""
    folder = folder_of(files, "ordered", query)
    eras = sorted(
        (int(each[1:]), each) for each in files.list(folder) if each[:1] == "v" and each[1:].isdigit()
    )
    for era, directory in eras:
        for name in _parquet(files, f"{folder}/{directory}") if era >= born else ():
            yield replace(_described(files, name), shape=shape_of(pq.read_schema(files.memory_map(name))))


def _described(files: Files, name: str) -> StoredFile:
    """Describe a file as a commit does."""
    return StoredFile(name, files.size(name))


def _parquet(files: Files, folder: str) -> list[str]:
    """List the files of results in a directory."""
    return [f"{folder}/{each}" for each in files.list(folder) if each.endswith(".parquet")]


def _remove_strays(store: Store) -> None:
    """Remove what is left in the directories of an earlier version and no commit names any more."""
    files, named = store.files, store.ledger.files()
    for kind in OF_BEFORE:
        for owner in files.list(kind):
            for directory in files.list(f"{kind}/{owner}"):
                folder = f"{kind}/{owner}/{directory}"
                strays = [each for each in files.list(folder) if f"{folder}/{each}" not in named]
                for each in (name for name in strays if name == "_staging" or name.endswith(".parquet")):
                    files.delete_tree(f"{folder}/{each}") if each == "_staging" else files.delete(
                        f"{folder}/{each}"
                    )
