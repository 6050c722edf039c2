"""A pair is refused only if Spark would not say true; whole numbers out of danger are refused exactly then."""

import math
import operator
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.column_checks import ColumnCheck, with_near_columns
from penstock.kernels.probe import Pairs
from penstock.sql.bind.binder import bind_query
from tests.kernels.drawn import examples
from tests.sql.streams import stream

TYPES = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "float": pa.float32(), "double": pa.float64(),
}  # fmt: skip
BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FORMS = {
    "{l} {s} {r} + {c}": lambda a, b, c, sign: compared(a, b + c, sign),
    "{l} - {c} {s} {r}": lambda a, b, c, sign: compared(a - c, b, sign),
    "{l} - {r} {s} {c}": lambda a, b, c, sign: compared(a - b, c, sign),
    "{r} - {l} {s} {c}": lambda a, b, c, sign: compared(b - a, c, sign),
    "ABS({l} - {r}) {s} {c}": lambda a, b, c, sign: compared(abs(a - b), c, sign),
    "{l} {s} {r}": lambda a, b, _c, sign: compared(a, b, sign),
}


def compared(a, b, sign):
    """Compare as Spark does: NaN equals itself and is greater than all others."""
    nan = (
        isinstance(a, float | np.floating) and math.isnan(a),
        isinstance(b, float | np.floating) and math.isnan(b),
    )
    if any(nan):
        return SIGNS[sign](*nan)
    return bool(SIGNS[sign](a, b))


def values(kind):
    """Ordinary values and those at the ends of the type; now and then a null."""
    if kind in BITS:
        edge = 1 << BITS[kind]
        whole = st.integers(-20, 20) | st.sampled_from(
            (-edge, 1 - edge, edge - 1, edge - 3, edge // 2, -edge // 2)
        )
        return st.none() | whole
    near = st.integers(-40, 40).map(lambda n: n / 4)
    odd = st.floats(width=32 if kind == "float" else 64)
    return st.none() | near | odd


def question(kinds, form, sign, constant):
    """Bind a condition over two columns of these types, and give its comparison."""
    streams = {name: stream(name, f"x {kind}, ts timestamp") for name, kind in zip("AB", kinds, strict=True)}
    text = form.format(l="A.x", r="B.x", s=sign, c=constant)
    return bind_query("q", f"SELECT 1 FROM A, B WHERE {text} WINDOW 1 s", streams).comparisons


def ask(comparison, kinds, left, right, *, batch_is_left=True):
    """Give the pairs of all rows with all rows that pass; the columns begin somewhere in their memory."""
    columns = [
        pa.array([None, *rows], TYPES[kind])[1:] for rows, kind in zip((left, right), kinds, strict=True)
    ]
    i, j = (each.ravel() for each in np.indices((len(left), len(right))))
    rows = (i, j) if batch_is_left else (j, i)
    found = Pairs(*rows, np.zeros(i.size, np.int16), np.ones((i.size, 1), np.uint64))
    checks = [ColumnCheck(comparison, *columns, np.array([1], np.uint64))]
    passed = with_near_columns(found, checks, batch_is_left=batch_is_left)
    pairs = (passed.batch, passed.state) if batch_is_left else (passed.state, passed.batch)
    return set(zip(*(each.tolist() for each in pairs), strict=True))


def as_spark(kind, value):
    """Give a value that computes as Spark's type does: whole numbers without end, the others rounded."""
    return value if kind in BITS else TYPES[kind].to_pandas_dtype()(value)


@examples(300)
@given(st.data(), st.sampled_from(sorted(TYPES)), st.sampled_from(sorted(TYPES)), st.booleans())
def test_no_pair_is_refused_that_spark_would_keep(data, first, second, batch_is_left):
    kinds = (first, second)
    form, sign = data.draw(st.sampled_from(sorted(FORMS))), data.draw(st.sampled_from(sorted(SIGNS)))
    constant = data.draw(st.sampled_from((0, 1, 5)))
    left, right = (data.draw(st.lists(values(kind), min_size=1, max_size=8)) for kind in kinds)
    found = question(kinds, form, sign, constant)
    if not found:
        assert "ABS" in form
        assert sign in {">", ">="}
        return
    (comparison,) = found
    passed = ask(comparison, kinds, left, right, batch_is_left=batch_is_left)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            if a is None or b is None:
                assert (i, j) not in passed, "a comparison with null is never true"
                continue
            with np.errstate(all="ignore"):
                true = FORMS[form](as_spark(first, a), as_spark(second, b), constant, sign)
            assert not true or (i, j) in passed
            if overflows(kinds, form, a, b, constant):
                assert (i, j) in passed, "Spark is to say what becomes of an overflow"
            elif set(kinds) <= set(BITS) and max(abs(a), abs(b)) <= min(comparison.limits):
                assert true == ((i, j) in passed), "whole numbers are exact"


def overflows(kinds, form, a, b, constant):
    """Say whether some sum of whole numbers leaves its type."""
    if not set(kinds) <= set(BITS):
        return False
    steps = {
        "{l} {s} {r} + {c}": (b + constant, kinds[1]),
        "{l} - {c} {s} {r}": (a - constant, kinds[0]),
        "{l} {s} {r}": (0, "bigint"),
    }
    wide = max(kinds, key=BITS.__getitem__)
    value, kind = steps.get(form, (a - b, wide))
    kind = max(kind, "int", key=BITS.__getitem__) if form in steps else kind  # a constant is an INT
    return not -(1 << BITS[kind]) < value < 1 << BITS[kind]


def test_only_the_queries_that_ask_lose_the_pair_and_others_keep_it():
    """70 queries: the first and the last ask for nearness, the others do not; with nobody else the pair goes."""
    (comparison,) = question(("int", "int"), "ABS({l} - {r}) {s} {c}", "<", 5)
    columns = pa.array([0, 100], pa.int32()), pa.array([3], pa.int32())
    asking = np.array([1, 1 << 5], np.uint64)
    for others in (0, 2):
        sets = np.array([[1 | others, 1 << 5]] * 2, np.uint64)
        found = Pairs(np.array([0, 1]), np.array([0, 0]), np.zeros(2, np.int16), sets)
        left = with_near_columns(found, [ColumnCheck(comparison, *columns, asking)], batch_is_left=True)
        sets_left = Counter(map(tuple, left.sets.tolist()))
        assert sets_left == Counter({(1 | others, 1 << 5): 1, **({(2, 0): 1} if others else {})})


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", "UTC")])
def test_dates_and_times_are_compared_by_their_number(kind):
    name = "date" if kind == pa.date32() else "timestamp"
    (comparison,) = question((name, name), "{l} {s} {r}", "<", 0)
    width = pa.int32() if name == "date" else pa.int64()
    left, right = (pa.array(rows, width).cast(kind) for rows in ([1, 2, None], [2]))
    found = Pairs(np.arange(3), np.zeros(3, np.int64), np.zeros(3, np.int16), np.ones((3, 1), np.uint64))
    passed = with_near_columns(
        found, [ColumnCheck(comparison, left, right, np.array([1], np.uint64))], batch_is_left=True
    )
    assert passed.batch.tolist() == [0]


def test_a_pair_that_only_rounding_puts_on_the_edge_passes():
    """``a <= b + 5`` holds for the double nearest to b + 5, though its difference from b comes out above 5."""
    b = 4.3
    assert (b + 5) - b > 5
    (comparison,) = question(("double", "double"), "{l} {s} {r} + {c}", "<=", 5)
    assert ask(comparison, ("double", "double"), [b + 5, b + 5.001], [b]) == {(0, 0)}


def test_a_whole_number_that_overflows_beside_a_double_is_left_to_spark():
    """``a - 5`` leaves the type at its least value; Spark says so, or wraps, as it is set."""
    (comparison,) = question(("bigint", "double"), "{l} - {c} {s} {r}", ">", 5)
    assert ask(comparison, ("bigint", "double"), [-(1 << 63), -100], [0.0]) == {(0, 0)}
