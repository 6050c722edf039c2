"""Turn what Spark says into what a user can act on: one sentence, no Java stack trace.

In:  an exception from Spark.  Out: its message without the plan and the trace, and the file it names, if any.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_NOISE = re.compile(r"\s*(SQLSTATE: \w+|== SQL.*?==.*|; line \d+ pos \d+.*)", re.DOTALL)
_FILE = re.compile(
    r"(?:while reading file|reading file|file path:?|File)\s+((?:file|hdfs|s3a?|gs|abfss?):[^\s,;]+)"
)
_CODE = re.compile(r"^\[[A-Z_.]+\]\s*")


def short_message(error: BaseException) -> str:
    """Give the sentence that says what is wrong.

    >>> short_message(ValueError("[UNRESOLVED] A column `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 0"))
    'A column `x` cannot be resolved.'
    """
    text = str(error).strip() or type(error).__name__
    text = text.split("\n\tat ")[0].split("\nJVM stacktrace")[0]
    text = _CODE.sub("", text)
    text = _NOISE.sub("", text)
    return text.strip().splitlines()[0].strip() if text.strip() else type(error).__name__


def named_file(error: BaseException) -> str:
    """Find the source file an error is about, empty if it names none.

    >>> named_file(ValueError("Encountered error while reading file file:///data/a%20b.parquet. SQLSTATE: KD001"))
    '/data/a b.parquet'
    """
    found = _FILE.search(str(error))
    if not found:
        return ""
    path = unquote(found.group(1)).rstrip(".")
    return re.sub(r"^file:/+", "/", path)
