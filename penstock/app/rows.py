"""Rows of a result on standard output: a table for people, CSV or lines of JSON for programs.

In:  an Arrow table.  Out: text.
"""

from __future__ import annotations

import json
import sys
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc
from rich import box
from rich.table import Table
from rich.text import Text

from penstock.app.show import console

if TYPE_CHECKING:
    from rich.console import Console


def write_rows(rows: pa.Table, form: str, total: int) -> None:
    """Write rows as ``table``, ``csv`` or ``json``; a table ends with how many there are in all."""
    if form == "csv":
        sys.stdout.flush()
        pc.write_csv(_flat(rows), sys.stdout.buffer)
        sys.stdout.buffer.flush()
    elif form == "json":
        for batch in rows.to_batches():
            sys.stdout.writelines(f"{json.dumps(row, default=as_json)}\n" for row in batch.to_pylist())
    else:
        print_table(rows, total, console())


def print_table(rows: pa.Table, total: int, out: Console) -> None:
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
    shown = f"{rows.num_rows:,} of {total:,} results" if rows.num_rows < total else f"{total:,} results"
    out.print(shown)


def as_text(value: Any) -> str:
    """Write one value the way Spark's ``show`` does.

    >>> as_text(None), as_text(True), as_text(datetime(2024, 5, 1, 12, 0, 0, 500000))
    ('NULL', 'true', '2024-05-01 12:00:00.5')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}" + (f".{value:%f}".rstrip("0") if value.microsecond else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def as_json(value: Any) -> str:
    """Write a value that JSON has no form for: times as in ISO 8601, the rest as text."""
    return value.isoformat() if isinstance(value, date | datetime) else as_text(value)


def _flat(rows: pa.Table) -> pa.Table:
    """Write nested columns as JSON text, which CSV has no other place for."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            text = [
                None if v is None else json.dumps(v, default=as_json) for v in rows.column(place).to_pylist()
            ]
            rows = rows.set_column(place, field.name, pa.array(text, pa.string()))
    return rows
