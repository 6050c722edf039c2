"""Say what a damaged file of the state held, in the user's words.

In:  a message that names a file, and the plan.  Out: the message, with the stream or query that the file belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.state.hold import hold_folder
from penstock.state.row_times import roll_folder

if TYPE_CHECKING:
    from penstock.plan.build import Plan


def with_owner(message: str, plan: Plan | None) -> str:
    """Add whose file it is that a message names; a message about something else stays as it is."""
    if plan is None:
        return message
    owners = {f"/log/{log.id}/": f"rows of stream {log.stream}" for log in plan.logs}
    owners |= {f"/log/{roll_folder(name)}/": f"event times of stream {name}" for name in plan.counted}
    owners |= {f"/{hold_folder(each.name)}/": f"held results of query {each.name}" for each in plan.queries}
    owner = next((what for folder, what in owners.items() if folder in message), "")
    return f"{message} (it holds {owner})" if owner else message
