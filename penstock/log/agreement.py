"""Does a stream's checkpoint agree with the journal?  Asked before Spark reads anything.

    journal      ... 5  6  7                     7 = its last batch, with its origin
    checkpoint   ... 5  6  7        fine         Spark goes on with 8, or hands 7 over once more
                 ... 5  6  7  8     fine         8 is planned; it follows on 7
                 ... 5  6           behind       7 is written again, if its origin says all that Spark needs
                 ... 5  6  7' (8)   other        7' is of other rows
                 ... 7  8  9        ahead        8 is done, says Spark, and the journal does not have it

What is fine goes on; what is behind is mended by a start; all else stops it, and `penstock repair` sets the checkpoint
back to 7, with whatever else it has to.  What is *lost* cannot be set back: the list of files that were read before 7,
state of Spark's own, or an origin (a state of an earlier version).

In:  a checkpoint, the number of the journal's last batch, and its origin (`penstock.log.origin`).
Out: a `Verdict`; `set_back` writes what Spark would have written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.log.checkpoint import Offsets, log_offset
from penstock.log.origin import MOST_FILES, digest, file_sources, recorded, same_offsets, same_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.log.checkpoint import Checkpoint, FileEntry, SourceLog

Json = dict[str, Any]

SESSION_LINE = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
"""A line about the session where none is left: Spark wants one, though it only concerns state of Spark's own."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a checkpoint is, seen from the journal: `fine`, `behind`, `other`, `ahead` or `lost`, and why."""

    kind: str
    why: str = ""

    @property
    def mendable(self) -> bool:
        """Say whether a start may mend it: what is missing can be written again, and nothing contradicts it."""
        return self.kind == "behind"


FINE = Verdict("fine")


def judge(checkpoint: Checkpoint, last: int, origin: Json | None) -> Verdict:
    """Compare a checkpoint with the journal's last batch of its stream (-1: none), and with that batch's origin."""
    planned, done = checkpoint.last("offsets"), checkpoint.last("commits")
    if done > last or planned > last + 1:
        why = f"it has batch {max(done, planned)}, and the journal ends {_ending(last)}: rows between would be lost"
        return Verdict("ahead" if origin or last < 0 else "lost", why)
    if origin is None and planned < last:  # of an earlier version, which knew a batch by its number alone
        return Verdict("lost", f"it ends with batch {planned}, and the journal with batch {last}")
    verdict = _judge_first(checkpoint, planned) if last < 0 else FINE
    verdict = _compare(checkpoint, last, origin) if origin is not None else verdict
    if verdict == FINE and not checkpoint.is_named() and checkpoint.files.find(checkpoint.folder):
        return Verdict("behind", "its metadata is missing")
    return verdict


def _judge_first(checkpoint: Checkpoint, planned: int) -> Verdict:
    """Judge the checkpoint of a stream that the journal has no batch of: it may have planned the first."""
    whole = planned < 0 or _is_whole(checkpoint, planned)
    empty = any(checkpoint.source(name).empty() for name in checkpoint.sources())
    return (
        FINE if whole and not empty else Verdict("behind", "what is planned for its first batch is not whole")
    )


def contradiction(checkpoint: Checkpoint, origin: Json, last: int, last_origin: Json | None) -> str:
    """Say why a batch that Spark hands over can be neither the journal's last one nor the one after it; empty if it is.

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


def _compare(checkpoint: Checkpoint, last: int, origin: Json) -> Verdict:
    """Compare a checkpoint that does not reach too far with the last origin."""
    offsets = checkpoint.offsets(last)
    if offsets is not None and not same_offsets(offsets, recorded(origin)):
        return Verdict(
            "other",
            f"its batch {last} ends at {_shown(offsets)}, and the journal's at {_shown(recorded(origin))}",
        )
    missing = next(_gaps(checkpoint, last, origin), "")
    if not missing:
        return FINE
    if lost := next(_losses(checkpoint, origin), ""):
        return Verdict("lost", f"{missing}, and cannot be written again: {lost}")
    other = next(_others(checkpoint, origin), "")
    return Verdict("other", other) if other else Verdict("behind", missing)


def _shown(offsets: Offsets) -> str:
    text = ", ".join(offsets.lines)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


_SHOWN_CHARACTERS = 200


def _is_whole(checkpoint: Checkpoint, batch: int) -> bool:
    """Say whether Spark can go on from what it has planned for a batch that the journal does not have."""
    offsets = checkpoint.offsets(batch)
    if offsets is None:
        return False
    numbers = {name: log_offset(each) for name, each in offsets.by_source.items()}
    return not any(
        checkpoint.source(name).entry(number) is None
        for name, number in numbers.items()
        if number is not None and number >= 0
    )


def _gaps(checkpoint: Checkpoint, last: int, origin: Json) -> Iterator[str]:
    """Say what Spark would miss in a checkpoint."""
    planned, done = checkpoint.last("offsets"), checkpoint.last("commits")
    if planned < last:
        yield f"it ends before batch {last}, which the journal has"
    if checkpoint.offsets(last) is None:
        yield f"its batch {last} is not whole"
    if planned == last and last and checkpoint.offsets(last - 1) is None:
        yield f"its batch {last - 1} is not whole"
    if planned > last and not _is_whole(checkpoint, planned):
        yield f"what is planned for batch {planned} is not whole"
    if done >= 0 and not checkpoint.is_done(done):
        yield f"the end of its batch {done} is not whole"
    for name, number in file_sources(origin):
        log = checkpoint.source(name)
        if (
            log.torn_after(number)
            or log.count(number) != origin["seen"][name]
            or not _same_files(log, origin, name)
        ):
            yield f"the list of files that its source {name} has read is not whole"
    for name, texts in origin["begun"].items():
        there = checkpoint.source(name).texts()
        if texts is not None and any(there.get(each) != text for each, text in texts.items()):
            yield f"the beginning of its source {name} is missing"


def _same_files(log: SourceLog, origin: Json, name: str) -> bool:
    """Say whether a source's log has, for the batch of an origin, the files that it was made of."""
    entries = log.entries(origin["after"][name], dict(file_sources(origin))[name])
    return None not in entries.values() and digest(entries) == str(origin["digests"][name])


def _losses(checkpoint: Checkpoint, origin: Json) -> Iterator[str]:
    """Say what is gone from a checkpoint and cannot be restored from an origin."""
    if checkpoint.has_state():
        yield "Spark keeps state of its own for this stream"
    for name, number in file_sources(origin):
        log, own, seen = checkpoint.source(name), origin["entries"][name], origin["seen"][name]
        if own is None and (log.count(number) != seen or not _same_files(log, origin, name)):
            yield f"batch {origin['batch']} had more than {MOST_FILES} files"
        elif own is not None:
            before = log.count(origin["after"][name])
            if seen is None or before != seen - sum(map(len, own.values())):
                yield f"the list of files that its source {name} had read before batch {origin['batch']} is not whole"
    for name, texts in origin["begun"].items():
        if texts is None and not checkpoint.source(name).texts():
            yield f"the beginning of its source {name} is gone"


def _others(checkpoint: Checkpoint, origin: Json) -> Iterator[str]:
    """Say where a source's log has other files than an origin."""
    for name, _ in file_sources(origin):
        for entry, files in (origin["entries"][name] or {}).items():
            there = checkpoint.source(name).entry(_number(entry))
            if there is not None and not _same(there, files):
                yield f"its batch {origin['batch']} is of other files: {_first_other(there, files)}"


def _number(entry: str) -> int:
    return int(entry.partition(".")[0])


def _same(there: Iterable[FileEntry], files: Iterable[FileEntry]) -> bool:
    """Compare lists of files, one of which may have been JSON."""
    return sorted(map(tuple, there)) == sorted(map(tuple, files))


def _first_other(there: list[FileEntry], files: list[FileEntry]) -> str:
    present, expected = {path for path, _ in there}, {path for path, _ in files}
    others = sorted(present - expected) or sorted(expected - present)
    return next(iter(others), "changed since they were read")


# --- setting it back --------------------------------------------------------------------------------------------


def obstacle(checkpoint: Checkpoint, last: int, origin: Json | None, now: Json | None) -> str:
    """Say why a checkpoint cannot be set back to a batch of the journal; empty if it can.

    `now` is the origin of the last batch that the journal has had: up to that one, lists of files must be whole.
    """
    if checkpoint.has_state():
        return "Spark keeps state of its own for this stream"
    entries = _last_entries(checkpoint, origin)
    for name, number in file_sources(now) if now is not None else ():
        if any(each <= number for each in checkpoint.source(name).torn_after(entries.get(name, -1))):
            return f"the list of files that its source {name} would have to read again is not whole"
    if last < 0:
        return ""
    if origin is None:
        return f"batch {last} is of an earlier version, which did not note where it came from"
    return next(_losses(checkpoint, origin), "") or next(_repeats(checkpoint, origin), "")


def _repeats(checkpoint: Checkpoint, origin: Json) -> Iterator[str]:
    """Say which files of an origin a source has found a second time since, and would read again."""
    for name, number in file_sources(origin):
        log = checkpoint.source(name)
        own = {path for files in (origin["entries"][name] or {}).values() for path, _ in files}
        later = [log.entry(each) or [] for each in range(number + 1, log.last() + 1)]
        again = sorted(own & {path for files in later for path, _ in files})
        if again:
            yield f"its source {name} has found {again[0]} a second time"
        together = any(each > number and entry.endswith(".compact") for each, entry in log.names().items())
        if together and not _same_files(log, origin, name):
            yield f"other files were put together with those of its source {name} since"


def read_again(checkpoint: Checkpoint, origin: Json | None) -> Iterator[str]:
    """List the files that sources have found since a batch: a checkpoint set back to it reads them again."""
    numbers = dict(file_sources(origin)) if origin is not None else {}
    for name in checkpoint.sources():
        log = checkpoint.source(name)
        first = numbers.get(name, -1) + 1 if name in numbers or origin is None else log.last() + 1
        for number in range(first, log.last() + 1):
            yield from (path for path, _ in log.entry(number) or ())


def set_back(checkpoint: Checkpoint, last: int, origin: Json | None) -> None:
    """Let a checkpoint end with a batch of the journal: Spark goes on with the next one.

    Lists of files that sources have found since stay: Spark reads them as one batch.
    """
    checkpoint.remove_checksums()
    session, numbers = _session(checkpoint), _last_entries(checkpoint, origin)
    if origin is not None or last < 0:
        checkpoint.remove_after(last)
    for name in checkpoint.sources():
        log = checkpoint.source(name)
        if name in numbers:
            log.cut_after(numbers[name])
        for entry in log.empty():
            log.remove(entry)
    if origin is not None:
        _write(checkpoint, last, origin, session)
    if not checkpoint.is_named():
        checkpoint.name()


def _last_entries(checkpoint: Checkpoint, origin: Json | None) -> dict[str, int]:
    """Give, for each source of files, the last entry that an origin has; -1 for those that it does not have."""
    planned = checkpoint.offsets(checkpoint.last("offsets"))
    told = planned.by_source.items() if planned is not None else ()
    sources = {name for name, offset in told if log_offset(offset) is not None}
    sources |= {name for name in checkpoint.sources() if checkpoint.source(name).is_of_files()}
    return dict.fromkeys(sources, -1) | (dict(file_sources(origin)) if origin is not None else {})


def _session(checkpoint: Checkpoint) -> str:
    """Find a line about the session that is whole, the last one first."""
    last = checkpoint.last("offsets")
    entries = (checkpoint.offsets(number) for number in range(last, max(-1, last - _LOOK_BACK_BATCHES), -1))
    return next((each.session for each in entries if each is not None and each.session), SESSION_LINE)


_LOOK_BACK_BATCHES = 5


def _write(checkpoint: Checkpoint, last: int, origin: Json, session: str) -> None:
    """Write what an origin says where the checkpoint differs: lists of files first, then what refers to them."""
    for name, texts in origin["begun"].items():
        checkpoint.source(name).restore(texts or {})
    for name, _ in file_sources(origin):
        log = checkpoint.source(name)
        for entry, files in (origin["entries"][name] or {}).items():
            there = log.entry(_number(entry))
            if there is None or not _same(there, files):
                log.write_entry(entry, [(path, changed) for path, changed in files])
    offsets, planned = recorded(origin), checkpoint.offsets(last)
    whole = Offsets(offsets.version, session, offsets.lines).text()
    if planned is None or not same_offsets(planned, offsets):
        checkpoint.put(f"offsets/{last}", whole)
    if last and checkpoint.offsets(last - 1) is None:
        # Spark wants one to be there, and reads from the last; the same one says that there is nothing between
        checkpoint.put(f"offsets/{last - 1}", whole)
    if not checkpoint.is_done(last):
        checkpoint.put(f"commits/{last}", 'v1\n{"nextBatchWatermarkMs":0}')
