"""The buffers of a join without a window, for people and for tools: of each stream what it declares, and who reads it.

How many rows a buffer takes depends on how the streams arrive: `penstock.engine.report.buffer_costs` estimates it.

In:  a plan and one of its groups.  Out: lines of text, or JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.sql.bind.arrival import known_multiplicity, known_scrambling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plan.build import Plan
    from penstock.plan.group import Group
    from penstock.sql.query import Side, Stream


def buffer_lines(plan: Plan, group: Group) -> Iterator[str]:
    """Print the buffer of each input."""
    yield "  no window: a row is kept until no later row can match it"
    readers = ", ".join(member.query.name for member in group.members)
    for side, name in zip(group.sides, group.streams, strict=True):
        yield f"    buffer of {name} ({side}), {show_arrival(plan.stream(name))} -> {readers}"


def show_arrival(stream: Stream) -> str:
    """Write how far out of order a stream is, as it is declared.

    >>> from penstock.sql.query import Stream
    >>> show_arrival(Stream("S1", (), "", options=(("scrambling", "500"),)))
    'scrambling 500, multiplicity measured'
    """
    if stream.results is not None:
        return f"results of query {stream.name}"
    scrambling, multiplicity = known_scrambling(stream), known_multiplicity(stream)
    return (
        f"scrambling {'measured' if scrambling is None else f'{scrambling:,}'}, "
        f"multiplicity {'measured' if multiplicity is None else f'{multiplicity:,}'}"
    )


def buffers_json(plan: Plan, group: Group) -> list[dict[str, Any]]:
    """Describe the buffer of each input; a number that is not declared is null."""
    return [
        _buffer_json(side, plan.stream(name), group)
        for side, name in zip(group.sides, group.streams, strict=True)
    ]


def _buffer_json(side: Side, stream: Stream, group: Group) -> dict[str, Any]:
    return {
        "side": side,
        "stream": stream.name,
        "scrambling": known_scrambling(stream),
        "multiplicity": known_multiplicity(stream),
        "readers": [member.query.name for member in group.members],
    }
