"""The few things that have to be read and written in Thrift's compact protocol, in which Parquet's footers are.

A struct is a run of fields, each with the difference of its number to the one before, and its type; its end is a zero::

    15  0a         field 1, a number:  5
    25  14         field 3, a number:  10        (2 more than the one before)
    00

Nothing is made of what is read but its place: a footer is taken over byte by byte, but for some numbers in it.

In:  bytes.  Out: where fields begin and end; numbers, fields and lists as bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

I16, I32, I64, BINARY, LIST, STRUCT = 4, 5, 6, 8, 9, 12
_TRUE, _FALSE, _BYTE, _DOUBLE, _SET, _MAP = 1, 2, 3, 7, 10, 11
_NUMBERS = frozenset({I16, I32, I64})
_LONG_LIST = 15


class Field(NamedTuple):
    """A field of a struct: its number, its type, and where its value begins."""

    number: int
    kind: int
    start: int


def field_at(data: bytes, at: int, before: int = 0) -> Field | None:
    """Read the head of a field that comes after one of a number; None at the end of the struct."""
    head = data[at]
    if not head:
        return None
    if head >> 4:
        return Field(before + (head >> 4), head & 15, at + 1)
    number, start = read_number(data, at + 1)
    return Field(number, head & 15, start)


def fields(data: bytes, at: int) -> Iterator[Field]:
    """Yield the fields of a struct.

    >>> data = bytes.fromhex("150a251400")
    >>> [(each.number, read_number(data, each.start)[0]) for each in fields(data, 0)]
    [(1, 5), (3, 10)]
    """
    number = 0
    while field := field_at(data, at, number):
        yield field
        number, at = field.number, skip(data, field.start, field.kind)


def skip(data: bytes, at: int, kind: int) -> int:
    """Find the end of a value."""
    if kind in _NUMBERS:
        while data[at] & 128:
            at += 1
        return at + 1
    if kind == BINARY:
        size, at = _varint(data, at)
        return at + size
    if kind == STRUCT:
        return _skip_struct(data, at)
    if kind in {LIST, _SET}:
        size, kind, at = list_header(data, at)
        for _ in range(size):
            at = skip(data, at, _BYTE if kind in {_TRUE, _FALSE} else kind)
        return at
    assert kind != _MAP, "Parquet's footers have no maps"  # noqa: S101 - by the format
    return at + {_BYTE: 1, _DOUBLE: 8}.get(kind, 0)


def _skip_struct(data: bytes, at: int) -> int:
    while head := data[at]:
        at += 1
        if not head >> 4:
            at = skip(data, at, I16)
        at = skip(data, at, head & 15)
    return at + 1


def list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Read how many elements a list has, of which type, and where they begin."""
    size, kind = data[at] >> 4, data[at] & 15
    if size < _LONG_LIST:
        return size, kind, at + 1
    size, at = _varint(data, at + 1)
    return size, kind, at


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of any width, and say where it ends."""
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def read_binary(data: bytes, at: int) -> bytes:
    """Read a text or some bytes."""
    size, at = _varint(data, at)
    return data[at : at + size]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if not byte & 128:
            return value, at
        shift += 7


def number(value: int) -> bytes:
    """Write a number of any width.

    >>> [read_number(number(each), 0)[0] for each in (0, -1, 300, -(2**63), 2**63 - 1)]
    [0, -1, 300, -9223372036854775808, 9223372036854775807]
    """
    return _plain((value << 1) ^ (value >> 63))


def binary(value: bytes) -> bytes:
    """Write a text or some bytes."""
    return _plain(len(value)) + value


def header(kind: int, step: int) -> bytes:
    """Write what comes before a field's value; its number is so many more than the one before."""
    return bytes([step << 4 | kind])


def list_of(kind: int, elements: list[bytes]) -> bytes:
    """Write a list."""
    size = len(elements)
    begin = bytes([size << 4 | kind]) if size < _LONG_LIST else bytes([_LONG_LIST << 4 | kind]) + _plain(size)
    return begin + b"".join(elements)


def _plain(value: int) -> bytes:
    out = bytearray()
    while value >> 7:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
