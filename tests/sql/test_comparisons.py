"""Which conditions on pairs bound the difference of two columns, and how wide."""

import pytest

from penstock.sql.query import Comparison
from tests.sql.streams import bind, where

LONG = (1 << 62) - 1
"""Half of a bigint: two of them can be subtracted."""
INT = (1 << 30) - 1


def whole(left, right, least, most, limit=LONG):
    return Comparison(left, right, least, most, (limit, limit))


def rounded(left, right, least, most, size=0.0, *, limits=(None, None)):
    return Comparison(left, right, least, most, limits, 2.0**-48, size)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("A.k < B.k", whole("k", "k", None, -1)),
        ("B.k > A.k", whole("k", "k", None, -1)),
        ("A.k <= B.k", whole("k", "k", None, 0)),
        ("A.k > B.n", whole("k", "n", 1, None)),
        ("A.n >= B.n", whole("n", "n", 0, None)),
        ("A.k < B.k + 5", whole("k", "k", None, 4, LONG - 2)),
        ("A.k - B.k < 5", whole("k", "k", None, 4, LONG - 2)),
        ("5 > A.k - B.k", whole("k", "k", None, 4, LONG - 2)),
        ("B.k - A.k < 5", whole("k", "k", -4, None, LONG - 2)),
        ("-B.k < -3 - A.k", whole("k", "k", None, -4, LONG - 1)),
        ("A.k - B.k < 2.5", whole("k", "k", None, 2, LONG - 1)),
        ("ABS(A.k - B.k) < 5", whole("k", "k", -4, 4, LONG - 2)),
        ("abs(B.k - A.k + 1) <= 5", whole("k", "k", -4, 6, LONG - 3)),
        ("ABS(A.k - B.k) <= 2.5", whole("k", "k", -2, 2, LONG - 1)),
        ("ABS(A.n - B.k) <= 2", whole("n", "k", -2, 2, INT - 1)),
        ("A.day < B.day", whole("day", "day", None, -1)),
        ("A.v < B.w", rounded("v", "w", None, 0.0)),
        ("A.v >= B.w - 0.5", rounded("v", "w", -0.5, None, 0.5)),
        ("A.n - B.w < 3", rounded("n", "w", None, 3.0, 3.0, limits=(INT - 1, None))),
    ],
)
def test_a_bound_on_the_difference_of_two_columns_is_read(condition, found):
    query = where(condition)
    assert query.comparisons == (found,)
    assert len(query.residual) == 1, "Spark still decides"


def test_a_band_is_two_comparisons_and_repeats_are_one():
    query = bind(
        "SELECT 1 FROM A, B WHERE A.k BETWEEN B.k - 5 AND B.k + 5 AND A.k <= 5 + B.k AND A.v <> B.w WINDOW 1 s"
    )
    assert query.comparisons == (whole("k", "k", None, 5, LONG - 2), whole("k", "k", -5, None, LONG - 2))


@pytest.mark.parametrize(
    "condition",
    [
        "A.k <> B.k", "A.name < B.name", "A.amount < B.amount", "A.day < B.seen", "A.ts < B.seen + INTERVAL 1 DAY",
        "A.k + B.k < 5", "A.k * 2 < B.k", "A.k < B.k + B.n", "ABS(A.k - B.k) > 5", "ABS(A.k - B.k) < A.n",
        "ABS(A.k) - B.k < 5", "A.k < B.k + 1e3", "A.k < B.k OR A.n < B.n", "A.place.zip < B.n",
        "CAST(A.name AS INT) < B.n", "A.day - B.day < INTERVAL 5 DAYS", "A.k < B.k + A.n", "A.k % 5 < B.k", "2 > 3",
    ],
)  # fmt: skip
def test_anything_else_is_left_to_spark(condition):
    assert where(condition).comparisons == ()
