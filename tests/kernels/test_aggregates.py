"""What is kept of an aggregate: folded at once, in parts, through files, or run by run, it comes to the same."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RunError
from penstock.kernels.aggregates.folded import fold_values, folded_class
from penstock.sql.aggregates import aggregate_class
from tests.kernels.drawn import examples
from tests.kernels.test_fold import BIG, DIGITS, NAN, TYPES, order_of, same

GROUPS = 3
WIDE = Context(prec=90)
PAIR = pa.struct([("y", pa.int64()), ("x", pa.string())])
KINDS = {**TYPES, "pair": (PAIR, tuple({"y": y, "x": x} for y in (1, 2, None) for x in ("a", "b", None)))}
NESTED = {
    **TYPES,
    "array": (pa.list_(pa.int64()), ([], [1], [1, None], [1, 2], [2], [None])),
    "arrays": (pa.list_(pa.list_(pa.float64())), ([[0.0]], [[-0.0]], [[], [NAN]], [[1.0], []], [])),
    "struct": (pa.struct([("p", pa.int32()), ("q", pa.list_(pa.string()))]),
               ({"p": 1, "q": ["a"]}, {"p": 1, "q": None}, {"p": None, "q": ["a", "b"]}, {"p": 1, "q": []})),
    "map": (pa.map_(pa.string(), pa.int64()), ([("a", 1)], [("a", None)], [("b", 0), ("a", 1)], [])),
    "void": (pa.null(), (None,)),
}  # fmt: skip
SPREADS = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")


def rows_of(kind, *, values=None):
    """Rows of some groups, in an order of their own."""
    value = st.none() | st.sampled_from(values or KINDS[kind][1])
    return st.lists(st.tuples(st.integers(0, GROUPS - 1), value), max_size=25)


def folded(function, rows, kind):
    """Fold rows at once."""
    ids = np.array([group for group, _ in rows], np.int64)
    return fold_values(function, pa.array([value for _, value in rows], kind), ids, GROUPS)


def stored(one):
    """Write parts, and read them again, as an answer does."""
    return folded_class(one.function).from_stored(one.function, one.stored(), one.kind)


def in_parts(function, rows, kind, cuts):
    """Fold rows part by part, store each, lay the stored ends end to end, and fold these."""
    ends = [0, *sorted(cuts), len(rows)]
    parts = [folded(function, rows[a:b], kind) for a, b in pairwise(ends)]
    columns = {name: pa.concat_arrays([each.stored()[name] for each in parts]) for name in parts[0].stored()}
    whole = folded_class(function).from_stored(function, columns, parts[0].kind)
    return whole.by(np.tile(np.arange(GROUPS), len(parts)), GROUPS)


def cut_somewhere(rows):
    return st.lists(st.integers(0, len(rows)), max_size=4)


def of_group(rows, group):
    return [value for each, value in rows if each == group and value is not None]


def close(one, other):
    """Say whether two results are the same but for rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return same(one, other) or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


# --- every function, every type ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("function", ["count", "min", "max"])
@examples(8)
@given(data=st.data())
def test_counts_and_ends_of_every_type(function, kind, data):
    arrow = TYPES[kind][0]
    rows = data.draw(rows_of(kind))
    result = pa.int64() if function == "count" else arrow
    right = []
    for group in range(GROUPS):
        mine = of_group(rows, group)
        if function == "count":
            right.append(len(mine))
        else:
            right.append((min if function == "min" else max)(mine, key=order_of) if mine else None)
    cuts = data.draw(cut_somewhere(rows))
    for way in (folded(function, rows, arrow), in_parts(function, rows, arrow, cuts)):
        got = way.finished(result)
        assert got.type == result
        assert all(same(one, other) for one, other in zip(got.to_pylist(), right, strict=True))


def rank_of(value):
    """Rank a value of any type: null first, nested ones part by part, and -0.0 before 0.0."""
    if value is None:
        return (0,)
    if isinstance(value, list | tuple):
        return (1, [rank_of(each) for each in value])
    if isinstance(value, dict):
        return (1, [rank_of(each) for each in value.values()])
    return (1, order_of(value), isinstance(value, float) and math.copysign(1.0, value) > 0)


def chosen_by(function, pairs):
    """Choose x by y, and among equal y by x, of which null is the last choice."""
    pairs = [each for each in pairs if each["y"] is not None]
    if not pairs:
        return None
    best = (max if function == "max_by" else min)(order_of(each["y"]) for each in pairs)
    tied = [each["x"] for each in pairs if order_of(each["y"]) == best]
    given = [each for each in tied if each is not None]
    return (max if function == "max_by" else min)(given, key=rank_of) if given else None


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("function", ["min_by", "max_by"])
@examples(10)
@given(data=st.data())
def test_values_of_every_type_are_chosen_by_others_and_ties_by_themselves(function, kind, data):
    by = data.draw(st.sampled_from(sorted(TYPES)))
    (x_type, x_values), (y_type, y_values) = NESTED[kind], TYPES[by]
    values = [{"y": y, "x": x} for y in (None, *y_values) for x in (None, *x_values)]
    rows = data.draw(st.lists(st.tuples(st.integers(0, GROUPS - 1), st.sampled_from(values)), max_size=25))
    right = [chosen_by(function, of_group(rows, group)) for group in range(GROUPS)]
    pair, cuts = pa.struct([("y", y_type), ("x", x_type)]), data.draw(cut_somewhere(rows))
    shuffled = data.draw(st.permutations(rows))
    for way in (
        folded(function, rows, pair), folded(function, shuffled, pair), in_parts(function, rows, pair, cuts)
    ):  # fmt: skip
        got = way.finished(x_type)
        assert got.type == x_type
        assert repr(got.to_pylist()) == repr(pa.array(right, x_type).to_pylist())


@examples(25)
@given(rows=rows_of("bigint"), data=st.data())
def test_sums_of_bigints_are_exact_or_refused(rows, data):
    right = [sum(mine) if (mine := of_group(rows, group)) else None for group in range(GROUPS)]
    fits = all(each is None or -BIG - 1 <= each <= BIG for each in right)
    for way in (
        folded("sum", rows, pa.int64()),
        in_parts("sum", rows, pa.int64(), data.draw(cut_somewhere(rows))),
    ):
        if fits:
            assert way.finished(pa.int64()).to_pylist() == right
        else:
            with pytest.raises(RunError, match="a SUM is too large"):
                way.finished(pa.int64())


@examples(25)
@given(rows=rows_of("bigint"), data=st.data())
def test_averages_of_bigints_never_overflow(rows, data):
    """Spark adds them up as doubles, so a sum beyond 64 bits is no reason to fail."""
    right = [sum(mine) / len(mine) if (mine := of_group(rows, group)) else None for group in range(GROUPS)]
    for way in (
        folded("avg", rows, pa.int64()),
        in_parts("avg", rows, pa.int64(), data.draw(cut_somewhere(rows))),
    ):
        got = way.finished(pa.float64()).to_pylist()
        assert all(close(one, other) for one, other in zip(got, right, strict=True)), (got, right)


ends_of_decimals = tuple(map(Decimal, (DIGITS, -DIGITS, 0, 7, 2**64, DIGITS // 2)))


@examples(25)
@given(rows=rows_of("decimal", values=ends_of_decimals), data=st.data())
def test_sums_of_decimals_are_exact_or_refused(rows, data):
    kind = pa.decimal128(38, 0)
    totals = [sum(map(int, mine)) if (mine := of_group(rows, group)) else None for group in range(GROUPS)]
    fits = all(each is None or abs(each) <= DIGITS for each in totals)
    for way in (folded("sum", rows, kind), in_parts("sum", rows, kind, data.draw(cut_somewhere(rows)))):
        if fits:
            assert way.finished(kind).to_pylist() == [
                None if each is None else Decimal(each) for each in totals
            ]
        else:
            with pytest.raises(RunError, match="a SUM is too large"):
                way.finished(kind)


cents = st.lists(st.tuples(st.integers(0, GROUPS - 1), st.none() | st.integers(-(10**10) + 1, 10**10 - 1)))


@examples(25)
@given(rows=cents, data=st.data())
def test_averages_of_decimals_are_rounded_half_up_as_spark_rounds(rows, data):
    """DECIMAL(10,2) gives DECIMAL(14,6)."""
    kind, result = pa.decimal128(10, 2), pa.decimal128(14, 6)
    rows = [(group, None if value is None else Decimal(value).scaleb(-2)) for group, value in rows]
    right = []
    for group in range(GROUPS):
        mine = of_group(rows, group)
        exact = WIDE.divide(sum(mine, Decimal(0)), Decimal(len(mine))) if mine else None
        right.append(None if exact is None else exact.quantize(Decimal("0.000001"), ROUND_HALF_UP, WIDE))
    for way in (folded("avg", rows, kind), in_parts("avg", rows, kind, data.draw(cut_somewhere(rows)))):
        got = way.finished(result)
        assert got.type == result
        assert got.to_pylist() == right


@examples(25)
@given(st.lists(st.sampled_from(ends_of_decimals), min_size=1, max_size=6))
def test_averages_of_the_longest_decimals(values):
    """DECIMAL(38,0) gives DECIMAL(38,4), which has room for 34 digits before the point, as Spark has."""
    rows = [(0, Decimal(int(each) // 10**5)) for each in values]
    total = sum(int(each) for _, each in rows)
    if abs(total) > DIGITS:
        return
    exact = WIDE.divide(Decimal(total), Decimal(len(rows))).quantize(Decimal("0.0001"), ROUND_HALF_UP, WIDE)
    got = folded("avg", rows, pa.decimal128(38, 0)).finished(pa.decimal128(38, 4)).to_pylist()
    assert got == [exact, None, None]


@pytest.mark.parametrize("function", ["sum", "avg"])
@pytest.mark.parametrize("kind", ["float", "double"])
@examples(8)
@given(data=st.data())
def test_sums_of_floats_are_those_of_plain_additions(function, kind, data):
    rows = data.draw(rows_of(kind, values=(0.0, -0.0, 1.5, -2.25, math.inf, -math.inf, float("nan"), 1024.0)))
    right = []
    for group in range(GROUPS):
        mine = of_group(rows, group)
        total = sum(mine, 0.0)
        right.append(None if not mine else total if function == "sum" else total / len(mine))
    cuts = data.draw(cut_somewhere(rows))
    for way in (folded(function, rows, TYPES[kind][0]), in_parts(function, rows, TYPES[kind][0], cuts)):
        got = way.finished(pa.float64()).to_pylist()
        assert all(close(one, other) for one, other in zip(got, right, strict=True))


@pytest.mark.parametrize("function", ["sum", "avg"])
def test_texts_are_summed_as_the_numbers_they_are(function):
    got = folded(function, [(0, "1.5"), (0, "2.5"), (1, None)], pa.string()).finished(pa.float64())
    assert got.to_pylist() == [4.0 if function == "sum" else 2.0, None, None]


def test_intervals_are_summed_and_averaged_to_intervals():
    rows = [(0, dt.timedelta(seconds=3)), (0, dt.timedelta(seconds=-1)), (0, None), (1, dt.timedelta(days=9))]
    kind = pa.duration("us")
    assert folded("sum", rows, kind).finished(kind).to_pylist() == [
        dt.timedelta(seconds=2), dt.timedelta(days=9), None,
    ]  # fmt: skip
    assert folded("avg", rows, kind).finished(kind).to_pylist() == [
        dt.timedelta(seconds=1), dt.timedelta(days=9), None,
    ]  # fmt: skip


numbers = st.none() | st.sampled_from([0.0, 1.0, -7.5, 1e6, 1e6 + 0.5, 3.25, -1e-3])


@pytest.mark.parametrize("function", SPREADS)
@examples(8)
@given(rows=st.lists(st.tuples(st.integers(0, GROUPS - 1), numbers), max_size=25), data=st.data())
def test_spreads_are_those_of_the_definition(function, rows, data):
    ways = {
        "var_pop": statistics.pvariance, "stddev_pop": statistics.pstdev,
        "var_samp": statistics.variance, "stddev_samp": statistics.stdev,
    }  # fmt: skip
    fewest = 2 if function.endswith("samp") else 1
    right = []
    for group in range(GROUPS):
        mine = of_group(rows, group)
        right.append(float(ways[function](mine)) if len(mine) >= fewest else None)
    cuts = data.draw(cut_somewhere(rows))
    for way in (folded(function, rows, pa.float64()), in_parts(function, rows, pa.float64(), cuts)):
        for one, other in zip(way.finished(pa.float64()).to_pylist(), right, strict=True):
            assert (one is None) == (other is None)
            assert one is None or math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize("function", SPREADS)
def test_a_spread_of_equal_values_is_nothing_however_large_they_are(function):
    rows = [(0, 1e308)] * 4
    for cuts in ([], [1], [1, 2, 3]):
        assert in_parts(function, rows, pa.float64(), cuts).finished(pa.float64()).to_pylist()[0] == 0.0


@pytest.mark.parametrize("value", [math.inf, float("nan")])
def test_a_spread_of_what_has_no_distance_is_no_number(value):
    for rows in ([(0, value)], [(0, value), (0, 1.0)]):
        got = folded("var_pop", rows, pa.float64()).finished(pa.float64()).to_pylist()
        assert math.isnan(got[0])


# --- put together in other ways ---------------------------------------------------------------------------------------

some_kind = st.sampled_from([("count", "bigint"), ("min", "string"), ("max", "double"), ("max", "decimal"),
                             ("min_by", "pair"), ("max_by", "pair"), ("sum", "cents"), ("avg", "int"),
                             ("sum", "double"), ("var_pop", "int")])  # fmt: skip


def plain(one):
    """Give the finished values, so that two of them can be compared."""
    kinds = {"avg": pa.float64(), "var_pop": pa.float64(), "count": pa.int64(), "min_by": pa.string()}
    kinds["max_by"] = kinds["min_by"]
    kind = kinds.get(one.function) or (pa.decimal128(20, 2) if "3" in one.parts else one.kind)
    return [
        f"{each:.9g}" if isinstance(each, float) else each
        for each in one.finished(kind).to_pylist()
    ]  # fmt: skip


@examples(25)
@given(chosen=some_kind, data=st.data())
def test_entries_put_together_one_by_one_are_those_of_all_rows(chosen, data):
    function, kind = chosen
    values = (1.5, 2.0, float("nan")) if kind == "double" else KINDS[kind][1]
    rows = data.draw(rows_of(kind, values=values))
    cut = data.draw(st.integers(0, len(rows)))
    arrow = KINDS[kind][0]
    whole = folded(function, rows, arrow)
    if aggregate_class(function).compares:  # both must have the same values behind their numbers
        each = folded_class(function).from_stored(
            function, {"v": pa.array([v for _, v in rows], arrow)}, arrow
        )
        ids = np.array([group for group, _ in rows], np.int64)
        first, second = (each.at(part).by(ids[part], GROUPS) for part in (slice(cut), slice(cut, None)))
    else:
        first, second = (folded(function, part, arrow) for part in (rows[:cut], rows[cut:]))
    assert plain(first.plus(second)) == plain(whole) == plain(second.plus(first)) == plain(stored(whole))
    some = data.draw(st.lists(st.integers(0, GROUPS - 1), max_size=4))
    assert plain(whole.at(np.array(some, np.int64))) == [plain(whole)[n] for n in some]


@pytest.mark.parametrize(
    ("function", "result"),
    [
        ("sum", pa.decimal128(15, 2)), ("avg", pa.decimal128(9, 6)), ("sum", pa.duration("us")),
        ("min", pa.string()), ("stddev_samp", pa.float64()), ("count", pa.int64()),
    ],
)  # fmt: skip
def test_of_no_rows_there_is_no_value(function, result):
    kind = {"min": pa.string(), "stddev_samp": pa.float64(), "count": pa.int64()}.get(function)
    kind = kind or (pa.duration("us") if pa.types.is_duration(result) else pa.decimal128(5, 2))
    got = fold_values(function, pa.array([], kind), np.zeros(0, np.int64), 2).finished(result)
    assert got.to_pylist() == ([0, 0] if function == "count" else [None, None])


@pytest.mark.parametrize("function", SPREADS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_spread_of_what_is_no_number_is_none_however_often_it_counts(function, value):
    """As Spark has it: the mean is no number, so no distance from it is."""
    once = fold_values(function, pa.array([value]), np.array([0]), 1)
    thrice = once.times(np.array([3]), np.array([1]), np.array([3]))
    assert np.isnan(thrice.finished(pa.float64())[0].as_py())


def test_many_spreads_are_taken_into_few_of_many_entries_in_place():
    entries = folded_class("var_pop").from_rows("var_pop", pa.array([1.0, 5.0, 2.0]))
    totals = entries.nothing(9)
    assert totals.add(np.array([7, 7, 2]), entries) is totals
    assert totals.finished(pa.float64()).to_pylist() == [None, None, 0.0, None, None, None, None, 4.0, None]
