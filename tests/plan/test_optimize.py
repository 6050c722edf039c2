"""The optimizer against every chain there is."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, combinations, pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.plan.chain import Chain
from penstock.plan.cost import Coefficients, SideCosts, chain_cost, total
from penstock.plan.facts import Independent, PricedQuery, Statistics, age_bounds
from penstock.plan.optimize import auto, cpu_opt, mem_opt, priced
from penstock.sql.query import SECOND, Range
from tests.plan.nested import Nested

SIDES = "lr"


@st.composite
def workloads(draw, most):
    """Draw queries with distinct windows and conditions on both streams, and what is known of the streams."""
    ends = draw(st.lists(st.integers(1, 600), min_size=1, max_size=most, unique=True))
    names = st.sampled_from(["", *(f"p{n}" for n in range(6))])
    readers = [
        PricedQuery(Range.window(end * SECOND, end * SECOND), draw(names), draw(names))
        for end in sorted(ends)
    ]
    model = draw(st.sampled_from([Independent, Nested]))
    share = st.floats(0.01, 1)
    left, right = (model({f"p{n}": draw(share) for n in range(6)}) for _ in SIDES)
    rate, join = st.floats(1, 100), draw(st.floats(0.0001, 0.5))
    known = Statistics(draw(rate), draw(rate), join, left, right, row_bytes=100)
    weigh = Coefficients(overhead=draw(st.sampled_from([0, 1, 20, 400, 10_000])))
    return readers, known, weigh


def every_chain(readers, known, side):
    """List every way to cut one side: the ages, and the cost, a slice priced once however many chains have it."""
    costs, bounds = SideCosts(readers, known, side), age_bounds(readers, side)
    price = {ages: costs.slice_cost(ages) for ages in combinations(bounds, 2)}
    inner = bounds[1:-1]
    for count in range(len(inner) + 1):
        for kept in combinations(inner, count):
            cuts = (0, *kept, bounds[-1])
            yield cuts, total(price[ages] for ages in pairwise(cuts))


@settings(max_examples=30)
@given(workloads(12))
def test_cpu_opt_is_the_cheapest_of_all_chains(workload):
    readers, known, weigh = workload
    best = sum(min(cost.cpu(weigh) for _, cost in every_chain(readers, known, side)) for side in SIDES)
    choice = cpu_opt(readers, known, weigh)
    assert choice.cpu == pytest.approx(best)
    cuts = {side: choice.cuts.side(side) for side in SIDES}
    assert chain_cost(readers, known, cuts).cpu(weigh) == pytest.approx(best), (
        "the edges explain the whole cost"
    )


@settings(max_examples=20)
@given(workloads(10))
def test_mem_opt_holds_the_least_of_all_chains(workload):
    readers, known, _ = workload
    least = sum(min(cost.bytes for _, cost in every_chain(readers, known, side)) for side in SIDES)
    assert priced(mem_opt(readers), readers, known).cost.bytes == pytest.approx(least)


@settings(max_examples=20)
@given(workloads(12), st.floats(0, 1.2))
def test_auto_is_the_cheapest_of_all_chains_that_fit(workload, share):
    readers, known, weigh = workload
    least = priced(mem_opt(readers), readers, known).cost.bytes
    loose = cpu_opt(readers, known, weigh).cost.bytes
    budget = least + share * (loose - least)
    left, right = (
        sorted((cost.bytes, cost.cpu(weigh)) for _, cost in every_chain(readers, known, side))
        for side in SIDES
    )
    # For each left chain, the cheapest of the right ones that fit beside it: those are the first few by size.
    sizes, cheapest = [size for size, _ in right], list(accumulate((cpu for _, cpu in right), min))
    fitting = [(cpu, bisect_right(sizes, budget * (1 + 1e-9) - size)) for size, cpu in left]
    best = min(cpu + cheapest[count - 1] for cpu, count in fitting if count)
    choice = auto(readers, known, budget, weigh)
    assert choice.cpu == pytest.approx(best)
    assert choice.cost.bytes <= budget * (1 + 1e-6)


@settings(max_examples=15)
@given(workloads(10), st.floats(0, 1))
def test_auto_on_one_side_is_exact_for_ten_windows(workload, share):
    """Windows that look back on one side only: every chain can be tried."""
    both, known, weigh = workload
    readers = [PricedQuery(Range(0, each.window.hi), each.left, each.right) for each in both]
    chains = [(cost.cpu(weigh), cost.bytes) for _, cost in every_chain(readers, known, "l")]
    least, most = min(size for _, size in chains), max(size for _, size in chains)
    budget = least + share * (most - least)
    best = min(cpu for cpu, size in chains if size <= budget * (1 + 1e-9))
    assert auto(readers, known, budget, weigh).cpu == pytest.approx(best)


def test_auto_is_quick_for_forty_windows():
    readers = [
        PricedQuery(Range.window(n * n * SECOND, n * n * SECOND), f"p{n}", f"q{n % 7}" if n % 3 else "")
        for n in range(1, 41)
    ]
    left = Independent({f"p{n}": (n * 37 % 100 + 1) / 300 for n in range(1, 41)})
    right = Nested({f"q{n}": (n + 1) / 8 for n in range(7)})
    known, weigh = Statistics(50, 30, 0.001, left, right, 100), Coefficients(overhead=500)
    least, loose = priced(mem_opt(readers), readers, known).cost.bytes, cpu_opt(readers, known, weigh)
    choice = auto(readers, known, (least + loose.cost.bytes) / 2, weigh)
    assert loose.cpu < choice.cpu < priced(mem_opt(readers), readers, known, weigh).cpu
    assert choice.cost.bytes <= (least + loose.cost.bytes) / 2


def test_auto_with_room_for_everything_is_cpu_opt():
    readers = [PricedQuery(Range.window(n * SECOND, n * SECOND), "p" if n > 3 else "") for n in range(1, 9)]
    known, weigh = Statistics(20, 20, 0.01, Independent({"p": 0.1})), Coefficients(overhead=30)
    assert auto(readers, known, inf, weigh) == cpu_opt(readers, known, weigh)


def test_a_budget_that_no_chain_fits_is_refused_with_the_least_that_would():
    readers = [PricedQuery(Range.window(10 * SECOND, 10 * SECOND))]
    with pytest.raises(InputError, match="need 2,000 bytes"):
        auto(readers, Statistics(10, 10, 0.1, row_bytes=10), 1_999)


@pytest.mark.parametrize(
    ("join", "overhead", "cuts"),
    [
        # Windows 1, 2, 30 s, λ = 20.  Per row, one comparison of a router costs λ·S⋈·width; a slice less saves a purge,
        # C_sys and, at the young end, a union.
        (0.1, 0, (0, 1, 2, 30)),  # [0, 2): 2·2 > 2
        (0.025, 0, (0, 2, 30)),  # [0, 2): 0.5·2 < 2
        (0.025, 26, (0, 2, 30)),  # [0, 30): 0.5·(30·2 - 2) > 2 + 26
        (0.025, 28, (0, 30)),  # 29 < 2 + 28
    ],
)
def test_slices_merge_when_a_router_costs_less_than_they_do(join, overhead, cuts):
    readers = [PricedQuery(Range.window(n * SECOND, n * SECOND)) for n in (1, 2, 30)]
    choice = cpu_opt(readers, Statistics(20, 20, join), Coefficients(overhead=overhead))
    assert choice.cuts.left == choice.cuts.right == tuple(age * SECOND for age in cuts)


def test_a_merged_chain_delivers_to_queries_that_end_inside_a_slice():
    windows = {"q1": Range.window(5, 5), "q2": Range.window(10, 10), "q3": Range(20, 30)}
    cuts = mem_opt([PricedQuery(each) for each in windows.values()])
    assert Chain.from_windows(windows, cuts.axis).cuts == (-9, -4, 0, 5, 10, 20, 30)
    later = {"q3": Range(20, 30)}
    assert Chain.from_windows(later, mem_opt([PricedQuery(Range(20, 30))]).axis).cuts == (20, 30), (
        "no slice joins ages that nobody reads"
    )
