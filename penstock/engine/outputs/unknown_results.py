"""Find files of results that the journal does not know.  The name of a file tells which unit or release wrote it.

    part-<group>-<version>-<unit>-<task>.parquet       a unit of a group, under a version of the plan
    part-<group>-<version>-<unit>-<task>-<n>.parquet   the same, for results that several queries get
    part-<group>-<version>-past-<task>.parquet         a backfill for the queries that came with a version
    released-<n>.parquet                               release number n
    answered-<n>-<task>.parquet                        answers number n of aggregate queries
    _punctuations/told-<n>.parquet                     propagation number n of finished values

A file is moved into place after the commit that names it.  So a file of an unknown unit shows that the journal has lost
its end, or was restored from a copy.  The next unit with that number would deliver some results twice.

In:  the ledger, and directories of results.  Out: the files that the journal does not know.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.engine.sinks.parquet import PUNCTUATIONS
from penstock.errors import RunError
from penstock.state.files import open_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.state.files import Files
    from penstock.state.ledger import Ledger

_PART = re.compile(r"part-([0-9a-f]{8})-(\d{6,})-(\d{8,}|past)-\d{4,}(?:-\d{2,})?\.parquet")
_NUMBERED = re.compile(r"(released|answered|told)-(\d{12,})(?:-\d{4,})?\.parquet")


def is_unknown(name: str, ledger: Ledger) -> bool:
    """Return whether a file of results is of a unit or release that the ledger does not have yet."""
    base = name.rpartition("/")[2]
    if numbered := _NUMBERED.fullmatch(base):
        come_to = {"released": ledger.releases, "answered": ledger.answers, "told": ledger.propagations}
        return int(numbered[2]) >= come_to[numbered[1]]
    part = _PART.fullmatch(base)
    if part is None:
        return False
    version = int(part[2])
    if version != ledger.version:
        return version > ledger.version
    if part[3] == "past":
        return any(state.backfill is not None for state in ledger.queries.values())
    units = (state.units for group, state in ledger.groups.items() if group.endswith(part[1]))
    return int(part[3]) >= next(units, 0)


def unknown_results(roots: Iterable[str], ledger: Ledger) -> Iterator[tuple[Files, str]]:
    """Yield the files of results in the directories of sinks that a ledger does not know."""
    for root in sorted(set(roots)):
        files = open_files(root)
        names = [*files.list(""), *(f"{PUNCTUATIONS}/{name}" for name in files.list(PUNCTUATIONS))]
        yield from ((files, name) for name in names if is_unknown(name, ledger))


def refuse_unknown_results(roots: Iterable[str], state: Files, ledger: Ledger) -> None:
    """Refuse to go on where there are results that the journal knows nothing of."""
    for files, name in unknown_results(roots, ledger):
        raise RunError(
            f"{files.path(name)} is of a unit that the journal does not have: it has lost its end, or an earlier copy "
            f"of it was put in its place. Restore it from a copy, or run `penstock repair --state {state.root}`"
        )
