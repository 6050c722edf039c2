"""Spark's checkpoint of one stream: how far it has read the source.  It is read here, never written.

    offsets/<n>         written before batch n is read: a version, a line about the session, one offset for each source
    commits/<n>         written after batch n is done
    sources/<i>/<k>     a source of files numbers what it finds: the files of its entry k (``<k>.compact``: all up to k)
    sources/<i>/0       other sources: how they began
    metadata            the query's id, without which Spark refuses a checkpoint that has entries

The offset of a source of files is only the number of its last entry, ``{"logOffset":7}``: which files those were is in
its log.  Of all others (Kafka, rate …) it says everything.  Formats v1 and v2 of Spark 4.1 to 4.3 are known; v2 puts
the source's name and a colon before each offset.

Spark writes each file under a temporary name (``.<n>.<uuid>.tmp``) and renames it.  A process that is killed may leave
such a file; it never leaves half an entry.  After a power cut an entry may be empty or gone.

In:  the files of a state, and the directory of a stream's checkpoint.  Out: entries as values; None for what is not
there or not whole.  Nothing here decides anything (`penstock.state.origin` does).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.state.files import Files

NO_OFFSET = "-"
_VERSION = re.compile(r"v[12]")
_NUMBER = re.compile(r"(\d+)(?:\.compact)?")
_LOG_OFFSET = "logOffset"

FileEntry = tuple[str, int]
"""A file that a source has found: its url, and when it was last changed, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """One entry of the offset log: where each source was when a batch was planned."""

    version: str
    session: str
    """The line about the session; may be empty."""
    lines: tuple[str, ...]

    @property
    def by_source(self) -> dict[str, str]:
        """Give the offset of each source by the name of its directory."""
        if self.version == "v1":
            return {str(number): line for number, line in enumerate(self.lines)}
        return {name: offset for name, _, offset in (line.partition(":") for line in self.lines)}


def read_offsets(text: str) -> Offsets | None:
    """Read an entry; None if it is not whole."""
    lines = text.split("\n")
    if len(lines) < 3 or not _VERSION.fullmatch(lines[0]):  # noqa: PLR2004 - version, session and an offset
        return None
    offsets = Offsets(lines[0], lines[1], tuple(line for line in lines[2:] if line))
    whole = all(each == NO_OFFSET or _is_json(each) for each in offsets.by_source.values())
    return offsets if offsets.lines and whole and (not offsets.session or _is_json(offsets.session)) else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def log_offset(offset: str) -> int | None:
    """Give the number of the last entry that a source of files has read; None for another kind of source.

    >>> log_offset('{"logOffset":7}'), log_offset('{"topic":{"0":12}}'), log_offset("-")
    (7, None, None)
    """
    parsed = json.loads(offset) if offset != NO_OFFSET else None
    return parsed[_LOG_OFFSET] if isinstance(parsed, dict) and list(parsed) == [_LOG_OFFSET] else None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of one stream."""

    files: Files
    folder: str

    @property
    def path(self) -> str:
        """Say where it is."""
        return self.files.path(self.folder)

    def offsets(self, number: int) -> Offsets | None:
        """Read what was planned for a batch; None if it is not there, or not whole."""
        text = self.text(f"offsets/{number}")
        return None if text is None else read_offsets(text)

    def is_done(self, number: int) -> bool:
        """Say whether Spark has noted that a batch is done."""
        version, _, body = (self.text(f"commits/{number}") or "").partition("\n")
        return bool(_VERSION.fullmatch(version)) and _is_json(body or "{}")

    def last(self, kind: str) -> int:
        """Give the number of the last entry of a log, whole or not; -1 if there is none."""
        names = self.files.list(f"{self.folder}/{kind}")
        return max((int(each) for each in names if each.isdigit()), default=-1)

    def source(self, name: str) -> SourceLog:
        """Give what one of its sources keeps."""
        return SourceLog(self.files, f"{self.folder}/sources/{name}")

    def sources(self) -> list[str]:
        """List the sources that keep something."""
        return self.files.list(f"{self.folder}/sources")

    def is_named(self) -> bool:
        """Return whether Spark finds the query's id, or may write one: it does where no log has an entry."""
        text = self.text("metadata")
        if text is None:
            return max(self.last("offsets"), self.last("commits")) < 0
        return _is_json(text) and "id" in json.loads(text)

    def was_begun(self) -> bool:
        """Return whether Spark has made its directories and planned no batch yet."""
        return self.last("offsets") < 0 and self.files.exists(f"{self.folder}/offsets")

    def stray_checksum(self) -> str:
        """Return a checksum that Hadoop keeps of an entry still to be written, which makes that fail; empty: none.

        No kill leaves one: a file is renamed before its checksum, and deleted after it.
        """
        for folder in ("offsets", "commits", *(f"sources/{name}" for name in self.sources())):
            names = self.files.list(f"{self.folder}/{folder}")
            last = max((int(found[1]) for each in names if (found := _NUMBER.fullmatch(each))), default=-1)
            for each in names:
                entry = _NUMBER.fullmatch(each[1:-4]) if each[0] == "." and each.endswith(".crc") else None
                if entry and int(entry[1]) > last:
                    return f"{folder}/{each}"
        return ""

    def has_state(self) -> bool:
        """Say whether Spark keeps state of its own for the stream, as for one that it aggregates or deduplicates."""
        return bool(self.files.list(f"{self.folder}/state"))

    def text(self, name: str) -> str | None:
        """Read a file; None if it is not there or not text."""
        return _text(self.files, f"{self.folder}/{name}")


@dataclass(frozen=True, slots=True)
class SourceLog:
    """What a source keeps: of a source of files, which files it has found, entry by entry."""

    files: Files
    folder: str

    def names(self) -> dict[int, str]:
        """Give the entries' files by their numbers."""
        matches = ((_NUMBER.fullmatch(name), name) for name in self.files.list(self.folder))
        return {int(number[1]): name for number, name in matches if number}

    def last(self) -> int:
        """Give the number of the last entry; -1 if there is none."""
        return max(self.names(), default=-1)

    def entry(self, number: int) -> list[FileEntry] | None:
        """Read the files of one entry, from where they were put together since if need be; None if they are lost."""
        return self._entry(number, self.names())

    def _entry(self, number: int, names: Mapping[int, str]) -> list[FileEntry] | None:
        together = [each for each in sorted(names) if each > number and names[each].endswith(".compact")]
        for each in ([number] if number in names else []) + together[:1]:
            lines = self.lines(names[each])
            if lines is not None:
                return [_file(line) for line in lines if _number(line) == number]
        return None

    def entries(self, after: int, last: int) -> dict[str, list[FileEntry] | None]:
        """Read the files of some entries, by the names that the entries have, or had."""
        names = self.names()
        return {
            names.get(number, str(number)): self._entry(number, names)
            for number in range(after + 1, last + 1)
        }

    def count(self, last: int) -> int | None:
        """Count the files of all entries up to one; None if some entry is lost or not whole."""
        names = self.names()
        compact = [each for each in names if each <= last and names[each].endswith(".compact")]
        start = max(compact, default=-1)
        lines = self.lines(names[start]) if compact else []
        later = [self._entry(number, names) for number in range(start + 1, last + 1)]
        if lines is None or None in later:
            return None
        return len(lines) + sum(len(entry) for entry in later if entry is not None)

    def torn_after(self, last: int) -> list[int]:
        """List the entries after one that are not whole, or not there though later ones are, in order."""
        names = self.names()
        return [number for number in range(last + 1, self.last() + 1) if self._is_torn(number, names)]

    def _is_torn(self, number: int, names: Mapping[int, str]) -> bool:
        damaged = number in names and self.lines(names[number]) is None
        return damaged or self._entry(number, names) is None

    def texts(self) -> dict[str, str]:
        """Read all that a source keeps that is not one of files: how it began."""
        names = self.names().values()
        contents = {name: _text(self.files, f"{self.folder}/{name}") for name in names}
        return {name: text for name, text in contents.items() if text is not None}

    def empty(self) -> list[str]:
        """List the files without a single character: they never reached the disk, whatever the source."""
        return [name for name, text in self.texts().items() if not text]

    def lines(self, name: str) -> list[str] | None:
        """Read the lines of an entry's file; None if it is not whole."""
        version, _, rest = (_text(self.files, f"{self.folder}/{name}") or "").partition("\n")
        lines = rest.split("\n")
        whole = _VERSION.fullmatch(version) and all(map(_is_entry, lines))
        return lines if whole else None


_ENTRY = re.compile(r'\{"path":"[^"\\]*","timestamp":\d+,"batchId":\d+\}')
_BATCH = re.compile(r'"batchId":(\d+)')


def _is_entry(line: str) -> bool:
    """Say whether a line names a file; most are told without being parsed."""
    if _ENTRY.fullmatch(line):
        return True
    try:
        return {"path", "timestamp", "batchId"} <= set(json.loads(line))
    except (ValueError, TypeError):
        return False


def _number(line: str) -> int:
    """Read which entry a file belongs to; no url has a quote in it."""
    return int(_BATCH.findall(line)[-1])


def _file(line: str) -> FileEntry:
    """Read one file of an entry."""
    entry = json.loads(line)
    return entry["path"], entry["timestamp"]


def _text(files: Files, name: str) -> str | None:
    try:
        return files.read(name).decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
