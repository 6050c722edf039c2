"""The codec for commits, snapshots and task reports: frozen dataclasses as JSON and back.

A value is written field by field, in the order of its class.  Default values are written too, so that a journal can be
read without the code.  Reading validates: a missing field without a default, or a value of another type, is an error
that names the field.

    {"kind": "published", "format": 6, "units": [["6f2a81c0-000001-00000003", ""]]}

In:  dataclasses of plain fields.  Out: JSON, and equal values again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec

from penstock.errors import RunError
from penstock.state.commits import Commit
from penstock.state.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Mapping

    Json = dict[str, Any]

FORMAT = 6
"""The format of commits and snapshots."""

V = TypeVar("V")

_converted: set[type] = set()
_first_conversion = threading.Lock()

_KINDS: dict[str, type] = {kind.KIND: kind for kind in get_args(Commit)}


def to_json(value: object) -> Any:
    """Write a value; keys of mappings become strings."""
    return msgspec.to_builtins(value, str_keys=True)


def from_json(data: Any, kind: type[V]) -> V:
    """Read a value of a class.

    The first conversion to a class is not thread-safe in msgspec, and two streams may report their first batches at the
    same time.  So the first conversion takes a lock.
    """
    if kind in _converted:
        return msgspec.convert(data, kind, str_keys=True, strict=True)
    with _first_conversion:
        value = msgspec.convert(data, kind, str_keys=True, strict=True)
        _converted.add(kind)
    return value


def refuse_other_format(data: Mapping[str, Any]) -> None:
    """Refuse a commit or snapshot that another version wrote."""
    number = data.get("format", 1)
    if number > FORMAT:
        raise RunError(
            f"the state has format {number}, and this version of Penstock reads {FORMAT}. Update Penstock"
        )
    if number < FORMAT:
        raise RunError(
            f"the state has format {number}, from before the first release, and this version reads {FORMAT}. "
            "Run the queries with a new state directory"
        )


def encode(commit: Commit) -> Json:
    """Write a commit."""
    return {"kind": commit.KIND, "format": FORMAT, **to_json(commit)}


def decode(data: Mapping[str, Any]) -> Commit:
    """Read a commit."""
    refuse_other_format(data)
    kind = _KINDS.get(str(data.get("kind")))
    if kind is None:
        raise RunError(f"the journal has a commit of unknown kind {data.get('kind')!r}. Update Penstock")
    fields = {name: value for name, value in data.items() if name not in {"kind", "format"}}
    try:
        return from_json(fields, kind)
    except msgspec.ValidationError as error:
        raise RunError(f"a commit of kind {data['kind']!r} cannot be read: {error}") from error


def encode_ledger(ledger: Ledger) -> dict[str, Any]:
    """Write the ledger as a snapshot."""
    return {"format": FORMAT, **to_json(ledger)}


def decode_ledger(data: Any) -> Ledger:
    """Read the body of a snapshot."""
    refuse_other_format(data)
    try:
        return from_json(data, Ledger)
    except msgspec.ValidationError as error:
        raise RunError(f"a snapshot of the journal cannot be read: {error}") from error
