"""The origin of a batch: the position in the source that it was read from, and whether a checkpoint agrees with it.

Spark numbers the batches of a stream.  A number alone does not identify a batch: a checkpoint that has lost its last
entry plans the same number again with other rows.  So a ``batch`` commit records the origin of its batch: the offsets
that Spark wrote before the read, and the files found by file sources.  The ledger keeps the last origin of each stream.

The checkpoint is compared with the journal at each start, and every batch is compared before it is ingested::

    journal      ... 5  6  7                     7 = its last batch, with its origin
    checkpoint   ... 5  6  7        fine         Spark plans 8 next, or repeats 7
                 ... 5  6  7  8     fine         8 is planned and follows 7
                 ... 5  6           refused      7 is missing: after a power cut, or an old copy was restored
                 ... 5  6  7' (8)   refused      7' has other rows
                 ... 7  8  9        refused      Spark has marked 8 as done, and the journal does not have it

A killed process always leaves one of the first two lines, because Spark renames complete files.
`penstock repair` sets a checkpoint that is refused back to 7 (`penstock.engine.repair.checkpoint`).

In:  a stream's checkpoint (`penstock.state.checkpoint`).
Out: origins, as JSON of a few flat fields; and the reason why a checkpoint disagrees, empty if it agrees.
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

_SHOWN_CHARACTERS = 200


def origin_of(checkpoint: Checkpoint, batch: int, previous: Json | None) -> Json | None:
    """Read the origin of a batch; None if the checkpoint is incomplete.

    `previous` is the last origin in the ledger.  The fields::

        batch, version, offsets   as in the offset log
        after                     by file source: the last log entry before this batch
        entries                   by file source, by entry: the files ``[url, modified]``; null if too many
        digests                   by file source: a digest of these files
        seen                      by file source: the number of files in its log so far
        begun                     by other source: its start position; null if too long
    """
    offsets = checkpoint.offsets(batch)
    previous = previous if previous is not None and previous["batch"] == batch - 1 else None
    starts = _start_offsets(checkpoint, batch, previous)
    if offsets is None or starts is None:
        return None
    origin: Json = {"batch": batch, "version": offsets.version, "offsets": list(offsets.lines)}
    origin |= {"after": {}, "entries": {}, "digests": {}, "seen": {}, "begun": {}}
    for name, offset in offsets.by_source.items():
        last, log = log_offset(offset), checkpoint.source(name)
        if offset == NO_OFFSET:  # the source has sent nothing yet
            continue
        if last is None:
            texts = log.texts()
            is_short = sum(map(len, texts.values())) <= limits.MAX_ORIGIN_CHARACTERS
            origin["begun"][name] = texts if is_short else None
            continue
        start = log_offset(starts.get(name, NO_OFFSET))
        after = -1 if start is None else start
        files = log.entries(after, last)
        if None in files.values():
            return None
        origin["after"][name] = after
        count = sum(len(entry) for entry in files.values() if entry is not None)
        origin["entries"][name] = files if count <= limits.MAX_ORIGIN_FILES else None
        origin["digests"][name] = digest(files)
        origin["seen"][name] = _count_seen(log, last, count, name, previous)
    return origin


def _start_offsets(checkpoint: Checkpoint, batch: int, previous: Json | None) -> dict[str, str] | None:
    """Return the offsets at which a batch begins; None if those of the batch before are lost."""
    if batch == 0:
        return {}
    if previous is not None:
        return recorded(previous).by_source
    before = checkpoint.offsets(batch - 1)
    return None if before is None else before.by_source


def _count_seen(log: SourceLog, last: int, count: int, name: str, previous: Json | None) -> int | None:
    """Count the files of a source's log up to an entry, without reading all of it if the last origin has a count."""
    if previous is not None and previous["seen"].get(name) is not None:
        return int(previous["seen"][name]) + count
    return log.count(last)


def digest(files: Mapping[str, list[FileEntry] | None]) -> str:
    """Return a digest of the files of a batch, independent of the log entries they are in."""
    listed = sorted([path, modified] for entry in files.values() for path, modified in entry or ())
    return blake2b(json.dumps(listed).encode(), digest_size=16).hexdigest()


def recorded(origin: Json) -> Offsets:
    """Return the offsets of an origin."""
    return Offsets(origin["version"], "", tuple(origin["offsets"]))


def same_offsets(one: Offsets, other: Offsets) -> bool:
    """Compare offsets by value, not by text."""
    first, second = ({name: _parsed(text) for name, text in both.by_source.items()} for both in (one, other))
    return first == second


def _parsed(offset: str) -> object:
    return None if offset == NO_OFFSET else json.loads(offset)


def file_sources(origin: Json) -> Iterator[tuple[str, int]]:
    """Yield the file sources of an origin, each with the number of its last log entry."""
    for name, offset in recorded(origin).by_source.items():
        number = log_offset(offset)
        if number is not None:
            yield name, number


# --- whether a checkpoint agrees --------------------------------------------------------------------------------


def disagreement(checkpoint: Checkpoint, last: int, origin: Json | None) -> str:
    """Compare a checkpoint with the journal's last batch of its stream (-1: none) and with the origin of that batch."""
    planned, done = checkpoint.last("offsets"), checkpoint.last("commits")
    if done > last or planned > last + 1:
        return f"it has batch {max(done, planned)}, and the journal ends {_ending(last)}: rows between would be lost"
    why = next(_differences(checkpoint, last, origin), "") if origin else _first_gap(checkpoint, planned)
    if not why and not checkpoint.is_named():
        return "its metadata is missing"
    stray = checkpoint.stray_checksum() if not why else ""
    return f"it has the checksum {stray} without the file" if stray else why


def contradiction(checkpoint: Checkpoint, origin: Json, last: int, last_origin: Json | None) -> str:
    """Return why a batch from Spark is neither the journal's last one nor the next; empty if it is one of them."""
    batch = origin["batch"]
    if batch not in {last, last + 1}:
        return f"Spark sends batch {batch}, and the journal ends {_ending(last)}"
    if last_origin is None:
        return ""
    if batch == last:
        shown = f"{_shown(recorded(origin))}, and the journal's was {_shown(recorded(last_origin))}"
        same = same_offsets(recorded(origin), recorded(last_origin))
        is_repeated = same and origin["digests"] == last_origin["digests"]
        return "" if is_repeated else f"Spark sends batch {batch} with other rows: {shown}"
    before = checkpoint.offsets(last)
    if before is not None and not same_offsets(before, recorded(last_origin)):
        shown = f"{_shown(before)}, and the journal's ended at {_shown(recorded(last_origin))}"
        return f"Spark's batch {last}, before this one, ended at {shown}"
    return ""


def _ending(last: int) -> str:
    return "before the first" if last < 0 else f"with batch {last}"


def _first_gap(checkpoint: Checkpoint, planned: int) -> str:
    """Return why the plan of the first batch is incomplete; empty if there is no plan or it is complete."""
    whole = planned < 0 or _is_whole(checkpoint, planned)
    empty = any(checkpoint.source(name).empty() for name in checkpoint.sources())
    return "" if whole and not empty else "the plan of its first batch is incomplete"


def _differences(checkpoint: Checkpoint, last: int, origin: Json) -> Iterator[str]:
    """List where a checkpoint differs from the last origin, and what Spark would miss to go on from it."""
    planned, done, offsets = checkpoint.last("offsets"), checkpoint.last("commits"), checkpoint.offsets(last)
    if offsets is not None and not same_offsets(offsets, recorded(origin)):
        yield f"its batch {last} ends at {_shown(offsets)}, and the journal's at {_shown(recorded(origin))}"
    if planned < last:
        yield f"it ends before batch {last}, which the journal has"
    if offsets is None:
        yield f"its batch {last} is incomplete"
    if planned == last and last and checkpoint.offsets(last - 1) is None:
        yield f"its batch {last - 1} is incomplete"
    if planned > last and not _is_whole(checkpoint, planned):
        yield f"the plan of batch {planned} is incomplete"
    if done >= 0 and not checkpoint.is_done(done):
        yield f"the end of its batch {done} is incomplete"
    for name, number in file_sources(origin):
        yield from _file_differences(checkpoint, origin, name, number)
    for name, texts in origin["begun"].items():
        there = checkpoint.source(name).texts()
        if texts is not None and any(there.get(entry) != text for entry, text in texts.items()):
            yield f"the start position of its source {name} is missing"


def _file_differences(checkpoint: Checkpoint, origin: Json, name: str, last: int) -> Iterator[str]:
    """List where the log of a file source differs from an origin that ends with entry `last`."""
    log = checkpoint.source(name)
    entries = log.entries(origin["after"][name], last)
    if None not in entries.values() and digest(entries) != origin["digests"][name]:
        known = {path for files in (origin["entries"][name] or {}).values() for path, _ in files}
        found: list[FileEntry] = [file for files in entries.values() for file in files or ()]
        other = next((path for path, _ in found if path not in known), "modified since they were read")
        yield f"its batch {origin['batch']} is of other files: {other}"
    if None in entries.values() or log.torn_after(last) or log.count(last) != origin["seen"][name]:
        yield f"the list of files that its source {name} has read is incomplete"


def _is_whole(checkpoint: Checkpoint, batch: int) -> bool:
    """Return whether Spark can run a batch as planned, one that the journal does not have."""
    offsets = checkpoint.offsets(batch)
    if offsets is None:
        return False
    numbers = {name: log_offset(offset) for name, offset in offsets.by_source.items()}
    return not any(
        checkpoint.source(name).entry(number) is None
        for name, number in numbers.items()
        if number is not None and number >= 0
    )


def _shown(offsets: Offsets) -> str:
    text = ", ".join(offsets.lines)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
