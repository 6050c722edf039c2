"""Hold what a run gave against DuckDB: the same rows, joined as one batch by another engine.

A query is given to DuckDB by its definition, not by the engine's plan: its keys, predicates, conditions and outputs as
the script has them, translated by sqlglot, and its window as a range of differences::

    SELECT <outputs> FROM (SELECT *, <keys> FROM A WHERE <predicates>) l
                     JOIN (SELECT *, <keys> FROM B WHERE <predicates>) r
                     ON <keys equal> AND lo <= r.t - l.t AND r.t - l.t < hi AND <conditions on both rows>

In:  a run or a session.  Out: nothing, or an `AssertionError` that shows the rows that are missing or too many.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import InputError
from penstock.sql.query import RESERVED, SIDES
from penstock.testing.expression.evaluate import type_of
from penstock.testing.input_rows import timely
from penstock.testing.pair_values import pair_types
from penstock.testing.row_values import row_times
from penstock.testing.session import Run, Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.sql.query import Query, Side

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
        rows = run[query.name] if isinstance(run, Run) else session.results(query.name)
        _compare(session, query, rows)


def _refuse_overtaken(session: Session, query: Query) -> None:
    """Refuse to compare where rows came below what a finished run had counted: they are not counted any more."""
    overtaken = {each.name for each in session.status().streams if each.overtaken}
    if any(query.rows) and overtaken & {query.left, query.right}:
        raise InputError(
            f"query {query.name} counts rows, and some came after `end` for times that were counted: compare before"
        )


def _compare(session: Session, query: Query, rows: Sequence[Mapping[str, Any]]) -> None:
    got: Bag = Counter(_plain(row.values()) for row in rows)
    answer = _answer(session, query, None)
    since = session.since[query.name]
    least = answer if since is None else _answer(session, query, since)
    missing, extra = least - got, got - answer
    assert not missing and not extra, _difference(query, got, least, missing, extra)  # noqa: S101, PT018


def _difference(query: Query, got: Bag, expected: Bag, missing: Bag, extra: Bag) -> str:
    lines = [f"query {query.name}: {got.total()} results, DuckDB has {expected.total()}"]
    for what, rows in (("missing", missing), ("too many", extra)):
        lines += [f"  {what}: {row}" for row in list(rows.elements())[:MOST_SHOWN]]
        if rows.total() > MOST_SHOWN:
            lines.append(f"  {what}: … and {rows.total() - MOST_SHOWN} more")
    return "\n".join(lines)


def _answer(session: Session, query: Query, since: int | None) -> Bag:
    """Let DuckDB answer a query, over all rows or those from some event time on."""
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
    answer = connection.sql(_question(session, query, since)).to_arrow_table()
    return Counter(_plain(row.values()) for row in _columns(answer))


def _columns(table: pa.Table) -> Iterable[dict[str, Any]]:
    """Read rows by position: two outputs may have one name."""
    numbered = table.rename_columns([str(number) for number in range(table.num_columns)])
    rows: list[dict[str, Any]] = numbered.to_pylist()
    return rows


def _rows(session: Session, name: str) -> pa.Table:
    """Give the rows of a stream that count, with their event times in microseconds."""
    stream = session.stream(name)
    batches = session.sent.get(stream.name) or [_no_rows(session, name)]
    table = timely(batches, stream)
    return table.append_column(_TIME.strip('"'), row_times(table, stream))


def _no_rows(session: Session, name: str) -> pa.Table:
    stream = session.stream(name)
    types = session.arrow_types(stream)
    return pa.table({column: pa.array([], kind) for column, kind in types.items()})


def _question(session: Session, query: Query, since: int | None) -> str:
    """Write a query as DuckDB reads it."""
    left, right = session.stream(query.left), session.stream(query.right)
    pairs = _Translator(pair_types(left, right), ansi=session.settings.ansi)
    conditions = [f"l.{_key_name(number)} = r.{_key_name(number)}" for number in range(len(query.keys))]
    conditions += [*_window(query), *(pairs.sql(each) for each in query.residual)]
    outputs = ", ".join(f"{pairs.sql(each.expression)} AS c{n}" for n, each in enumerate(query.outputs))
    sides = (_side(session, query, side, since) for side in SIDES)
    return (
        f"SELECT {outputs} FROM {next(sides)} l JOIN {next(sides)} r "
        f"ON {' AND '.join(f'({each})' for each in conditions)}"
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
        return int(value) if value.is_integer() and abs(value) < 1 << 53 else f"{value:.12g}"
    return value
