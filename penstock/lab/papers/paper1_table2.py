"""Paper 1, Table 2: a chain of two one-way sliced joins, one operator run per second.

Every a matches every b, w1 = 2 s, w2 = 4 s.  The operators are those of Figure 6; the slices are the chain's own.  The
table keeps a row that is exactly w old, where Definition 1 (and Penstock) let it go; ``<= w`` is ``< w + 1 µs``, so the
chain is cut one microsecond later here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.lab.papers.figure import Outcome
from penstock.plan.chain import Chain
from penstock.sql.query import SECOND, Range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plan.chain import Slice

ARRIVALS = {1: "a1", 2: "a2", 3: "a3", 4: "b1", 5: "b2", 8: "a4"}  # what arrives, by second
OPERATORS = "1111122122"  # which join runs in each second
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
    """One slice: its state, newest first, and the queue before it, oldest first; rows of which streams purge it."""

    piece: Slice
    purged_by: str
    state: deque[str] = field(default_factory=deque)
    queue: deque[str] = field(default_factory=deque)

    def run(self, following: deque[str]) -> list[str]:
        """Take one row from the queue: an a fills the state; a b purges it, probes it and moves on."""
        row = self.queue.popleft()
        oldest_kept = TIMES[row] - self.piece.ages[1]
        while row[0] in self.purged_by and self.state and TIMES[self.state[-1]] <= oldest_kept:
            following.append(self.state.pop())
        if row[0] == "a":
            self.state.appendleft(row)
            return []
        following.append(row)
        return [old + row for old in reversed(self.state)]


def trace(purged_by: str = "b") -> Iterator[str]:
    """Step the chain through Table 2, one row a second, printed as the paper prints it."""
    chain = Chain.from_windows({"q1": Range(0, 2 * SECOND + 1), "q2": Range(0, 4 * SECOND + 1)})
    first, second = (SlicedJoin(piece, purged_by) for _, piece in chain.side("l"))
    for time, operator in enumerate(OPERATORS, 1):
        if time in ARRIVALS:
            first.queue.append(ARRIVALS[time])
        output = first.run(second.queue) if operator == "1" else second.run(deque())
        yield "|".join(map(" ".join, (first.state, reversed(second.queue), second.state, output)))


def table2(_sweep: object) -> Outcome:
    """Print the trace beside the paper's."""
    out, rows = Outcome(), list(trace())
    same, by_itself = (
        [ours == paper for ours, paper in zip(trace(who), PRINTED, strict=True)] for who in ("b", "ab")
    )
    outputs = [
        row.rpartition("|")[2] == paper.rpartition("|")[2] for row, paper in zip(rows, PRINTED, strict=True)
    ]
    out.every("the output of every step is the paper's", outputs)
    number = f"; with self-purge {sum(by_itself)}, all but step {by_itself.index(False) + 1}"
    out.every("states and queue are the paper's in every step", same, number)
    lines = [
        (n + 1, ARRIVALS.get(n + 1, ""), f"J{OPERATORS[n]}", *row.split("|"), "yes" if same[n] else "no")
        for n, row in enumerate(rows)
    ]
    headings = ("T", "Arr.", "OP", "A::[0,2]", "Queue", "A::[2,4]", "Output", "as printed")
    out.table("Table 2", headings, lines)
    return out
