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
    if "No module named 'penstock'" in str(error):
        return "Spark's Python workers cannot import penstock: install it there, or set PYSPARK_PYTHON to one that can"
    text = _cause(str(error).strip()) or type(error).__name__
    text = text.split("\n\tat ")[0].split("\nJVM stacktrace")[0]
    text = _CODE.sub("", text)
    text = _NOISE.sub("", text)
    return text.strip().splitlines()[0].strip() if text.strip() else type(error).__name__


def _cause(text: str) -> str:
    r"""Take the reason out of what py4j says, which begins with the call that failed.

    Where Spark gave the error a name of its own, that is the one; of a failed read it may have no more to say.

    >>> _cause("An error occurred while calling o1.load.\n: a.B: [X_Y] no source: z\n\tat x\nCaused by: c.D: z.S")
    '[X_Y] no source: z'
    """
    if not text.startswith(_PY4J):
        return text
    reasons = _REASON.findall(text) or [text]
    named = [
        each for each in reasons if _CODE.match(each) and not each.startswith("[FAILED_READ_FILE.NO_HINT")
    ]
    return str((named or reasons[-1:])[0])


_PY4J = "An error occurred while calling "
_REASON = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+)$", re.MULTILINE)


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
