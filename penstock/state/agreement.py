"""Check that a stream's checkpoint agrees with the journal, before Spark reads anything and at every batch.

    journal      ... 5  6  7                     7 = its last batch, with its origin
    checkpoint   ... 5  6  7        fine         Spark goes on with 8, or hands 7 over once more
                 ... 5  6  7  8     fine         8 is planned; it follows on 7
                 ... 5  6           refused      7 is missing: a power cut took it, or an old copy was restored
                 ... 5  6  7' (8)   refused      7' is of other rows
                 ... 7  8  9        refused      8 is done, says Spark, and the journal does not have it

Whatever a killed process leaves is fine: Spark renames whole files, so it leaves the first or the second line.
`penstock repair` sets a checkpoint that is refused back to 7 (`penstock.engine.repair.checkpoint`).

In:  a checkpoint, the number of the journal's last batch, and its origin (`penstock.state.origin`).
Out: why the two do not agree; empty if they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.checkpoint import log_offset
from penstock.state.origin import digest, file_sources, recorded, same_offsets, same_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.state.checkpoint import Checkpoint, FileEntry, Offsets

Json = dict[str, Any]


def disagreement(checkpoint: Checkpoint, last: int, origin: Json | None) -> str:
    """Compare a checkpoint with the journal's last batch of its stream (-1: none), and with that batch's origin."""
    planned, done = checkpoint.last("offsets"), checkpoint.last("commits")
    if done > last or planned > last + 1:
        return f"it has batch {max(done, planned)}, and the journal ends {_ending(last)}: rows between would be lost"
    if last < 0:
        why = _first_gap(checkpoint, planned)
    elif origin is None:  # of an earlier version, which knew a batch by its number alone
        why = f"it ends with batch {planned}, and the journal with batch {last}" if planned < last else ""
    else:
        why = next(_differences(checkpoint, last, origin), "")
    if not why and not checkpoint.is_named():
        return "its metadata is missing"
    stray = checkpoint.stray_checksum() if not why else ""
    return f"it has {stray}, and not the file that this is the checksum of" if stray else why


def contradiction(checkpoint: Checkpoint, origin: Json, last: int, last_origin: Json | None) -> str:
    """Return why a batch that Spark hands over is neither the journal's last one nor the next; empty if it is.

    `last_origin` is that of the journal's last batch; states of earlier versions have none: there its number has to do.
    """
    batch = origin["batch"]
    if batch not in {last, last + 1}:
        return f"Spark hands over batch {batch}, and the journal ends {_ending(last)}"
    if last_origin is None:
        return ""
    if batch == last:
        shown = f"{_shown(recorded(origin))}, and the journal's was {_shown(recorded(last_origin))}"
        other = f"Spark hands over batch {batch} with other rows: {shown}"
        return "" if same_rows(origin, last_origin) else other
    before = checkpoint.offsets(last)
    if before is not None and not same_offsets(before, recorded(last_origin)):
        shown = f"{_shown(before)}, and the journal's ended at {_shown(recorded(last_origin))}"
        return f"Spark's batch {last}, on which this one follows, ended at {shown}"
    return ""


def _ending(last: int) -> str:
    return "before the first" if last < 0 else f"with batch {last}"


def _first_gap(checkpoint: Checkpoint, planned: int) -> str:
    """Return what is missing for the first batch, which Spark may have planned."""
    whole = planned < 0 or _is_whole(checkpoint, planned)
    empty = any(checkpoint.source(name).empty() for name in checkpoint.sources())
    return "" if whole and not empty else "what is planned for its first batch is not whole"


def _differences(checkpoint: Checkpoint, last: int, origin: Json) -> Iterator[str]:
    """List where a checkpoint that does not reach too far differs from the last origin, or lacks what Spark needs."""
    planned, done, offsets = checkpoint.last("offsets"), checkpoint.last("commits"), checkpoint.offsets(last)
    if offsets is not None and not same_offsets(offsets, recorded(origin)):
        yield f"its batch {last} ends at {_shown(offsets)}, and the journal's at {_shown(recorded(origin))}"
    if planned < last:
        yield f"it ends before batch {last}, which the journal has"
    if offsets is None:
        yield f"its batch {last} is not whole"
    if planned == last and last and checkpoint.offsets(last - 1) is None:
        yield f"its batch {last - 1} is not whole"
    if planned > last and not _is_whole(checkpoint, planned):
        yield f"what is planned for batch {planned} is not whole"
    if done >= 0 and not checkpoint.is_done(done):
        yield f"the end of its batch {done} is not whole"
    for name, number in file_sources(origin):
        yield from _file_differences(checkpoint, origin, name, number)
    for name, texts in origin["begun"].items():
        there = checkpoint.source(name).texts()
        if texts is not None and any(there.get(each) != text for each, text in texts.items()):
            yield f"the beginning of its source {name} is missing"


def _file_differences(checkpoint: Checkpoint, origin: Json, name: str, last: int) -> Iterator[str]:
    """List where the log of a source of files differs from an origin, which ends with the entry `last`."""
    log = checkpoint.source(name)
    entries = log.entries(origin["after"][name], last)
    if None not in entries.values() and digest(entries) != origin["digests"][name]:
        known = {path for files in (origin["entries"][name] or {}).values() for path, _ in files}
        found: list[FileEntry] = [file for files in entries.values() for file in files or ()]
        other = next((path for path, _ in found if path not in known), "changed since they were read")
        yield f"its batch {origin['batch']} is of other files: {other}"
    if None in entries.values() or log.torn_after(last) or log.count(last) != origin["seen"][name]:
        yield f"the list of files that its source {name} has read is not whole"


def _is_whole(checkpoint: Checkpoint, batch: int) -> bool:
    """Return whether Spark can go on from what it has planned for a batch that the journal does not have."""
    offsets = checkpoint.offsets(batch)
    if offsets is None:
        return False
    numbers = {name: log_offset(each) for name, each in offsets.by_source.items()}
    return not any(
        checkpoint.source(name).entry(number) is None
        for name, number in numbers.items()
        if number is not None and number >= 0
    )


def _shown(offsets: Offsets) -> str:
    text = ", ".join(offsets.lines)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


_SHOWN_CHARACTERS = 200
