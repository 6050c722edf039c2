"""The types of rows without Spark's analyser: streams, pairs, schemas as DDL, and the answers of aggregates.

In:  streams, queries, DDL.  Out: Spark SQL types by the names that expressions use, and Arrow types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engine.tasks.promise_columns import exploding
from penstock.plan.panes import aggregation_of
from penstock.sql.aggregates import aggregate_class
from penstock.sql.query import is_side, sides_for
from penstock.sql.spark_types import parse_type
from penstock.sql.text.tree import unquoted
from penstock.testing.expression.evaluate import arrow_type
from penstock.testing.expression.node import is_supported
from penstock.testing.expression.translate import NeedsSparkError, type_of

if TYPE_CHECKING:
    from penstock.plan.spark_settings import SparkSettings
    from penstock.sql.query import Measure, Query, Stream


def column_types(stream: Stream) -> dict[str, str]:
    """Return the Spark SQL type of each column of a stream."""
    return {column.name: column.type for column in stream.columns}


def pair_types(streams: tuple[Stream, ...]) -> dict[str, str]:
    """Return the types of a pair's columns, by their names in expressions."""
    return {
        f"{side}.{column.name}": column.type
        for side, stream in zip(sides_for(len(streams)), streams, strict=True)
        for column in stream.columns
    }


def row_types(schema: str) -> dict[str, str]:
    """Return the types of columns by the names that expressions have for them.

    >>> row_types("l struct<`a`: int>, r struct<nothing: tinyint>, level smallint")
    {'l.a': 'int', 'r.nothing': 'tinyint', 'level': 'smallint'}
    """
    rows, types = parse_type(f"struct<{schema}>"), dict[str, str]()
    for name, kind in zip(rows.names, rows.parts, strict=True):
        if is_side(name) and kind.name == "struct":
            fields = zip(kind.names, kind.parts, strict=True)
            types |= {f"{name}.{unquoted(field)}": str(part) for field, part in fields}
        else:
            types[unquoted(name)] = str(kind)
    return types


def arrow_types(stream: Stream, settings: SparkSettings) -> dict[str, pa.DataType]:
    """Return the Arrow type of each column of a stream, as Spark has it."""
    lists, types = exploding(stream), {}
    for column in stream.columns:
        kind = parse_type(column.type)
        value = kind.parts[0] if column.name in lists else kind
        if not is_supported(value):
            name = f"{stream.name}.{column.name}"
            raise NeedsSparkError(name, name, f"it is {kind}")
        types[column.name] = arrow_type(value, settings.zone)
    return {name: pa.list_(kind) if name in lists else kind for name, kind in types.items()}


def answer_types(query: Query, streams: tuple[Stream, ...], settings: SparkSettings) -> dict[str, str]:
    """Return the types of an aggregate query's keys and measures."""
    aggregation, types = aggregation_of(query), pair_types(streams)
    outputs = [type_of(output.expression, types, ansi=settings.ansi) for output in query.outputs]
    keys = {f"g{number}": outputs[number] for number in range(aggregation.groups)}
    return keys | {
        f"a{number}": _measure_type(measure, outputs) for number, measure in enumerate(aggregation.measures)
    }


def _measure_type(measure: Measure, outputs: list[str]) -> str:
    """Return the type of an aggregate, as Spark has it."""
    arguments = [outputs[number] for number in measure.arguments]
    syntax = aggregate_class(measure.function)
    kind = syntax.result_type(measure.function, arguments)
    if not kind or (syntax.adds and not is_supported(parse_type(arguments[0]))):
        raise NeedsSparkError(measure.function, measure.function, f"its argument is {', '.join(arguments)}")
    return kind
