"""The columns that ingest computes for each row, as Spark SQL: event time, keys and predicate bits.

Each is evaluated once per row, for all queries.  Spark computes a subexpression that several columns share once and
first, even if it stands behind the test that guards it; but it does not look into the branches of a CASE.  So an
expression that may fail stands in one (`answer`)::

    x <> 0                      as it is: it cannot fail
    f(s) > 5                    as it is: f(s) is evaluated for every row anyway, once for all comparisons
    x = 0 OR 10 / x > 1         CASE WHEN <the row has a time and a key> THEN x = 0 OR 10 / x > 1 END

A log is sorted by a 64-bit number for each key.  Where that is not the whole key, its value is stored too and compared
byte by byte.  So values that Spark takes as equal need equal bytes, and no others may have them::

    whole in 64 bits          bigint, int, boolean, date, timestamp: the number itself
    float, double             one zero for 0.0 and -0.0, one NaN
    array, struct             text (JSON) of their parts, each in normal form; times as numbers, because text would
                              cut them to milliseconds and write two hours of an autumn night alike
    year-month interval       text, because Arrow has no such type

Null inside an array or struct equals null, as in Spark.  A null key never matches.

In:  a stream and the logs that will hold it.  Out: the names of the columns, and the expression of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InputError
from penstock.kernels.sets import words_for
from penstock.sql.bind.promises import promises_of
from penstock.sql.bind.safety import always_succeeds, guards_nothing
from penstock.sql.query import DAY, RESERVED
from penstock.sql.spark_types import SparkType, TypeTextError, parse_type
from penstock.sql.text.tree import always_quoted

if TYPE_CHECKING:
    from penstock.plan.stored import KeyPart, LogPlan
    from penstock.sql.query import Stream

ROW_TIME = f"{RESERVED}t"

FARTHEST = 1 << 59
"""Microseconds from 1970 to the first and last event times that can be joined, 18,000 years: so sums and differences of
times and windows always fit in 64 bits."""

MARKS = "marks"
"""The id of the log whose only predicate is whether a row is a promise."""

_NO_TIME = "-9223372036854775808L"
_FLOATS = frozenset({"float", "double"})
_NESTED = frozenset({"array", "struct"})
_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def ingest_columns(stream: Stream, logs: tuple[LogPlan, ...]) -> dict[str, str]:
    """Return the expression of each column that is computed for ingest."""
    columns = {ROW_TIME: time_expression(stream)}
    for number, log in enumerate(logs):
        columns |= _key_columns(number, stream, log)
        columns |= _bit_columns(number, stream, log)
    return columns


def time_expression(stream: Stream) -> str:
    """Turn the time column into microseconds since the epoch; null if it is too far from it.

    A timestamp without a time zone counts from the epoch's wall-clock reading, so that daylight saving never
    stretches a window.  Without an event time it is 0: the position of a row takes its place (`order_watch`).
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
    """Name the columns that carry a log's key through ingest: the 64-bit number, and the parts of the key if needed.

    A plain bigint column is its own 64-bit number.
    """
    parts = [] if log.whole_key else [f"{RESERVED}k{number}.{part}" for part in range(len(log.key))]
    return log.plain_key or f"{RESERVED}h{number}", parts


def bit_names(number: int, log: LogPlan) -> list[str]:
    """Name the columns that carry a log's predicate bits through ingest."""
    if not log.predicates:
        return []
    return [f"{RESERVED}b{number}.{word}" for word in range(words_for(len(log.predicates)))]


# --- predicates -------------------------------------------------------------------------------------------------


def answer(predicate: str, stream: Stream, usable: str) -> str:
    """Write a predicate so that it may stand beside others, with which it may share subexpressions."""
    is_safe = always_succeeds(predicate, stream) or guards_nothing(predicate, stream)
    return predicate if is_safe else f"CASE WHEN {usable} THEN {predicate} END"


def _usable(stream: Stream, log: LogPlan) -> str:
    """Write the condition that a row has a time and every plain key column, and is no promise.

    The time is compared because Spark leaves out a test for null of a column without nulls.
    """
    columns = dict.fromkeys(part.column for part in log.key if part.column)
    tests = [
        f"{time_expression(stream)} > {_NO_TIME}",
        *(f"{always_quoted(column)} IS NOT NULL" for column in columns),
        *(f"({condition}) IS NOT TRUE" for condition in promise_conditions(stream, log)),
    ]
    return " AND ".join(tests)


def promise_conditions(stream: Stream, log: LogPlan) -> list[str]:
    """List the conditions by which a row is a promise and does not enter a log."""
    return [promise.condition for promise in promises_of(stream) if promise.condition and log.id != MARKS]


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


# --- keys -------------------------------------------------------------------------------------------------------


def _key_columns(number: int, stream: Stream, log: LogPlan) -> dict[str, str]:
    """Write a log's key: a 64-bit number, and its parts if that is not all of it; null can never match.

    A key that may fail is evaluated only for rows that some query wants.
    """
    columns = _keys(number, log)
    if not log.wanted:
        return columns
    wanted = " OR ".join(_all_hold(condition, stream, log) for condition in log.wanted)
    return {name: f"CASE WHEN {wanted} THEN {value} END" for name, value in columns.items()}


def _all_hold(condition: tuple[str, ...], stream: Stream, log: LogPlan) -> str:
    usable = _usable(stream, log)
    tests = usable, *(answer(predicate, stream, usable) for predicate in condition)
    return " AND ".join(f"({test})" for test in tests)


def _keys(number: int, log: LogPlan) -> dict[str, str]:
    name, parts = key_names(number, log)
    if log.plain_key:
        return {}
    if not log.key:  # a join without an equality: every row has the same key
        return {name: "0L"}
    if log.whole_key:
        return {name: as_bigint(_typed(log.key[0]), log.key[0].type)}
    values = [as_bytes(_typed(part), part.type) for part in log.key]
    keyed = " AND ".join(f"({value}) IS NOT NULL" for value in values)
    digest = f"CASE WHEN {keyed} THEN xxhash64({', '.join(values)}) END"
    return {name: digest, **dict(zip(parts, values, strict=True))}


def _typed(part: KeyPart) -> str:
    """Cast a key column to the type in which both sides are compared."""
    return f"cast({part.expression} AS {part.type})" if part.cast else f"({part.expression})"


def as_bigint(value: str, kind: str) -> str:
    """Write a value of a type that fits in 64 bits as a bigint."""
    if kind == "date":
        return f"cast(unix_date({value}) AS BIGINT)"
    if kind == "timestamp":
        return f"unix_micros({value})"
    if kind == "timestamp_ntz":
        return f"timestampdiff(MICROSECOND, {_EPOCH}, {value})"
    return f"cast({value} AS BIGINT)"


def as_bytes(value: str, kind: str) -> str:
    """Write a key of any other type so that equal values have equal bytes.

    >>> as_bytes("x", "array<timestamp>")
    "CASE WHEN (x) IS NOT NULL THEN to_json(named_struct('v', transform((x), x0 -> unix_micros(x0))),
    map('ignoreNullFields', 'false')) END"
    """
    try:
        parsed = parse_type(kind)
    except TypeTextError as error:
        raise InputError(f"cannot join on {value}, which is {kind}: {error}; join on its parts") from None
    if parsed.name in _FLOATS:
        return _normal_form(value, parsed)
    if parsed.name in _NESTED:
        inside = _normal_form(f"({value})", parsed)
        text = f"to_json(named_struct('v', {inside}), map('ignoreNullFields', 'false'))"
        return f"CASE WHEN ({value}) IS NOT NULL THEN {text} END"
    counts_months = parsed.name.startswith("interval") and ("month" in parsed.name or "year" in parsed.name)
    return f"cast({value} AS STRING)" if counts_months else value


def _normal_form(value: str, kind: SparkType, depth: int = 0) -> str:
    """Write a value, or a part of one, so that equal values are written alike."""
    if kind.name in _FLOATS:
        nan = f"cast('NaN' AS {kind.name})"
        return f"CASE WHEN isnan({value}) THEN {nan} ELSE {value} + cast(0 AS {kind.name}) END"
    if kind.name == "array":
        inside = _normal_form(f"x{depth}", kind.parts[0], depth + 1)
        return f"transform({value}, x{depth} -> {inside})"
    if kind.name == "struct":
        fields = zip(kind.names, kind.parts, strict=True)
        inside = ", ".join(
            f"'f{number}', {_normal_form(f'{value}.{name}', part, depth)}"
            for number, (name, part) in enumerate(fields)
        )
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({inside}) END"
    if kind.name in {"date", "timestamp", "timestamp_ntz"}:
        return as_bigint(value, kind.name)
    if kind.name == "time" or kind.name.startswith("interval"):
        return f"cast({value} AS STRING)"
    return value
