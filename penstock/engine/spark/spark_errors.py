"""Shorten an error of Spark to one sentence without a Java stack trace.

Spark wraps the reason of a failure several times.  Its place depends on the part that failed::

    a task's Python     PythonException: ... Traceback ... ValueError: bad value  the last line of the last traceback
    a task's Java       Job aborted ...: Lost task ...: cls: [CLASS] reason       the innermost named reason
    a stream            [STREAM_FAILED] Query ... terminated with exception: ...  the wrapped reason
    a worker's process  Python worker exited unexpectedly                         no reason is known
    the JVM             Connection refused                                        no reason is known

In:  an exception from Spark.  Out: its message without wrappers, plan and trace, and the file it names, if any.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from penstock.errors import PenstockError

_NOISE = re.compile(r"\s*(SQLSTATE: \w+|== SQL.*?==.*|; line \d+ pos \d+.*)", re.DOTALL)
_FILE = re.compile(
    r"(?:while reading file|reading file|file path:?|File)\s+((?:file|hdfs|s3a?|gs|abfss?):[^\s,;]+)"
)
_CODE = re.compile(r"^\[([A-Z_0-9.]+)\]\s*")

_END = re.compile(r"\n\s*(?:\tat |JVM stacktrace|=== Streaming Query|Driver stacktrace|SQLSTATE: )")
"""The end of a reason, and the begin of the rest of Spark's report."""


def short_message(error: BaseException) -> str:
    """Return the reason of an error as one sentence.

    >>> short_message(ValueError("[UNRESOLVED] A column `x` cannot be resolved. SQLSTATE: 42703; line 1 pos 0"))
    'A column `x` cannot be resolved.'
    """
    if isinstance(error, PenstockError):
        return str(error)
    text = str(error).strip()
    if isinstance(error, (OSError, MemoryError)) and not _dead_jvm(text):
        return _raised_here(error, text)
    return _sentence(text) or type(error).__name__


def _raised_here(error: OSError | MemoryError, text: str) -> str:
    """Return the message of an error of this process, in the words of one of a task.

    >>> _raised_here(MemoryError(), "")
    'this process ran out of memory'
    """
    if isinstance(error, MemoryError):
        return f"this process ran out of memory{f' ({text})' if text else ''}"
    return _said(type(error).__name__, text, [])


def _sentence(text: str) -> str:
    """Find the reason in an error text."""
    for finder in (_no_penstock, _dead_worker, _dead_jvm, _raised):
        if reason := finder(text):
            return reason
    inside = _unwrapped(_cause(text))
    return _plain(text) if inside == text else _sentence(inside)


def _no_penstock(text: str) -> str:
    """Recognise a Python worker without Penstock."""
    if "No module named 'penstock'" not in text:
        return ""
    return "Spark's Python workers cannot import penstock: install it there, or set PYSPARK_PYTHON to one that can"


def _dead_worker(text: str) -> str:
    r"""Recognise a Python worker whose process has died.

    >>> _dead_worker("x.SparkException: Python worker exited unexpectedly (crashed): Fatal Python error: Abort\n\n")
    'a Python worker died: Abort'
    """
    if "Python worker exited unexpectedly" not in text:
        return ""
    if fatal := re.search(r"Fatal Python error: (.+)", text):
        return f"a Python worker died: {fatal[1].strip()}"
    return (
        "a Python worker died without a message: the system may have killed it for lack of memory (see its log), or a "
        "native library crashed"
    )


def _dead_jvm(text: str) -> str:
    """Recognise that the JVM has ended.

    >>> _dead_jvm("[Errno 111] Connection refused")[:23]
    "Spark's process is gone"
    """
    lost = (
        "[Errno 111] Connection refused",
        "Answer from Java side is empty",
        "Error while sending or receiving",
    )
    if "OutOfMemoryError" in text and "Traceback" not in text:
        return (
            "Spark's JVM ran out of memory: give it more (SET spark.driver.memory = '4g'), or bound a batch "
            "(maxFilesPerTrigger, maxOffsetsPerTrigger)"
        )
    if not text.startswith(lost):
        return ""
    return "Spark's process is gone: the system may have killed it for lack of memory. See Spark's log"


_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


def _raised(text: str) -> str:
    r"""Return the Python exception in the last traceback of a text.

    >>> _raised('Traceback (most recent call last):\n  File "/a/job.py", line 7, in half\nValueError: bad\n\tat x.Y')
    'ValueError: bad (in half, line 7 of job.py)'
    """
    _, marker, trace = text.rpartition(_TRACEBACK)
    lines = trace.splitlines() if marker else []
    first = next((number for number, line in enumerate(lines) if line.strip() and line[0] != " "), None)
    if first is None:
        return ""
    kind, _, said = _END.split("\n".join(lines[first:]))[0].partition(":")
    frames = [frame for frame in _FRAME.findall("\n".join(lines[:first])) if _is_own(frame[0])]
    return _said(kind.strip(), said.strip(), frames)


def _is_own(path: str) -> bool:
    """Check whether a frame is in code of the user or of Penstock, not of a library."""
    return not (path.endswith((".pxi", ".pyx")) or "site-packages" in path or "pyspark.zip" in path)


def _said(kind: str, said: str, frames: list[tuple[str, str, str]]) -> str:
    """Return the message of a Python exception, by its class."""
    module, _, name = kind.rpartition(".")
    if module.startswith("penstock."):
        return said
    if module.startswith(("pyspark.errors", "py4j")):
        return _sentence(said)
    first = said.splitlines()[0].strip() if said else ""
    if name.endswith("MemoryError"):
        return f"a Python worker ran out of memory{f' ({first})' if first else ''}"
    if re.match(r"\[[Ee]rrno \d+\]", first):
        return re.sub(r"\. Detail: \[errno \d+\] ", ": ", re.sub(r"^\[[Ee]rrno \d+\] ", "", first))
    where = ""
    if frames:
        path, line, function = frames[-1]
        where = f" (in {function}, line {line} of {path.rpartition('/')[2]})"
    return f"{name}: {first}{where}" if first else f"{name}{where}"


_VAGUE = (
    "[FAILED_READ_FILE.NO_HINT",
    "[STREAM_FAILED",
    "[FOREACH_BATCH_USER_FUNCTION_ERROR",
    "[TASK_WRITE_FAILED",
    "[INTERNAL_ERROR",
)
"""Prefixes of reasons that only say where a failure was."""


def _cause(text: str) -> str:
    r"""Return the reason in a text of py4j, which begins with the call that failed.

    A reason with an error class of Spark is preferred, except one that only says where the failure was.

    >>> _cause("An error occurred while calling o1.load.\n: a.B: [X_Y] no source: z\n\tat x\nCaused by: c.D: z.S")
    '[X_Y] no source: z'
    """
    if not text.startswith(_PY4J):
        return text
    starts = [found.start() for found in _REASON.finditer(text)]
    reasons = [_reason(text[start:]) for start in starts] or [text]
    named = [reason for reason in reasons if _CODE.match(reason) and not reason.startswith(_VAGUE)]
    in_words = [reason for reason in reasons if " " in reason]
    return (named or in_words[-1:] or reasons[-1:])[0]


_PY4J = "An error occurred while calling "
_REASON = re.compile(r"^(?:Caused by)?: [\w.$]+: (?=.)", re.MULTILINE)


def _reason(text: str) -> str:
    """Read one reason, up to its trace or the next one."""
    rest = text[_REASON.match(text).end() :]  # type: ignore[union-attr]
    return _unwrapped(re.split(r"\n(?=\tat |Caused by|Driver stacktrace)", rest)[0])


_WRAPPERS = (
    re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: (?=.)"),
    re.compile(r"^\[FOREACH_BATCH_USER_FUNCTION_ERROR\] .*?Reason: (?=.)"),
    re.compile(r"^Job aborted due to stage failure: (?=.)"),
    re.compile(r"^Task \S+ in stage \S+ failed \d+ times?, most recent failure: (?=.)"),
    re.compile(r"^Lost task \S+ in stage \S+ \(TID \d+\) \(.*?\): (?=.)"),
    re.compile(r"^(?:[a-z]\w*\.)+[A-Z][\w$]*: (?=.)"),
)


def _unwrapped(text: str) -> str:
    """Remove the wrappers that Spark puts before a reason.

    >>> _unwrapped("Job aborted due to stage failure: Lost task 0.0 in stage 1.0 (TID 2) (h executor 1): a.b.C: full")
    'full'
    """
    for wrapper in _WRAPPERS:
        text = wrapper.sub("", text)
    return text


def _plain(text: str) -> str:
    """Return a reason as one sentence without trace, plan and code; errors of data keep the code and the expression."""
    text = _END.split(text)[0]
    code, where = _CODE.match(text), _EXPRESSION.search(text)
    said = _NOISE.sub("", _BYPASS.sub("", _CODE.sub("", text))).strip()
    said = said.splitlines()[0].strip() if said else ""
    if code and _DATA.search(text):
        within = f" in {where[1][len(where[2]) :][: len(where[3])]}" if where else ""
        said = f"{said.rstrip('.')} ({code[1]}{within})"
    return said


_BYPASS = re.compile(r' If necessary set "spark\.sql\.ansi\.enabled" to "false" to bypass this error\.')
_DATA = re.compile(r"SQLSTATE: 22\w{3}")
"""SQL states of errors of data: division by zero, a failed cast, overflow."""

_EXPRESSION = re.compile(r"== SQL \(.*?\) ==\n(.*)\n( *)(\^+)")


def named_file(error: BaseException) -> str:
    """Return the source file that an error names; empty if it names none.

    >>> named_file(ValueError("Encountered error while reading file file:///data/a%20b.parquet. SQLSTATE: KD001"))
    '/data/a b.parquet'
    """
    file = _FILE.search(str(error))
    if not file:
        return ""
    path = unquote(file.group(1)).rstrip(".")
    return re.sub(r"^file:/+", "/", path)
