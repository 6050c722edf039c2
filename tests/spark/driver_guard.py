"""Refuses to let the driver touch rows: the process that plans and commits opens no file that has rows in it.

Files of the state (segments, rolls, holds, panes, promises, tables) pass through `penstock.state.files`, and source
files are read by pyarrow.  Both are guarded here, in this process only: Python workers are other processes, which load
their own modules.  So is every way to bring the rows of a DataFrame to the driver.  Tests read results themselves; what
they call is not refused, only what the package calls.

A footer may be read: it has no rows.  `penstock repair`, which no engine runs beside, checks the bytes of files itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql.classic.dataframe import DataFrame

import penstock
from penstock.state import files, remote_files

PACKAGE = Path(penstock.__file__).parent
ROW_FILES = (".arrow", ".parquet")


class DriverTouchedRowsError(AssertionError):
    """The driver has opened a file with rows."""


def guard(monkeypatch) -> None:
    """Refuse, from here on, that the package opens or writes a file with rows in this process."""
    for kind in (files.LocalFiles, remote_files.FsspecFiles):
        for name in ("memory_map", "read", "writer"):
            monkeypatch.setattr(kind, name, _guarded(getattr(kind, name), name_of=lambda _files, name: name))
    for name in ("read", "iter_batches", "read_row_group", "read_row_groups"):
        method = getattr(pq.ParquetFile, name)
        monkeypatch.setattr(
            pq.ParquetFile, name, _guarded(method, name_of=lambda *_: "a Parquet file.parquet")
        )
    for module, name in ((pq, "read_table"), (ds, "dataset")):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, _guarded(function, name_of=lambda *_: "a Parquet file.parquet"))
    for name in ("collect", "toArrow", "toPandas", "toLocalIterator", "head", "first", "take", "tail"):
        monkeypatch.setattr(DataFrame, name, _not_collected(getattr(DataFrame, name)))


def _guarded(method, name_of):
    def guarded(*args, **options):
        name = name_of(*args[:2])
        if name.endswith(ROW_FILES) and (caller := _package_frame()):
            raise DriverTouchedRowsError(f"{caller} touches rows of {name} in the driver")
        return method(*args, **options)

    return guarded


def _not_collected(method):
    def guarded(*args, **options):
        file = Path(sys._getframe(1).f_code.co_filename)
        if PACKAGE in file.parents and file.relative_to(PACKAGE).as_posix() not in COLLECTS:
            raise DriverTouchedRowsError(f"{file} brings rows of a DataFrame to the driver")
        return method(*args, **options)

    return guarded


COLLECTS = {
    "engine/runners/spark.py",  # the reports of tasks
    "engine/spark/schemas.py",  # no rows: the schema that Arrow has
    "cli/look.py",  # rows that a command prints
    "cli/demos/sharing.py",  # the same
}
"""Modules that bring something of a DataFrame to the driver, and what."""


def _package_frame() -> str:
    """Name the function of the package that called, if a test did not call the file layer itself."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in {files.__file__, remote_files.__file__}:
        frame = frame.f_back
    inside = frame is not None and PACKAGE in Path(frame.f_code.co_filename).parents
    if inside and _is_exempt(frame):
        return ""
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})" if inside else ""


EXEMPT = (PACKAGE / "engine" / "repair", PACKAGE / "cli" / "look.py")
"""Where files are checked on request, and where a command reads the results that it prints."""


def _is_exempt(frame) -> bool:
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file in EXEMPT or any(each in file.parents for each in EXEMPT):
            return True
        frame = frame.f_back
    return False
