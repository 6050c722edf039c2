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
