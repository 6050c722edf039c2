"""Writing a query another way changes nothing; and canonical conditions mean what was written.

The second is judged by DuckDB, on every combination of a few values and NULL.
"""

import itertools

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Place, SqlError
from penstock.sql.query import FOREVER
from penstock.sql.script import parse_script
from penstock.sql.units import parse_duration, show_duration
from tests.sql.streams import STREAMS, bind, where

MIRROR = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
CONJUNCTS = [
    ("A.k", "=", "B.k"), ("A.n", "=", "B.n"), ("lower(A.name)", "=", "B.name"), ("A.v", ">", "30"),
    ("A.v", "<=", "A.n"), ("B.w", "<>", "7"), ("A.v", "<", "B.w"), ("A.ts", "<=", "B.ts"),
    ("A.ts", ">=", "B.ts - INTERVAL 5 SECONDS"), ("A.v + B.w", ">", "A.n"),
]  # fmt: skip


@st.composite
def rewritten(draw, conjuncts):
    """Give the same conditions in another order, some turned round, in brackets or twice."""
    texts = []
    for left, operator, right in draw(st.permutations(conjuncts)):
        turned = draw(st.booleans())
        text = f"{right} {MIRROR[operator]} {left}" if turned else f"{left} {operator} {right}"
        texts += [f"({text})" if draw(st.booleans()) else text] * draw(st.integers(1, 2))
    text = " AND ".join(texts)
    return text.swapcase() if draw(st.booleans()) else text


def meaning(query):
    return query.signature, query.window, query.left_predicates, query.right_predicates, query.residual


@given(st.data(), st.sets(st.sampled_from(CONJUNCTS[1:])))
def test_order_of_streams_conditions_and_operands_does_not_matter(data, chosen):
    conjuncts = [CONJUNCTS[0], *chosen]
    first = " AND ".join(" ".join(each) for each in conjuncts)
    plain = bind(f"SELECT A.v FROM A, B WHERE {first} WINDOW 10 s")
    other = data.draw(rewritten(conjuncts))
    tables = data.draw(st.sampled_from(["A, B", "B, A", "B JOIN A", "a AS A, b B"]))
    keyword = "ON" if "JOIN" in tables else "WHERE"
    assert meaning(bind(f"SELECT A.v FROM {tables} {keyword} {other} WINDOW 10 s")) == meaning(plain)


@given(st.integers(1, 100), st.integers(1, 100))
def test_windows_of_streams_do_not_depend_on_the_order_of_from(first, second):
    one = bind(f"SELECT 1 FROM A [RANGE {first} s], B [RANGE {second} ms] WHERE A.k = B.k")
    two = bind(f"SELECT 1 FROM B [RANGE {second} ms], A [RANGE {first} s] WHERE A.k = B.k")
    assert one.window == two.window
    assert (one.window.hi, one.window.lo) == (first * 1_000_000, -second * 1_000 + 1)


numbers = st.sampled_from(["v", "n", "1", "2", "-1"])
sums = st.one_of(
    numbers,
    st.tuples(numbers, st.sampled_from("+-*"), numbers).map(lambda t: f"({' '.join(t)})"),
    st.tuples(numbers, st.sampled_from("+-"), numbers).map(" ".join),
)
tests = st.one_of(
    st.tuples(sums, st.sampled_from([*MIRROR, "IS DISTINCT FROM"]), sums).map(" ".join),
    st.tuples(numbers, numbers, numbers).map(lambda t: f"{t[0]} BETWEEN {t[1]} AND {t[2]}"),
    st.tuples(numbers, numbers, numbers).map(lambda t: f"{t[0]} IN ({t[1]}, {t[2]})"),
    numbers.map(lambda each: f"{each} IS NOT NULL"),
)
conditions = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join),
        inner.map(lambda each: f"NOT ({each})"),
        inner.map(lambda each: f"NOT {each}"),
        inner.map(lambda each: f"({each}) IS NULL"),
    ),
    max_leaves=6,
)
VALUES = ", ".join(f"({v}, {n})" for v, n in itertools.product(["NULL", "-1", "0", "1", "2"], repeat=2))


@settings(max_examples=200)
@given(conditions)
def test_the_canonical_form_of_a_condition_holds_for_the_same_rows(condition):
    query = where(f"({condition})".replace("v", "A.v").replace("n", "A.n"))
    kept = " AND ".join(f"({each})" for each in (*query.left_predicates, *query.residual)) or "TRUE"
    table = f"(VALUES {VALUES}) AS t(v, n)"
    written = duckdb.sql(f"SELECT v, n FROM {table} WHERE {condition} ORDER BY ALL").fetchall()
    assert duckdb.sql(f"SELECT v, n FROM {table} WHERE {kept} ORDER BY ALL").fetchall() == written


@settings(max_examples=200)
@given(conditions)
def test_a_whole_condition_keeps_its_value_also_where_it_is_null(condition):
    text = f"coalesce(({condition}), A.flag)".replace("v", "A.v").replace("n", "A.n").replace("coA.", "co")
    (kept,) = where(text).left_predicates
    table = f"(VALUES {VALUES}) AS t(v, n)"
    value = f"SELECT v, n, (CASE WHEN ({{}}) THEN 1 WHEN NOT ({{}}) THEN 0 END) FROM {table} ORDER BY ALL"
    inner = kept.removeprefix("COALESCE(").removesuffix(", flag)")
    assert (
        duckdb.sql(value.format(inner, inner)).fetchall()
        == duckdb.sql(value.format(condition, condition)).fetchall()
    )


SCRIPT = """
CREATE STREAM S (k DECIMAL(10,2), ts TIMESTAMP) WITH (format = 'rate', time = 'ts', lateness = '5 s');
CREATE QUERY q WITH (order = 'none') AS
SELECT A.*, y.w + 1 AS x FROM A [RANGE 5 min] JOIN B y [NOW] ON A.k = y.k
WHERE A.v BETWEEN 1 AND 2 AND lower(y.name) IN ('a', 'b') AND A.ts <= y.ts + INTERVAL 1 HOUR 30 MINUTES
WINDOW 3 s;
CREATE QUERY g WITH (emit = 'sliding') AS
SELECT A.k, window.start AS s, COUNT(DISTINCT A.v, y.w) , MAX(A.v) FILTER (WHERE y.w > 1) + 1 AS m FROM A , B y
WHERE A.k = y.k GROUP BY A.k , window(A.ts, '10 minutes') HAVING COUNT(*) > 3 AND m < 9 WINDOW 1 hour EVERY 1 min;
ALTER QUERY g SET WINDOW 5 min EVERY 2 s;
ALTER QUERY q SET WINDOW 5 min; SET scheduler = 'mqt'; EXPLAIN q; DROP QUERY q; DROP STREAM S"""
WORDS = SCRIPT.split(" ")
ODD = [
    *"()[]<>,;.*'`=-:?!~|&^\\", "SELECT", "AND", "WINDOW", "a.b.c", "é", "²", "٣", "①", "\x00", "\ufeff", "\r\n", "\t",
    "\ud800", "\U0001f600", "9" * 5000, "0." + "9" * 5000, "x" * 100_000, "(" * 700, ")" * 3, "CASE " * 700,
    "NOT " * 3000, "ARRAY<" * 700, "/*", "--", "'", '"', "`", "r'", "->", "=>", "::", "::INT", "<=>",
    "INTERVAL", "1L", "1e", "CAST(", "AS",
    "EVERY", "EVERY 1 s", "GROUP BY", "HAVING", "COUNT(*)", "COUNT(", "sum(A.v)", "FILTER (WHERE", "window", "ALL",
    "ROLLUP (",
    "OVER (", "IDENTIFIER('x')", "*", "A.*", "$", "@", "#", "{", "}", "END", "WHEN", "LIKE ANY (", "x ->", "(x, y) ->",
]  # fmt: skip


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_script_is_read_or_refused_with_a_place_but_never_crashes(data):
    words = list(WORDS)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(words) - 1))
        kind = data.draw(st.sampled_from(["drop", "repeat", "swap", "insert"]))
        if kind == "drop":
            words.pop(at)
        elif kind == "insert":
            words.insert(
                at,
                data.draw(st.sampled_from(ODD)),
            )
        else:
            words[at] = f"{words[at]} {words[at]}" if kind == "repeat" else data.draw(st.sampled_from(WORDS))
    text = " ".join(words)
    refused = refusal(lambda: parse_script(text, STREAMS))
    assert refused is None or 0 < refused.line <= len(text.splitlines())


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "script",
    [
        "CREATE QUERY q AS SELECT A.v FROM A, B WHERE A.k = B.k AND {} WINDOW 1 s",
        "CREATE QUERY q AS SELECT {} FROM A, B WHERE A.k = B.k WINDOW 1 s",
        "CREATE QUERY q AS SELECT {} FROM A, B WHERE A.k = B.k GROUP BY A.v WINDOW 1 s",
        "CREATE QUERY q AS SELECT COUNT(*) FROM A, B WHERE A.k = B.k GROUP BY {} WINDOW 1 s EVERY 1 ms",
        "CREATE QUERY q AS SELECT MAX({}) AS m FROM A, B WHERE A.k = B.k HAVING {} WINDOW 1 s",
        "CREATE QUERY q WITH (emit = {}) AS SELECT COUNT(*) FROM A, B WHERE A.k = B.k WINDOW 1 s EVERY {}",
        "CREATE QUERY q AS SELECT A.v FROM A {}, B WHERE A.k = B.k WINDOW 1 s",
        "CREATE QUERY q AS SELECT A.v FROM A, B WHERE A.k = B.k WINDOW {} ROWS",
        "CREATE QUERY q AS SELECT A.v FROM A [ROWS {}], B WHERE A.k = B.k WINDOW {} s",
        "CREATE QUERY q WITH (sink = {}) AS SELECT A.v FROM A, B WHERE A.k = B.k WINDOW 1 s",
        "CREATE QUERY {} AS SELECT A.v FROM A, B WHERE A.k = B.k AND A.ts < B.ts + INTERVAL {} SECOND WINDOW 1 s",
        "CREATE STREAM S (a {}, ts TIMESTAMP) WITH (format = 'rate', time = 'ts')",
        "CREATE STREAM S (a DECIMAL({}), ts TIMESTAMP) WITH (format = 'rate', time = 'ts', lateness = {})",
        "CREATE STREAM {} (a INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts')",
        "SET memory = {}",
        "{}",
    ],
)
def test_an_odd_word_anywhere_is_read_or_refused_with_a_place_that_can_be_printed(odd, script):
    refused = refusal(lambda: parse_script(script.replace("{}", odd), STREAMS))
    assert refused is None or refused.line > 0


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_text_at_all_is_read_or_refused_with_a_place(text):
    for read in (lambda: parse_script(text), lambda: bind(f"SELECT {text}")):
        refused = refusal(read)
        assert refused is None or refused.line > 0


def refusal(read):
    """Say where a text is refused; any other error than `SqlError` fails the test."""
    try:
        read()
    except SqlError as error:
        str(error).encode()
        return error.place or Place(0, 0)
    return None


@given(st.integers(-FOREVER + 1, FOREVER - 1))
def test_a_duration_is_read_back_from_what_is_shown(micros):
    assert parse_duration(show_duration(micros).replace("µs", "us")) == micros
