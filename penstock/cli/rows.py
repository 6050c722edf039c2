"""Rows of a result on standard output: a table for people, CSV or lines of JSON for programs.

In:  an Arrow table.  Out: text.
"""

from __future__ import annotations

import json
import sys
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc
from rich import box
from rich.table import Table
from rich.text import Text

from penstock.cli.show import console

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console


def write_rows(rows: pa.Table, form: str, total: int, noun: str = "results") -> None:
    """Write rows as ``table``, ``csv`` or ``json``; a table ends with the total number."""
    if form == "csv":
        sys.stdout.flush()
        pc.write_csv(_flat(rows), sys.stdout.buffer)
        sys.stdout.buffer.flush()
    elif form == "json":
        for batch in rows.to_batches():
            sys.stdout.writelines(f"{json.dumps(row, default=as_json)}\n" for row in batch.to_pylist())
    else:
        print_table(rows, total, noun, console())


def print_table(rows: pa.Table, total: int, noun: str, out: Console) -> None:
    """Print rows as a table; numbers to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for field in rows.schema:
        number = (
            pa.types.is_integer(field.type)
            or pa.types.is_floating(field.type)
            or pa.types.is_decimal(field.type)
        )
        table.add_column(Text(field.name), justify="right" if number else "left", overflow="fold")
    for row in rows.to_pylist():
        table.add_row(*(Text(as_text(value)) for value in row.values()))
    out.print(table)
    shown = f"{rows.num_rows:,} of {total:,}" if rows.num_rows < total else f"{rows.num_rows:,}"
    out.print(f"{shown} {noun}")


def as_text(value: Any) -> str:
    """Write one value the way Spark's ``show`` does.

    >>> as_text(None), as_text(True), as_text(datetime(2024, 5, 1, 12, 0, 0, 500000))
    ('NULL', 'true', '2024-05-01 12:00:00.5')
    """
    return next((write for kind, write in _WRITERS if isinstance(value, kind)), str)(value)


def _moment_text(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}" + (f".{value:%f}".rstrip("0") if value.microsecond else "")


def _nested_text(value: dict[str, Any] | list[Any]) -> str:
    """Write a struct, a map (pairs of key and value) or an array.

    >>> print(_nested_text({"a": [1, None], "b": [("k", True)]}))
    {[1, NULL], {k -> true}}
    """
    if isinstance(value, dict):
        return f"{{{', '.join(map(as_text, value.values()))}}}"
    if value and isinstance(value[0], tuple):
        return f"{{{', '.join(f'{as_text(key)} -> {as_text(item)}' for key, item in value)}}}"
    return f"[{', '.join(map(as_text, value))}]"


def as_interval(value: timedelta) -> str:
    """Write a length of time the way Spark writes an interval.

    >>> as_interval(timedelta(days=-1, hours=23, seconds=0.5)), as_interval(timedelta(days=3))
    ("INTERVAL '-0 00:59:59.5' DAY TO SECOND", "INTERVAL '3 00:00:00' DAY TO SECOND")
    """
    micros = abs(value) // timedelta(microseconds=1)
    seconds, rest = divmod(micros, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" * (value < timedelta())
    fraction = f".{rest:06d}".rstrip("0") if rest else ""
    return f"INTERVAL '{sign}{days} {hours:02d}:{minutes:02d}:{seconds:02d}{fraction}' DAY TO SECOND"


_WRITERS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (type(None), lambda _: "NULL"),
    (bool, lambda value: str(value).lower()),
    (datetime, _moment_text),  # which is a date, too
    (date, date.isoformat),
    (timedelta, as_interval),
    (bytes, bytes.hex),
    (dict, _nested_text),
    (list, _nested_text),
)


def as_json(value: Any) -> str:
    """Write a value that JSON has no type for: times as in ISO 8601, others as text."""
    return value.isoformat() if isinstance(value, date | datetime) else as_text(value)


def _flat(rows: pa.Table) -> pa.Table:
    """Write columns that CSV has no form for as text: nested ones as JSON, intervals and bytes as `as_text` does."""
    for number, field in enumerate(rows.schema):
        if write := _writer(field.type):
            text = [None if value is None else write(value) for value in rows.column(number).to_pylist()]
            rows = rows.set_column(number, field.name, pa.array(text, pa.string()))
    return rows


def _writer(kind: pa.DataType) -> Callable[[Any], str] | None:
    """Choose how to write values that CSV has no form for; None for other types."""
    if pa.types.is_nested(kind):
        return partial(json.dumps, default=as_json)
    return as_text if pa.types.is_duration(kind) or pa.types.is_binary(kind) else None
