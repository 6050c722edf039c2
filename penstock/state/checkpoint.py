"""Spark's checkpoint of one stream: how far it has read the source.  It is read here, never written.

    offsets/<n>         written before batch n is read: version, session settings, one offset for each source
    commits/<n>         written after batch n is done
    sources/<i>/<k>     entry k of the log of a file source: files found (``<k>.compact``: all entries up to k)
    sources/<i>/0       any other source: its start position
    metadata            the query's id; without it Spark refuses a checkpoint that has entries

The offset of a file source is the number of its last log entry, ``{"logOffset":7}``; the entry lists the files.  The
offset of any other source (Kafka, rate …) is complete in itself.  Formats v1 and v2 of Spark 4.1 to 4.3 are known; v2
puts the source's name and a colon before each offset.

Spark writes each file under a temporary name (``.<n>.<uuid>.tmp``) and renames it.  A killed process may leave a
temporary file, but never half an entry.  A power cut may leave an empty entry, or none.

In:  the files of a state, and the directory of a stream's checkpoint.
Out: entries as values; None if an entry is missing or incomplete.  `penstock.state.origin` judges them.
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
"""A file that a source has found: its url, and its modification time in milliseconds."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """One entry of the offset log: the position of each source when a batch was planned."""

    version: str
    session: str
    """The line of session settings; may be empty."""
    lines: tuple[str, ...]

    @property
    def by_source(self) -> dict[str, str]:
        """Return the offset of each source by the name of its directory."""
        if self.version == "v1":
            return {str(number): line for number, line in enumerate(self.lines)}
        return {name: offset for name, _, offset in (line.partition(":") for line in self.lines)}


def read_offsets(text: str) -> Offsets | None:
    """Parse an entry; None if it is incomplete."""
    lines = text.split("\n")
    if len(lines) < 3 or not _VERSION.fullmatch(lines[0]):  # noqa: PLR2004 - version, session and an offset
        return None
    offsets = Offsets(lines[0], lines[1], tuple(line for line in lines[2:] if line))
    whole = all(offset == NO_OFFSET or _is_json(offset) for offset in offsets.by_source.values())
    return offsets if offsets.lines and whole and (not offsets.session or _is_json(offsets.session)) else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def log_offset(offset: str) -> int | None:
    """Return the number of the last entry that a file source has read; None for any other source.

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
        """Return its url."""
        return self.files.path(self.folder)

    def offsets(self, number: int) -> Offsets | None:
        """Read the offsets planned for a batch; None if they are missing or incomplete."""
        text = self.text(f"offsets/{number}")
        return None if text is None else read_offsets(text)

    def is_done(self, number: int) -> bool:
        """Return whether Spark has marked a batch as done."""
        version, _, body = (self.text(f"commits/{number}") or "").partition("\n")
        return bool(_VERSION.fullmatch(version)) and _is_json(body or "{}")

    def last(self, kind: str) -> int:
        """Return the number of the last entry of a log, complete or not; -1 if there is none."""
        names = self.files.list(f"{self.folder}/{kind}")
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def source(self, name: str) -> SourceLog:
        """Return the log of one source."""
        return SourceLog(self.files, f"{self.folder}/sources/{name}")

    def sources(self) -> list[str]:
        """List the sources that have a log."""
        return self.files.list(f"{self.folder}/sources")

    def is_named(self) -> bool:
        """Return whether Spark finds the query's id, or may create one: it may if no log has an entry."""
        text = self.text("metadata")
        if text is None:
            return max(self.last("offsets"), self.last("commits")) < 0
        return _is_json(text) and "id" in json.loads(text)

    def was_begun(self) -> bool:
        """Return whether Spark has created its directories and planned no batch yet."""
        return self.last("offsets") < 0 and self.files.exists(f"{self.folder}/offsets")

    def stray_checksum(self) -> str:
        """Return a Hadoop checksum file without its entry, which makes the next write fail; empty if there is none.

        A killed process never leaves one: a file is renamed before its checksum, and deleted after it.
        """
        for folder in ("offsets", "commits", *(f"sources/{name}" for name in self.sources())):
            names = self.files.list(f"{self.folder}/{folder}")
            last = max((int(found[1]) for name in names if (found := _NUMBER.fullmatch(name))), default=-1)
            for name in names:
                entry = _NUMBER.fullmatch(name[1:-4]) if name[0] == "." and name.endswith(".crc") else None
                if entry and int(entry[1]) > last:
                    return f"{folder}/{name}"
        return ""

    def has_state(self) -> bool:
        """Return whether Spark keeps state of its own for the stream, for example to aggregate it."""
        return bool(self.files.list(f"{self.folder}/state"))

    def text(self, name: str) -> str | None:
        """Read a file; None if it is missing or not text."""
        return _text(self.files, f"{self.folder}/{name}")


@dataclass(frozen=True, slots=True)
class SourceLog:
    """The log of one source; that of a file source lists the files it has found, entry by entry."""

    files: Files
    folder: str

    def names(self) -> dict[int, str]:
        """Return the files of the log by the number of their entry."""
        matches = ((_NUMBER.fullmatch(name), name) for name in self.files.list(self.folder))
        return {int(number[1]): name for number, name in matches if number}

    def last(self) -> int:
        """Return the number of the last entry; -1 if there is none."""
        return max(self.names(), default=-1)

    def entry(self, number: int) -> list[FileEntry] | None:
        """Read one entry, if need be from a later compact file; None if it is lost."""
        return self._entry(number, self.names())

    def _entry(self, number: int, names: Mapping[int, str]) -> list[FileEntry] | None:
        compact = [later for later in sorted(names) if later > number and names[later].endswith(".compact")]
        for candidate in ([number] if number in names else []) + compact[:1]:
            lines = self.lines(names[candidate])
            if lines is not None:
                return [_file(line) for line in lines if _number(line) == number]
        return None

    def entries(self, after: int, last: int) -> dict[str, list[FileEntry] | None]:
        """Read the entries in ``(after, last]`` by the names of their files."""
        names = self.names()
        return {
            names.get(number, str(number)): self._entry(number, names)
            for number in range(after + 1, last + 1)
        }

    def count(self, last: int) -> int | None:
        """Count the files of all entries up to `last`; None if an entry is lost or incomplete."""
        names = self.names()
        compact = [number for number in names if number <= last and names[number].endswith(".compact")]
        start = max(compact, default=-1)
        lines = self.lines(names[start]) if compact else []
        later = [self._entry(number, names) for number in range(start + 1, last + 1)]
        if lines is None or None in later:
            return None
        return len(lines) + sum(len(entry) for entry in later if entry is not None)

    def torn_after(self, last: int) -> list[int]:
        """List the entries after `last` that are incomplete, or missing before a later one."""
        names = self.names()
        return [
            number
            for number in range(last + 1, self.last() + 1)
            if (number in names and self.lines(names[number]) is None) or self._entry(number, names) is None
        ]

    def texts(self) -> dict[str, str]:
        """Read the log of a source that is not a file source: its start position."""
        names = self.names().values()
        contents = {name: _text(self.files, f"{self.folder}/{name}") for name in names}
        return {name: text for name, text in contents.items() if text is not None}

    def empty(self) -> list[str]:
        """List the files without a single character: their content never reached the disk."""
        return [name for name, text in self.texts().items() if not text]

    def lines(self, name: str) -> list[str] | None:
        """Read the lines of an entry's file; None if it is incomplete."""
        version, _, rest = (_text(self.files, f"{self.folder}/{name}") or "").partition("\n")
        lines = rest.split("\n")
        whole = _VERSION.fullmatch(version) and all(map(_is_entry, lines))
        return lines if whole else None


_ENTRY = re.compile(r'\{"path":"[^"\\]*","timestamp":\d+,"batchId":\d+\}')
_BATCH = re.compile(r'"batchId":(\d+)')


def _is_entry(line: str) -> bool:
    """Return whether a line names a file; the pattern spares most lines the JSON parser."""
    if _ENTRY.fullmatch(line):
        return True
    try:
        return {"path", "timestamp", "batchId"} <= set(json.loads(line))
    except (ValueError, TypeError):
        return False


def _number(line: str) -> int:
    """Return the number of a file's entry; a url cannot contain a quote."""
    return int(_BATCH.findall(line)[-1])


def _file(line: str) -> FileEntry:
    entry = json.loads(line)
    return entry["path"], entry["timestamp"]


def _text(files: Files, name: str) -> str | None:
    try:
        return files.read(name).decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
