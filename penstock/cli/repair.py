"""`penstock repair`: list the damage of a state and the steps to repair it, and carry them out on request.

In:  the url of a state.  Out: lines for the terminal, or a `RunError` if the state cannot be repaired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.repair.state import examine
from penstock.errors import RunError
from penstock.state.files import open_files

if TYPE_CHECKING:
    from collections.abc import Iterator


def repair_state(url: str, *, yes: bool) -> Iterator[str]:
    """Examine a state under its lock, and repair it if `yes`."""
    if not open_files(url).exists("journal"):
        examine(url)  # refuses it without creating anything
    with open_files(url, private=True).lock("lock"):
        repair = examine(url)
        if not repair.wrong:
            yield f"nothing is wrong with {url}: {repair.survey.end:,} commits, {len(repair.ledger.files()):,} files"
            return
        yield from (f"wrong: {fault}" for fault in repair.wrong)
        if repair.goal is None:
            raise RunError(
                f"state {url} cannot be repaired, and was not changed: it cannot go back ({repair.why}). Restore the "
                "damaged files from a copy, or start with another state and other output paths"
            )
        steps = list(repair.steps())
        if not yes:
            yield from (f"would {step}" for step in steps)
            yield f"nothing was changed: run penstock repair --state {url} --yes"
            return
        repair.carry_out()
        yield from (f"done: {step}" for step in steps)
        yield "the next run continues from there"
