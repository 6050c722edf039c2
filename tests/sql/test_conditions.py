"""Where each condition goes, and the one way it is written there."""

import pytest

from penstock.sql.query import Key
from tests.sql.streams import bind, where


@pytest.mark.parametrize(
    ("condition", "written"),
    [
        ("A.v > 30", "v > 30"),
        ("30 < a.V", "v > 30"),
        ("v > 30", "v > 30"),
        ("((A.v)) > (30)", "v > 30"),
        ("A.v == 30", "v = 30"),
        ("30 != A.v", "v <> 30"),
        ("A.v < A.n", "n > v"),
        ("A.n > A.v", "n > v"),
        ("A.v = A.n", "n = v"),
        ("A.v = 1 OR A.n = 2", "n = 2 OR v = 1"),
        ("(A.n = 2 OR (A.v = 1 OR A.n = 2))", "n = 2 OR v = 1"),
        ("(A.v = 1 OR A.n = 2) IS NULL", "(n = 2 OR v = 1) IS NULL"),
        ("A.v BETWEEN 1 AND 2 OR A.n = 3", "n = 3 OR v <= 2 AND v >= 1"),
        ("NOT A.v BETWEEN 1 AND 2", "NOT (v <= 2 AND v >= 1)"),
        ("A.v NOT IN (3, 1, 2, 3)", "NOT v IN (1, 2, 3)"),
        ("A.v IS NOT NULL", "NOT v IS NULL"),
        ("A.v - (A.n - 1) > 2", "v - (n - 1) > 2"),
        ("(A.v - A.n) - 1 > 2", "v - n - 1 > 2"),
        ("(A.v + 1) * 2 > 2", "(v + 1) * 2 > 2"),
        ("-(A.v + 1) > 2", "-(v + 1) > 2"),
        ("lower(A.NAME) = 'x'", "LOWER(name) = 'x'"),
        ('LOWER( a.name ) = "x"', "LOWER(name) = 'x'"),
        ("A.name = 'it''s'", "name = 'it''s'"),
        ("A.name LIKE 'x!%' ESCAPE '!'", "name LIKE 'x!%' ESCAPE '!'"),
        ("A.name RLIKE '^a'", "name RLIKE '^a'"),
        ("A.order = 'x'", "`order` = 'x'"),
        ("A.`order` = 'x'", "`order` = 'x'"),
        ("A.place.City = 'x'", "place.City = 'x'"),
        ("place.City = 'x'", "place.City = 'x'"),
        ("A.tags[0] = 1", "tags[0] = 1"),
        ("exists(A.tags, x -> x > A.n)", "EXISTS(tags, x -> x > n)"),
        ("size(transform(A.tags, v -> v + 1)) > A.n", "SIZE(TRANSFORM(tags, v_1 -> v_1 + 1)) > n"),
        ("datediff(DAY, A.day, A.ts) > 1", "DATEDIFF(DAY, day, ts) > 1"),
        ("my_udf(A.v, 'p') > 1", "MY_UDF(v, 'p') > 1"),
        ("A.ts > A.day - INTERVAL 1 HOUR 3 MINUTES", "ts > day - INTERVAL 1 HOUR 3 MINUTES"),
        ("(A.n | 1) & 2 = 2", "(n | 1) & 2 = 2"),
        ("CASE WHEN (A.v > 1) THEN TRUE ELSE A.flag END", "CASE WHEN v > 1 THEN TRUE ELSE flag END"),
        ("A.v = 0 OR 1 / A.v > 2", "v = 0 OR 1 / v > 2"),
        ("1 / A.v > 2 OR A.v = 0", "1 / v > 2 OR v = 0"),
        ("to_date(A.name, 'yyyy') > DATE '2020-01-01'", "TO_DATE(name, 'yyyy') > DATE '2020-01-01'"),
    ],
)  # fmt: skip
def test_a_condition_on_one_stream_is_its_predicate_in_canonical_form(condition, written):
    if " OR " in condition and not condition.startswith("("):
        condition = f"({condition})"
    query = where(condition)
    assert query.left_predicates == (written,)
    assert (query.right_predicates, query.residual) == ((), ())


def test_between_shares_its_halves_with_other_queries():
    assert where("A.v BETWEEN 1 AND 2").left_predicates == ("v <= 2", "v >= 1")


def test_predicates_are_sorted_and_not_repeated():
    query = where("A.v > 1 AND B.w < 2 AND 1 < A.v AND A.n = 1 AND (B.flag AND A.flag)")
    assert query.left_predicates == ("flag", "n = 1", "v > 1")
    assert query.right_predicates == ("flag", "w < 2")


@pytest.mark.parametrize(
    ("condition", "residual"),
    [
        ("A.v > B.w", ("l.v > r.w",)),
        ("B.w < A.v", ("l.v > r.w",)),
        ("A.v + B.w = 5", ("l.v + r.w = 5",)),
        ("(A.name = 'x' OR B.name = 'y')", ("l.name = 'x' OR r.Name = 'y'",)),
        ("A.n <=> B.n", ("l.n <=> r.n",)),
        ("NOT A.n = B.n", ("NOT l.n = r.n",)),
        ("1 = 0", ("0 = 1",)),
        ("A.v > B.w AND A.n <> B.n", ("l.n <> r.n", "l.v > r.w")),
        ("1 = 1", ()),
        ("TRUE", ()),
    ],
)
def test_a_condition_on_pairs_is_residual_and_a_constant_truth_is_dropped(condition, residual):
    query = where(condition)
    assert query.residual == residual
    assert (query.left_predicates, query.right_predicates) == ((), ())


def test_columns_read_are_those_of_outputs_and_residual_only():
    query = bind("SELECT A.v + 1 AS x, B.Name FROM A, B WHERE A.k = B.k AND A.n > B.w AND A.flag WINDOW 1 s")
    assert query.left_columns == {"v", "n"}
    assert query.right_columns == {"Name", "w"}


@pytest.mark.parametrize(
    ("equality", "key"),
    [
        ("A.k = B.k", Key("k", "k")),
        ("b.K = a.K", Key("k", "k")),
        ("A.n = B.n", Key("n", "n", "bigint")),
        ("A.amount = B.amount", Key("amount", "amount", "decimal(12,4)")),
        ("A.amount = B.big", Key("amount", "big", "decimal(22,2)")),
        ("A.n = B.w", Key("n", "w", "double")),
        ("A.amount = B.w", Key("amount", "w", "double")),
        ("A.day = B.seen", Key("day", "seen", "timestamp")),
        ("A.day = B.day", Key("day", "day")),
        ("A.name = B.k", Key("name", "k", "bigint")),
        ("A.n = B.name", Key("n", "Name", "bigint")),
        ("A.amount = B.name", Key("amount", "Name", "double")),
        ("A.name = B.day", Key("name", "day", "date")),
        ("A.tags = B.tags", Key("tags", "tags", "array<bigint>")),
        ("lower(A.name) = B.name", Key("LOWER(name)", "Name")),
        ("B.name = lower(A.name)", Key("LOWER(name)", "Name")),
        ("A.n + 1 = B.n", Key("n + 1", "n", "bigint")),
        ("A.n % 10 = B.n % 10", Key("n % 10", "n % 10", "bigint")),
        ("A.n / 2 = B.n", Key("n / 2", "n", "double")),
        ("CAST(A.name AS INT) = B.n", Key("CAST(name AS INT)", "n", "bigint")),
        ("my_udf(A.name) = B.n", Key("MY_UDF(name)", "n")),
        ("A.amount + 1 = B.amount", Key("amount + 1", "amount")),
        ("A.place.zip = B.n", Key("place.zip", "n", "bigint")),
        ("(A.k) = (B.k)", Key("k", "k")),
    ],
)
def test_an_equality_between_the_streams_is_a_key_with_the_type_spark_compares_as(equality, key):
    assert bind(f"SELECT A.v FROM A, B WHERE {equality} WINDOW 1 s").keys == (key,)


def test_keys_are_sorted_whatever_their_order_and_come_from_on_where_and_using():
    keys = (Key("day", "day"), Key("k", "k"))
    assert bind("SELECT 1 FROM A, B WHERE A.k = B.k AND B.day = A.day WINDOW 1 s").keys == keys
    assert bind("SELECT 1 FROM A JOIN B ON A.k = B.k WHERE B.day = A.day WINDOW 1 s").keys == keys
    assert bind("SELECT 1 FROM B INNER JOIN A USING (K, Day) WINDOW 1 s").keys == keys


@pytest.mark.parametrize(
    ("condition", "residual"),
    [
        ("WHERE A.v < B.w", ("l.v < r.w",)),
        ("WHERE ABS(A.v - B.w) < 5", ("ABS(l.v - r.w) < 5",)),
        ("WHERE A.v BETWEEN B.w - 5 AND B.w + 5", ("l.v <= r.w + 5", "l.v >= r.w - 5")),
        ("WHERE A.k <=> B.k", ("l.k <=> r.k",)),
        ("WHERE A.k = B.k OR A.n = B.n", ("l.k = r.k OR l.n = r.n",)),
        ("WHERE A.k + B.k = 7", ("l.k + r.k = 7",)),
        ("WHERE A.v > 30 AND B.w < 2", ()),
        ("", ()),
    ],
)
@pytest.mark.parametrize("tables", ["A, B", "A JOIN B", "B CROSS JOIN A"])
def test_a_join_without_an_equality_has_no_key_and_keeps_its_conditions(tables, condition, residual):
    query = bind(f"SELECT A.v FROM {tables} {condition} WINDOW 1 s")
    assert (query.keys, query.residual) == ((), residual)


def test_all_joins_without_an_equality_have_one_signature():
    conditions = ("A.v < B.w", "ABS(A.n - B.n) < 5", "A.name LIKE B.name", "A.v > 1", "TRUE")
    queries = [bind(f"SELECT A.v FROM A, B WHERE {each} WINDOW 1 s") for each in conditions]
    assert len({each.signature for each in queries}) == 1
    assert where("A.v < B.w").signature != queries[0].signature


def test_a_self_join_keeps_its_order():
    query = bind("SELECT x.v, y.v FROM A x, A y WHERE x.k = y.n AND x.v > 1 AND y.ts > x.ts WINDOW 1 s")
    assert (query.left, query.right, query.keys) == ("A", "A", (Key("k", "n", "bigint"),))
    assert (query.left_predicates, query.right_predicates) == (("v > 1",), ())
    assert query.window.lo == 1
    assert [each.name for each in query.outputs] == ["v", "y_v"]
