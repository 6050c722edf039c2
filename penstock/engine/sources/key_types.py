"""Ask Spark for the types of join keys that only Spark can tell.

Both sides of an equality are hashed, so they must have one type before they are hashed.  `penstock.sql.bind.conditions`
knows the declared types and many expressions; of the rest (decimals computed, most functions) it leaves the type
open.  Left open, ``a.amount * 2 = b.amount`` would hash decimals of two scales and miss pairs without a word.

In:  a bound query and its streams.  Out: the same query, every computed key with the type Spark compares it as.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from penstock.engine.spark.schemas import empty_rows
from penstock.engine.spark.spark_errors import short_message
from penstock.errors import InputError
from penstock.sql.text.tree import quoted, unquoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from penstock.sql.query import Key, Query, Stream


def with_key_types(
    query: Query, streams: Sequence[Stream], spark: Callable[[], SparkSession], *, ansi: bool = True
) -> Query:
    """Fill in the types left open, `streams` being those of the query's inputs in their order.

    Spark is asked, and so started, only if there are any.  Types that follow from declarations are those of ANSI mode;
    in a session without it Spark is asked for them too.
    """

    def typed(key: Key, left: int, right: int) -> Key:
        sides = streams[left], streams[right]
        asked = _is_open(key, *sides) or (key.type and not ansi)
        return _typed(key, query, *sides, spark()) if asked else key

    return query.with_keys(typed)


def _is_open(key: Key, left: Stream, right: Stream) -> bool:
    """Say whether a key has no type yet and is not two plain columns, whose types are known to be the same."""
    plain = left.column(unquoted(key.left)) and right.column(unquoted(key.right))
    return not key.type and not plain


def _typed(key: Key, query: Query, left: Stream, right: Stream, spark: SparkSession) -> Key:
    """Let Spark compare the two sides, and take the type it compares them as."""
    try:
        sides = [
            empty_rows(spark, stream).select(F.expr(text)).schema[0].dataType
            for stream, text in ((left, key.left), (right, key.right))
        ]
        fields = [StructField(name, kind) for name, kind in zip("lr", sides, strict=True)]
        both = spark.createDataFrame([], StructType(fields))
        both.select(F.expr("l = r"))
        common = both.select(F.coalesce("l", "r")).schema[0].dataType
    except Exception as error:
        raise InputError(
            f"query {query.name} cannot join on {key.left} = {key.right}: {short_message(error)}"
        ) from error
    if " collate " in (kind := type_text(common)):
        raise InputError(
            f"query {query.name} cannot join on {key.left} = {key.right}, which is {kind}: only Spark can tell which "
            "of such values are equal. Write COLLATE UTF8_BINARY behind both, or compare plain columns"
        )
    return replace(key, type=kind)


def type_text(kind: DataType) -> str:
    """Write a type as Spark's DDL does; its own way to write one does not quote the names of fields.

    >>> from pyspark.sql.types import StringType
    >>> type_text(StructType([StructField("a.b", ArrayType(StringType()))]))
    'struct<`a.b`:array<string>>'
    """
    if isinstance(kind, StructType):
        fields = (f"{quoted(each.name)}:{type_text(each.dataType)}" for each in kind.fields)
        return f"struct<{','.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return kind.simpleString()
