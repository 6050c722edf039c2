"""Probe orders: the fewest partial results on the way, and every input once."""

from __future__ import annotations

from itertools import permutations
from math import isclose

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan import probe_order
from penstock.plan.links import Link
from penstock.plan.probe_order import LinkStep, all_steps, choose_order, fanout_of
from penstock.plan.stored import KeyPart

KEY = (KeyPart("k", "bigint"),)


def link(*inputs, key=KEY):
    return Link(tuple((number, key) for number in inputs))


@st.composite
def graphs(draw):
    """Make a connected graph of links, and a fan-out for some of its steps."""
    count = draw(st.integers(3, 5))
    links = [link(number, draw(st.integers(0, number - 1))) for number in range(1, count)]
    links += [link(*sorted(draw(st.sets(st.integers(0, count - 1), min_size=2))))] * draw(st.integers(0, 1))
    steps = draw(st.lists(st.sampled_from(all_steps(links)), unique=True))
    return count, links, {step: draw(st.floats(0.01, 100)) for step in steps}


def work(order, links, fanouts):
    """Say how many partial results an order makes, for one row."""
    size, total = 1.0, 0.0
    for step in order:
        size *= fanout_of(step, links, fanouts)
        total += 1e-3 + size
    return total


def best_by_trying(driver, count, links, fanouts):
    """Try every sequence of inputs, with the best step to each."""
    costs = []
    for rest in permutations(number for number in range(count) if number != driver):
        bound, order = [driver], []
        for to in rest:
            ways = [step for step in all_steps(links) if step.to == to and step.source in bound]
            if not ways:
                break
            order.append(min(ways, key=lambda step: fanout_of(step, links, fanouts)))
            bound.append(to)
        if len(order) == count - 1:
            costs.append(work(order, links, fanouts))
    return min(costs)


@given(graphs())
def test_the_order_chosen_makes_the_fewest_partial_results(graph):
    count, links, fanouts = graph
    for driver in range(count):
        order = choose_order(driver, links, fanouts)
        assert sorted(step.to for step in order) == [n for n in range(count) if n != driver]
        assert isclose(work(order, links, fanouts), best_by_trying(driver, count, links, fanouts))


@given(graphs())
def test_a_step_begins_where_a_row_is_already(graph):
    count, links, fanouts = graph
    for driver in range(count):
        bound = {driver}
        for step in choose_order(driver, links, fanouts):
            assert step.source in bound
            assert {step.source, step.to} <= set(links[step.link].inputs)
            bound.add(step.to)


def test_many_inputs_are_met_in_an_order_too(monkeypatch):
    """Of a star of many, the one that leaves the fewest is next."""
    monkeypatch.setattr(probe_order, "MOST_COMPARED", 3)
    links = [link(0, number) for number in range(1, 10)]
    fanouts = {LinkStep(0, number, number - 1): float(10 - number) for number in range(1, 10)}
    assert [step.to for step in choose_order(0, links, fanouts)] == list(range(9, 0, -1))


def test_inputs_that_meet_by_time_alone_come_last():
    links = [link(0, 1), link(0, 2, key=())]
    assert [step.to for step in choose_order(0, links, {})] == [1, 2]
