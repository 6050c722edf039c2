"""The journal's files: their names, and the envelope of each, which makes damage detectable.

    {"body": …, "before": …, "format": 1, "number": 57, "writer": "9f…", "crc32": 548752995}

The checksum covers all other fields.  Each commit has a copy of the commit before it, so that the content of one
damaged or lost file can be restored (`penstock.state.journal_scan`).  The copy needs no further write.

In:  a body and its number.  Out: the bytes of a file; and the body again, or `TornError`.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.errors import RunError

if TYPE_CHECKING:
    from penstock.state.files import Files

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"
Commit: TypeAlias = dict[str, JSON]

DIRECTORY = "journal"
FORMAT = 1
_NAME = re.compile(r"(snapshot-)?(\d+)\.json")


class TornError(Exception):
    """A file whose bytes are not those that were written."""


class Envelope(NamedTuple):
    """The content of a journal file."""

    body: JSON
    writer: str
    before: Envelope | None = None
    """The commit before."""


class Numbers(NamedTuple):
    """The numbers of the commits and snapshots that have a file, ascending."""

    commits: list[int]
    snapshots: list[int]


def numbers(files: Files) -> Numbers:
    """List the journal; other files in its directory are ignored."""
    present = Numbers([], [])
    for name in files.list(DIRECTORY):
        if match := _NAME.fullmatch(name):
            (present.snapshots if match[1] else present.commits).append(int(match[2]))
    return Numbers(sorted(present.commits), sorted(present.snapshots))


def commit_name(number: int) -> str:
    """Return the name of a commit's file; a listing shows commits in order.

    >>> commit_name(1)
    'journal/000000000001.json'
    """
    return f"{DIRECTORY}/{number:012d}.json"


def snapshot_name(number: int) -> str:
    """Return the name of the snapshot of the state after commit `number`."""
    return f"{DIRECTORY}/snapshot-{number:012d}.json"


def wrap(number: int, writer: str, body: JSON, before: Envelope | None = None) -> bytes:
    r"""Write a body in its envelope: number, writer, the commit before, and a checksum of all fields.

    >>> wrap(1, "w", {"a": 2})
    b'{"body":{"a":2},"format":1,"number":1,"writer":"w","crc32":548752995}\n'
    """
    content: dict[str, JSON] = {"format": FORMAT, "number": number, "writer": writer, "body": body}
    if before is not None:
        content["before"] = {"body": before.body, "writer": before.writer}
    text = _canonical(content)
    return f'{text[:-1]},"crc32":{zlib.crc32(text.encode())}}}\n'.encode()


def unwrap(data: bytes, number: int) -> Envelope:
    """Read an envelope; raise `TornError` if the bytes are not those that were wrapped as `number`."""
    try:
        content = json.loads(data)
        checksum = content.pop("crc32", None)
        text = _canonical(content)
    except (ValueError, AttributeError, TypeError) as error:
        raise TornError(f"it is not a JSON object ({error})") from error
    if checksum != zlib.crc32(text.encode()):
        raise TornError("its checksum does not match")
    if content["format"] != FORMAT:
        raise RunError(
            f"the journal has format {content['format']}, and this version of Penstock reads {FORMAT}. Update Penstock"
        )
    if content["number"] != number:
        raise TornError(f"it holds number {content['number']}")
    before = content.get("before")
    return Envelope(
        content["body"], content["writer"], Envelope(before["body"], before["writer"]) if before else None
    )


def as_commit(body: JSON) -> Commit:
    """Narrow a body to a commit."""
    if not isinstance(body, dict):
        raise TypeError(f"a commit is one JSON object, not {body!r}")
    return body


def _canonical(value: JSON) -> str:
    """Write JSON in canonical form, so that the checksum can be computed again after reading."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
