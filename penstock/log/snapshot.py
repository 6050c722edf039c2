"""The ledger as a snapshot of the journal, and back.

In:  a ledger.  Out: JSON; and an equal ledger again, also of a snapshot that an earlier version wrote.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from penstock.errors import RunError
from penstock.log.codec import FORMAT, from_json, to_json
from penstock.log.ledger import Ledger, last_written
from penstock.log.old_formats import upgraded_snapshot


def dump(ledger: Ledger) -> dict[str, Any]:
    """Write the ledger as a snapshot."""
    return {"format": FORMAT, **to_json(ledger)}


def load(data: Any) -> Ledger:
    """Read the body of a snapshot."""
    form = data.get("format", 1)
    if form > FORMAT:
        raise RunError(
            f"the journal has a snapshot of format {form}, and this Penstock reads {FORMAT}: run a newer one"
        )
    current = dict(data if form == FORMAT else upgraded_snapshot(data, form))
    writes = current.pop("writes")
    try:
        ledger = from_json(current, Ledger)
    except msgspec.ValidationError as error:
        raise RunError(f"a snapshot of the journal cannot be read: {error}") from error
    return replace(ledger, writes=last_written(writes, ledger.tables))
