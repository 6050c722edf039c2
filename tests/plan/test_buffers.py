"""Buffers of the model find every result, and a row less misses one; strategies, trees and bounds of Theorem 3.1."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.plan.buffers import (
    DBF,
    HYBRID,
    MSF,
    PLAIN,
    STRATEGIES,
    Characteristics,
    buffer_rows,
    joined,
    lags_by_delay,
    need,
    rows_needed,
)
from tests.plan.arrivals import (
    arrivals,
    fifo_join,
    full_join,
    lag,
    largest_lag,
    multiplicity,
    scrambling,
    streams,
)

rates = st.sampled_from((1.0, 2.0, 3.0, 0.5))
phases = st.integers(0, 40).map(lambda each: each / 8 + 0.01)
plans = st.integers(2, 3).flatmap(
    lambda n: st.tuples(*(st.lists(each, min_size=n, max_size=n) for each in (streams(), rates, phases)))
)


def true(values, rate=1.0):
    return Characteristics(scrambling(values), multiplicity(values), rate)


def lags_of(given_streams, order):
    count = len(given_streams)
    return [[largest_lag(given_streams, order, i, j) for j in range(count)] for i in range(count)]


# --- Eq. 6 to 8 ---------------------------------------------------------------------------------------------


@given(plans)
def test_buffers_of_the_model_miss_no_result(plan):
    """Whatever the scrambles, duplicates, rates and lags of two or three streams with rows at even intervals."""
    given_streams, speed, phase = plan
    order = arrivals(*given_streams, rates=speed, phases=phase)
    inputs = [true(each, rate) for each, rate in zip(given_streams, speed, strict=True)]
    rows = buffer_rows(inputs, lags_of(given_streams, order))
    assert len(fifo_join(order, rows)) == full_join(given_streams)


def worst_case(early, late, ahead):
    """Make two streams of which one value is as early in the first and as late in the second as can be.

    With 2, 1 and 0, the value 7 (x):   S_i   1 2 3 4 x 5 6 8 9 ..      SF 2
                                        S_j   1 2 3 4 5 6 8 x 9 ..      SF 1, each right behind S_i's of its position
    """
    value, length = early + 5, early + late + 2 * abs(ahead) + 12
    rest = [each for each in range(1, length + 1) if each != value]
    first = [*rest[: value - 1 - early], value, *rest[value - 1 - early :]]
    second = [*rest[: value - 1 + late], value, *rest[value - 1 + late :]]
    order = [(position - ahead + 0.0, 0, each) for position, each in enumerate(first, 1)]
    order += [(position + 0.5, 1, each) for position, each in enumerate(second, 1)]
    return first, second, sorted(order)


@pytest.mark.parametrize(("early", "late", "ahead"), list(product((0, 1, 2, 5), (0, 1, 3), (0, 1, 2, 6))))
def test_a_row_less_than_the_model_says_misses_a_result(early, late, ahead):
    """So the size that the paper prints, one less, does; by Eq. 3 a lag of 0 or 1 even counts as none."""
    first, second, order = worst_case(early, late, ahead)
    own, partner = true(first), true(second)
    assert (own.scrambling, partner.scrambling) == (early, late)
    assert lag(first, second, 8 + ahead, 8) == ahead
    rows = rows_needed(own, partner, ahead)
    assert rows == early + late + ahead + 1
    assert len(fifo_join(order, (rows, 99))) == full_join((first, second))
    if rows > 1:
        assert len(fifo_join(order, (rows - 1, 99))) < full_join((first, second))


def test_with_the_other_way_to_count_the_printed_size_suffices_and_is_a_partners_row_too_large():
    """k at least the multiplicity (section 3.2) is one more than Definition 2.2's; at r_i = r_j that is one row."""
    printed = lambda own, partner: (own.scrambling + 1) + (partner.scrambling + 1)  # noqa: E731
    for early, late in product((0, 1, 2, 5), (0, 1, 3)):
        first, second, order = worst_case(early, late, 0)
        own, partner = true(first), true(second)
        assert printed(own, partner) == rows_needed(own, partner, 0) + 1
        assert len(fifo_join(order, (printed(own, partner), 99))) == full_join((first, second))


@given(rates, rates, st.integers(0, 30))
def test_lags_by_delay_are_those_of_the_definition_where_values_are_numbered_by_time(mine, its, behind):
    """A stream's n-th row has the value n / rate and comes `delay` later, both streams at even intervals."""
    own, other = Characteristics(0, rate=mine), Characteristics(0, rate=its, delay=behind / 4)
    first, second = ([n / each.rate for n in range(1, 60)] for each in (own, other))
    order = arrivals(first, second, rates=(mine, its), phases=(0, other.delay))
    assert largest_lag(
        (first, second), [row for row in order if row[0] < 60 / max(mine, its)], 0, 1
    ) <= own.lag(other)


# --- Theorem 3.1 --------------------------------------------------------------------------------------------


@given(plans)
def test_results_of_a_join_are_within_theorem_3_1(plan):
    given_streams, speed, phase = plan
    order = arrivals(*given_streams, rates=speed, phases=phase)
    results = fifo_join(order, [99] * len(given_streams))
    assume(results)
    inputs = [true(each, rate) for each, rate in zip(given_streams, speed, strict=True)]
    bound = joined(inputs)
    values = [value for _, value in results]
    assert scrambling(values) <= bound.scrambling
    assert multiplicity(values) <= bound.multiplicity
    late = [t - s for (s, v), (t, w) in product(results, repeat=2) if w <= v]
    assert max(late) <= bound.disorder + 1e-9, "the largest of the inputs' k / r"
    span = order[-1][0] - order[0][0] + max(1 / each for each in speed)
    assert len(results) <= bound.rate * span + 1e-9


def test_the_papers_k_over_r_is_not_how_long_results_are_out_of_order():
    """A slow stream that is out of order, a fast one that is not: the quotient of the bounds is below the truth."""
    slow, fast = [2, 1], [1, 2, 3, 4]
    order = arrivals(slow, fast, rates=(1.0, 4.0), phases=(0.0, -1.0))
    (early, _), (late, _) = fifo_join(order, (9, 9))
    bound = joined([true(slow, 1.0), true(fast, 4.0)])
    assert late - early == 1.0 == bound.disorder
    assert bound.scrambling / bound.rate < 0.5


six = st.tuples(*(st.lists(each, min_size=6, max_size=6) for each in (streams(most=6, values=4), rates)))


@given(six)
def test_a_tree_of_joins_misses_nothing_with_the_models_buffers(drawn):
    """Query 2: J1 and J2 join three streams each, J3 their results; lags are measured, all else is the model's."""
    given_streams, speed = drawn
    phase = [0.01 * n for n in range(6)]
    halves = []
    for part in (slice(0, 3), slice(3, 6)):
        rows = arrivals(*given_streams[part], rates=speed[part], phases=phase[part])
        inputs = [true(each, rate) for each, rate in zip(given_streams[part], speed[part], strict=True)]
        results = fifo_join(rows, buffer_rows(inputs, lags_of(given_streams[part], rows)))
        assert len(results) == full_join(given_streams[part])
        halves.append((joined(inputs), results))
    (left, first), (right, second) = halves
    assume(first and second)
    order = sorted((t, n, v) for n, each in enumerate((first, second)) for t, v in each)
    values = [[v for _, v in each] for each in (first, second)]
    rows = buffer_rows((left, right), lags_of(values, order))
    assert len(fifo_join(order, rows)) == full_join(values)


# --- strategies ---------------------------------------------------------------------------------------------

SYNCED = [Characteristics(300, 2, rate=50.0) for _ in range(3)]
BEHIND = [SYNCED[0], Characteristics(300, 2, rate=50.0, delay=26.0), SYNCED[0]]


def test_without_lag_sorting_saves_a_buffer_and_the_disk_saves_nothing():
    rows = {each: need(each, SYNCED).rows for each in STRATEGIES}
    assert rows[DBF] == rows[PLAIN]
    assert rows[HYBRID] == rows[MSF] < 0.51 * rows[PLAIN]


def test_with_lag_the_disk_saves_most_and_both_together_more():
    needs = {each: need(each, BEHIND) for each in STRATEGIES}
    assert needs[HYBRID].rows < needs[DBF].rows < needs[MSF].rows < needs[PLAIN].rows
    assert needs[DBF].disk == (1300 - 64, 0, 1300 - 64)
    assert [needs[each].delay for each in STRATEGIES] == [0, 0, 6, 6]


@given(
    st.lists(
        st.builds(Characteristics, st.integers(3, 50), st.integers(1, 4), rates, phases),
        min_size=2,
        max_size=4,
    )
)
def test_what_sorting_saves_a_stream_is_its_scrambling_less_multiplicities(inputs):
    plain, sort = need(PLAIN, inputs), need(MSF, inputs)
    for i, own in enumerate(inputs):
        others = max(own.rate * (other.multiplicity - 1) / other.rate for other in inputs)
        saved = plain.buffer[i] - sort.buffer[i] - sort.sorter[i]
        assert saved <= own.scrambling
        if sort.buffer[i] > 1:
            assert saved >= own.scrambling - own.multiplicity - others - 2


def test_leading_streams_are_held_back_also_from_the_view_of_the_one_behind():
    """The stream behind needs none while its partners are ahead, and as many rows as ever once they wait for it."""
    assert need(PLAIN, BEHIND).buffer[1] == 1
    assert need(DBF, BEHIND).buffer[1] == buffer_rows(SYNCED)[1]


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Characteristics(-1), "a scrambling of -1"),
        (lambda: Characteristics(5, 0), "a multiplicity of 0"),
        (lambda: Characteristics(1, 3), "the scrambling is 2 or more"),
        (lambda: Characteristics(1, rate=0), "must be positive"),
        (lambda: Characteristics(1, rate=float("inf")), "must be positive"),
        (lambda: buffer_rows([Characteristics(1)]), "at least two"),
        (lambda: need("msv", SYNCED), "did you mean msf"),
        (lambda: joined([]), "no streams"),
    ],
)
def test_what_cannot_be_is_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()


def test_lags_are_those_of_the_delays_unless_they_are_given():
    assert lags_by_delay(BEHIND) == ((0, 1300, 0), (-1300, 0, -1300), (0, 1300, 0))
    assert buffer_rows(BEHIND) == buffer_rows(SYNCED, lags_by_delay(BEHIND))
