"""Where a batch came from: a batch is recognised by what is in it, not by its number alone.

Spark numbers the batches of a stream, and a batch that the journal has must not be added again.  But a checkpoint that
has lost its last entry plans that number anew, with other rows: passed over by its number, they would be lost.  So a
``batch`` commit keeps the batch's *origin*: the offsets that Spark wrote before it read them, and for a source of files
which files those were.  The ledger has the last origin of each stream.  A batch whose number is taken is passed over
only if its origin is that one, and a new batch must follow on it.

In:  a stream's checkpoint (`penstock.state.checkpoint`).  Out: origins, as JSON of a few flat fields.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.state.checkpoint import NO_OFFSET, Offsets, log_offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.state.checkpoint import Checkpoint, FileEntry, SourceLog

Json = dict[str, Any]


def origin_of(checkpoint: Checkpoint, batch: int, previous: Json | None) -> Json | None:
    """Read where a batch comes from; None if the checkpoint does not say.

    `previous` is the origin of the batch before, as the ledger has it.  Flat fields::

        batch, version, offsets   as in the offset log
        after                     by source of files: the last entry of its log before this batch
        entries                   by source of files, by entry: the files ``[url, changed]``; null if too many
        digests                   by source of files: of all these files
        seen                      by source of files: how many there are in its log up to here
        begun                     by other source: what it wrote at its beginning; null if too long
    """
    offsets = checkpoint.offsets(batch)
    previous = previous if previous is not None and previous["batch"] == batch - 1 else None
    starts = _starts(checkpoint, batch, previous)
    if offsets is None or starts is None:
        return None
    origin: Json = {"batch": batch, "version": offsets.version, "offsets": list(offsets.lines)}
    origin |= {"after": {}, "entries": {}, "digests": {}, "seen": {}, "begun": {}}
    for name, offset in offsets.by_source.items():
        last, log = log_offset(offset), checkpoint.source(name)
        if offset == NO_OFFSET:  # it has sent nothing yet
            continue
        if last is None:
            origin["begun"][name] = _beginning(log)
            continue
        after = _entry_number(starts.get(name, NO_OFFSET))
        files = log.entries(after, last)
        if None in files.values():
            return None
        origin["after"][name] = after
        count = sum(len(each) for each in files.values() if each is not None)
        origin["entries"][name] = files if count <= limits.MAX_ORIGIN_FILES else None
        origin["digests"][name] = digest(files)
        origin["seen"][name] = _seen(log, last, count, name, previous)
    return origin


def _starts(checkpoint: Checkpoint, batch: int, previous: Json | None) -> dict[str, str] | None:
    """Give the offsets that a batch begins at: those of the batch before; None if they are lost."""
    if batch == 0:
        return {}
    if previous is not None:
        return recorded(previous).by_source
    before = checkpoint.offsets(batch - 1)
    return None if before is None else before.by_source


def _entry_number(offset: str) -> int:
    number = log_offset(offset)
    return -1 if number is None else number


def _beginning(log: SourceLog) -> dict[str, str] | None:
    texts = log.texts()
    return texts if sum(map(len, texts.values())) <= limits.MAX_ORIGIN_CHARACTERS else None


def _seen(log: SourceLog, last: int, count: int, name: str, previous: Json | None) -> int | None:
    """Count the files of a source's log up to an entry; by reading all of it only where nobody has counted before."""
    if previous is not None and previous["seen"].get(name) is not None:  # that of the batch before
        return int(previous["seen"][name]) + count
    return log.count(last)


def digest(files: Mapping[str, list[FileEntry] | None]) -> str:
    """Sum up the files of a batch, whichever entries of its source's log they are in."""
    listed = sorted([path, changed] for entry in files.values() for path, changed in entry or ())
    return blake2b(json.dumps(listed).encode(), digest_size=16).hexdigest()


def recorded(origin: Json) -> Offsets:
    """Give the offsets of an origin."""
    return Offsets(origin["version"], "", tuple(origin["offsets"]))


def same_rows(one: Json, other: Json) -> bool:
    """Say whether two origins are of the same rows: equal offsets, and for sources of files the same files."""
    return same_offsets(recorded(one), recorded(other)) and one["digests"] == other["digests"]


def same_offsets(one: Offsets, other: Offsets) -> bool:
    """Compare offsets by what they say, not by how they are written."""
    first, second = ({name: _parsed(text) for name, text in each.by_source.items()} for each in (one, other))
    return first == second


def _parsed(offset: str) -> object:
    return None if offset == NO_OFFSET else json.loads(offset)


def file_sources(origin: Json) -> Iterator[tuple[str, int]]:
    """Give the sources of files of an origin, and the last entry of each."""
    for name, offset in recorded(origin).by_source.items():
        number = log_offset(offset)
        if number is not None:
            yield name, number


# --- whether a checkpoint agrees --------------------------------------------------------------------------------


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
