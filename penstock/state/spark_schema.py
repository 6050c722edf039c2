"""What a Parquet file says to Spark, and what Arrow's columns must be like to become one.

Arrow has fewer types than Spark: an interval is a duration, a string has no collation, and without a word on it Spark
reads one back as a number of microseconds and the other as a plain string.  Spark writes its own description of a
schema (JSON) into every file, under `SPARK_SCHEMA`, and believes what it finds there; so do we, where it is needed::

    duration[us]  ──Parquet──▶  INT64     read by Spark: BIGINT      with its own word: INTERVAL DAY TO SECOND

In:  Arrow schemas and tables, the description in their metadata.  Out: the same as files need them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""The key of a file's metadata under which Spark looks for its own description of the columns."""

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
"""Types of Spark's that Arrow has too, whatever the settings of the session."""


def is_described(schema: pa.Schema) -> bool:
    """Say whether a schema has Spark's description."""
    return SPARK_SCHEMA in (schema.metadata or {})


def described(schema: pa.Schema) -> pa.Schema:
    """Keep of a schema's metadata only what Spark has to know."""
    text = (schema.metadata or {}).get(SPARK_SCHEMA)
    return schema.with_metadata({SPARK_SCHEMA: text} if text else None)


def described_together(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Bring the columns of several files together, and what Spark has to know of them.

    Raises ArrowTypeError where a column has two types: Arrow's, or Spark's.
    """
    parts = [described(each) for each in schemas]
    whole = pa.unify_schemas([each.remove_metadata() for each in parts])
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
    """Let a struct be null though its fields may not be: Arrow's columns can be that, its Parquet files cannot.

    The fields become nullable, but for those of a VARIANT: Spark wants them as they are, so they get a value.
    """
    for number, field in enumerate(table.schema):
        if _is_strict(field.type):
            chunks = [_loose_array(each) for each in table.column(number).chunks]
            kind = _loose(field.type)
            table = table.set_column(number, field.with_type(kind), pa.chunked_array(chunks, kind))
    return table


def _is_variant(kind: pa.DataType) -> bool:
    """Say whether a struct is what Spark makes of a VARIANT in Arrow."""
    return (
        pa.types.is_struct(kind)
        and {field.name for field in kind} == {"value", "metadata"}
        and all(pa.types.is_binary(field.type) and not field.nullable for field in kind)
    )


def _is_strict(kind: pa.DataType) -> bool:
    """Say whether some struct in a type has a field that must not be null."""
    strict = pa.types.is_struct(kind) and any(not field.nullable for field in kind)
    return strict or any(_is_strict(kind.field(number).type) for number in range(kind.num_fields))


def _loose(kind: pa.DataType) -> pa.DataType:
    """Give a type whose fields may be null."""
    if not _is_strict(kind) or _is_variant(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_loose(field.type)).with_nullable(True) for field in kind])
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(_loose(kind.key_type), item.with_type(_loose(item.type)))
    return pa.list_(kind.value_field.with_type(_loose(kind.value_type)))


def _loose_array(array: pa.Array) -> pa.Array:
    """Give values the type that `_loose` makes of theirs."""
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
    whole = pa.concat_arrays([array])  # a slice would have the values of others beside its own
    mask = whole.is_null() if whole.null_count else None
    if pa.types.is_map(kind):
        keys, items = _loose_array(whole.keys), _loose_array(whole.items)
        return pa.MapArray.from_arrays(whole.offsets, keys, items, type=_loose(kind), mask=mask)
    return pa.ListArray.from_arrays(whole.offsets, _loose_array(whole.values), type=_loose(kind), mask=mask)
