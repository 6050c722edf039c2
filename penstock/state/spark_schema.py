"""Spark's description of a Parquet file's schema, and Arrow columns in a form that Parquet can store.

Arrow has fewer types than Spark: an interval is a duration, and a string has no collation.  Spark writes its own
description of the schema (JSON) into every file, under `SPARK_SCHEMA`, and reads columns by it.  So result files have
this description too::

    duration[us]  ──Parquet──▶  INT64     read by Spark: BIGINT      with the description: INTERVAL DAY TO SECOND

In:  Arrow schemas and tables with the description in their metadata.  Out: the same, ready for a file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""The key of Spark's description of the columns in a file's metadata."""

PLAIN = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Spark's types that Arrow has too, independent of the settings of the session."""


def described(schema: pa.Schema) -> pa.Schema:
    """Remove all metadata of a schema except Spark's description."""
    text = (schema.metadata or {}).get(SPARK_SCHEMA)
    return schema.with_metadata({SPARK_SCHEMA: text} if text else None)


def described_together(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Merge the columns of several files, and their descriptions.

    Raises ArrowTypeError if a column has two types, in Arrow or in Spark.
    """
    parts = [described(schema) for schema in schemas]
    whole = pa.unify_schemas([part.remove_metadata() for part in parts])
    fields: dict[str, object] = {}
    for part in parts:
        text = (part.metadata or {}).get(SPARK_SCHEMA)
        for field in json.loads(text)["fields"] if text else ():
            if fields.setdefault(field["name"], field) != field:
                raise pa.ArrowTypeError(f"column {field['name']} has two types")
    if not fields:
        return whole
    if missing := set(whole.names) - set(fields):
        raise pa.ArrowTypeError(f"columns {missing} are not described")
    text = json.dumps({"type": "struct", "fields": [fields[name] for name in whole.names]})
    return whole.with_metadata({SPARK_SCHEMA: text})


def loosened(table: pa.Table) -> pa.Table:
    """Allow null structs whose fields are non-null.

    Arrow allows that, its Parquet writer does not.  The fields become nullable.  Spark requires those of a VARIANT to
    be non-null, so they get a value instead.
    """
    for number, field in enumerate(table.schema):
        if _is_strict(field.type):
            chunks = [_loose_array(chunk) for chunk in table.column(number).chunks]
            kind = _loose(field.type)
            table = table.set_column(number, field.with_type(kind), pa.chunked_array(chunks, kind))
    return table


def _is_variant(kind: pa.DataType) -> bool:
    """Return whether a struct is Arrow's form of a VARIANT."""
    return (
        pa.types.is_struct(kind)
        and {field.name for field in kind} == {"value", "metadata"}
        and all(pa.types.is_binary(field.type) and not field.nullable for field in kind)
    )


def _is_strict(kind: pa.DataType) -> bool:
    """Return whether a struct in a type has a non-null field."""
    strict = pa.types.is_struct(kind) and any(not field.nullable for field in kind)
    return strict or any(_is_strict(kind.field(number).type) for number in range(kind.num_fields))


def _loose(kind: pa.DataType) -> pa.DataType:
    """Return a type with nullable fields."""
    if not _is_strict(kind) or _is_variant(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_loose(field.type)).with_nullable(True) for field in kind])
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(_loose(kind.key_type), item.with_type(_loose(item.type)))
    return pa.list_(kind.value_field.with_type(_loose(kind.value_type)))


def _loose_array(array: pa.Array) -> pa.Array:
    kind = array.type
    if not _is_strict(kind):
        return array
    if pa.types.is_struct(kind):
        parts = [array.field(number) for number in range(kind.num_fields)]
        if _is_variant(kind):
            fields = [pc.fill_null(part, b"") for part in parts]
        else:
            fields = [_loose_array(part) for part in parts]
        return pa.StructArray.from_arrays(fields, fields=list(_loose(kind)), mask=array.is_null())
    whole = pa.concat_arrays([array])  # a slice also has the values outside it
    mask = whole.is_null() if whole.null_count else None
    if pa.types.is_map(kind):
        keys, items = _loose_array(whole.keys), _loose_array(whole.items)
        return pa.MapArray.from_arrays(whole.offsets, keys, items, type=_loose(kind), mask=mask)
    return pa.ListArray.from_arrays(whole.offsets, _loose_array(whole.values), type=_loose(kind), mask=mask)
