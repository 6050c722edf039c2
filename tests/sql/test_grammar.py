"""Expressions are grouped as Spark groups them, and come out as they went in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SqlError
from penstock.sql.bind.binder import bind_query
from penstock.sql.text.lexer import string_value, tokenize
from penstock.sql.text.parser import parse_expression
from penstock.sql.text.tokens import Source, TokenReader
from penstock.sql.text.tree import Form, show
from tests.sql.expressions import KINDS, STREAMS, expressions
from tests.sql.streams import bind, where


def parsed(text):
    source = Source(text)
    reader = TokenReader(source, source.tokens)
    tree = parse_expression(reader)
    reader.end()
    return tree


def grouped(tree):
    """Write a tree with brackets round every operator."""
    if not isinstance(tree, Form):
        return show(tree)
    inside = "".join(part if isinstance(part, str) else grouped(part) for part in tree.parts)
    return inside if tree.rank == 13 or tree.head == "->" else f"({inside})"


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("a or b and c or d", "(a OR (b AND c) OR d)"),
        ("not a = b and c", "((NOT (a = b)) AND c)"),
        ("not a is null or b", "((NOT (a IS NULL)) OR b)"),
        ("! a in (b, c)", "(NOT (a IN (b, c)))"),
        ("a between b and c and d", "((a BETWEEN b AND c) AND d)"),
        ("a not between b + 1 and c or d", "((a NOT BETWEEN (b + 1) AND c) OR d)"),
        ("a = b in (c)", "((a = b) IN (c))"),
        ("a = b is null", "((a = b) IS NULL)"),
        ("a < b = c", "((a < b) = c)"),
        ("a like b = c", "(a LIKE (b = c))"),
        ("a is distinct from b = c", "(a IS DISTINCT FROM (b = c))"),
        ("a | b ^ c & d << e + f * g", "(a | (b ^ (c & (d << (e + (f * g))))))"),
        ("a * b + c << d & e ^ f | g", "((((((a * b) + c) << d) & e) ^ f) | g)"),
        ("a - b - c || d", "(((a - b) - c) || d)"),
        ("a div b % c / d", "(((a DIV b) % c) / d)"),
        ("- a * b", "((-a) * b)"),
        ("-1 + - -2", "(-1 + (--2))"),
        ("~a.b[0].c::int", "(~a.b[0].c::INT)"),
        ("a = b and c = d or e = f", "(((a = b) AND (c = d)) OR (e = f))"),
        ("f(x -> x > 1 or y)", "F(x -> ((x > 1) OR y))"),
        ("a like any ('x', 'y') and b", "((a LIKE ANY ('x', 'y')) AND b)"),
        ("case a when b = c then d or e end = f", "(CASE a WHEN (b = c) THEN (d OR e) END = f)"),
        ("position(a + b in c)", "POSITION((a + b) IN c)"),
        ("interval 1 day - interval '2' hour", "(INTERVAL 1 DAY - INTERVAL '2' HOUR)"),
        ("a = not(b)", "(a = NOT(b))"),
        ("x::int <> y", "(x::INT <> y)"),
    ],
)  # fmt: skip
def test_operators_bind_as_in_spark(text, groups):
    assert grouped(parsed(text)) == groups


@pytest.mark.parametrize(
    "text",
    [
        "ARRAY(a, b)[0]", "TIME '12:00'", "CAST(a AS TIME)", "a LIKE ANY ('x%', b)", "a NOT ILIKE ALL ('x')", "1.5BD",
        "1e3", "X '1F'", "DATE '2020-01-01'", "TIMESTAMP_NTZ '2020-01-01 00:00:00'", "r'\\d'", "'a' 'b'", "'it''s'",
        "INTERVAL '01:30' MINUTE TO SECOND", "a::STRUCT<x: INT, Y: ARRAY<STRING>>", "a.`b``c`[1]", "a <=> b", "a DIV 2",
        "a IS NOT DISTINCT FROM b", "MASK(a, upperChar => 'Q')", "TRANSFORM(a, (x, i) -> x + i)", "EXTRACT(day FROM a)",
        "SUBSTRING(a FROM 2 FOR 1)", "TRIM(BOTH 'x' FROM a)", "OVERLAY(a PLACING 'z' FROM 2)", "POSITION('b' IN a)",
        "PARSE_JSON(a):b.c[0]::INT", "STRUCT(a AS x, b AS y).x", "(a, b)", "a COLLATE UTF8_LCASE",
        "DATEDIFF(DAY, a, b)",
        "CASE WHEN a THEN b ELSE c END", "a NOT LIKE 'x!%' ESCAPE '!'", "LIKE(a, b)", "a >>> 1", "a !> 1",
    ],
)  # fmt: skip
def test_what_spark_understands_comes_out_as_it_went_in(text):
    assert show(parsed(text)) == text


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KINDS).flatmap(expressions))
def test_no_word_of_an_expression_is_lost_added_or_moved(text):
    """Only columns change, brackets may come, keywords are in upper case, and a plain string gets single quotes."""
    try:
        (output,) = bind_query(
            "q", f"SELECT {text}\n AS x FROM A, B WHERE A.k = B.j WINDOW 1 s", STREAMS
        ).outputs
    except SqlError:
        return
    assert words(output.expression) == words(text)


def words(text):
    """List the words of a text as far as they must not change: names without their stream, no brackets."""
    said = []
    for token in tokenize(text.replace("!=", "<>")):
        if token.kind == "string":
            said.append(string_value(token))
        elif token.text not in {"(", ")", ".", "AS", "as"}:
            said.append({"!": "NOT"}.get(token.name, token.name).lower().removesuffix("_1"))
    return [word for word in said if word not in {"a", "b", "l", "r"}]


def test_a_variable_that_would_hide_a_column_is_renamed():
    assert where("exists(A.tags, n -> n > A.n)").left_predicates == ("EXISTS(tags, n_1 -> n_1 > n)",)
    (output,) = bind(
        "SELECT transform(A.tags, (l, R) -> l + R + A.n + B.w) AS x FROM A, B WHERE A.k = B.k WINDOW 1 s"
    ).outputs
    assert output.expression == "TRANSFORM(l.tags, (l_1, R_1) -> l_1 + R_1 + l.n + r.w)"


def test_a_variable_hides_a_column_as_in_spark_and_other_variables_are_left_alone():
    (output,) = bind(
        "SELECT transform(A.tags, v -> transform(A.tags, v_1 -> v + v_1)) AS x FROM A, B WHERE A.k = B.k WINDOW 1 s"
    ).outputs
    assert output.expression == "TRANSFORM(l.tags, v_2 -> TRANSFORM(l.tags, v_1 -> v_2 + v_1))"


def test_a_star_among_arguments_is_every_column_of_the_streams():
    (output,) = bind("SELECT hash(A.*) AS x FROM Days A, B WHERE A.k = B.k WINDOW 1 s").outputs
    assert output.expression == "HASH(r.k, r.d)"


@pytest.mark.parametrize("depth", [50, 500])
@pytest.mark.parametrize(
    ("before", "behind", "kept"),
    [
        ("(", ")", False),
        ("NOT (", ")", True),
        ("abs(", ")", True),
        ("CASE WHEN TRUE THEN ", " END", True),
        ("- ", "", True),
    ],
)
def test_brackets_in_brackets_are_read(depth, before, behind, kept):
    query = where(f"{before * depth}A.v{behind * depth} > 1")
    assert len(query.left_predicates[0]) > depth or not kept


def test_brackets_beyond_measure_are_refused_where_they_are_too_many():
    with pytest.raises(SqlError, match="nested more than 500 deep") as caught:
        where(f"{'(' * 501}A.v{')' * 501} > 1")
    assert caught.value.place.length == 1


@pytest.mark.parametrize("connector", ["OR", "AND", "+", "||"])
def test_thousands_of_operands_are_one_expression(connector):
    operand = "A.n = {}" if connector in {"OR", "AND"} else "A.n"
    text = f" {connector} ".join(operand.format(number) for number in range(3000))
    query = bind(f"SELECT {text} AS x FROM A, B WHERE A.k = B.k AND (({text}) IS NULL) WINDOW 1 s")
    assert query.outputs[0].expression.count(f" {connector} ") == 2999
