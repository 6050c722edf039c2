"""Set Spark's checkpoint of a stream back to a batch that the journal has.  Only `penstock repair` does this.

    journal      ... 5  6  7                     7 = its last batch, with its origin
    checkpoint   ... 5                           6 and 7 are written again, as far as the origin of 7 says them
                 ... 5  6  7  8  9               8 and 9 are removed: Spark plans them anew

Some parts cannot be written again: the list of files that were read before 7, state of Spark's own, and the files of
an origin that had too many to name.  `obstacle` checks this before anything is changed.

In:  a checkpoint, a batch and its origin (`penstock.state.origin`).  Out: the files as Spark writes them.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.state.checkpoint import log_offset
from penstock.state.origin import digest, file_sources, recorded, same_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.state.checkpoint import Checkpoint, FileEntry, SourceLog

Json = dict[str, Any]

SESSION_LINE = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
"""The line of a checkpoint about the session, if none is left.  It only concerns state of Spark's own."""


# --- whether it can be set back ---------------------------------------------------------------------------------


def obstacle(checkpoint: Checkpoint, last: int, origin: Json | None, now: Json | None) -> str:
    """Return why a checkpoint cannot be set back to a batch of the journal; empty if it can.

    `now` is the origin of the last batch in the journal: up to that batch, lists of files must be complete.
    """
    if checkpoint.has_state():
        return "Spark keeps state of its own for this stream"
    entries = _last_entries(checkpoint, origin)
    for name, number in file_sources(now) if now is not None else ():
        if any(entry <= number for entry in checkpoint.source(name).torn_after(entries.get(name, -1))):
            return f"the list of files that its source {name} would have to read again is not whole"
    if last < 0:
        return ""
    if origin is None:
        return f"batch {last} is of an earlier version, which did not note where it came from"
    return next(_losses(checkpoint, origin), "") or next(_repeats(checkpoint, origin), "")


def _losses(checkpoint: Checkpoint, origin: Json) -> Iterator[str]:
    """List the parts that a checkpoint lacks and an origin cannot restore."""
    for name, number in file_sources(origin):
        log, own, seen = checkpoint.source(name), origin["entries"][name], origin["seen"][name]
        if own is None and (log.count(number) != seen or not _same_files(log, origin, name)):
            yield f"batch {origin['batch']} had more than {limits.MAX_ORIGIN_FILES} files"
        elif own is not None:
            before = log.count(origin["after"][name])
            if seen is None or before != seen - sum(map(len, own.values())):
                yield f"the list of files that its source {name} had read before batch {origin['batch']} is not whole"
    for name, texts in origin["begun"].items():
        if texts is None and not checkpoint.source(name).texts():
            yield f"the beginning of its source {name} is gone"


def _same_files(log: SourceLog, origin: Json, name: str) -> bool:
    """Check whether a source's log names the files of an origin for its batch."""
    entries = log.entries(origin["after"][name], dict(file_sources(origin))[name])
    return None not in entries.values() and digest(entries) == str(origin["digests"][name])


def _repeats(checkpoint: Checkpoint, origin: Json) -> Iterator[str]:
    """List the files of an origin that a source has found again since, and would read a second time."""
    for name, number in file_sources(origin):
        log = checkpoint.source(name)
        own = {path for files in (origin["entries"][name] or {}).values() for path, _ in files}
        later = [log.entry(entry) or [] for entry in range(number + 1, log.last() + 1)]
        again = sorted(own & {path for files in later for path, _ in files})
        if again:
            yield f"its source {name} has found {again[0]} a second time"
        together = any(entry > number and file.endswith(".compact") for entry, file in log.names().items())
        if together and not _same_files(log, origin, name):
            yield f"other files were put together with those of its source {name} since"


def read_again(checkpoint: Checkpoint, origin: Json | None) -> Iterator[str]:
    """List the files that sources have found since a batch: after a reset to it, Spark reads them again."""
    numbers = dict(file_sources(origin)) if origin is not None else {}
    for name in checkpoint.sources():
        log = checkpoint.source(name)
        first = numbers.get(name, -1) + 1 if name in numbers or origin is None else log.last() + 1
        for number in range(first, log.last() + 1):
            yield from (path for path, _ in log.entry(number) or ())


# --- setting it back --------------------------------------------------------------------------------------------


def set_back(checkpoint: Checkpoint, last: int, origin: Json | None) -> None:
    """Make a checkpoint end with a batch of the journal: Spark continues with the next one.

    Lists of files that sources have found since then stay: Spark reads them as one batch.
    """
    _remove_checksums(checkpoint)
    session, numbers = _session(checkpoint), _last_entries(checkpoint, origin)
    if origin is not None or last < 0:
        _remove_after(checkpoint, last)
    for name in checkpoint.sources():
        log = checkpoint.source(name)
        if name in numbers:
            _cut_after(log, numbers[name])
        for entry in log.empty():
            log.files.delete(f"{log.folder}/{entry}")
    if origin is not None:
        _write(checkpoint, last, origin, session)
    if not checkpoint.is_named():
        _put(checkpoint, "metadata", json.dumps({"id": str(uuid.uuid4())}, separators=(",", ":")))


def _remove_checksums(checkpoint: Checkpoint) -> None:
    """Remove Hadoop's checksum files: one without its file prevents a new file of that name."""
    for name in checkpoint.files.find(checkpoint.folder):
        if name.endswith(".crc"):
            checkpoint.files.delete(name)


def _remove_after(checkpoint: Checkpoint, number: int) -> None:
    """Remove the entries after a batch, the last first, and logs that are empty then."""
    for kind in ("commits", "offsets"):
        for later in range(checkpoint.last(kind), number, -1):
            checkpoint.files.delete(f"{checkpoint.folder}/{kind}/{later}")
        if checkpoint.last(kind) < 0:
            checkpoint.files.delete_tree(f"{checkpoint.folder}/{kind}")


def _cut_after(log: SourceLog, last: int) -> None:
    """Remove the first incomplete entry after `last`, and all that follow it: their files are found again."""
    names, torn = log.names(), log.torn_after(last)
    for number in sorted(names, reverse=True):
        if torn and number >= torn[0]:
            log.files.delete(f"{log.folder}/{names[number]}")


def _last_entries(checkpoint: Checkpoint, origin: Json | None) -> dict[str, int]:
    """Return for each source of files the last entry that an origin has, or -1."""
    planned = checkpoint.offsets(checkpoint.last("offsets"))
    offsets = planned.by_source.items() if planned is not None else ()
    sources = {name for name, offset in offsets if log_offset(offset) is not None}
    sources |= {name for name in checkpoint.sources() if _is_of_files(checkpoint.source(name))}
    return dict.fromkeys(sources, -1) | (dict(file_sources(origin)) if origin is not None else {})


def _is_of_files(log: SourceLog) -> bool:
    return any(log.lines(name) is not None for name in log.names().values())


def _session(checkpoint: Checkpoint) -> str:
    """Return the last complete line about the session."""
    last = checkpoint.last("offsets")
    entries = (
        checkpoint.offsets(number)
        for number in range(last, max(-1, last - limits.REPAIR_LOOK_BACK_BATCHES), -1)
    )
    return next((entry.session for entry in entries if entry is not None and entry.session), SESSION_LINE)


def _write(checkpoint: Checkpoint, last: int, origin: Json, session: str) -> None:
    """Write the parts of an origin that the checkpoint lacks: lists of files first, then the entries that use them."""
    for name, texts in origin["begun"].items():
        there = checkpoint.source(name).texts()
        for entry, text in (texts or {}).items():
            if there.get(entry) != text:
                _put(checkpoint, f"sources/{name}/{entry}", text)
    for name, _ in file_sources(origin):
        log = checkpoint.source(name)
        for entry, files in (origin["entries"][name] or {}).items():
            there_now = log.entry(int(entry.partition(".")[0]))
            if there_now is None or not _same(there_now, files):
                _put(checkpoint, f"sources/{name}/{entry}", _entry_text(log, entry, files))
    offsets, planned = recorded(origin), checkpoint.offsets(last)
    whole = "\n".join([offsets.version, session, *offsets.lines])
    if planned is None or not same_offsets(planned, offsets):
        _put(checkpoint, f"offsets/{last}", whole)
    if last and checkpoint.offsets(last - 1) is None:
        # Spark needs the entry before the last; with equal offsets there are no rows between the two
        _put(checkpoint, f"offsets/{last - 1}", whole)
    if not checkpoint.is_done(last):
        _put(checkpoint, f"commits/{last}", 'v1\n{"nextBatchWatermarkMs":0}')


def _put(checkpoint: Checkpoint, name: str, text: str) -> None:
    checkpoint.files.put(f"{checkpoint.folder}/{name}", text.encode())


def _same(there: Iterable[FileEntry], files: Iterable[FileEntry]) -> bool:
    """Compare lists of files, one of which may have been JSON."""
    return sorted(map(tuple, there)) == sorted(map(tuple, files))


def _entry_text(log: SourceLog, name: str, files: Iterable[FileEntry]) -> str:
    """Return an entry as Spark writes it under this name: alone, or compacted with all earlier ones."""
    number = int(name.partition(".")[0])
    lines = [_line(number, file) for file in files]
    if name.endswith(".compact"):
        before = (log.entry(earlier) or [] for earlier in range(number))
        lines = [_line(earlier, file) for earlier, entry in enumerate(before) for file in entry] + lines
    return "\n".join(["v1", *lines])


def _line(number: int, file: FileEntry) -> str:
    path, changed = file
    fields = {"path": path, "timestamp": changed, "batchId": number}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
