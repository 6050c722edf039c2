"""`penstock results` prints values of every type, for people and for programs."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json

import pyarrow as pa
import pytest

from penstock.cli.rows import write_rows

GAP = "INTERVAL '-1 00:00:05.25' DAY TO SECOND"
ROWS = pa.table(
    {
        "gap": pa.array([-dt.timedelta(days=1, seconds=5.25), None]),
        "gaps": pa.array([[dt.timedelta(seconds=5)], None]),
        "bytes": pa.array([b"\xff", None]),
        "both": pa.array([{"x": 1, "y": dt.datetime(2024, 5, 1)}, None]),  # noqa: DTZ001 - a TIMESTAMP_NTZ
        "map": pa.array([[("k", None)], None], pa.map_(pa.string(), pa.int32())),
        "nothing": pa.nulls(2),
    }
)


def test_lines_of_json_have_intervals_as_spark_writes_them(capfd):
    write_rows(ROWS, "json", 2)
    first, second = map(json.loads, capfd.readouterr().out.splitlines())
    assert first == {
        "gap": GAP,
        "gaps": ["INTERVAL '0 00:00:05' DAY TO SECOND"],
        "bytes": "ff",
        "both": {"x": 1, "y": "2024-05-01T00:00:00"},
        "map": [["k", None]],
        "nothing": None,
    }
    assert set(second.values()) == {None}


def test_csv_has_text_for_what_it_has_no_form_for(capfd):
    write_rows(ROWS, "csv", 2)
    first, second = csv.DictReader(io.StringIO(capfd.readouterr().out))
    assert (first["gap"], first["bytes"], json.loads(first["both"])["x"]) == (GAP, "ff", 1)
    assert set(second.values()) == {""}


@pytest.mark.parametrize(("total", "end"), [(2, "2 late rows"), (50, "2 of 50 late rows")])
def test_a_table_ends_with_how_many_rows_there_are(capfd, total, end):
    write_rows(ROWS, "table", total, "late rows")
    assert capfd.readouterr().out.splitlines()[-1] == end


@pytest.mark.parametrize(
    "text", [GAP, "[INTERVAL '0 00:00:05' DAY TO SECOND]", "{1, 2024-05-01 00:00:00}", "{k -> NULL}"]
)
def test_a_table_has_values_as_spark_shows_them(capfd, monkeypatch, text):
    monkeypatch.setenv("COLUMNS", "200")
    write_rows(ROWS, "table", 2)
    assert text in capfd.readouterr().out
