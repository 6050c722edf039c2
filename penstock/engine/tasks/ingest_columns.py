"""The columns that ingest needs of every row, as Spark SQL: event time, keys, and predicate bits.

All of it is evaluated once per row, however many queries ask.  Spark computes a subexpression that several columns have
in common first and once, also one that stands behind the test that guards it; but it does not look into the branches of
a CASE.  So whatever may fail stands in one (`answer`)::

    x <> 0                      as it is: it cannot fail
    f(s) > 5                    as it is: f(s) is evaluated for every row anyway, and once for all who compare it
    x = 0 OR 10 / x > 1         CASE WHEN <the row has a time and a key> THEN x = 0 OR 10 / x > 1 END

In:  a stream and the logs that will hold it.  Out: the names of the columns, and the expression of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.tasks.key_values import as_bigint, as_bytes
from penstock.kernels.sets import words_for
from penstock.sql.bind.promises import promises_of
from penstock.sql.bind.safety import always_succeeds, guards_nothing
from penstock.sql.query import DAY, RESERVED
from penstock.sql.text.tree import always_quoted

if TYPE_CHECKING:
    from penstock.plan.stored import KeyPart, LogPlan
    from penstock.sql.query import Stream


ROW_TIME = f"{RESERVED}t"


def named(name: str, value: str) -> str:
    """Write a column of a SELECT list."""
    return f"{value} AS {always_quoted(name)}"


FARTHEST = 1 << 59
"""Microseconds from 1970 to the first and last event times that can be joined, 18,000 years: so sums and differences of
times and windows always fit in 64 bits."""


def ingest_columns(stream: Stream, logs: tuple[LogPlan, ...]) -> dict[str, str]:
    """Give the expression of each column that is made for ingest."""
    added = {ROW_TIME: time_expression(stream)}
    for number, log in enumerate(logs):
        added |= _key_columns(number, stream, log)
        added |= _bit_columns(number, stream, log)
    return added


def ingest_names(stream: Stream, logs: tuple[LogPlan, ...]) -> list[str]:
    """Name the columns that are made for ingest."""
    return list(ingest_columns(stream, logs))


def time_expression(stream: Stream) -> str:
    """Turn the time column into microseconds since the epoch; null if it is too far from it.

    A timestamp without a time zone counts from the epoch's wall-clock reading, so that daylight saving never
    stretches a window.  Where there is no event time, the time is counted when rows are in order (`watching`).
    """
    if stream.timeless:
        return "0L"
    name = always_quoted(stream.time)
    if stream.time_type == "date":
        days, farthest = f"unix_date({name})", FARTHEST // DAY
        return f"CASE WHEN {days} BETWEEN -{farthest} AND {farthest} THEN {days} * {DAY}L END"
    micros = as_bigint(name, stream.time_type)
    return f"CASE WHEN {micros} BETWEEN -{FARTHEST}L AND {FARTHEST}L THEN {micros} END"


def key_names(number: int, log: LogPlan) -> tuple[str, list[str]]:
    """Name the columns that carry a log's key through ingest: the 64-bit one, and the key itself if needed.

    A plain bigint column is its own 64-bit key.
    """
    parts = [] if log.whole_key else [f"{RESERVED}k{number}.{part}" for part in range(len(log.key))]
    return log.plain_key or f"{RESERVED}h{number}", parts


def bit_names(number: int, log: LogPlan) -> list[str]:
    """Name the columns that carry a log's predicate bits through ingest."""
    if not log.predicates:
        return []
    return [f"{RESERVED}b{number}.{word}" for word in range(words_for(len(log.predicates)))]


def answer(predicate: str, stream: Stream, usable: str) -> str:
    """Write a predicate so that it may stand beside others, with which it may have subexpressions in common."""
    apart = always_succeeds(predicate, stream) or guards_nothing(predicate, stream)
    return predicate if apart else f"CASE WHEN {usable} THEN {predicate} END"


def _usable(stream: Stream, log: LogPlan) -> str:
    """Say whether a row can meet others: one without a time, or a key that is a plain column, or a promise, cannot.

    The time is compared because a test for null is left out by Spark where there are none.
    """
    columns = dict.fromkeys(part.column for part in log.key if part.column)
    tests = [
        f"{time_expression(stream)} > {_NO_TIME}",
        *(f"{always_quoted(each)} IS NOT NULL" for each in columns),
        *(f"({each}) IS NOT TRUE" for each in promise_conditions(stream, log)),
    ]
    return " AND ".join(tests)


MARKS = "marks"
"""The log that stands for the question whether a row is a promise."""


def promise_conditions(stream: Stream, log: LogPlan) -> list[str]:
    """List the conditions by which a row is a promise, and none of a log's business."""
    return [each.condition for each in promises_of(stream) if each.condition and log.id != MARKS]


_NO_TIME = "-9223372036854775808L"


def _key_columns(number: int, stream: Stream, log: LogPlan) -> dict[str, str]:
    """Evaluate a log's key, of rows that some query wants if it may fail; null means that the row can never match."""
    columns = _keys(number, log)
    if not log.wanted:
        return columns
    wanted = " OR ".join(_all_hold(condition, stream, log) for condition in log.wanted)
    return {name: f"CASE WHEN {wanted} THEN {value} END" for name, value in columns.items()}


def _all_hold(condition: tuple[str, ...], stream: Stream, log: LogPlan) -> str:
    """Say whether a row satisfies all predicates of a condition, and is usable."""
    usable = _usable(stream, log)
    return " AND ".join(
        f"({each})" for each in (usable, *(answer(each, stream, usable) for each in condition))
    )


def _keys(number: int, log: LogPlan) -> dict[str, str]:
    """Write a log's key: a 64-bit number, and the key itself if that is not all of it."""
    name, parts = key_names(number, log)
    if log.plain_key:
        return {}
    if not log.key:  # all rows have the same one, and none is without it
        return {name: "0L"}
    if log.whole_key:
        return {name: as_bigint(_typed(log.key[0]), log.key[0].type)}
    values = [as_bytes(_typed(part), part.type) for part in log.key]
    keyed = " AND ".join(f"({value}) IS NOT NULL" for value in values)
    digest = f"CASE WHEN {keyed} THEN xxhash64({', '.join(values)}) END"
    return {name: digest, **dict(zip(parts, values, strict=True))}


def _typed(part: KeyPart) -> str:
    """Cast a key column to the type both sides are compared as."""
    return f"cast({part.expression} AS {part.type})" if part.cast else f"({part.expression})"


def _bit_columns(number: int, stream: Stream, log: LogPlan) -> dict[str, str]:
    """Evaluate every predicate once and pack the answers into 64-bit words; null counts as false."""
    columns = {}
    usable = _usable(stream, log)
    for word, name in enumerate(bit_names(number, log)):
        of_word = log.predicates[64 * word : 64 * word + 64]
        bits = (
            f"(CASE WHEN {answer(predicate, stream, usable)} THEN shiftleft(1L, {bit}) ELSE 0L END)"
            for bit, predicate in enumerate(of_word)
        )
        columns[name] = " | ".join(bits)
    return columns
