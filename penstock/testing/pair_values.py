"""What Spark SQL would compute of a pair: whether it is a query's result, and what that result is.

In:  record batches of pairs as a unit finds them (`penstock.engine.tasks.route_pairs`).
Out: the same with the columns ``o0, o1 …``, and the output columns of results read back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.sets import members
from penstock.sql.query import is_side, sides_for
from penstock.sql.spark_types import parse_type
from penstock.sql.text.tree import unquoted
from penstock.testing.expression.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.engine.outputs.pair_columns import Computed, PairExpressions
    from penstock.plan.spark_settings import SparkSettings
    from penstock.sql.query import Stream


def with_computed(batch: pa.RecordBatch, pairs: PairExpressions, settings: SparkSettings) -> pa.RecordBatch:
    """Add what is computed for some queries, each in a column of its own."""
    rows = unpacked(batch)
    types = pair_types(pairs.streams)
    for asked in pairs.computed:
        column = _computed(batch, rows, asked, types, settings)
        batch = batch.append_column(f"o{asked.number}", column)
    return batch


def unpacked(batch: pa.RecordBatch | pa.Table) -> pa.Table:
    """Lay out the columns of both rows under the names that expressions have for them."""
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    columns = {}
    for side in (name for name in table.column_names if pa.types.is_struct(table.schema.field(name).type)):
        struct = table.column(side).combine_chunks()
        for number in range(struct.type.num_fields):
            columns[f"{side}.{struct.type.field(number).name}"] = struct.field(number)
    return pa.table(columns)


def pair_types(streams: tuple[Stream, ...]) -> dict[str, str]:
    """Give the types of a pair's columns, by the names that expressions have for them."""
    return {
        f"{side}.{each.name}": each.type
        for side, stream in zip(sides_for(len(streams)), streams, strict=True)
        for each in stream.columns
    }


def kept_types(schema: str) -> dict[str, str]:
    """Give the same by the schema of pairs that were kept, whatever the streams are now.

    >>> kept_types("l struct<`a`: int>, r struct<nothing: tinyint>, level smallint")
    {'l.a': 'int', 'r.nothing': 'tinyint'}
    """
    pairs = parse_type(f"struct<{schema}>")
    return {
        f"{side}.{unquoted(name)}": str(kind)
        for side, part in zip(pairs.names, pairs.parts, strict=True)
        if is_side(side)
        for name, kind in zip(part.names, part.parts, strict=True)
    }


def outputs_of(
    rows: pa.Table,
    outputs: Iterable[tuple[str, str]],
    types: Mapping[str, str],
    settings: SparkSettings,
) -> dict[str, pa.Array]:
    """Compute a SELECT list, (name, expression) each, over the columns of pairs."""
    present = {name: kind for name, kind in types.items() if name in rows.column_names}
    return {
        name: evaluate(expression, rows, present, zone=settings.zone, ansi=settings.ansi)
        for name, expression in outputs
    }


def wanted_rows(
    batch: pa.RecordBatch | pa.Table, number: int, levels: tuple[int, int], *, selective: bool
) -> NDArray[np.bool_]:
    """Say which pairs a query's predicates, key and window leave: by its bit, or by its slices."""
    if not selective:
        level = np.asarray(batch.column("level").to_numpy())
        return (level >= levels[0]) & (level < levels[1])
    names = [name for name in batch.schema.names if name.startswith("s") and name[1:].isdigit()]
    words = np.stack([np.asarray(batch.column(name).to_numpy()).view(np.uint64) for name in names], axis=1)
    return np.asarray(members(words, number))


def _computed(
    batch: pa.RecordBatch,
    rows: pa.Table,
    asked: Computed,
    types: Mapping[str, str],
    settings: SparkSettings,
) -> pa.Array:
    """Compute one query's output as a struct, or true; null where a pair is not one of its results.

    What may fail is evaluated for the query's own pairs only.
    """
    wanted = wanted_rows(batch, asked.number, asked.levels, selective=asked.selective)
    for number, levels in asked.others:
        wanted |= wanted_rows(batch, number, levels, selective=asked.selective)
    numbers = np.flatnonzero(wanted)
    for condition in asked.residual:
        some = outputs_of(rows.take(pa.array(numbers)), [("holds", condition)], types, settings)["holds"]
        numbers = numbers[
            np.asarray(pc.fill_null(some, fill_value=False).to_numpy(zero_copy_only=False), bool)
        ]
    results = _results(rows.take(pa.array(numbers)), asked.outputs, types, settings)
    positions = np.full(batch.num_rows, -1)
    positions[numbers] = np.arange(numbers.size)
    return results.take(pa.array(positions, mask=positions < 0))


def _results(
    rows: pa.Table,
    outputs: Sequence[tuple[str, str]] | None,
    types: Mapping[str, str],
    settings: SparkSettings,
) -> pa.Array:
    if outputs is None:
        return pa.array(np.ones(rows.num_rows, np.bool_))
    columns = outputs_of(rows, outputs, types, settings)
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))
