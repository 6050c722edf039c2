"""Row groups of Parquet files, encoded once and taken over into any number of files, byte by byte.

A file is row groups, and then a footer that says where each column of each lies.  Encoding takes most of the time that
writing does, and a row group has no word in it of where it is; so another file can have the same bytes, if its footer
says where they are there::

    encoded     PAR1 | group | footer                      group at 4
    file of q0  PAR1 | … | group | … | footer              group at 70,000
    file of q1  PAR1 | group | … | footer                  group at 4

A footer is read for the places in it that have to be changed (`_PLACES`), and is otherwise taken over as it is, with
the statistics that Arrow wrote.  What a footer may have that this does not know how to move, indexes of pages and Bloom
filters, is refused: they lie outside of the row groups.

In:  Arrow tables, or bytes of Parquet files.  Out: `RowGroups`, and whole files of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.log.column_encodings import DICTIONARY_BYTES
from penstock.log.compact_thrift import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    binary,
    field_at,
    fields,
    header,
    list_header,
    list_of,
    number,
    read_binary,
    read_number,
    skip,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.log.column_encodings import ColumnEncodings

MAGIC = b"PAR1"
_END = 4 + len(MAGIC)
"""Bytes after a footer: its length, and the same word as at the beginning."""

_OFFSET, _ORDINAL, _UNKNOWN = "offset", "ordinal", "unknown"

_COLUMN = {9: _OFFSET, 10: _OFFSET, 11: _OFFSET, 14: _UNKNOWN}
_PLACES = {1: {2: _OFFSET, 3: _COLUMN, 4: _UNKNOWN, 6: _UNKNOWN, 8: _UNKNOWN}, 5: _OFFSET, 7: _ORDINAL}
"""Of a row group, by the numbers of fields: what says where something lies, and what the row group's number is.

1 are its columns: 2 where one is, 3 its metadata (pages of data, index, dictionary; a Bloom filter), 4 and 6 page
indexes, 8 encryption.  5 is where the row group is.
"""

_SCHEMA, _ROWS, _GROUPS, _NOTES = 2, 3, 4, 5


class UnknownLayoutError(ValueError):
    """A file has something whose place cannot be changed: page indexes, Bloom filters or encrypted columns."""


@dataclass(frozen=True, slots=True)
class _Description:
    """What a footer says of one row group: bytes, and between them numbers that depend on where it is."""

    pieces: tuple[bytes, ...]
    places: tuple[int | None, ...]
    """The offset that is between two pieces; None for the row group's own number."""

    def at(self, moved: int, ordinal: int) -> bytes:
        """Write it for a row group that begins so many bytes further on, and has this number in its file."""
        out = [self.pieces[0]]
        for place, piece in zip(self.places, self.pieces[1:], strict=True):
            out += (number(ordinal if place is None else place + moved), piece)
        return b"".join(out)


@dataclass(frozen=True, slots=True)
class About:
    """What a footer says of some row groups; only those of one schema can be in one file."""

    size: int
    """Their bytes."""
    rows: int
    groups: tuple[_Description, ...]
    schema: bytes
    """The footer up to the end of what it says of columns."""
    notes: Mapping[bytes, bytes]
    """What the file says of itself, by key."""
    closing: tuple[tuple[int, int, bytes], ...]
    """The fields that come after that: number, type and value."""
    arrow: pa.Schema
    """The columns as Arrow has them."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Encoded rows: the bytes of one or more row groups, and what a footer says of them."""

    data: memoryview
    about: About

    @classmethod
    def of_file(cls, file: pa.Buffer, arrow: pa.Schema) -> RowGroups:
        """Take the row groups of a whole file; their bytes stay where they are."""
        content = memoryview(file)
        size = len(content) - _END
        begin = size - int.from_bytes(content[size : size + 4], "little")
        data = content[len(MAGIC) : begin]
        return cls(data, _read_footer(bytes(content[begin:size]), len(data), arrow))


def encoded(table: pa.Table, compression: str, encodings: ColumnEncodings) -> RowGroups:
    """Encode some rows, as one row group unless there are very many."""
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(
        out,
        table.schema,
        compression=compression,
        write_page_checksum=True,
        dictionary_pagesize_limit=DICTIONARY_BYTES,
        use_dictionary=encodings.dictionary,
        column_encoding=dict(encodings.others) or None,
    ) as writer:
        writer.write_table(table)
    return RowGroups.of_file(out.getvalue(), table.schema)


def footer(parts: Sequence[About], notes: Mapping[bytes, bytes]) -> bytes:
    """Write the end of a file that has these row groups, one after the other, behind its first four bytes."""
    groups, moved = list[bytes](), 0
    for part in parts:
        for each in part.groups:
            groups.append(each.at(moved, len(groups)))
        moved += part.size
    rows = sum(each.rows for each in parts)
    said = [_note(key, value) for key, value in notes.items()]
    out = parts[0].schema + header(I64, 1) + number(rows) + header(LIST, 1) + list_of(STRUCT, groups)
    out += header(LIST, 1) + list_of(STRUCT, said)
    last = _NOTES
    for field, kind, value in parts[0].closing:
        out += header(kind, field - last) + value
        last = field
    out += b"\0"
    return out + len(out).to_bytes(4, "little") + MAGIC


def _note(key: bytes, value: bytes) -> bytes:
    return header(BINARY, 1) + binary(key) + header(BINARY, 1) + binary(value) + b"\0"


def _read_footer(end: bytes, size: int, arrow: pa.Schema) -> About:
    """Read what a footer says of the row groups before it."""
    rows, groups, notes = 0, list[_Description](), dict[bytes, bytes]()
    schema, closing = b"", list[tuple[int, int, bytes]]()
    for each in fields(end, 0):
        if each.number == _SCHEMA:
            schema = end[: skip(end, each.start, each.kind)]
        elif each.number == _ROWS:
            rows, _ = read_number(end, each.start)
        elif each.number == _GROUPS:
            groups = list(_descriptions(end, each.start))
        elif each.number == _NOTES:
            notes = dict(_notes(end, each.start))
        elif each.number > _NOTES:
            closing.append((each.number, each.kind, end[each.start : skip(end, each.start, each.kind)]))
    return About(size, rows, tuple(groups), schema, notes, tuple(closing), arrow)


def _notes(end: bytes, at: int) -> Iterable[tuple[bytes, bytes]]:
    size, kind, at = list_header(end, at)
    for _ in range(size):
        said = [read_binary(end, each.start) for each in fields(end, at)]
        yield said[0], said[1] if len(said) > 1 else b""
        at = skip(end, at, kind)


def _descriptions(end: bytes, at: int) -> Iterable[_Description]:
    size, _, at = list_header(end, at)
    for _ in range(size):
        places: list[tuple[int, int, int | None]] = []
        after = _find(end, at, _PLACES, places)
        starts, stops = [at, *(stop for _, stop, _ in places)], [*(start for start, _, _ in places), after]
        pieces = tuple(end[start:stop] for start, stop in zip(starts, stops, strict=True))
        yield _Description(pieces, tuple(value for _, _, value in places))
        at = after


def _find(
    end: bytes, at: int, wanted: Mapping[int, object], places: list[tuple[int, int, int | None]]
) -> int:
    """Find the places of a struct that change when its row group is elsewhere; give the end of the struct."""
    before = 0
    while field := field_at(end, at, before):
        what, before = wanted.get(field.number), field.number
        if what is _UNKNOWN:
            raise UnknownLayoutError
        if isinstance(what, dict):
            at = _find_in(end, field.start, field.kind, what, places)
            continue
        at = skip(end, field.start, field.kind)
        if what is not None:
            value, _ = read_number(end, field.start)
            if value or what is _ORDINAL:  # an offset of 0 says that there is none
                places.append((field.start, at, None if what is _ORDINAL else value))
    return at + 1


def _find_in(
    end: bytes,
    at: int,
    kind: int,
    wanted: Mapping[int, object],
    places: list[tuple[int, int, int | None]],
) -> int:
    """Find such places in a struct, or in each of a list of structs; give the end."""
    if kind == STRUCT:
        return _find(end, at, wanted, places)
    size, _, at = list_header(end, at)
    for _ in range(size):
        at = _find(end, at, wanted, places)
    return at
