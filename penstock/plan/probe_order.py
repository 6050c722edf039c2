"""The order in which a new row is joined with the other inputs, if more than two streams are joined.

A row of one input is joined with the others one after the other, without storing partial results.  Every partner that
is found multiplies the work of the next step.  So inputs with the fewest partners come first::

    A.k = B.k AND B.j = C.j         B has 3 rows for a k, 100 for a j         C has 1 row for a j

    new row of B     C then A       1, then ...                               C first
    new row of C     B then A       100 rows of B: there is no other way

The number of partners of a row, its *fan-out*, is measured on samples of new rows, for each link and both directions
(`penstock.engine.tasks.fanout_sample`).  Until then, every key is taken to have one partner.

In:  links and fan-outs.  Out: for each input, the steps of its new rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.plan.links import Link

UNKNOWN_FANOUT, CROSSED_FANOUT = 1.0, 1e6
"""The partners that a row is taken to find before any measurement: by a key, and by time alone."""

MOST_COMPARED = 6
"""The most inputs of which all orders are compared; of more, the step with the fewest partners is taken next."""


@dataclass(frozen=True, slots=True, order=True)
class LinkStep:
    """One step: from a row of the input `source`, by the link with this number, to rows of the input `to`."""

    source: int
    to: int
    link: int

    def __str__(self) -> str:
        """Name the step for journals and figures."""
        return f"{self.source}>{self.to}:{self.link}"


LinkSteps = tuple[LinkStep, ...]
"""The steps of one input's new rows: every other input once."""


def all_steps(links: Sequence[Link]) -> list[LinkStep]:
    """List every step from one input to another."""
    return [
        LinkStep(source, to, number)
        for number, link in enumerate(links)
        for source in link.inputs
        for to in link.inputs
        if source != to
    ]


def choose_order(driver: int, links: Sequence[Link], fanouts: Mapping[LinkStep, float]) -> LinkSteps:
    """Choose the steps of one input's new rows: those with the fewest partial results on the way.

    >>> from penstock.plan.links import Link
    >>> links = [Link(((0, ("a",)), (1, ("a",)))), Link(((1, ("b",)), (2, ("b",))))]
    >>> [str(step) for step in choose_order(1, links, {LinkStep(1, 0, 0): 50.0, LinkStep(1, 2, 1): 0.5})]
    ['1>2:1', '1>0:0']
    """
    inputs = {number for link in links for number in link.inputs}
    costs = {step: fanout_of(step, links, fanouts) for step in all_steps(links)}
    if len(inputs) > MOST_COMPARED:
        return _greedy(driver, inputs, costs)
    return min(_orders((driver,), inputs, costs), key=lambda order: (_work(order, costs), order))


def fanout_of(step: LinkStep, links: Sequence[Link], fanouts: Mapping[LinkStep, float]) -> float:
    """Return how many partners a row is taken to find by a step."""
    has_key = any(parts for _, parts in links[step.link].keys)
    return fanouts.get(step, UNKNOWN_FANOUT if has_key else CROSSED_FANOUT)


def _work(order: LinkSteps, costs: Mapping[LinkStep, float]) -> float:
    """Add up the partial results of all steps, for one row."""
    size, work = 1.0, 0.0
    for step in order:
        size *= costs[step]
        work += 1e-3 + size
    return work


def _next_steps(bound: Iterable[int], costs: Mapping[LinkStep, float]) -> list[LinkStep]:
    """List, for each input that can be reached, the best step to it."""
    have, best = set(bound), dict[int, LinkStep]()
    for step, cost in costs.items():
        if step.source in have and step.to not in have:
            other = best.get(step.to)
            if other is None or (cost, step) < (costs[other], other):
                best[step.to] = step
    return list(best.values())


def _orders(bound: tuple[int, ...], inputs: set[int], costs: Mapping[LinkStep, float]) -> Iterator[LinkSteps]:
    """List the orders in which the remaining inputs can be joined."""
    if len(bound) == len(inputs):
        yield ()
        return
    for step in _next_steps(bound, costs):
        yield from ((step, *rest) for rest in _orders((*bound, step.to), inputs, costs))


def _greedy(driver: int, inputs: set[int], costs: Mapping[LinkStep, float]) -> LinkSteps:
    """Take the step with the fewest partners, again and again."""
    order: list[LinkStep] = []
    while len(order) < len(inputs) - 1:
        steps = _next_steps((driver, *(step.to for step in order)), costs)
        order.append(min(steps, key=lambda step: (costs[step], step)))
    return tuple(order)
