"""Spark's checkpoint of one stream: how far it has read the source, in files of text that we can read and write too.

    offsets/<n>         written before batch n is read: a version, a line about the session, one offset for each source
    commits/<n>         written after batch n is done
    sources/<i>/<k>     a source of files numbers what it finds: the files of its entry k (``<k>.compact``: all up to k)
    sources/<i>/0       other sources: how they began
    metadata            a name that Spark made up for the checkpoint, without which it reads nothing

The offset of a source of files is only the number of its last entry, ``{"logOffset":7}``: which files those were is in
its log.  Of all others (Kafka, rate …) it says everything.  Formats v1 and v2 of Spark 4.1 to 4.3 are known; v2 puts
the source's name and a colon before each offset.

Spark and Hadoop may keep checksums beside a file (``.<n>.crc``, ``<n>.crc``).  One that is left without its file lets
no new one be written in its place, and a file without one is not checked: so a start removes them all
(`Checkpoint.remove_checksums`), since the journal knows better what a checkpoint should say.  A query that is stopped
while it notes something leaves a file of no name yet (``.<n>.<uuid>.tmp``), and Spark refuses to begin with batch 0
beside one: so a log without an entry is removed whole (`Checkpoint.remove_empty_logs`).

In:  the files of a state, and the directory of a stream's checkpoint.  Out: entries as values; None for what is not
there or not whole.  Nothing here decides anything (`penstock.log.origin` does).
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.log.files import Files

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

    def text(self) -> str:
        """Write the entry as Spark does."""
        return "\n".join([self.version, self.session, *self.lines])


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

    def remove_checksums(self) -> None:
        """Remove what Hadoop or Spark has noted of the bytes of the logs' files: both do without."""
        for folder in ("", "offsets", "commits", *(f"sources/{name}" for name in self.sources())):
            for name in self.files.list(f"{self.folder}/{folder}".rstrip("/")):
                if name.endswith(".crc"):
                    self.files.delete(f"{self.folder}/{folder}/{name}".replace("//", "/"))

    def is_named(self) -> bool:
        """Say whether the checkpoint has its name."""
        text = self.text("metadata") or ""
        return _is_json(text) and "id" in json.loads(text)

    def name(self) -> None:
        """Give the checkpoint a new name; nothing depends on which."""
        self.put("metadata", json.dumps({"id": str(uuid.uuid4())}, separators=(",", ":")))

    def has_state(self) -> bool:
        """Say whether Spark keeps state of its own for the stream, as for one that it aggregates or deduplicates."""
        return bool(self.files.list(f"{self.folder}/state"))

    def text(self, name: str) -> str | None:
        """Read a file; None if it is not there or not text."""
        return _text(self.files, f"{self.folder}/{name}")

    def put(self, name: str, text: str) -> None:
        """Write a file."""
        self.files.put(f"{self.folder}/{name}", text.encode())

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.files.delete(f"{self.folder}/{name}")

    def remove_after(self, number: int) -> None:
        """Remove what is planned or done after a batch; the last first, so that no gap is ever left."""
        for kind in ("commits", "offsets"):
            for later in range(self.last(kind), number, -1):
                self.remove(f"{kind}/{later}")
        self.remove_empty_logs()

    def remove_empty_logs(self) -> None:
        """Remove logs that have no entry, with what was never finished in them."""
        for kind in ("commits", "offsets"):
            if self.last(kind) < 0:
                self.files.delete_tree(f"{self.folder}/{kind}")


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
            lines = self._lines(names[each])
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
        found = self._up_to(last)
        return None if found is None else len(found[0]) + len(found[1])

    def files_up_to(self, last: int) -> list[FileEntry] | None:
        """Read the files of all entries up to one; None if some entry is lost or not whole."""
        found = self._up_to(last)
        return None if found is None else [*map(_file, found[0]), *found[1]]

    def _up_to(self, last: int) -> tuple[list[str], list[FileEntry]] | None:
        """Give the lines of files that were put together, which need not be parsed to be counted, and later files."""
        names = self.names()
        together = [each for each in names if each <= last and names[each].endswith(".compact")]
        start = max(together, default=-1)
        lines = self._lines(names[start]) if together else []
        later = [self._entry(number, names) for number in range(start + 1, last + 1)]
        if lines is None or None in later:
            return None
        return lines, [file for entry in later if entry is not None for file in entry]

    def torn_after(self, last: int) -> list[int]:
        """List the entries after one that are not whole, or not there though later ones are, in order."""
        names = self.names()
        return [number for number in range(last + 1, self.last() + 1) if self._is_torn(number, names)]

    def _is_torn(self, number: int, names: Mapping[int, str]) -> bool:
        damaged = number in names and self._lines(names[number]) is None
        return damaged or self._entry(number, names) is None

    def cut_after(self, last: int) -> None:
        """Remove the first entry after one that is not whole, and all that follow it: their files are found again."""
        names, torn = self.names(), self.torn_after(last)
        for number in sorted(names, reverse=True):
            if torn and number >= torn[0]:
                self.files.delete(f"{self.folder}/{names[number]}")

    def is_of_files(self) -> bool:
        """Say whether some entry lists files."""
        return any(self._lines(name) is not None for name in self.names().values())

    def write_entry(self, name: str, files: Iterable[FileEntry]) -> None:
        """Write an entry as Spark does, under the name that it gave it: alone, or together with all before."""
        number = int(name.partition(".")[0])
        lines = [_line(number, file) for file in files]
        if name.endswith(".compact"):
            before = (self.entry(each) or [] for each in range(number))
            lines = [_line(each, file) for each, earlier in enumerate(before) for file in earlier] + lines
        self.files.put(f"{self.folder}/{name}", "\n".join(["v1", *lines]).encode())

    def remove(self, name: str) -> None:
        """Remove an entry."""
        self.files.delete(f"{self.folder}/{name}")

    def texts(self) -> dict[str, str]:
        """Read all that a source keeps that is not one of files: how it began."""
        names = self.names().values()
        contents = {name: _text(self.files, f"{self.folder}/{name}") for name in names}
        return {name: text for name, text in contents.items() if text is not None}

    def empty(self) -> list[str]:
        """List the files without a single character: they never reached the disk, whatever the source."""
        return [name for name, text in self.texts().items() if not text]

    def restore(self, texts: Mapping[str, str]) -> None:
        """Write again how a source began."""
        there = self.texts()
        for name, text in texts.items():
            if there.get(name) != text:
                self.files.put(f"{self.folder}/{name}", text.encode())

    def _lines(self, name: str) -> list[str] | None:
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


def _line(number: int, file: FileEntry) -> str:
    """Write one file of an entry, as Spark does."""
    path, changed = file
    fields = {"path": path, "timestamp": changed, "batchId": number}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)


def _text(files: Files, name: str) -> str | None:
    try:
        return files.read(name).decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
