"""The ledger as a snapshot of the journal, and back.

In:  a ledger.  Out: JSON; and an equal ledger again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import RunError
from penstock.state.codec import FORMAT, from_json, refuse_other_format, to_json
from penstock.state.ledger import Ledger


def dump(ledger: Ledger) -> dict[str, Any]:
    """Write the ledger as a snapshot."""
    return {"format": FORMAT, **to_json(ledger)}


def load(data: Any) -> Ledger:
    """Read the body of a snapshot."""
    refuse_other_format(data)
    try:
        return from_json(data, Ledger)
    except msgspec.ValidationError as error:
        raise RunError(f"a snapshot of the journal cannot be read: {error}") from error
