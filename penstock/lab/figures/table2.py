"""Paper 1, Table 2: a chain of two one-way sliced joins, one operator run per second.

Every a matches every b, w1 = 2 s, w2 = 4 s.  The operators are those of Figure 6; the slices are the chain's own.  The
table keeps a row that is exactly w old, where Definition 1 (and Penstock) let it go; ``<= w`` is ``< w + 1 µs``, so the
chain is cut one microsecond later here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.table import Table

from penstock.lab.figures.figure import Claim, Outcome
from penstock.plan.chain import Chain
from penstock.sql.query import SECOND, Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.plan.chain import Slice

ARRIVALS = {1: "a1", 2: "a2", 3: "a3", 4: "b1", 5: "b2", 8: "a4"}
"""What arrives, by second."""

OPERATORS = "1111122122"
"""Which join runs in each second."""

PRINTED = (
    "a1|||",
    "a2 a1|||",
    "a3 a2 a1|||",
    "a3 a2|b1 a1||a2b1 a3b1",
    "a3|b2 a2 b1 a1||a3b2",
    "a3|b2 a2 b1|a1|",
    "a3|b2 a2|a1|a1b1",
    "a4 a3|b2 a2|a1|",
    "a4|a3 b2|a2 a1|",
    "a4|a3|a2 a1|a1b2 a2b2",
)
"""The paper's rows: state of J1, queue, state of J2, output; newest first."""

TIMES = {name: second * SECOND for second, name in ARRIVALS.items()}


@dataclass
class SlicedJoin:
    """One slice: its state, newest first, and the queue before it, oldest first."""

    piece: Slice
    state: deque[str] = field(default_factory=deque)
    queue: deque[str] = field(default_factory=deque)

    def run(self, following: deque[str]) -> list[str]:
        """Take one row from the queue: an a fills the state; a b purges it, probes it and moves on."""
        row = self.queue.popleft()
        if row[0] == "a":
            self.state.appendleft(row)
            return []
        while self.state and TIMES[row] - TIMES[self.state[-1]] >= self.piece.ages[1]:
            following.append(self.state.pop())
        following.append(row)
        return [old + row for old in reversed(self.state)]


def trace() -> Iterator[str]:
    """Step the chain through Table 2, one row a second, printed as the paper prints it."""
    chain = Chain.from_windows({"q1": Range(0, 2 * SECOND + 1), "q2": Range(0, 4 * SECOND + 1)})
    first, second = (SlicedJoin(piece) for _, piece in chain.side("l"))
    for time, operator in enumerate(OPERATORS, 1):
        if time in ARRIVALS:
            first.queue.append(ARRIVALS[time])
        output = first.run(second.queue) if operator == "1" else second.run(deque())
        yield "|".join(_words(each) for each in (first.state, reversed(second.queue), second.state, output))


def _words(rows: Iterable[str]) -> str:
    """Print rows in order."""
    return " ".join(rows)


def reproduce(_seed: int) -> Outcome:
    """Print the trace beside the paper's."""
    table = Table("T", "Arr.", "OP", "A::[0,2]", "Queue", "A::[2,4]", "Output", "as printed", title="Table 2")
    rows = list(trace())
    same = [ours == paper for ours, paper in zip(rows, PRINTED, strict=True)]
    for time, (row, agrees) in enumerate(zip(rows, same, strict=True), 1):
        mark = "yes" if agrees else "no"
        table.add_row(str(time), ARRIVALS.get(time, ""), f"J{OPERATORS[time - 1]}", *row.split("|"), mark)
    outputs = [row.rpartition("|")[2] for row in rows] == [row.rpartition("|")[2] for row in PRINTED]
    claims = (
        Claim("the output of every step is the paper's", outputs, f"{len(rows)} steps"),
        Claim("states and queue are the paper's in every step", all(same), f"{sum(same)} of {len(same)}"),
    )
    note = (
        "In rows 9 and 10 the paper has a3 gone from J1, but by Figure 6 only a b purges, and none arrives after the "
        "fifth second.  No result depends on it."
    )
    return Outcome((table,), claims, (note,))
