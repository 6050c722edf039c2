"""The types of results, as Spark analyses them.

A type that cannot be stored is refused before a start.  A type that Parquet cannot express is written into the metadata
of the file (`penstock.state.spark_schema`).

In:  queries and their empty results.  Out: a refusal; Spark's description of the columns, as JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.outputs.pair_sql import empty_result
from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.sinks.table import is_view
from penstock.engine.spark.schemas import type_text
from penstock.errors import InputError
from penstock.sql.spark_types import SparkType, parse_type, refusal_to_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.plan.group import Group
    from penstock.sql.query import Query, Stream


class ResultTypes:
    """The types of each query's results; Spark analyses each definition once."""

    def __init__(self, spark: SparkSession) -> None:
        """Analyse nothing yet."""
        self._spark = spark
        self._noted: dict[tuple[str, str], tuple[Query, str]] = {}

    def check(self, group: Group, results: Mapping[str, DataFrame], streams: tuple[Stream, ...]) -> None:
        """Refuse a query whose results cannot be stored, and remember the types of the others."""
        for member in group.members:
            query = member.query
            viewed = is_view(query, streams)
            if viewed and all(output.column for output in query.outputs):
                continue  # columns of streams, which are stored already
            result = results[query.name]
            for field in result.schema.fields:
                _refuse_unstorable(query, field.name, type_text(field.dataType), shared=viewed)
            if not viewed:
                self._note(group, query, result)

    def description(self, group: Group, number: int, streams: tuple[Stream, ...]) -> str:
        """Return Spark's description of a query's results (JSON); empty where Parquet expresses the types."""
        query = group.members[number].query
        noted = self._noted.get((group.id, query.name))
        if noted is None or (noted[0] is not query and noted[0] != query):
            return self._note(group, query, empty_result(self._spark, group, number, streams))
        return noted[1]

    def _note(self, group: Group, query: Query, result: DataFrame) -> str:
        """Remember the types of a query's empty result."""
        kinds = [parse_type(type_text(field.dataType)) for field in result.schema.fields]
        text = result.schema.json() if any(map(_says_too_little, kinds)) else ""
        self._noted[group.id, query.name] = (query, text)
        return text


def refuse_other_types(query: str, was: StructType, now: StructType) -> None:
    """Refuse to change the type of a result column, since old and new results could not be read together."""
    before = {field.name.lower(): type_text(field.dataType) for field in was.fields}
    for field in now.fields:
        kind = before.get(field.name.lower())
        if kind is not None and kind != type_text(field.dataType):
            raise InputError(
                f"column {field.name} of query {query} was {kind} and would be {type_text(field.dataType)}: results "
                "that are there could not be read together with those to come. Call it otherwise, CAST it to "
                f"{kind}, or drop the query and create it anew"
            )


def _refuse_unstorable(query: Query, column: str, kind: str, *, shared: bool) -> None:
    """Refuse a column that cannot be stored; a VARIANT can be stored among the group's pairs only."""
    refusal = refusal_to_store(kind)
    in_file = not shared and sink_of(query).stores_rows
    if not refusal and in_file and parse_type(kind).holds("variant"):
        refusal = (
            "No other program could read a VARIANT in a file: extract what you need, as in v:price::double"
        )
    if refusal:
        raise InputError(
            f"query {query.name}: column {column} of its result is {kind}, which cannot be stored. {refusal}"
        )


def _says_too_little(kind: SparkType) -> bool:
    """Return whether a Parquet file written by Arrow is read as another type."""
    own = bool(kind.collation) or kind.name.startswith("interval") or kind.name in {"void", "variant"}
    return own or any(map(_says_too_little, kind.parts))
