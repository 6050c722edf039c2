"""A query as SQL for DuckDB: by its definition, not by the engine's plan.

Keys, predicates, conditions and outputs come from the script, translated to DuckDB.  The window is a limit on the time
between every two rows of a result.  If a condition on event times cannot be translated, the plan's window takes its
place::

    SELECT <outputs> FROM (SELECT *, <keys> FROM A WHERE <predicates>) l, (SELECT *, <keys> FROM B WHERE <predicates>) r
    WHERE <keys equal> AND r.t - l.t < … AND l.t - r.t < … AND <conditions on several rows>

An aggregate query is one more SELECT around that, by instant and group: a result counts at every instant that sees it::

    SELECT <answers> FROM (SELECT e, g0 …, max(x0) AS a0 … FROM <results>, <instants e> GROUP BY e, g0 …) WHERE <having>

In:  a query of two streams or more, and its streams.
Out: SQL over one table for each side, `rows_l`, `rows_r` …, with the event times in microseconds in the column `TIME`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import InputError
from penstock.plan.panes import aggregation_of
from penstock.sql.aggregates import aggregate_class
from penstock.sql.query import FOREVER, RESERVED, Edge
from penstock.sql.spark_types import parse_type
from penstock.sql.zones import is_utc
from penstock.testing.expression.node import EvaluationSettings, duckdb_type
from penstock.testing.expression.translate import column_sql, translate
from penstock.testing.row_types import answer_types, column_types, pair_types
from penstock.testing.written import read_written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.plan.spark_settings import SparkSettings
    from penstock.sql.query import Measure, Query, Side, Stream

TIME = f"{RESERVED}t"
"""The column of event times, in microseconds."""

_TIME = f'"{TIME}"'


def table_of(side: Side) -> str:
    """Name the table of a side's rows."""
    return f"rows_{side}"


@dataclass(frozen=True)
class Question:
    """One query and the streams of its inputs, in their order."""

    query: Query
    streams: tuple[Stream, ...]
    settings: SparkSettings

    def results(self, since: int | None = None) -> str:
        """Write the SQL of its results, of all rows or of those from some event time on."""
        outputs = (
            f"{self._of_pair(output.expression)} AS c{n}" for n, output in enumerate(self.query.outputs)
        )
        return self._joined(", ".join(outputs), since)

    def answers(self, since: int | None = None) -> str:
        """Write the SQL of its aggregates: is the group complete, does HAVING hold, and the answers."""
        aggregation = aggregation_of(self.query)
        kinds = answer_types(self.query, self.streams, self.settings)
        of_group = partial(self._translated, kinds)
        instant = ["e"] if aggregation.every else []
        keys = [*instant, *(f"c{number}" for number in range(aggregation.groups))]
        columns = [*instant, *(f"c{n} AS g{n}" for n in range(aggregation.groups))]
        columns += [
            f"CAST({_measure(measure, kinds[f'a{n}'])} AS {duckdb_type(parse_type(kinds[f'a{n}']))}) AS a{n}"
            for n, measure in enumerate(aggregation.measures)
        ]
        folded = (
            f"SELECT {', '.join([*columns, 'bool_and(whole) AS whole'])} FROM ({self._measured(since)}) p"
        )
        if aggregation.every:
            folded += f", LATERAL (SELECT unnest({self._instants()}) AS e)"
        folded += f" GROUP BY {', '.join(keys)}" if keys else " HAVING count(*) > 0"
        having = f"coalesce({of_group(aggregation.having)}, FALSE)" if aggregation.having else "TRUE"
        answers = ["make_timestamp(e)"] if aggregation.every else []
        answers += [of_group(answer.expression) for answer in aggregation.answers]
        return f"SELECT whole, {having}, {', '.join(answers)} FROM ({folded})"

    def _of_pair(self, expression: str) -> str:
        return self._translated(pair_types(self.streams), expression)

    def _translated(self, types: Mapping[str, str], expression: str) -> str:
        settings = EvaluationSettings(utc=is_utc(self.settings.zone), ansi=self.settings.ansi)
        return translate(expression, types, settings).sql

    def _measured(self, since: int | None) -> str:
        """Write the results as the aggregates need them, with the times of their rows."""
        aggregation = aggregation_of(self.query)
        read = {
            *range(aggregation.groups),
            *(number for one in aggregation.measures for number in one.arguments),
        }
        outputs = [
            f"{self._of_pair(self.query.outputs[number].expression)} AS c{number}" for number in sorted(read)
        ]
        late = [f"{side}.{_TIME} >= {since}" for side in self.query.sides]
        outputs.append(f"{'TRUE' if since is None else ' AND '.join(late)} AS whole")
        outputs += [f"{side}.{_TIME} AS t{number}" for number, side in enumerate(self.query.sides)]
        return self._joined(", ".join(outputs), None)

    def _joined(self, outputs: str, since: int | None) -> str:
        """Write the join of a query."""
        sides = self.query.sides
        conditions = [
            f"{sides[edge.first]}.{_key_name(n)} = {sides[edge.second]}.{_key_name(n)}"
            for n, edge in enumerate(_edges(self.query))
        ]
        conditions += [*self._window(), *(self._of_pair(condition) for condition in self.query.residual)]
        tables = ", ".join(f"{self._rows(number, since)} {side}" for number, side in enumerate(sides))
        where = " AND ".join(f"({condition})" for condition in conditions) or "TRUE"
        return f"SELECT {outputs} FROM {tables} WHERE {where}"

    def _rows(self, number: int, since: int | None) -> str:
        """Write the rows of one input that satisfy its predicates, with their keys."""
        side, stream = self.query.sides[number], self.streams[number]
        of_row = partial(self._translated, column_types(stream))
        columns = [
            _TIME,
            *(f"{column_sql(name)} AS {column_sql(f'{side}.{name}')}" for name in column_types(stream)),
        ]
        columns += [
            f"{of_row(f'CAST({text} AS {kind})' if kind else text)} AS {_key_name(n)}"
            for n, text, kind in _keys(self.query, number)
        ]
        wanted = [of_row(predicate) for predicate in self.query.predicates(side)]
        wanted += [] if since is None else [f"{_TIME} >= {since}"]
        where = f" WHERE {' AND '.join(f'({predicate})' for predicate in wanted)}" if wanted else ""
        return f"(SELECT {', '.join(columns)} FROM {table_of(side)}{where})"

    def _window(self) -> Iterator[str]:
        """Write the windows, as the largest age difference of every two rows, and the conditions on times."""
        try:
            written = read_written(self.query, self.streams, self.settings.zone)
            conditions = [self._of_pair(condition) for condition in written.conditions]
        except InputError:
            limits, conditions = _limits(self.query), []
        else:
            limits = [[length] * len(written.lengths) for length in written.lengths]
        for i, first in enumerate(self.query.sides):
            for j, second in enumerate(self.query.sides):
                if i != j and limits[i][j] < FOREVER:
                    yield f"{_age(self.query, i, first, second)} < {limits[i][j]}"
        yield from conditions

    def _instants(self) -> str:
        """List the instants that see a result: from its newest row until one leaves its window, up to the last row."""
        aggregation = aggregation_of(self.query)
        every, reach = aggregation.every, aggregation.reach
        newest = ", ".join(f"(SELECT max({_TIME}) FROM {table_of(side)})" for side in self.query.sides)
        first = f"greatest({', '.join(f't{number}' for number in range(len(reach)))}) + {every - 1}"
        first = f"{first} - (({first}) % {every} + {every}) % {every}"
        ends = ", ".join(f"t{number} + {length - 1}" for number, length in enumerate(reach))
        return f"generate_series({first}, least({ends}, greatest({newest})), {every})"


def _edges(query: Query) -> tuple[Edge, ...]:
    """List the equalities of a query with the inputs that they connect."""
    return query.graph.edges if query.graph else tuple(Edge(0, 1, key) for key in query.keys)


def _keys(query: Query, number: int) -> Iterator[tuple[int, str, str]]:
    """List an input's side of its equalities: the number of the equality, an expression, and a type."""
    for place, edge in enumerate(_edges(query)):
        if number in {edge.first, edge.second}:
            yield place, edge.key.left if number == edge.first else edge.key.right, edge.key.type


def _key_name(number: int) -> str:
    """Return a column name for a key that no stream has."""
    return f'"{RESERVED}k{number}"'


def _limits(query: Query) -> list[list[int]]:
    """List how much younger the other rows may be than a row of each input, by the plan."""
    if query.graph:
        return [list(row) for row in query.graph.limits]
    lo, hi = query.window.lo, query.window.hi
    return [[hi, hi], [-lo + (not query.rows[1])] * 2]


def _age(query: Query, number: int, older: Side, younger: Side) -> str:
    """Write how much older a row is than another: in microseconds, or in rows of its stream up to the other's time."""
    if not query.rows[number]:
        return f"{younger}.{_TIME} - {older}.{_TIME}"
    upto = (
        f"(SELECT count(*) FROM {table_of(older)} x WHERE x.{_TIME} <= {side}.{_TIME})"
        for side in (younger, older)
    )
    return " - ".join(upto)


def _measure(measure: Measure, kind: str) -> str:
    """Write an aggregate over outputs."""
    arguments = [f"c{number}" for number in measure.arguments]
    if measure.function == "avg" and kind.startswith("decimal"):
        raise _incomparable(f"AVG, which is {kind}", "DuckDB averages decimals as doubles")
    syntax = aggregate_class(measure.function)
    return syntax.in_duckdb(measure.function, arguments, distinct=measure.distinct)


def _incomparable(expression: str, why: str) -> InputError:
    return InputError(
        f"testing.expect cannot compare {expression}: {why}. Compare its results with rows that you write down, or "
        "name the queries to compare: expect(run, 'another')"
    )
