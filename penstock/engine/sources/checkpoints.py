"""Compare Spark's checkpoints with the journal, at a start and at every batch.  They are read, never written.

In:  the state, and a stream's name.  Out: nothing, or a `RunError` that names the stream, the difference and the fixes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import RunError
from penstock.state.checkpoint import Checkpoint
from penstock.state.files import folder_of
from penstock.state.origin import contradiction, disagreement, origin_of

if TYPE_CHECKING:
    from penstock.engine.store import Store
    from penstock.state.files import Files


def checkpoint_of(files: Files, stream: str) -> Checkpoint:
    """Return the checkpoint of a stream."""
    return Checkpoint(files, folder_of("checkpoint", stream))


def check_checkpoint(store: Store, stream: str) -> None:
    """Refuse a checkpoint that does not agree with the journal."""
    checkpoint, ledger = checkpoint_of(store.files, stream), store.ledger
    if why := disagreement(checkpoint, ledger.stream(stream).source_batch, ledger.origins.get(stream)):
        raise _refusal(stream, checkpoint, why)


def checked_origin(store: Store, stream: str, batch: int) -> dict[str, Any]:
    """Read the origin of a batch; refuse a batch that is neither the journal's last nor the next one."""
    checkpoint, ledger = checkpoint_of(store.files, stream), store.ledger
    last = ledger.origins.get(stream)
    origin = origin_of(checkpoint, batch, last)
    if origin is None:
        raise _refusal(stream, checkpoint, f"it does not say where batch {batch} comes from")
    if why := contradiction(checkpoint, origin, ledger.stream(stream).source_batch, last):
        raise _refusal(stream, checkpoint, why)
    return origin


def _refusal(stream: str, checkpoint: Checkpoint, why: str) -> RunError:
    """Return the error for a checkpoint that does not agree with the journal."""
    return RunError(
        f"stream {stream}: Spark's checkpoint {checkpoint.path} does not agree with the journal: {why}. Restore both "
        f"from one copy, run `penstock repair --state {checkpoint.files.root}`, or begin anew with another state and "
        "other output paths"
    )
