"""The cost model against the paper's equations, written out as they are printed (Eq. 2: as derived)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.paper1_analysis import equation_4, savings
from penstock.errors import InputError
from penstock.plan.cost import (
    Coefficients,
    Cost,
    chain_cost,
    isolated_cost,
    pull_up_cost,
    push_down_cost,
)
from penstock.plan.facts import Independent, PatternShares, PricedQuery, Statistics, age_bounds
from penstock.sql.query import SECOND, Range
from tests.plan.nested import Nested

rates = st.floats(1, 1000)
shares = st.floats(0.01, 0.99)
seconds = st.integers(1, 3600)


def window(length, condition="", other=""):
    return PricedQuery(Range.window(length * SECOND, length * SECOND), condition, other)


@given(rates, st.tuples(seconds, seconds), shares, shares, st.floats(1, 1000))
def test_two_queries_cost_what_equations_1_2_and_3_say(rate, lengths, select, join, size):
    w1, w2 = lengths[0], sum(lengths)
    readers = [window(w1), window(w2, "σ")]
    known = Statistics(rate, rate, join, Independent({"σ": select}), row_bytes=size)
    cuts = dict.fromkeys("lr", (0, w1 * SECOND, w2 * SECOND))
    up, down, ours = (
        pull_up_cost(readers, known),
        push_down_cost(readers, known),
        chain_cost(readers, known, cuts),
    )

    assert up.bytes == pytest.approx(2 * rate * w2 * size)
    assert up.cpu() == pytest.approx(
        2 * rate**2 * w2 + 2 * rate + 2 * rate**2 * w2 * join + 2 * rate**2 * w2 * join
    )
    assert down.bytes == pytest.approx((2 - select) * rate * w1 * size + (1 + select) * rate * w2 * size)
    assert down.cpu() == pytest.approx(
        rate
        + 2 * (1 - select) * rate**2 * w1
        + 2 * select * rate**2 * w2
        + 3 * rate
        + 2 * select * rate**2 * w2 * join
        + 2 * rate**2 * w1 * join
    )
    assert ours.bytes == pytest.approx(2 * rate * w1 * size + (1 + select) * rate * (w2 - w1) * size)
    assert ours.cpu() == pytest.approx(
        2 * rate**2 * w1
        + rate
        + 2 * rate**2 * select * (w2 - w1)
        + 4 * rate
        + 2 * rate
        + 2 * rate**2 * join * w1
    )


@given(shares, shares, shares)
def test_equation_4_is_what_follows_from_the_first_three(ratio, select, join):
    ratio = round(ratio, 3)
    ours, printed = savings(ratio, select, join), equation_4(ratio, select, join)
    assert ours.memory_up == pytest.approx(printed.memory_up, abs=1e-6)
    assert ours.memory_down == pytest.approx(printed.memory_down, abs=1e-6)
    assert ours.cpu_up == pytest.approx(printed.cpu_up, abs=1e-6)
    assert ours.cpu_down == pytest.approx(printed.cpu_down, abs=1e-6)


@given(
    st.tuples(rates, rates), st.sets(seconds, min_size=2, max_size=8), shares, st.floats(0, 100), st.data()
)
def test_merging_neighbours_changes_the_cost_as_section_5_says(both, windows, join, overhead, data):
    """Purges, routing and overhead differ, and nothing else; in the first slice the unions, too."""
    left, right = both
    ends = sorted(windows)
    readers = [window(each) for each in ends]
    known = Statistics(left, right, join)
    weigh = Coefficients(overhead=overhead)
    ages = [0, *(each * SECOND for each in ends)]
    i = data.draw(st.integers(0, len(ages) - 3), label="from")
    j = data.draw(st.integers(i + 2, len(ages) - 1), label="to")
    merged = ages[: i + 1] + ages[j:]
    fine, coarse = (chain_cost(readers, known, dict.fromkeys("lr", cuts)) for cuts in (ages, merged))

    gone = j - i - 1
    width = (ages[j] - ages[i]) / SECOND
    unions = 0 if i else gone
    expected = (left + right) * gone * (1 + overhead) + (left + right) * unions
    expected -= 2 * left * right * width * join * gone
    assert fine.cpu(weigh) - coarse.cpu(weigh) == pytest.approx(
        expected, rel=1e-6, abs=1e-6 * fine.cpu(weigh)
    )
    assert fine.rows == pytest.approx(coarse.rows), "without selections merging holds no more (Theorem 3)"


conditions = st.sampled_from(["", "p", "q", "r"])
workloads = st.lists(st.builds(window, seconds, conditions, conditions), min_size=1, max_size=5)
models = st.sampled_from([Independent, Nested])


@given(workloads, models, st.tuples(shares, shares, shares))
def test_patterns_add_up_and_agree_with_disjunctions(readers, model, three):
    known = model(dict(zip("pqr", three, strict=True)))
    asked = {each.left for each in readers}
    patterns = list(known.patterns(asked))
    assert sum(share for _, share in patterns) == pytest.approx(1)
    measured = PatternShares(tuple(patterns))
    for some in ({"p"}, asked, asked - {""}):
        if some <= asked | {""}:
            assert known.any_of(some) == pytest.approx(measured.any_of(some))


@given(workloads, models, st.tuples(shares, shares, shares), rates, rates)
def test_mem_opt_holds_no_more_than_any_rival(readers, model, three, left, right):
    selection = model(dict(zip("pqr", three, strict=True)))
    known = Statistics(left, right, 0.1, selection, selection)
    ours = chain_cost(readers, known, {side: age_bounds(readers, side) for side in "lr"})
    for rival in (isolated_cost, pull_up_cost, push_down_cost):
        assert ours.rows <= rival(readers, known).rows * (1 + 1e-9)


@given(workloads, rates, rates, shares)
def test_one_uncut_slice_is_pull_up_where_some_query_wants_everything(readers, left, right, join):
    longest = max(each.window.hi for each in readers)
    known = Statistics(left, right, join, *[Independent({"p": 0.2, "q": 0.5, "r": 0.9})] * 2)
    everything = [*readers, PricedQuery(Range.window(longest, longest))]
    uncut = chain_cost(everything, known, {"l": (0, longest), "r": (0, longest)})
    assert uncut.cpu() == pytest.approx(pull_up_cost(everything, known).cpu())


@given(workloads, rates, rates, shares)
def test_what_a_chain_probes_is_what_some_query_needs(readers, left, right, join):
    """Age by age: the rows held are those that a query at or beyond this age wants, counted here from the patterns."""
    known = Independent({"p": 0.2, "q": 0.5, "r": 0.9})
    bounds = age_bounds(readers, "l")
    cost = chain_cost(readers, Statistics(left, right, join, known, known), {"l": bounds})
    expected = 0.0
    for start, end in pairwise(bounds):
        wanted = {each.left for each in readers if each.window.hi > start}
        share = sum(
            share
            for holds, share in known.patterns({"p", "q", "r"})
            if "" in wanted or not holds.isdisjoint(wanted)
        )
        expected += left * share * (end - start) / SECOND
    assert cost.rows == pytest.approx(expected)


def test_coefficients_weigh_each_kind_of_work():
    cost = Cost(rows=9, bytes=1, probe=2, purge=3, route=4, filter=5, union=6, overhead=7, rewrite=8)
    assert cost.cpu() == 2 + 3 + 4 + 5 + 6
    weigh = Coefficients(10, 100, 1000, 0.1, 0.01, 2, 3, 0.5)
    assert cost.cpu(weigh) == pytest.approx(20 + 300 + 4000 + 0.5 + 0.06 + 14 + 24 + 0.5)


def test_a_window_on_one_side_only_is_held_on_that_side_only():
    readers = [PricedQuery(Range(0, 10 * SECOND), "p", "q")]
    known = Statistics(5, 7, 0.1, Independent({"p": 0.5}), Independent({"q": 0.2}))
    assert age_bounds(readers, "r") == ()
    cost = chain_cost(readers, known, {"l": (0, 10 * SECOND)})
    assert cost.rows == pytest.approx(5 * 0.5 * 10)
    assert cost.probe == pytest.approx(25 * 7 * 0.2)
    assert cost.filter == pytest.approx(5 + 7), "each row's condition is tried once, when it comes"


def test_a_window_that_starts_later_holds_rows_it_does_not_probe_yet():
    readers = [PricedQuery(Range(5 * SECOND, 10 * SECOND))]
    cost = chain_cost(readers, Statistics(2, 3, 0.1), {"l": (0, 5 * SECOND, 10 * SECOND)})
    assert (cost.rows, cost.probe) == (pytest.approx(20), pytest.approx(2 * 5 * 3))


def test_too_many_independent_conditions_are_refused_with_the_way_out():
    known = Independent({f"p{n}": 0.5 for n in range(20)})
    with pytest.raises(InputError, match="measured patterns"):
        list(known.patterns(known.shares))
