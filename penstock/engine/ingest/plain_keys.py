"""Join keys made without Spark, where they are columns as they stand: numbers, text, or several of either.

What a key is, as Spark SQL, is said in `penstock.engine.ingest.key_values`::

    one whole number, boolean, date, timestamp    the number itself
    text, binary, several columns                 Spark's hash of them, and each as it stands

Text is equal if its bytes are; a collation, or padding, is another type, and for Spark.

In:  a log of a stream.  Out: who makes the 64 bits of its key, and which columns are the key itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from penstock.engine.ingest.ingest_columns import key_names
from penstock.join.spark_hash import first_seeds, hash_bytes, hash_ints, hash_longs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.engine.ingest.batch_task import BatchTask
    from penstock.plan.stored import KeyPart, LogPlan
    from penstock.sql.query import Stream

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = frozenset({*_WHOLE, "boolean", "date", "timestamp"})
"""Types of keys that are numbers as they stand."""

_TEXTS, _LONGS = frozenset({"string", "binary"}), frozenset({"bigint", "timestamp"})
"""Types that are hashed as their bytes, and as 8 bytes; other numbers are 4."""


class Maker(Protocol):
    """Makes one column of some others."""

    def make(self, rows: pa.RecordBatch) -> pa.Array:
        """Make it."""

    def columns(self) -> set[str]:
        """Name the columns that it reads."""


@dataclass(frozen=True, slots=True)
class Number:
    """A column as a 64-bit number: a whole number, 0 or 1, days, microseconds."""

    column: str

    def make(self, rows: pa.RecordBatch) -> pa.Array:
        """Take the number."""
        values = rows.column(self.column)
        return (values.cast(pa.int32()) if pa.types.is_date32(values.type) else values).cast(pa.int64())

    def columns(self) -> set[str]:
        """Name the column."""
        return {self.column}


@dataclass(frozen=True, slots=True)
class SameKey:
    """The key of joins without an equality, which all rows have."""

    def make(self, rows: pa.RecordBatch) -> pa.Array:
        """Give every row the same."""
        return pa.array(np.zeros(rows.num_rows, np.int64))

    def columns(self) -> set[str]:
        """Name nothing."""
        return set()


@dataclass(frozen=True, slots=True)
class Digest:
    """Spark's hash of several columns, or of text; null if one of them is."""

    parts: tuple[tuple[str, str], ...]
    """Each column, and the type that it is compared as."""

    def make(self, rows: pa.RecordBatch) -> pa.Array:
        """Hash every row."""
        hashes, nulls = first_seeds(rows.num_rows), np.zeros(rows.num_rows, np.bool_)
        for column, kind in self.parts:
            values = rows.column(column)
            hashes = _hashed(values, kind, hashes)
            nulls |= values.is_null().to_numpy(zero_copy_only=False)
        return pa.array(hashes.view(np.int64), mask=nulls)

    def columns(self) -> set[str]:
        """Name the columns."""
        return {column for column, _ in self.parts}


def _hashed(values: pa.Array, kind: str, seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash one column, as the type that it is compared as; what stands for null does not matter."""
    if kind in _TEXTS:
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
        return hash_bytes(np.frombuffer(data or b"", np.uint8), ends, seeds)
    if kind in _LONGS:
        return hash_longs(values.cast(pa.int64()).fill_null(0).to_numpy(), seeds)
    return hash_ints(values.cast(pa.int32()).fill_null(0).to_numpy(), seeds)


def key_parts(task: BatchTask) -> dict[str, KeyPart]:
    """Give the columns that carry keys themselves, where 64 bits do not hold them."""
    named = ((key_names(number, each.log)[1], each.log.key) for number, each in enumerate(task.logs))
    return {name: part for names, key in named if names for name, part in zip(names, key, strict=True)}


def plain_key(number: int, stream: Stream, log: LogPlan) -> dict[str, Maker | None]:
    """Say how the 64 bits of a log's key are made."""
    name, parts = key_names(number, log)
    if log.wanted:
        return {name: None}
    if not log.key:
        return {name: SameKey()}
    if parts:
        plain = all(_is_number(part, stream) or _is_text(part, stream) for part in log.key)
        return {name: Digest(tuple((part.column, part.type) for part in log.key)) if plain else None}
    (part,) = log.key
    return {name: Number(part.column) if _is_number(part, stream) else None}


def _is_text(part: KeyPart, stream: Stream) -> bool:
    """Say whether a part of a key is a column of text or binary as it stands: equal if its bytes are."""
    column = stream.column(part.column) if part.column else None
    return column is not None and column.type == part.type and column.type in _TEXTS


def _is_number(part: KeyPart, stream: Stream) -> bool:
    """Say whether a part of a key is a column of numbers, cast to none or to a wider type of whole numbers."""
    column = stream.column(part.column) if part.column else None
    if column is None or column.type not in _NUMBERS:
        return False
    if column.type == part.type:
        return True
    whole = column.type in _WHOLE and part.type in _WHOLE
    return whole and _WHOLE.index(column.type) < _WHOLE.index(part.type)
