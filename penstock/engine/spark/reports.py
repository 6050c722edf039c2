"""What tasks tell the driver: one line of JSON for each report, a value of a class that both know.

In:  frozen values (`penstock.log.codec`).  Out: record batches of one column of text, and the values again.
"""

from __future__ import annotations

import json
from typing import TypeVar

import pyarrow as pa

from penstock.log.codec import from_json, to_json

SUMMARY = "summary string"
"""The schema of what tasks report."""

R = TypeVar("R")


def report(value: object) -> pa.RecordBatch:
    """Write one line for the driver."""
    return pa.RecordBatch.from_pydict({"summary": [json.dumps(to_json(value))]})


def read_report(line: str, kind: type[R]) -> R:
    """Read such a line."""
    return from_json(json.loads(line), kind)
