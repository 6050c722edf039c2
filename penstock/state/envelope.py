"""The journal's files: their names, and the envelope that each is in, so that damage is found.

    {"body": …, "before": …, "format": 1, "number": 57, "writer": "9f…", "crc32": 548752995}

The checksum is of all the rest.  A commit carries the one before it along: should that file be damaged or lost, its
content is still there, in the next (`penstock.state.journal_scan`).  It costs as many bytes again, and no further
write.

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
    """A file that is not what was written."""


class Envelope(NamedTuple):
    """What a file of the journal holds."""

    body: JSON
    writer: str
    before: Envelope | None = None
    """The commit before."""


class Numbers(NamedTuple):
    """Which commits and snapshots have a file, in ascending order."""

    commits: list[int]
    snapshots: list[int]


def numbers(files: Files) -> Numbers:
    """List the journal; names that are neither commit nor snapshot are left alone."""
    present = Numbers([], [])
    for name in files.list(DIRECTORY):
        if match := _NAME.fullmatch(name):
            (present.snapshots if match[1] else present.commits).append(int(match[2]))
    return Numbers(sorted(present.commits), sorted(present.snapshots))


def commit_name(number: int) -> str:
    """Name a commit's file, so that a listing shows commits in order.

    >>> commit_name(1)
    'journal/000000000001.json'
    """
    return f"{DIRECTORY}/{number:012d}.json"


def snapshot_name(number: int) -> str:
    """Name the snapshot of the state after commit `number`."""
    return f"{DIRECTORY}/snapshot-{number:012d}.json"


def wrap(number: int, writer: str, body: JSON, before: Envelope | None = None) -> bytes:
    r"""Put a body in its envelope: with its number, its writer, the commit before, and a checksum of all of it.

    >>> wrap(1, "w", {"a": 2})
    b'{"body":{"a":2},"format":1,"number":1,"writer":"w","crc32":548752995}\n'
    """
    content: dict[str, JSON] = {"format": FORMAT, "number": number, "writer": writer, "body": body}
    if before is not None:
        content["before"] = {"body": before.body, "writer": before.writer}
    text = _canonical(content)
    return f'{text[:-1]},"crc32":{zlib.crc32(text.encode())}}}\n'.encode()


def unwrap(data: bytes, number: int) -> Envelope:
    """Give what is in an envelope, or raise `TornError` when these are not the bytes that were wrapped as `number`."""
    try:
        content = json.loads(data)
        checksum = content.pop("crc32", None)
        text = _canonical(content)
    except (ValueError, AttributeError, TypeError) as error:
        message = f"it is not a JSON object ({error})"
        raise TornError(message) from error
    if checksum != zlib.crc32(text.encode()):
        message = "its checksum does not fit"
        raise TornError(message)
    if content["format"] != FORMAT:
        message = (
            f"the journal has format {content['format']} and this Penstock reads {FORMAT}: run a newer one"
        )
        raise RunError(message)
    if content["number"] != number:
        message = f"it holds number {content['number']}"
        raise TornError(message)
    before = content.get("before")
    return Envelope(
        content["body"], content["writer"], Envelope(before["body"], before["writer"]) if before else None
    )


def as_commit(body: JSON) -> Commit:
    """Narrow a body to a commit."""
    if not isinstance(body, dict):
        message = f"a commit is one JSON object, not {body!r}"
        raise TypeError(message)
    return body


def _canonical(value: JSON) -> str:
    """Write JSON in the one way whose checksum can be checked after reading it back."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
