"""Hold what a run gave against DuckDB: the same rows, joined as one batch by another engine.

A query is given to DuckDB by its definition, not by the engine's plan: its keys, predicates, conditions and outputs as
the script has them, translated by sqlglot, and its window as a range of differences::

    SELECT <outputs> FROM (SELECT *, <keys> FROM A WHERE <predicates>) l
                     JOIN (SELECT *, <keys> FROM B WHERE <predicates>) r
                     ON <keys equal> AND lo <= r.t - l.t AND r.t - l.t < hi AND <conditions on both rows>

An aggregate query is one more SELECT around that: its pairs, each at every instant that sees it, by instant and group::

    SELECT <answers> FROM (SELECT e, g0 …, max(x0) AS a0 … FROM <pairs>, <instants e> GROUP BY e, g0 …) WHERE <having>

In:  a run or a session.  Out: nothing, or an `AssertionError` that shows the rows that are missing or too many.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.ingest.batch_task import BROKEN, reason_name
from penstock.errors import InputError
from penstock.plan.panes import aggregation_of
from penstock.plan.promises import indexes_about
from penstock.sql.promises import promises_of
from penstock.sql.query import RESERVED, SIDES
from penstock.testing.answer_values import answer_types
from penstock.testing.expression.evaluate import evaluate, type_of
from penstock.testing.input_rows import timely
from penstock.testing.pair_values import pair_types
from penstock.testing.row_values import row_times
from penstock.testing.session import Run, Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.sql.query import Measure, Query, Side, Stream

Bag = Counter[tuple[Any, ...]]

MOST_SHOWN = 5
"""Rows that are shown of those that differ."""

_TIME = f'"{RESERVED}t"'


def expect(run: Run | Session, *queries: str) -> None:
    """Compare the results of all queries, or of some, with DuckDB's, whatever their order.

    A query that came after some of its rows must have all results of rows from when on it is complete, and no others
    than DuckDB's.
    """
    session = run.session if isinstance(run, Run) else run
    for name in queries:
        session.plan.query(name)  # refuses one that does not exist
    for query in session.queries:
        if queries and query.name.lower() not in {each.lower() for each in queries}:
            continue
        if query.name in session.altered:
            raise InputError(f"query {query.name} was defined anew: its results are by two definitions")
        _refuse_overtaken(session, query)
        _refuse_changes(query)
        rows = run[query.name] if isinstance(run, Run) else session.results(query.name)
        _compare(session, query, rows)


def _refuse_overtaken(session: Session, query: Query) -> None:
    """Refuse to compare where rows came below what a finished run had counted: they are not counted any more."""
    overtaken = {each.name for each in session.status().streams if each.overtaken}
    if any(query.rows) and overtaken & {query.left, query.right}:
        raise InputError(
            f"query {query.name} counts rows, and some came after `end` for times that were counted: compare before"
        )


def _refuse_changes(query: Query) -> None:
    """Refuse to compare changes: which there are depends on the units in which pairs were found."""
    if query.aggregation is not None and query.aggregation.emit == "changes":
        raise InputError(
            f"query {query.name} answers with changes, unit by unit, and testing.expect compares finished results: "
            "compare the last row of each group with rows that you write down, or name the queries to compare: "
            "expect(run, 'another')"
        )


def _compare(session: Session, query: Query, rows: Sequence[Mapping[str, Any]]) -> None:
    got: Bag = Counter(_plain(row.values()) for row in rows)
    if query.aggregation is not None:
        _compare_answers(session, query, got)
        return
    answer = _answer(session, query, None)
    since = session.since[query.name]
    least = answer if since is None else _answer(session, query, since)
    missing, extra = least - got, got - answer
    assert not missing and not extra, _difference(query, got, least, missing, extra)  # noqa: S101, PT018


def _compare_answers(session: Session, query: Query, got: Bag) -> None:
    """Compare aggregates.  A query that came late has one answer for a group of which it knows only some pairs."""
    answers = _ask(session, query, _aggregate_question(session, query, session.since[query.name]))
    wanted = [_plain(values) for whole, holds, *values in answers if whole and holds]
    known: Bag = Counter(_plain(values) for _, holds, *values in answers if holds)
    partial = sum(not whole for whole, *_ in answers)
    missing, extra = Counter(wanted) - got, got - known
    assert not missing and extra.total() <= partial, _difference(query, got, known, missing, extra)  # noqa: S101, PT018


def _difference(query: Query, got: Bag, expected: Bag, missing: Bag, extra: Bag) -> str:
    lines = [f"query {query.name}: {got.total()} results, DuckDB has {expected.total()}"]
    for what, rows in (("missing", missing), ("too many", extra)):
        lines += [f"  {what}: {row}" for row in list(rows.elements())[:MOST_SHOWN]]
        if rows.total() > MOST_SHOWN:
            lines.append(f"  {what}: … and {rows.total() - MOST_SHOWN} more")
    return "\n".join(lines)


def _answer(session: Session, query: Query, since: int | None) -> Bag:
    """Let DuckDB answer a query, over all rows or those from some event time on."""
    return Counter(_plain(row) for row in _ask(session, query, _question(session, query, since)))


def _ask(session: Session, query: Query, question: str) -> list[tuple[Any, ...]]:
    """Put a question to DuckDB, about the rows of a query's streams."""
    try:
        import duckdb  # noqa: PLC0415 - wanted here only
        import sqlglot  # noqa: F401, PLC0415 - and so is this
    except ImportError as error:
        raise InputError(
            f"testing.expect compares with DuckDB, and {error.name} is not installed: pip install penstock[testing]"
        ) from None
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, stream in (("left_rows", query.left), ("right_rows", query.right)):
        connection.register(name, _rows(session, stream))
    return _columns(connection.sql(question).to_arrow_table())


def _columns(table: pa.Table) -> list[tuple[Any, ...]]:
    """Read rows by position: two outputs may have one name."""
    numbered = table.rename_columns([str(number) for number in range(table.num_columns)])
    return [tuple(row.values()) for row in numbered.to_pylist()]


def _rows(session: Session, name: str) -> pa.Table:
    """Give the rows of a stream that count, with their event times in microseconds."""
    stream = session.stream(name)
    batches = session.sent.get(stream.name) or [_no_rows(session, name)]
    table = _without_broken(session, _without_promises(session, timely(batches, stream), stream), stream)
    return table.append_column(_TIME.strip('"'), row_times(table, stream))


def _without_promises(session: Session, table: pa.Table, stream: Stream) -> pa.Table:
    """Leave out the rows that are promises, not data."""
    types = {each.name: each.type for each in stream.columns}
    for promise in promises_of(stream):
        if promise.condition:
            settings = session.settings
            holds = evaluate(promise.condition, table, types, zone=settings.zone, ansi=settings.ansi)
            table = table.filter(pc.invert(pc.fill_null(holds, fill_value=False)))
    return table


def _without_broken(session: Session, table: pa.Table, stream: Stream) -> pa.Table:
    """Leave out the rows that the engine has set aside because they break a promise."""
    if not indexes_about(session.plan, stream.name):
        return table
    broken = Counter(
        _plain(tuple(row[each.name] for each in stream.columns))
        for row in session.late(stream.name)
        if str(row.get(reason_name(each.name for each in stream.columns), "")).startswith(BROKEN)
    )
    if not broken:
        return table
    kept = []
    for row in table.to_pylist():
        plain = _plain(tuple(row[each.name] for each in stream.columns))
        kept.append(not broken[plain])
        broken[plain] -= broken[plain] > 0
    return table.filter(pa.array(kept, pa.bool_()))


def _no_rows(session: Session, name: str) -> pa.Table:
    stream = session.stream(name)
    types = session.arrow_types(stream)
    return pa.table({column: pa.array([], kind) for column, kind in types.items()})


def _question(session: Session, query: Query, since: int | None) -> str:
    """Write a query as DuckDB reads it."""
    pairs = _pair_translator(session, query)
    outputs = ", ".join(f"{pairs.sql(each.expression)} AS c{n}" for n, each in enumerate(query.outputs))
    return _pairs(session, query, outputs, since)


def _pair_translator(session: Session, query: Query) -> _Translator:
    streams = tuple(map(session.stream, query.streams))
    return _Translator(pair_types(streams), ansi=session.settings.ansi)


def _pairs(session: Session, query: Query, outputs: str, since: int | None) -> str:
    """Write the join of a query."""
    pairs = _pair_translator(session, query)
    conditions = [f"l.{_key_name(number)} = r.{_key_name(number)}" for number in range(len(query.keys))]
    conditions += [*_window(query), *(pairs.sql(each) for each in query.residual)]
    sides = (_side(session, query, side, since) for side in SIDES)
    return (
        f"SELECT {outputs} FROM {next(sides)} l JOIN {next(sides)} r "
        f"ON {' AND '.join(f'({each})' for each in conditions)}"
    )


def _aggregate_question(session: Session, query: Query, since: int | None) -> str:
    """Write an aggregate query: whether all pairs of a group are known, whether HAVING holds, and the answers."""
    aggregation, pairs = aggregation_of(query), _pair_translator(session, query)
    streams = tuple(map(session.stream, query.streams))
    kinds = answer_types(query, streams, session.settings)
    groups = _Translator(kinds, ansi=session.settings.ansi)
    read = {*range(aggregation.groups), *(each for one in aggregation.measures for each in one.arguments)}
    outputs = [f"{pairs.sql(query.outputs[each].expression)} AS c{each}" for each in sorted(read)]
    whole = "TRUE" if since is None else f"l.{_TIME} >= {since} AND r.{_TIME} >= {since}"
    joined = _pairs(
        session,
        query,
        ", ".join([*outputs, f"{whole} AS whole", f"l.{_TIME} AS tl", f"r.{_TIME} AS tr"]),
        None,
    )
    keys = [*(["e"] if aggregation.every else []), *(f"c{each}" for each in range(aggregation.groups))]
    columns = [*(["e"] if aggregation.every else []), *(f"c{n} AS g{n}" for n in range(aggregation.groups))]
    columns += [f"{_measure(each, kinds[f'a{n}'])} AS a{n}" for n, each in enumerate(aggregation.measures)]
    folded = f"SELECT {', '.join([*columns, 'bool_and(whole) AS whole'])} FROM ({joined}) p"
    if aggregation.every:
        folded += f", LATERAL (SELECT unnest({_instants(query)}) AS e)"
    folded += f" GROUP BY {', '.join(keys)}" if keys else " HAVING count(*) > 0"
    having = f"coalesce({groups.sql(aggregation.having)}, FALSE)" if aggregation.having else "TRUE"
    answers = ["make_timestamp(e)"] if aggregation.every else []
    answers += [groups.sql(each.expression) for each in aggregation.answers]
    return f"SELECT whole, {having}, {', '.join(answers)} FROM ({folded})"


def _instants(query: Query) -> str:
    """List the instants that see a pair: from its newer row until one leaves its window, up to the newest of all."""
    aggregation = aggregation_of(query)
    every, (left, right) = aggregation.every, aggregation.reach
    newest = ", ".join(f"(SELECT max({_TIME}) FROM {table})" for table in ("left_rows", "right_rows"))
    first = f"greatest(tl, tr) + {every - 1}"
    first = f"{first} - (({first}) % {every} + {every}) % {every}"
    return f"generate_series({first}, least(tl + {left - 1}, tr + {right - 1}, greatest({newest})), {every})"


def _measure(measure: Measure, kind: str) -> str:
    """Write an aggregate over the outputs of pairs; a null in any of several values that are told apart is no value."""
    arguments = [f"c{each}" for each in measure.arguments]
    if measure.function == "avg" and kind.startswith("decimal"):
        raise _incomparable(f"AVG, which is {kind}", "DuckDB averages decimals as doubles")
    if len(arguments) > 1:
        given = " AND ".join(f"{each} IS NOT NULL" for each in arguments)
        arguments = [f"CASE WHEN {given} THEN row({', '.join(arguments)}) END"]
    return (
        f"{measure.function}({'DISTINCT ' if measure.distinct else ''}{arguments[0] if arguments else '*'})"
    )


def _side(session: Session, query: Query, side: Side, since: int | None) -> str:
    stream = session.stream(query.left if side == "l" else query.right)
    rows = _Translator({each.name: each.type for each in stream.columns}, ansi=session.settings.ansi)
    texts = [(key.left if side == "l" else key.right, key.type) for key in query.keys]
    keys = ", ".join(
        f"{rows.sql(f'CAST({text} AS {kind})' if kind else text)} AS {_key_name(number)}"
        for number, (text, kind) in enumerate(texts)
    )
    wanted = [rows.sql(each) for each in query.predicates(side)]
    wanted += [] if since is None else [f"{_TIME} >= {since}"]
    where = f" WHERE {' AND '.join(f'({each})' for each in wanted)}" if wanted else ""
    table = "left_rows" if side == "l" else "right_rows"
    return f"(SELECT *{', ' if keys else ''}{keys} FROM {table}{where})"


def _key_name(number: int) -> str:
    """Name a key so that no column of a stream has that name."""
    return f'"{RESERVED}k{number}"'


def _window(query: Query) -> list[str]:
    """Write a window: a range of differences, in microseconds or in rows of the older row's stream."""
    lo, hi = query.window.lo, query.window.hi
    older_left, older_right = f"r.{_TIME} - l.{_TIME}", f"l.{_TIME} - r.{_TIME}"
    if query.rows[0]:
        older_left = f"{_upto('left_rows', 'r')} - {_upto('left_rows', 'l')}"
    if query.rows[1]:
        older_right = f"{_upto('right_rows', 'l')} - {_upto('right_rows', 'r')} + 1"
    difference = f"CASE WHEN r.{_TIME} >= l.{_TIME} THEN {older_left} ELSE -({older_right}) END"
    return [f"{difference} >= {lo}", f"{difference} < {hi}"]


def _upto(table: str, side: str) -> str:
    """Count the rows of a stream up to a row's time."""
    return f"(SELECT count(*) FROM {table} x WHERE x.{_TIME} <= {side}.{_TIME})"


class _Translator:
    """Translates expressions over columns of some types, and refuses what DuckDB computes otherwise."""

    def __init__(self, types: Mapping[str, str], *, ansi: bool) -> None:
        self.types, self.ansi = types, ansi

    def sql(self, expression: str) -> str:
        """Write an expression as DuckDB reads it."""
        import sqlglot  # noqa: PLC0415 - see `_answer`
        from sqlglot import exp  # noqa: PLC0415

        try:
            tree: Any = sqlglot.parse_one(expression, read="spark")
        except sqlglot.ParseError:
            raise _incomparable(expression, "it cannot be translated") from None
        for cast in tree.find_all(exp.Cast):
            if cast.to.this in exp.DataType.INTEGER_TYPES and self._is_fractional(cast.this):
                raise _incomparable(expression, "DuckDB rounds where Spark cuts")
        for division in tree.find_all(exp.Div):
            if self._type(division).startswith("decimal"):
                raise _incomparable(expression, "DuckDB divides decimals as doubles")
        return str(tree.sql(dialect="duckdb"))

    def _is_fractional(self, tree: Any) -> bool:
        return self._type(tree).startswith(("float", "double", "decimal"))

    def _type(self, tree: Any) -> str:
        return type_of(tree.sql(dialect="spark"), self.types, ansi=self.ansi)


def _incomparable(expression: str, why: str) -> InputError:
    return InputError(
        f"testing.expect cannot compare {expression}: {why}. Compare its results with rows that you write down, or "
        "name the queries to compare: expect(run, 'another')"
    )


def _plain(values: Iterable[Any]) -> tuple[Any, ...]:
    """Write values so that both engines write them alike."""
    return tuple(_plain_value(each) for each in values)


def _plain_value(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat()
    if isinstance(value, dt.date):
        return f"{value.isoformat()}T00:00:00"
    if isinstance(value, pa.MonthDayNano):
        return dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
    if isinstance(value, float):
        rounded = float(f"{value:.12g}")
        return int(rounded) if rounded.is_integer() and abs(rounded) < 1 << 53 else f"{value:.12g}"
    return value
