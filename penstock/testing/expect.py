"""Compare the results of a run with DuckDB, which joins the same rows as one batch.

`penstock.testing.question` writes the SQL that DuckDB answers.

In:  a run or a session.  Out: an `AssertionError` that shows missing and extra rows, if there are any.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.tasks.ingest import BROKEN, reason_name
from penstock.errors import InputError
from penstock.plan.promises import indexes_about
from penstock.sql.bind.promises import promises_of
from penstock.testing.expression.evaluate import connect, evaluate, to_duckdb
from penstock.testing.ingest_rows import row_times
from penstock.testing.input_rows import timely
from penstock.testing.question import TIME, Question, table_of
from penstock.testing.row_types import column_types
from penstock.testing.session import Run, Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.sql.query import Query, Stream

Bag = Counter[tuple[Any, ...]]

_ROUNDING = 1e-11
"""The relative difference of floating numbers that count as equal."""

MOST_SHOWN = 5
"""The number of differing rows in an error message."""


def expect(run: Run | Session, *queries: str) -> None:
    """Compare the results of all queries, or of some, with DuckDB's, whatever their order.

    A query that came after some of its rows needs all results from its `since` on, and no others than DuckDB's.
    """
    session = run.session if isinstance(run, Run) else run
    for name in queries:
        session.plan.query(name)  # refuses one that does not exist
    for query in session.queries:
        if queries and query.name.lower() not in {name.lower() for name in queries}:
            continue
        if query.name in session.altered:
            raise InputError(f"query {query.name} was defined anew: its results are by two definitions")
        _refuse_overtaken(session, query)
        _refuse_later(session, query)
        _refuse_changes(query)
        rows = run[query.name] if isinstance(run, Run) else session.results(query.name)
        _compare(session, query, rows)


def _refuse_overtaken(session: Session, query: Query) -> None:
    """Refuse to compare a query that counts rows if rows came for times that were counted already."""
    overtaken = {stream.name for stream in session.status().streams if stream.overtaken}
    if any(query.rows) and overtaken & set(query.streams):
        raise InputError(
            f"query {query.name} counts rows, and some came after `end` for times that were counted: compare before"
        )


def _refuse_later(session: Session, query: Query) -> None:
    """Refuse to compare a query over an older one with results: DuckDB does not know which results came first."""
    read = [name for name in query.streams if session.plan.stream(name).results]
    if read and session.since[query.name] is not None:
        raise InputError(
            f"query {query.name} came when {read[0]}, whose results it reads, had some already: compare its results "
            "with rows that you write down, or name the queries to compare: expect(run, 'another')"
        )


def _refuse_changes(query: Query) -> None:
    """Refuse to compare changes: they depend on the units in which pairs were found."""
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
    missing, extra = _without_near(least - got, got - answer)
    assert not missing and not extra, _difference(query, got, least, missing, extra)  # noqa: S101, PT018


def _compare_answers(session: Session, query: Query, got: Bag) -> None:
    """Compare aggregates; a query that was created late may have one other answer for each incomplete group."""
    answers = _ask(session, query, _question(session, query).answers(session.since[query.name]))
    wanted = [_plain(values) for whole, holds, *values in answers if whole and holds]
    known: Bag = Counter(_plain(values) for _, holds, *values in answers if holds)
    partial = sum(not whole for whole, *_ in answers)
    missing, extra = _without_near(Counter(wanted) - got, got - known)
    assert not missing and extra.total() <= partial, _difference(query, got, known, missing, extra)  # noqa: S101, PT018


def _without_near(missing: Bag, extra: Bag) -> tuple[Bag, Bag]:
    """Remove pairs of rows that differ in the last digits of floating numbers only: sums depend on their order."""
    for row in list(missing.elements()):
        near = next((other for other in extra.elements() if all(map(_is_near, row, other))), None)
        if near is not None:
            missing[row] -= 1
            extra[near] -= 1
    return +missing, +extra


def _is_near(one: Any, other: Any) -> bool:
    if one == other or not (isinstance(one, int | float) and isinstance(other, int | float)):
        return bool(one == other)
    return float in {type(one), type(other)} and math.isclose(one, other, rel_tol=_ROUNDING)


def _difference(query: Query, got: Bag, expected: Bag, missing: Bag, extra: Bag) -> str:
    lines = [f"query {query.name}: {got.total()} results, DuckDB has {expected.total()}"]
    for what, rows in (("missing", missing), ("too many", extra)):
        lines += [f"  {what}: {row}" for row in list(rows.elements())[:MOST_SHOWN]]
        if rows.total() > MOST_SHOWN:
            lines.append(f"  {what}: … and {rows.total() - MOST_SHOWN} more")
    return "\n".join(lines)


def _answer(session: Session, query: Query, since: int | None) -> Bag:
    """Return DuckDB's results of a query, over all rows or those from some event time on."""
    return Counter(_plain(row) for row in _ask(session, query, _question(session, query).results(since)))


def _question(session: Session, query: Query) -> Question:
    return Question(query, tuple(map(session.plan.stream, query.streams)), session.settings)


def _ask(session: Session, query: Query, question: str) -> list[tuple[Any, ...]]:
    """Return DuckDB's answer to a question about the rows of a query's streams."""
    return _columns(_asked(session, query, question))


def _asked(session: Session, query: Query, question: str) -> pa.Table:
    connection = connect()
    for side, stream in zip(query.sides, query.streams, strict=True):
        connection.register(table_of(side), _rows(session, stream))
    try:
        connection.execute("PRAGMA enable_optimizer")
        return connection.sql(question).to_arrow_table()
    finally:
        connection.close()


def _columns(table: pa.Table) -> list[tuple[Any, ...]]:
    """Read rows by position: two outputs may have one name."""
    numbered = table.rename_columns([str(number) for number in range(table.num_columns)])
    return [tuple(row.values()) for row in numbered.to_pylist()]


def _rows(session: Session, name: str) -> pa.Table:
    """Return the rows of a stream that count, or DuckDB's results of a query, with event times in microseconds."""
    if session.plan.stream(name).results:
        return _results(session, session.plan.query(name))
    stream = session.stream(name)
    batches = session.sent.get(stream.name) or [_no_rows(session, name)]
    table = _without_broken(session, _without_promises(session, timely(batches, stream), stream), stream)
    columns = {name: to_duckdb(_whole(table, name), kind) for name, kind in column_types(stream).items()}
    return pa.table({**columns, TIME: row_times(table, stream)})


def _whole(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _results(session: Session, query: Query) -> pa.Table:
    """Return DuckDB's results of a query that others read, numbered in any order."""
    found = _asked(session, query, _question(session, query).results())
    table = found.rename_columns([output.name for output in query.outputs])
    return table.append_column(TIME, pa.array(range(table.num_rows), pa.int64()))


def _without_promises(session: Session, table: pa.Table, stream: Stream) -> pa.Table:
    """Remove rows that are promises, not data."""
    for promise in promises_of(stream):
        if promise.condition:
            settings = session.settings
            holds = evaluate(
                promise.condition, table, column_types(stream), zone=settings.zone, ansi=settings.ansi
            )
            table = table.filter(pc.invert(pc.fill_null(holds, fill_value=False)))
    return table


def _without_broken(session: Session, table: pa.Table, stream: Stream) -> pa.Table:
    """Remove rows that the engine has set aside because they break a promise."""
    if not indexes_about(session.plan, stream.name):
        return table
    broken = Counter(
        _plain(tuple(row[column.name] for column in stream.columns))
        for row in session.late(stream.name)
        if str(row.get(reason_name(column.name for column in stream.columns), "")).startswith(BROKEN)
    )
    if not broken:
        return table
    kept = []
    for row in table.to_pylist():
        plain = _plain(tuple(row[column.name] for column in stream.columns))
        kept.append(not broken[plain])
        broken[plain] -= broken[plain] > 0
    return table.filter(pa.array(kept, pa.bool_()))


def _no_rows(session: Session, name: str) -> pa.Table:
    stream = session.stream(name)
    types = session.arrow_types(stream)
    return pa.table({column: pa.array([], kind) for column, kind in types.items()})


def _plain(values: Iterable[Any]) -> tuple[Any, ...]:
    """Write values in one form for both engines."""
    return tuple(_plain_value(value) for value in values)


def _plain_value(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat()
    if isinstance(value, dt.date):
        return f"{value.isoformat()}T00:00:00"
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() and abs(value) < 1 << 53 else value
    return str(value) if isinstance(value, float) else value
