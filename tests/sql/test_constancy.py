"""What is computed again at a read must be the same then: graded on the safe side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.bind.safety import Constancy, grade_texts

TYPES = {
    "l.v": "int", "r.v": "bigint", "l.x": "double", "r.x": "float", "l.s": "string", "r.s": "string",
    "l.t": "timestamp", "r.t": "timestamp", "l.n": "timestamp_ntz", "l.d": "date", "l.m": "decimal(10,2)",
    "r.m": "decimal(10,2)", "l.f": "boolean", "l.o": "struct<a:int>", "l.c": "char(3)",
}  # fmt: skip

ALWAYS = (
    "l.v", "l.o.a", "7", "'text'", "NULL", "l.v > r.v", "l.v = 3", "l.x < 2.5", "l.s = 'a'", "l.t < r.t",
    "l.m = r.m", "l.x + r.v", "l.x * 2.5 - l.x", "-l.x", "ABS(l.x - l.x) < 5", "NOT l.f AND l.v IS NULL",
    "CASE WHEN l.v > 3 THEN 'a' ELSE l.s END", "CASE l.v WHEN 3 THEN 1 ELSE 0 END", "COALESCE(l.s, r.s, '?')",
    "l.s || '-' || r.s", "l.v IN (1, 2, 3)", "l.v BETWEEN 1 AND r.v", "LENGTH(l.s) > 3", "IF(l.f, 1, 2)",
    "l.v <=> r.v", "CAST(l.v AS DOUBLE) * 0.5", "GREATEST(l.v, 0)", "l.`v`",
    "l.v % 3", "l.m > 2.5", "l.s LIKE 'a%'", "SUBSTRING(l.s, 1, 2)", "DATE '2020-01-01'", "l.v / 2", "l.o.a > 1",
)  # fmt: skip
SESSION = (
    "l.v + r.v", "l.v / r.v", "l.x / r.x", "-l.v", "l.m + r.m", "l.s = 5", "l.d < l.t",
    "l.n = l.t", "l.t > '2020-01-01'", "l.t - r.t", "CAST(l.s AS INT)", "CAST(l.t AS STRING)", "UPPER(l.s)",
    "HOUR(l.t)", "DATE_FORMAT(l.t, 'HH')", "l.s RLIKE '^a'", 'l.s = "a"', r"l.s = 'a\n'",
    "EXTRACT(YEAR FROM l.t)", "COALESCE(l.v, 'x')", "l.c = 'abc'",
    "1 + 1", "CASE WHEN l.v THEN 1 END", "r.x + 1", "r.x > 2.5", "COALESCE(r.x, l.v)",
)  # fmt: skip
ONCE = (
    "RAND()", "l.x < RAND()", "UUID()", "NOW()", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP()", "CURRENT_DATE",
    "LOCALTIMESTAMP", "CURRENT_USER", "USER", "my_function(l.v)", "l.v + my_function(r.v)", "SHUFFLE(ARRAY(1, 2))",
    "MONOTONICALLY_INCREASING_ID()", "SPARK_PARTITION_ID()", "INPUT_FILE_NAME()", "RANDSTR(3)", "REFLECT('a', 'b')",
    "CASE WHEN l.v > 3 THEN RAND() END", "(SELECT 1)", "v", "x.v", "", "l.v r.v", "l.v; r.v", "TRANSFORM(a, x -> x)",
    "CURRENT_DATABASE()", "UNIX_TIMESTAMP()", "l.v IN (SELECT 1)", "1 +", "x.LENGTH(l.s)", "l.v IN (1, RAND())",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        *((text, Constancy.ALWAYS) for text in ALWAYS),
        *((text, Constancy.SESSION) for text in SESSION),
        *((text, Constancy.ONCE) for text in ONCE),
    ],
)
def test_an_expression_has_its_grade(text, grade):
    assert grade_texts([text], TYPES) == grade


@given(st.lists(st.sampled_from((*ALWAYS, *SESSION, *ONCE)), max_size=4))
def test_the_least_constant_of_several_decides(texts):
    grades = [grade_texts([text], TYPES) for text in texts]
    assert grade_texts(texts, TYPES) == min(grades, default=Constancy.ALWAYS)


parts = st.sampled_from(
    ("l.v", "r.x", "RAND()", "f(1)", "(", ")", "+", "AND", "CASE", "WHEN", "THEN", "END", "'", '"', "`", ",", "NOW",
     ".", "NOT", "IN", "[0]", "::", "->", "--", "/*", "1", "l.s", "IS NULL", "\\")
)  # fmt: skip


@given(st.lists(parts, max_size=12).map(" ".join))
def test_no_text_is_too_odd_and_none_with_chance_in_it_is_constant(text):
    grade = grade_texts([text], TYPES)
    if "RAND()" in text and not any(mark in text for mark in ("'", '"', "`", "--", "/*")):
        assert grade == Constancy.ONCE
