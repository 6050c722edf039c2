"""Structured Streaming over a directory of files, as far as its checkpoint goes: what it writes, and how it goes on.

Held against the real one by `tests/spark/test_checkpoints.py`.  Every write is one step, so that a test can stop
between any two, which leaves a temporary file, and undo the last of them as a power cut does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.state.files import Files

SESSION = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


class StoppedError(Exception):
    """Spark cannot go on: says so, and reads nothing."""


class PowerCutError(Exception):
    """The test's own: nothing happens after this."""


@dataclass
class FakeSpark:
    """One stream.  `limit` files make a batch; `together` entries of the source's log are put together."""

    files: Files
    folder: str
    limit: int = 1000
    together: int = 10
    retain: int = 2
    tidy: bool = False
    """Whether entries that were put together are removed at once, as they are after ten minutes."""
    verify_empty: bool = True
    """Whether batch 0 is refused beside any file, `spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart`."""
    steps: int = 1 << 30
    """Writes until the power goes."""
    written: list[str] = field(default_factory=list)

    def put(self, name: str, text: str) -> None:
        """Write a file, if there is still power."""
        if self.steps == 0:
            temporary = self._path(name)
            temporary = temporary.with_name(f".{temporary.name}.{uuid4()}.tmp")
            temporary.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text("v1")
            raise PowerCutError
        self.steps -= 1
        assert not self.files.exists(f"{self.folder}/{name}"), f"Spark never overwrites {name}"
        self.files.put(f"{self.folder}/{name}", text.encode())
        self.written.append(name)

    def run(self, there: list[tuple[str, int]], take: Callable[[int, list[str]], None]) -> None:
        """Read all that is there, batch by batch."""
        if self.files.exists(f"{self.folder}/metadata"):
            self._read("metadata")
        elif max(self._last("offsets"), self._last("commits")) >= 0:
            raise StoppedError("metadata is missing")
        else:
            self.put("metadata", '{"id":"x"}')
        batch, start, end = self._restore()
        if end is not None:
            self._hand_over(batch, start, end, take)
            batch, start = batch + 1, end
        while (end := self._next(there)) > start:
            self.put(f"offsets/{batch}", f'v1\n{SESSION}\n{{"logOffset":{end}}}')
            self._hand_over(batch, start, end, take)
            self._purge(batch)
            batch, start = batch + 1, end

    def _hand_over(self, batch: int, start: int, end: int, take: Callable[[int, list[str]], None]) -> None:
        entries = self._entries()
        found = [entries.get(number) for number in range(start + 1, end + 1)]
        if None in found:
            raise StoppedError("an entry does not exist")
        take(batch, [path for mine in found for path, _ in mine])
        if f"{batch}" not in self.files.list(f"{self.folder}/commits"):
            self.put(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def _next(self, there: list[tuple[str, int]]) -> int:
        """Write down what is new, and give the last entry."""
        entries = self._entries()
        seen = {path for mine in entries.values() for path, _ in mine}
        new = sorted((each for each in there if each[0] not in seen), key=lambda each: each[1])[: self.limit]
        last = max(entries, default=-1)
        if not new:
            return last
        number = last + 1
        lines = [_line(number, *each) for each in new]
        if (number + 1) % self.together:
            self.put(f"sources/0/{number}", "\n".join(["v1", *lines]))
            return number
        before = [_line(each, *file) for each in sorted(entries) for file in entries[each]]
        self.put(f"sources/0/{number}.compact", "\n".join(["v1", *before, *lines]))
        for each in range(number) if self.tidy else ():
            self.files.delete(f"{self.folder}/sources/0/{each}")
        return number

    def _restore(self) -> tuple[int, int, int | None]:
        """Say which batch is next, where it starts, and where it ends if it is planned already."""
        self._entries()
        batch = self._last("offsets")
        if batch < 0:
            there = [self._path(kind) for kind in ("offsets", "commits")]
            if self.verify_empty and any(each.exists() and any(each.iterdir()) for each in there):
                raise StoppedError("the checkpoint location should be empty on batch 0")
            return 0, -1, None
        end = self._offset(batch)
        start = self._offset(batch - 1) if batch else -1
        done = self._last("commits")
        if done >= 0:
            self._read(f"commits/{done}")
        return (batch + 1, end, None) if done == batch else (batch, start, end)

    def _entries(self) -> dict[int, list[tuple[str, int]]]:
        """Read the source's log as Spark does: from the last entries put together on, each of which must be there."""
        names = {int(each.partition(".")[0]): each for each in self.files.list(f"{self.folder}/sources/0")}
        last = max(names, default=-1)
        begin = max((each for each in range(last + 1) if (each + 1) % self.together == 0), default=0)
        found: dict[int, list[tuple[str, int]]] = {}
        for number in range(begin, last + 1):
            name = f"{number}.compact" if (number + 1) % self.together == 0 else str(number)
            for line in self._read(f"sources/0/{name}").split("\n")[1:]:
                entry = json.loads(line)
                found.setdefault(entry["batchId"], []).append((entry["path"], entry["timestamp"]))
        return found

    def _offset(self, batch: int) -> int:
        _, session, offset = self._read(f"offsets/{batch}").split("\n")
        if "batchWatermarkMs" not in session:
            raise StoppedError("watermarkTracker is null")
        return int(json.loads(offset)["logOffset"])

    def _last(self, kind: str) -> int:
        return max((int(each) for each in self.files.list(f"{self.folder}/{kind}")), default=-1)

    def _read(self, name: str) -> str:
        try:
            text = self.files.read(f"{self.folder}/{name}").decode()
        except FileNotFoundError:
            raise StoppedError(f"{name} does not exist") from None
        if not text:
            raise StoppedError(f"{name}: Incomplete log file")
        return text

    def _path(self, name: str) -> Path:
        """Give the path of a file, since the state's own listings pass over temporary ones."""
        return Path(self.files.path(f"{self.folder}/{name}").removeprefix("file://"))

    def _purge(self, batch: int) -> None:
        for kind in ("offsets", "commits"):
            for each in self.files.list(f"{self.folder}/{kind}"):
                if int(each) < batch - self.retain:
                    self.files.delete(f"{self.folder}/{kind}/{each}")


def _line(number: int, path: str, changed: int) -> str:
    said: dict[str, Any] = {"path": path, "timestamp": changed, "batchId": number}
    return json.dumps(said, separators=(",", ":"))
