"""What Spark says of aggregates: the types of their keys and measures, asked once for all queries that fold alike.

Spark analyses an aggregation in some 50 milliseconds, more while batches are planned beside it.  Queries with the same
keys and measures, whatever their window, ``EVERY``, sink, and the expressions built on these, get one analysis: Spark
is asked when the first of them is checked.

In:  aggregate queries of a group.  Out: `AnswerRows`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from penstock.engine.outputs.answer_sql import folded
from penstock.engine.outputs.pair_columns import pair_schema
from penstock.engine.spark.schemas import arrow_schema
from penstock.plan.panes import aggregation_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.group import Group
    from penstock.sql.query import Measure, Output, Stream

    Folding: TypeAlias = tuple[str, tuple[Output, ...], int, tuple[Measure, ...]]
    """The schema of the pairs, what is taken of each, how many of these are keys, and the measures."""


@dataclass(frozen=True, slots=True)
class AnswerRows:
    """An aggregate query's keys and measures, without rows."""

    rows: DataFrame
    schema: pa.Schema


class AnswerTypes:
    """Knows what Spark says of each aggregation, and asks once for all that fold alike."""

    def __init__(self, spark: SparkSession) -> None:
        """Know nothing yet."""
        self._spark = spark
        self._known: dict[Folding, AnswerRows] = {}

    def of(self, group: Group, number: int, streams: tuple[Stream, ...]) -> AnswerRows:
        """Give what Spark says of one query."""
        query, pairs = group.members[number].query, pair_schema(group, streams)
        aggregation = aggregation_of(query)
        alike = (pairs, query.outputs, aggregation.groups, aggregation.measures)
        if alike not in self._known:
            rows = folded(self._spark.createDataFrame([], pairs), query)
            self._known[alike] = AnswerRows(rows, arrow_schema(rows))
        return self._known[alike]

    def rows_of(self, schema: pa.Schema) -> DataFrame:
        """Give the empty DataFrame that a schema was made from, this very one: readers of a pane set share it."""
        return next(each.rows for each in self._known.values() if each.schema is schema)
