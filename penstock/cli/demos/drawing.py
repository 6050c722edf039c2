"""Draw a chain, and the slices that each query reads.

In:  a group of the plan.
Out: lines of text: a bar for each query under an axis of ages, which is not to scale.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.plan.plan_text import show_age, show_window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.plan.chain import Slice
    from penstock.plan.group import Group
    from penstock.sql.query import Side


def chain_drawing(group: Group) -> str:
    """Draw each side's chain, or both as one if they are cut alike.

    >>> from penstock.plan.build import build_plan
    >>> from penstock.sql.script import parse_script
    >>> script = parse_script('''
    ... CREATE STREAM L (k BIGINT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts');
    ... CREATE STREAM R (k BIGINT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts');
    ... CREATE QUERY far AS SELECT L.k FROM L, R WHERE L.k = R.k WINDOW 1 min;
    ... CREATE QUERY near AS SELECT L.k FROM L, R WHERE L.k = R.k WINDOW 10 s;
    ... ''')
    >>> print(chain_drawing(build_plan(script.streams, script.queries).groups[0]))
    state of L and R, by age
            0 s   10 s   1 min
            |------|------|
      near  =======
      far   ==============
    """
    names = group.streams
    if not group.is_pair:
        return "\n".join(_side_lines(group, group.sides[0], _listed(names)))
    left, right = group.slices("l"), group.slices("r")
    alike = group.counts("l") == group.counts("r")
    if alike and [_ages(group, piece) for _, piece in left] == [_ages(group, piece) for _, piece in right]:
        return "\n".join(_side_lines(group, "l", " and ".join(dict.fromkeys(names))))
    sides: tuple[tuple[Side, str], ...] = (("l", names[0]), ("r", names[1]))
    return "\n\n".join(
        "\n".join(_side_lines(group, side, name)) for side, name in sides if group.slices(side)
    )


def _listed(names: Sequence[str]) -> str:
    *first, last = dict.fromkeys(names)
    return f"{', '.join(first)} and {last}" if first else last


def _ages(group: Group, piece: Slice) -> tuple[int, int]:
    """Return a slice's ages; the right side begins at 0 as well, so that both sides can be compared."""
    start, end = group.ages(piece)
    return (0 if start == 1 and not group.counts(piece.side) else start), end


def _side_lines(group: Group, side: Side, title: str) -> Iterator[str]:
    """Draw one chain: the ages at its cuts, then a bar for each query, shortest window first."""
    chain = group.slices(side)
    starts, ends = zip(*(_ages(group, piece) for _, piece in chain), strict=True)
    labels = [show_age(age, rows=group.counts(side)) for age in (starts[0], *ends)]
    widths = [max(len(label) + 2, 7) for label in labels[1:]]
    columns = list(accumulate(widths, initial=0))
    names = [member.query.name for member in group.members]
    margin = max(len(name) for name in names) + 4
    yield f"state of {title}, by age"
    yield " " * margin + _labels(labels, columns)
    yield " " * margin + "|" + "|".join("-" * (width - 1) for width in widths) + "|"
    for name in sorted(names, key=lambda name: _last(group, side, name)):
        bar = "".join(
            ("=" if name in group.chain.readers[number] else " ") * width
            for (number, _), width in zip(chain, widths, strict=True)
        )
        yield f"  {name:<{margin - 2}}{bar}".rstrip()


def _labels(labels: list[str], columns: list[int]) -> str:
    """Write each label over its cut."""
    line = labels[0]
    for label, column in zip(labels[1:], columns[1:], strict=True):
        line = line.ljust(column - len(label) // 2) + label
    return line


def _last(group: Group, side: Side, name: str) -> tuple[int, str]:
    """Return a sort key: how far a query reads on one side."""
    slices = group.slices(side)
    positions = [index for index, (number, _) in enumerate(slices) if name in group.chain.readers[number]]
    return max(positions, default=-1), show_window(group, name)
