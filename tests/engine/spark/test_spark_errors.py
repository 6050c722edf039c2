"""What Spark said, word for word, and the one sentence a user gets.

`spark_messages.json` holds texts that Spark 4.3 gave when it was provoked: a function that raises, a worker that is
killed, a file that is gone.  Only most lines of Java traces were left out.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.spark.spark_errors import named_file, short_message
from penstock.errors import RunError

MESSAGES = json.loads((Path(__file__).with_name("spark_messages.json")).read_text())

DIED = (
    "a Python worker died without a message: the system may have killed it for lack of memory (see its log), or a "
    "native library crashed"
)
ZERO = "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead (DIVIDE_BY_ZERO in {})"
SENTENCES = {
    "task_own": "segment log/a/0000.arrow is damaged: its checksum does not fit",
    "task_valueerror": "ValueError: bad value: 7 (in valueerror, line 25 of job.py)",
    "task_keyerror": "KeyError: 'nope' (in keyerror, line 28 of job.py)",
    "task_assertion": "AssertionError (in assertion, line 31 of job.py)",
    "task_memory": "a Python worker ran out of memory",
    "task_memory2": "a Python worker ran out of memory (Unable to allocate 8.00 PiB for an array with shape "
    "(1125899906842624,) and data type float64)",
    "task_arrowmem": "ArrowIndexError: Index 9 out of bounds (in arrowmem, line 41 of job.py)",
    "task_gone": "Failed to open local file '/home/me/nothing.arrow': No such file or directory",
    "task_fulldisk": "No space left on device: '/state/log/a/x.arrow'",
    "task_imported": "ModuleNotFoundError: No module named 'nosuchmodule' (in imported, line 81 of job.py)",
    "task_exits": DIED,
    "udf_sql": "ValueError: udf cannot do 1 (in bad, line 86 of job.py)",
    "udf_pandas": "ValueError: udf cannot do 1 (in bad, line 86 of job.py)",
    "ansi_div": ZERO.format("1 / id"),
    "ansi_cast": 'The value \'a1\' of the type "STRING" cannot be cast to "INT" because it is malformed. Correct the '
    "value as per the syntax, or change its target type. Use `try_cast` to tolerate malformed input and return NULL "
    "instead (CAST_INVALID_INPUT in cast(concat('a', id) as int))",
    "ansi_overflow": "overflow. Use 'try_add' to tolerate overflow and return NULL instead (ARITHMETIC_OVERFLOW in "
    "cast(id + 9223372036854775806 as bigint) + 1)",
    "ansi_element": "The index 5 is out of bounds. The array has 1 elements. Use the SQL function `get()` to tolerate "
    "accessing element at invalid index and return NULL instead (INVALID_ARRAY_INDEX in array(1)[cast(id as int) + 5])",
    "ansi_div_then_arrow": ZERO.format("1 / id"),
    "analysis_column": "A column, variable, or function parameter with name `nothing` cannot be resolved. Did you mean "
    "one of the following? [`id`].",
    "analysis_parse": "Syntax error at or near end of input. (line 1, pos 4)",
    "file_bad_parquet": "file:/data/bad.parquet is not a Parquet file. Expected magic number at tail, but found "
    "[32, 110, 111, 46]",
    "file_deleted": "Encountered error while reading file "
    "file:///data/t/part-00000-83202939-8ba5-4a0b-9c3f-69fda3e53963-c000.snappy.parquet. File does not exist. It is "
    "possible the underlying files have been updated.",
    "file_damaged": "could not read page Page [bytes.size=4000, valueCount=500, uncompressedSize=4000] in col [id] "
    "required int64 id",
    "file_other_type": "Encountered error while reading file "
    "file:///data/s/part-00001-3300b6ef-6234-410c-98ee-547469c82cea-c000.snappy.parquet. Data type mismatches when "
    "reading Parquet column [id]. Expected Spark type bigint, actual Parquet type BINARY.",
    "source_none": "Failed to find the data source: nosuchformat. Make sure the provider name is correct and the "
    "package is properly registered and compatible with your Spark version.",
    "write_denied": "Mkdirs failed to create file:/proc/nothing/here/_temporary/0/_temporary/"
    "attempt_202611162137537978198888682860031_0036_m_000001_70 (exists=false, cwd=file:/home/me)",
    "full_segv": "a Python worker died: Segmentation fault",
    "full_limited": "a Python worker ran out of memory (malloc of size 8589934592 failed)",
    "full_chained": "RuntimeError: could not do it (in chained, line 35 of job.py)",
    "full_during": "RuntimeError: could not do it either (in during, line 41 of job.py)",
    "stream_raises": "stream a: the engine has stopped",
    "stream_ansi": ZERO.format("1 / (id - 5)"),
    "stream_worker": "RuntimeError: could not do it (in chained, line 35 of job.py)",
    "stream_bad_file": "Encountered error while reading file file:///data/bad/x.parquet.",
    "jvm_heap": "Spark's process is gone: the system may have killed it for lack of memory. See Spark's log",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_reason_is_found_in_what_spark_said(name):
    assert short_message(Exception(MESSAGES[name]["text"])) == SENTENCES[name]


def test_what_penstock_itself_raised_stays_as_it_is():
    assert short_message(RunError("one line\nand another")) == "one line\nand another"


def test_an_error_without_a_text_is_called_by_its_name():
    assert short_message(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_a_jvm_without_memory_says_what_to_set():
    text = "An error occurred while calling o1.x.\n: java.lang.OutOfMemoryError: Java heap space\n\tat a.B"
    assert "spark.driver.memory" in short_message(Exception(text))


@pytest.mark.parametrize(
    ("name", "file"),
    [("stream_bad_file", "/data/bad/x.parquet"), ("file_bad_parquet", "/data/bad.parquet"), ("ansi_div", "")],
)
def test_the_source_file_is_found_too(name, file):
    assert named_file(Exception(MESSAGES[name]["text"])) == file


TASK = (
    "An error occurred while calling o5.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage "
    "failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 (TID 9) (10.0.0.7 "
    "executor 3): {}\n\tat org.apache.spark.A.b(A.scala:1)\n\nDriver stacktrace:\n\tat org.apache.spark.C.d(C.scala:2)"
)
STREAM = (
    "[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: {} SQLSTATE: XXKST\n"
    "=== Streaming Query ===\nIdentifier: [id = 1-2]"
)
PROXY = (
    "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
    '  File "/opt/venv/lib/python3.11/site-packages/py4j/clientserver.py", line 644, in _call_proxy\n    return x\n'
    "penstock.errors.RunError: {}\n"
)
WORKER = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "/home/me/job.py", line 3, in f\n    raise RunError(said)\npenstock.errors.RunError: {}\n'
)
words = st.from_regex(r"[A-Za-z0-9 _.,'\"/=-]{1,40}", fullmatch=True).map(str.strip).filter(bool)


@given(words, st.lists(st.sampled_from((TASK, STREAM)), max_size=2), st.sampled_from((PROXY, WORKER)))
def test_what_a_task_of_ours_raised_comes_out_as_it_went_in_however_it_was_wrapped(said, wrappers, inside):
    text = inside.format(said)
    for wrapper in wrappers:
        text = wrapper.format(text)
    assert short_message(Exception(text)) == said


@given(st.tuples(words, words).map(" ".join), st.lists(st.sampled_from((TASK, STREAM)), max_size=2))
def test_a_reason_of_javas_loses_its_wrappers_only(said, wrappers):
    text = f"java.io.IOException: {said}"
    for wrapper in wrappers:
        text = wrapper.format(text)
    assert short_message(Exception(text)) == said


def test_the_command_line_gives_the_reason_of_whatever_spark_raises(capsys):
    """`penstock results` asks Spark itself, and is the last place where a reason could be lost."""
    from penstock.cli.main import _print_error

    assert _print_error(Exception(MESSAGES["udf_sql"]["text"]), 1) == 1
    assert "udf cannot do 1 (in bad, line 86 of job.py)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "/s/log/a"), "No space left on device: '/s/log/a'"),
        (
            OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"),
            "Error writing bytes to file: No space left on device",
        ),
        (MemoryError(), "this process ran out of memory"),
        (
            pa.ArrowMemoryError("malloc of size 64 failed"),
            "this process ran out of memory (malloc of size 64 failed)",
        ),
        (
            ConnectionRefusedError(111, "Connection refused"),
            "Spark's process is gone: the system may have killed",
        ),
    ],
    ids=repr,
)
def test_what_is_raised_in_this_process_reads_like_what_a_task_raises(error, said):
    assert short_message(error).startswith(said)
