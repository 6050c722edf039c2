"""Lines that cannot be read: their text is kept beside the nulls that Spark makes of them.

Sources of text (JSON, CSV, XML) read a line that is not what it should be as a row with nulls in the fields they could
not make out (Spark's mode PERMISSIVE).  A row that Spark reads so is a row, and is joined as in Spark's own batch read;
one that is set aside, because it has no event time then or comes too late, is kept with the text of its line::

    {"k": 1, "ts": "10:00"        ──▶   k null, ts null, penstock.corrupt '{"k": 1, "ts": "10:00"'   ──▶   late/

Spark gives the text if it is asked for by a column of its own.  A stream that declares such a column gets it there, as
in Spark; under the modes DROPMALFORMED and FAILFAST there is none to keep.

In:  a declared stream.  Out: the column to ask for, and what it is called among the late rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.query import RESERVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sql.query import Stream

CORRUPT = f"{RESERVED}corrupt"
"""The column in which a source gives the text of a line it could not read: a name that no user's column has."""

SHOWN = "_corrupt_record"
"""What it is called among the late rows: the name that Spark's users know."""

MOST_TEXT = 1 << 20
"""Characters of it that are kept: of XML, and JSON over several lines, Spark gives the whole document for each row."""

OPTION = "columnNameOfCorruptRecord"

_TEXT = frozenset({"csv", "json", "xml"})
_OTHER_MODES = frozenset({"dropmalformed", "failfast"})


def keeps_text(spark: SparkSession, stream: Stream) -> bool:
    """Say whether the text of lines that cannot be read is asked for: where it may be, and the stream has no column."""
    options = {name.lower(): value for name, value in stream.options}
    if stream.format.lower() not in _TEXT or options.get("mode", "").lower() in _OTHER_MODES:
        return False
    theirs = options.get(OPTION.lower()) or str(spark.conf.get(f"spark.sql.{OPTION}"))
    return not {theirs.lower(), SHOWN} & {each.name.lower() for each in stream.columns}
