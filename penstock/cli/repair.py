"""Mend a state from the command line: say what is wrong and what would be done; do it if that is wanted.

In:  the url of a state, and whether to do it.  Out: lines for the terminal, or the `RunError` if it cannot be done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.repair.state import examine
from penstock.errors import RunError
from penstock.state.files import open_files

if TYPE_CHECKING:
    from collections.abc import Iterator


def repair_state(url: str, *, yes: bool) -> Iterator[str]:
    """Look at a state, and mend it if `yes`; it is owned meanwhile."""
    if not open_files(url).exists("journal"):
        examine(url)  # refuses it, without making anything
    with open_files(url, private=True).lock("lock"):
        repair = examine(url)
        if not repair.wrong:
            yield f"nothing is wrong with {url}: {repair.survey.end:,} commits, {len(repair.ledger.files()):,} files"
            return
        yield from (f"wrong: {each}" for each in repair.wrong)
        if repair.goal is None:
            raise RunError(
                f"state {url} cannot be repaired, and was not changed: one cannot go back ({repair.why}). Restore what "
                "is damaged from a copy, or begin anew with another state and other output paths"
            )
        steps = list(repair.steps())
        if not yes:
            yield from (f"would {each}" for each in steps)
            yield f"nothing was changed: `penstock repair --state {url} --yes` does it"
            return
        repair.carry_out()
        yield from (f"done: {each}" for each in steps)
        yield "the next run goes on from there"
