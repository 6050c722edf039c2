"""Spark's checkpoints, held against the journal: at a start, and at every batch.

In:  the state, and a stream's name.  Out: nothing, or the `RunError` that names the stream, what the checkpoint says,
what the journal says, and the ways out.  A checkpoint that has lost no more than the journal knows is mended.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock.errors import RunError
from penstock.log.agreement import FINE, contradiction, judge, set_back
from penstock.log.checkpoint import Checkpoint
from penstock.log.folder_names import folder_of
from penstock.log.origin import origin_of

if TYPE_CHECKING:
    from penstock.engine.store import Store
    from penstock.log.agreement import Verdict
    from penstock.log.files import Files

_log = logging.getLogger(__name__)


def checkpoint_of(files: Files, stream: str) -> Checkpoint:
    """Give the checkpoint of a stream."""
    return Checkpoint(files, folder_of(files, "checkpoint", stream))


def check_checkpoint(store: Store, stream: str) -> Verdict:
    """Say whether a stream's checkpoint agrees with the journal, or can be mended; refuse it otherwise."""
    checkpoint, ledger = checkpoint_of(store.files, stream), store.ledger
    verdict = judge(checkpoint, ledger.stream(stream).source_batch, ledger.origins.get(stream))
    if verdict != FINE and not verdict.mendable:
        raise _disagreement(stream, checkpoint, verdict.why)
    return verdict


def mend_checkpoint(store: Store, stream: str) -> None:
    """Write again what Spark's checkpoint has lost of the journal's last batch."""
    verdict, ledger = check_checkpoint(store, stream), store.ledger
    checkpoint = checkpoint_of(store.files, stream)
    checkpoint.remove_checksums()
    checkpoint.remove_empty_logs()
    if verdict.mendable:
        last, origin = ledger.stream(stream).source_batch, ledger.origins.get(stream)
        set_back(checkpoint, last, origin)
        _log.warning(
            "stream %s: Spark's checkpoint was mended by what the journal knows: %s", stream, verdict.why
        )


def hand_over_again(store: Store, stream: str) -> None:
    """Let Spark hand over the journal's last batch once more, as after a crash, if it has planned no other since.

    It is passed over.  But a stream can only rest in a batch (`penstock.engine.ingest.resting`).
    """
    checkpoint, last = checkpoint_of(store.files, stream), store.ledger.stream(stream).source_batch
    is_last = last >= 0 and checkpoint.last("offsets") == checkpoint.last("commits") == last
    if is_last and (last == 0 or checkpoint.offsets(last - 1) is not None):
        checkpoint.remove(f"commits/{last}")
        checkpoint.remove_empty_logs()


def checked_origin(store: Store, stream: str, batch: int) -> dict[str, Any]:
    """Read where a batch comes from; refuse one that is not the journal's last and does not follow on it either."""
    checkpoint, ledger = checkpoint_of(store.files, stream), store.ledger
    last = ledger.origins.get(stream)
    origin = origin_of(checkpoint, batch, last)
    if origin is None:
        raise _disagreement(stream, checkpoint, f"it does not say where batch {batch} comes from")
    if why := contradiction(checkpoint, origin, ledger.stream(stream).source_batch, last):
        raise _disagreement(stream, checkpoint, why)
    return origin


def _disagreement(stream: str, checkpoint: Checkpoint, why: str) -> RunError:
    """Say how a checkpoint does not agree with the journal, and the ways out."""
    return RunError(
        f"stream {stream}: Spark's checkpoint {checkpoint.path} does not agree with the journal: {why}. Restore both "
        f"from one copy, run `penstock repair --state {checkpoint.files.root}`, or begin anew with another state and "
        "other output paths"
    )
