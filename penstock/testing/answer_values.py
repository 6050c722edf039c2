"""What Spark SQL would make of answers: the types of keys and measures, SELECT lists and HAVING over them.

In:  aggregate queries, and the rows that their panes are answered with.  Out: types, and the same rows with what is
computed of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engine.aggregate.answer_task import READER
from penstock.plan.panes import aggregation_of
from penstock.sql.aggregates import aggregate_class
from penstock.sql.spark_types import parse_type
from penstock.testing.expression.evaluate import NeedsSparkError, evaluate, type_of
from penstock.testing.expression.values import arrow_type, is_supported
from penstock.testing.pair_values import pair_types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.aggregate.answer_job import AnswerJob, Reader
    from penstock.plan.spark_settings import SparkSettings
    from penstock.sql.query import Measure, Query, Stream


def answer_types(query: Query, streams: tuple[Stream, ...], settings: SparkSettings) -> dict[str, str]:
    """Give the Spark SQL types of an aggregate query's keys and measures, by their names in its answers."""
    aggregation, types = aggregation_of(query), pair_types(streams)
    outputs = [type_of(each.expression, types, ansi=settings.ansi) for each in query.outputs]
    kinds = {f"g{number}": outputs[number] for number in range(aggregation.groups)}
    for number, measure in enumerate(aggregation.measures):
        kinds[f"a{number}"] = _measure_type(measure, outputs)
    return kinds


def _measure_type(measure: Measure, outputs: list[str]) -> str:
    """Return the type of an aggregate, as Spark has it."""
    arguments = [outputs[number] for number in measure.arguments]
    syntax = aggregate_class(measure.function)
    kind = syntax.result_type(measure.function, arguments)
    if not kind or (syntax.adds and not is_supported(parse_type(arguments[0]))):
        raise NeedsSparkError(measure.function, measure.function, f"its argument is {', '.join(arguments)}")
    return kind


def answer_schema(query: Query, streams: tuple[Stream, ...], settings: SparkSettings) -> pa.Schema:
    """Give the Arrow types of an aggregate query's keys and measures."""
    kinds = answer_types(query, streams, settings)
    return pa.schema([(name, arrow_type(parse_type(kind), settings.zone)) for name, kind in kinds.items()])


def with_answers(
    batch: pa.RecordBatch, job: AnswerJob, kinds: dict[str, str], settings: SparkSettings
) -> Iterator[pa.RecordBatch]:
    """Compute answers and conditions for each reader, of its own rows only."""
    numbers = batch.column(READER).to_numpy(zero_copy_only=False)
    for reader in job.readers:
        own = numbers == reader.number
        mine = batch if own.all() else batch.filter(pa.array(own))
        if mine.num_rows:
            yield _computed(mine, reader, kinds, settings) if reader.computed else mine


def _computed(
    rows: pa.RecordBatch, reader: Reader, kinds: dict[str, str], settings: SparkSettings
) -> pa.RecordBatch:
    table = pa.Table.from_batches([rows])

    def value(expression: str, prefix: str = "a") -> pa.Array:
        names = {f"{prefix}{name[1:]}" if name[0] == "a" else name: name for name in kinds}
        chosen = pa.table({name: table.column(given) for given, name in names.items()})
        return evaluate(expression, chosen, kinds, zone=settings.zone, ansi=settings.ansi)

    number = reader.number
    if reader.having:
        holds = value(reader.having)
        rows = rows.append_column(f"h{number}", holds)
        if reader.emit == "changes":
            rows = rows.append_column(f"w{number}", value(reader.having, "b"))
        else:
            rows = rows.filter(holds.fill_null(False))
            table = pa.Table.from_batches([rows])
    answers = {each.name: value(each.expression) for each in reader.answers}
    struct = pa.StructArray.from_arrays(list(answers.values()), list(answers))
    return rows.append_column(f"o{number}", struct)
