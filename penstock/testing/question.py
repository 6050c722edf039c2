"""A query as DuckDB is asked it: by its definition, not by the engine's plan.

Its keys, predicates, conditions and outputs are as the script has them, translated by sqlglot; so are conditions on its
event times, and its window is a limit on time for every two rows of a result.  Only where such a condition is not known
here, the plan's window is asked instead, which has it in it::

    SELECT <outputs> FROM (SELECT *, <keys> FROM A WHERE <predicates>) l, (SELECT *, <keys> FROM B WHERE <predicates>) r
    WHERE <keys equal> AND r.t - l.t < … AND l.t - r.t < … AND <conditions on several rows>

An aggregate query is one more SELECT around that: its results, each at every instant that sees it, by instant and
group::

    SELECT <answers> FROM (SELECT e, g0 …, max(x0) AS a0 … FROM <results>, <instants e> GROUP BY e, g0 …) WHERE <having>

In:  a query of two streams or more, and its streams.
Out: SQL over tables that are called as the query's sides, with `rows_` before it; each has the event times in
microseconds in the column `TIME`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError
from penstock.plan.panes import aggregation_of
from penstock.sql.aggregates import aggregate_class
from penstock.sql.query import FOREVER, RESERVED, Edge
from penstock.testing.answer_values import answer_types
from penstock.testing.expression.evaluate import type_of
from penstock.testing.pair_values import pair_types
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
    """One query, ready to be asked; `streams` are those of its inputs in their order."""

    query: Query
    streams: tuple[Stream, ...]
    settings: SparkSettings

    def results(self, since: int | None = None) -> str:
        """Ask for its results, of all rows or of those from some event time on."""
        outputs = (
            f"{self._of_results.sql(each.expression)} AS c{n}" for n, each in enumerate(self.query.outputs)
        )
        return self._joined(", ".join(outputs), since)

    def answers(self, since: int | None = None) -> str:
        """Ask for its aggregates: whether all results of a group are known, whether HAVING holds, and the answers."""
        aggregation = aggregation_of(self.query)
        kinds = answer_types(self.query, self.streams, self.settings)
        of_groups = _Translator(kinds, ansi=self.settings.ansi)
        instant = ["e"] if aggregation.every else []
        keys = [*instant, *(f"c{each}" for each in range(aggregation.groups))]
        columns = [*instant, *(f"c{n} AS g{n}" for n in range(aggregation.groups))]
        columns += [
            f"{_measure(each, kinds[f'a{n}'])} AS a{n}" for n, each in enumerate(aggregation.measures)
        ]
        folded = (
            f"SELECT {', '.join([*columns, 'bool_and(whole) AS whole'])} FROM ({self._measured(since)}) p"
        )
        if aggregation.every:
            folded += f", LATERAL (SELECT unnest({self._instants()}) AS e)"
        folded += f" GROUP BY {', '.join(keys)}" if keys else " HAVING count(*) > 0"
        having = f"coalesce({of_groups.sql(aggregation.having)}, FALSE)" if aggregation.having else "TRUE"
        answers = ["make_timestamp(e)"] if aggregation.every else []
        answers += [of_groups.sql(each.expression) for each in aggregation.answers]
        return f"SELECT whole, {having}, {', '.join(answers)} FROM ({folded})"

    @property
    def _of_results(self) -> _Translator:
        return _Translator(pair_types(self.streams), ansi=self.settings.ansi)

    def _measured(self, since: int | None) -> str:
        """Write the results as the aggregates need them, with the times of their rows."""
        aggregation = aggregation_of(self.query)
        read = {*range(aggregation.groups), *(each for one in aggregation.measures for each in one.arguments)}
        outputs = [
            f"{self._of_results.sql(self.query.outputs[each].expression)} AS c{each}" for each in sorted(read)
        ]
        late = [f"{side}.{_TIME} >= {since}" for side in self.query.sides]
        outputs.append(f"{'TRUE' if since is None else ' AND '.join(late)} AS whole")
        outputs += [f"{side}.{_TIME} AS t{number}" for number, side in enumerate(self.query.sides)]
        return self._joined(", ".join(outputs), None)

    def _joined(self, outputs: str, since: int | None) -> str:
        """Write the join of a query."""
        sides = self.query.sides
        conditions = [
            f"{sides[each.first]}.{_key_name(n)} = {sides[each.second]}.{_key_name(n)}"
            for n, each in enumerate(_edges(self.query))
        ]
        conditions += [*self._window(), *(self._of_results.sql(each) for each in self.query.residual)]
        tables = ", ".join(f"{self._rows(number, since)} {side}" for number, side in enumerate(sides))
        where = " AND ".join(f"({each})" for each in conditions) or "TRUE"
        return f"SELECT {outputs} FROM {tables} WHERE {where}"

    def _rows(self, number: int, since: int | None) -> str:
        """Write the rows of one input that its predicates leave, with its keys."""
        side, stream = self.query.sides[number], self.streams[number]
        rows = _Translator({each.name: each.type for each in stream.columns}, ansi=self.settings.ansi)
        keys = "".join(
            f", {rows.sql(f'CAST({text} AS {kind})' if kind else text)} AS {_key_name(n)}"
            for n, text, kind in _keys(self.query, number)
        )
        wanted = [rows.sql(each) for each in self.query.predicates(side)]
        wanted += [] if since is None else [f"{_TIME} >= {since}"]
        where = f" WHERE {' AND '.join(f'({each})' for each in wanted)}" if wanted else ""
        return f"(SELECT *{keys} FROM {table_of(side)}{where})"

    def _window(self) -> Iterator[str]:
        """Write the windows as for every two rows, how much younger the second may be; and conditions on times."""
        try:
            written = read_written(self.query, self.streams, self.settings.zone)
            conditions = [self._known(each) for each in written.conditions]
        except InputError:
            limits, conditions = _limits(self.query), []
        else:
            limits = [[length] * len(written.lengths) for length in written.lengths]
        for i, first in enumerate(self.query.sides):
            for j, second in enumerate(self.query.sides):
                if i != j and limits[i][j] < FOREVER:
                    yield f"{_age(self.query, i, first, second)} < {limits[i][j]}"
        yield from conditions

    def _known(self, condition: str) -> str:
        """Translate a condition if all of it is known; sqlglot passes on functions that DuckDB has otherwise."""
        type_of(condition, pair_types(self.streams), ansi=self.settings.ansi)
        return self._of_results.sql(condition)

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
    """List the equalities of a query, and which inputs they are between."""
    return query.graph.edges if query.graph else tuple(Edge(0, 1, each) for each in query.keys)


def _keys(query: Query, number: int) -> Iterator[tuple[int, str, str]]:
    """List an input's side of each equality that it is in: the equality's number, an expression, and a type."""
    for place, edge in enumerate(_edges(query)):
        if number in {edge.first, edge.second}:
            yield place, edge.key.left if number == edge.first else edge.key.right, edge.key.type


def _key_name(number: int) -> str:
    """Name a key so that no column of a stream has that name."""
    return f'"{RESERVED}k{number}"'


def _limits(query: Query) -> list[list[int]]:
    """List how much younger than a row of each input the others may be, as the plan has it."""
    if query.graph:
        return [list(each) for each in query.graph.limits]
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
    arguments = [f"c{each}" for each in measure.arguments]
    if measure.function == "avg" and kind.startswith("decimal"):
        raise _incomparable(f"AVG, which is {kind}", "DuckDB averages decimals as doubles")
    syntax = aggregate_class(measure.function)
    return syntax.in_duckdb(measure.function, arguments, distinct=measure.distinct)


class _Translator:
    """Translates expressions over columns of some types, and refuses what DuckDB computes otherwise."""

    def __init__(self, types: Mapping[str, str], *, ansi: bool) -> None:
        self.types, self.ansi = types, ansi

    def sql(self, expression: str) -> str:
        """Write an expression as DuckDB reads it."""
        import sqlglot  # noqa: PLC0415 - see `penstock.testing.expect`
        from sqlglot import exp  # noqa: PLC0415

        try:
            tree: Any = sqlglot.parse_one(expression, read="spark")
        except sqlglot.ParseError:
            raise _incomparable(expression, "it cannot be translated") from None
        if any(self._type(division).startswith("decimal") for division in tree.find_all(exp.Div)):
            raise _incomparable(expression, "DuckDB divides decimals as doubles")
        casts = [(cast, cast.to.this, self._type(cast.this)) for cast in tree.find_all(exp.Cast)]
        for cast, target, kind in reversed(casts):  # inner ones first
            whole = target in exp.DataType.INTEGER_TYPES
            if whole and kind.startswith(("float", "double", "decimal")):
                raise _incomparable(expression, "DuckDB rounds where Spark cuts")
            if kind == "timestamp" and target in exp.DataType.NUMERIC_TYPES:
                cast.set("this", _epoch(cast.this, whole=whole))
            elif kind == "timestamp" and target in exp.DataType.TEXT_TYPES:
                raise _incomparable(expression, "DuckDB writes the time zone behind a TIMESTAMP")
            elif target in exp.DataType.TEMPORAL_TYPES and kind in _WHOLE_TYPES:
                raise _incomparable(expression, "DuckDB does not take numbers for seconds since 1970")
        for call, unit in ((exp.UnixSeconds, "second"), (exp.UnixMillis, "milliseconds")):
            for each in tree.find_all(call):
                each.set("this", _cut(each.this, unit))
        return str(tree.transform(_difference).sql(dialect="duckdb"))

    def _type(self, tree: Any) -> str:
        return type_of(tree.sql(dialect="spark"), self.types, ansi=self.ansi)


_WHOLE_TYPES = {"tinyint", "smallint", "int", "bigint"}


def _cut(time: Any, unit: str) -> Any:
    """Cut a time to whole units, since DuckDB rounds where Spark cuts."""
    return _duckdb(f"date_trunc('{unit}', {time.sql(dialect='duckdb')})")


def _difference(node: Any) -> Any:
    """Count whole units between two times; DuckDB's function of that purpose has another name."""
    from sqlglot import exp  # noqa: PLC0415 - see `penstock.testing.expect`

    if not isinstance(node, exp.TimestampDiff):
        return node
    taken, added = (each.sql(dialect="duckdb") for each in (node.expression, node.this))
    return _duckdb(f"date_sub('{node.text('unit')}', {taken}, {added})")


def _epoch(time: Any, *, whole: bool) -> Any:
    """Count the seconds since 1970, as Spark does when it casts a TIMESTAMP to a number."""
    return _duckdb(f"epoch({(_cut(time, 'second') if whole else time).sql(dialect='duckdb')})")


def _duckdb(text: str) -> Any:
    import sqlglot  # noqa: PLC0415 - see `penstock.testing.expect`

    return sqlglot.parse_one(text, read="duckdb")


def _incomparable(expression: str, why: str) -> InputError:
    return InputError(
        f"testing.expect cannot compare {expression}: {why}. Compare its results with rows that you write down, or "
        "name the queries to compare: expect(run, 'another')"
    )
