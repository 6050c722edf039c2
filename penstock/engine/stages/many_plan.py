"""What a unit of more than two streams needs of its plan: the places of keys, and the order of search steps.

In:  a group, and what was measured of it.  Out: plain values for `penstock.engine.tasks.join_many.ManySpec`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock import limits
from penstock.engine.tasks.join_many import LinkColumns
from penstock.plan.links import columns_of_input, link_columns
from penstock.plan.probe_order import all_steps, choose_order
from penstock.plan.stored import is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.plan.group import Group
    from penstock.plan.links import Link
    from penstock.plan.probe_order import LinkSteps
    from penstock.state.ledger import Ledger
    from penstock.state.recent import Fanout
    from penstock.state.values import GroupState

    Limits = tuple[tuple[int, ...], ...]

_forced: list[Callable[[Group], tuple[LinkSteps, ...]]] = []


def is_divided_by_key(group: Group) -> bool:
    """Return whether tasks can divide a unit by the hash of a key: one that all rows of a result have."""
    if group.is_pair:
        return bool(group.signature.keys)
    return len(group.links) == 1 and any(parts for _, parts in group.links[0].keys)


def link_keys(group: Group) -> Iterator[dict[int, LinkColumns]]:
    """List by link the places of its key in the inputs."""
    for link in group.links:
        yield {number: _columns(group, link, number) for number in link.inputs}


def _columns(group: Group, link: Link, number: int) -> LinkColumns:
    key, logs = link.key(number), group.inputs[number].logs
    place = next(place for place, log in enumerate(logs) if log.key == key)
    names = link_columns(key) if columns_of_input(number, group.links) else ()
    return LinkColumns(place, names, 0 if is_whole(key) else len(key))


def probe_orders(group: Group, ledger: Ledger) -> tuple[LinkSteps, ...]:
    """Return by input the steps by which its new rows find partners, by recent measurements."""
    if _forced:
        return _forced[-1](group)
    seen = ledger.groups[group.id].fanouts if group.id in ledger.groups else {}
    fanouts = {step: seen[str(step)].average for step in all_steps(group.links) if str(step) in seen}
    return tuple(choose_order(number, group.links, fanouts) for number in range(len(group.inputs)))


def exploding(group: Group, seen: Mapping[str, Fanout]) -> Iterator[tuple[str, str]]:
    """List keys with so many rows on one side that a row on the other multiplies, each with a sentence."""
    for step in all_steps(group.links):
        fanout = seen.get(str(step))
        key = ", ".join(part.expression for part in group.links[step.link].key(step.to))
        # a CROSS JOIN always multiplies
        if fanout is not None and fanout.most >= (limits.MAX_EXPECTED_PARTNERS if key else 1):
            streams = group.streams
            which = f"{key} = {fanout.key}" if key else "the window alone"
            met = f"a row of {streams[step.source]} meets {fanout.most:,} of {streams[step.to]}"
            yield f"{group.id} {step} {which}", f"{met}, by {which}: results are multiplied by that"


@contextmanager
def forced_orders(choose: Callable[[Group], tuple[LinkSteps, ...]]) -> Iterator[None]:
    """Use other search orders than the best: for measurements, and for tests."""
    _forced.append(choose)
    try:
        yield
    finally:
        _forced.pop()


def is_sample_due(state: GroupState) -> bool:
    """Return whether the partners of rows are to be counted again."""
    return state.units < limits.FIRST_SAMPLED_UNITS or state.units % limits.UNITS_PER_FANOUT_SAMPLE == 0


def widest_limits(group: Group) -> Limits:
    """Return the maximum distance of rows of two inputs, over all queries."""
    tables = [member.query.graph.limits for member in group.members if member.query.graph]
    return tuple(
        tuple(max(table[i][j] for table in tables) for j in range(len(group.inputs)))
        for i in range(len(group.inputs))
    )


def uneven_limits(group: Group) -> tuple[tuple[Limits, int], ...]:
    """Return the limits that the spread of a result does not decide, each with its queries, as bits.

    Where windows count rows, these are all limits.
    """
    makers: dict[Limits, int] = {}
    for number, member in enumerate(group.members):
        graph = member.query.graph
        if graph is not None and (group.signature.counted or not graph.even):
            makers[graph.limits] = makers.get(graph.limits, 0) | 1 << number
    return tuple(makers.items())
