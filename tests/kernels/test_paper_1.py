"""Paper 1, section 4: the operators of Figures 6 and 9 step by step, Table 2, and Theorems 1 and 2.

The paper moves rows from slice to slice through queues; Penstock computes a pair's slice from its two times.  Here the
paper's operators run as they are printed, and both must put every pair in the same slice.

On the far end of a slice the paper is of two minds.  Definition 1, Lemma 1 and the text under Table 2 are strict (purge
at ``T_b - T_a >= W``); Table 2 itself and Figure 9 keep a row that is exactly W old (purge at ``>``): in its fourth row
a2 is 2 s old, w1 is 2 s, and (a2, b1) comes out of J1.  Penstock is strict, and says ``<= W`` as ``< W + 1 µs``; both
readings are run here.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.probe import probe
from penstock.kernels.reference import Event, nested_loop_join
from penstock.plan.chain import Chain
from penstock.sql.query import SECOND, Range
from tests.kernels.drawn import as_rows

KEY = 7
"""Every a matches every b (Cartesian product semantics): one key."""


@dataclass(frozen=True)
class Copy:
    """A reference to a row on its way through the chain: a female fills states, a male purges and probes them."""

    stream: str
    male: bool
    row: Event


@dataclass
class SlicedJoin:
    """One slice: the states of both streams (newest first, as in Table 2), the queue before it, and its results.

    In the one-way join A[start, end] ⋉ B (Figure 6) an a comes as a female only and a b as a male only; in the binary
    one (Figure 9) each row comes as both.
    """

    end: int
    queue: deque[Copy] = field(default_factory=deque)
    state: dict[str, list[Event]] = field(default_factory=lambda: {"a": [], "b": []})
    results: list[tuple[Event, Event]] = field(default_factory=list)

    def run(self, following: SlicedJoin | None) -> list[tuple[Event, Event]]:
        """Process one input; what leaves this slice goes to the queue of the following one."""
        copy = self.queue.popleft()
        if not copy.male:
            self.state[copy.stream].insert(0, copy.row)
            return []
        out = following.queue if following else deque()
        other = "b" if copy.stream == "a" else "a"
        state = self.state[other]
        while state and copy.row.time - state[-1].time >= self.end:
            out.append(Copy(other, male=False, row=state.pop()))
        found = [(old, copy.row) if other == "a" else (copy.row, old) for old in reversed(state)]
        out.append(copy)
        self.results += found
        return found


def names(rows):
    return [row.name for row in rows]


def queued(join):
    """List a queue newest first, as in Table 2."""
    return [copy.row.name for copy in reversed(join.queue)]


ARRIVALS = {1: "a1", 2: "a2", 3: "a3", 4: "b1", 5: "b2", 8: "a4"}
ROWS = {second: Event(KEY, second * SECOND, name) for second, name in ARRIVALS.items()}
LEFT = [row for row in ROWS.values() if row.name[0] == "a"]
RIGHT = [row for row in ROWS.values() if row.name[0] == "b"]

# T, operator, A::[0,2], queue, A::[2,4], output.
#
# Rows 1 to 8 are Table 2 to the letter.  In rows 9 and 10 the table has a3 out of J1 and in the queue ([a4], [a3,b2]),
# but by Figure 6 only a b purges, and none arrives after the fifth second (in row 9 it is J2 that runs): a3 stays.
# No result depends on it.
TABLE_2 = [
    (1, "J1", "a1", "", "", ""),
    (2, "J1", "a2 a1", "", "", ""),
    (3, "J1", "a3 a2 a1", "", "", ""),
    (4, "J1", "a3 a2", "b1 a1", "", "a2b1 a3b1"),
    (5, "J1", "a3", "b2 a2 b1 a1", "", "a3b2"),
    (6, "J2", "a3", "b2 a2 b1", "a1", ""),
    (7, "J2", "a3", "b2 a2", "a1", "a1b1"),
    (8, "J1", "a4 a3", "b2 a2", "a1", ""),
    (9, "J2", "a4 a3", "b2", "a2 a1", ""),
    (10, "J2", "a4 a3", "", "a2 a1", "a1b2 a2b2"),
]

# The same arrivals with the strict end of Definition 1: a2 is 2 s old when b1 comes, so it leaves J1 before the probe,
# and (a1, b2), exactly 4 s apart, is no result.
STRICT = [
    (1, "J1", "a1", "", "", ""),
    (2, "J1", "a2 a1", "", "", ""),
    (3, "J1", "a3 a2 a1", "", "", ""),
    (4, "J1", "a3", "b1 a2 a1", "", "a3b1"),
    (5, "J1", "", "b2 a3 b1 a2 a1", "", ""),
    (6, "J2", "", "b2 a3 b1 a2", "a1", ""),
    (7, "J2", "", "b2 a3 b1", "a2 a1", ""),
    (8, "J1", "a4", "b2 a3 b1", "a2 a1", ""),
    (9, "J2", "a4", "b2 a3", "a2 a1", "a1b1 a2b1"),
    (10, "J2", "a4", "b2", "a3 a2 a1", ""),
    (11, "J2", "a4", "", "a3 a2", "a2b2 a3b2"),
]


def in_slices(chain, left, right):
    """Probe with all rows at once: the pairs of each slice, by name."""
    mine, left_order, _ = as_rows(left)
    theirs, right_order, _ = as_rows(right)
    slices = {level: Counter() for level, _ in enumerate(chain.slices)}
    for found in probe(mine, theirs, np.array(chain.cuts), batch_is_left=True):
        for i, j, level in zip(found.batch, found.state, found.level, strict=True):
            slices[int(level)][left_order[i], right_order[j]] += 1
    return slices


@pytest.mark.parametrize(
    ("table", "more"), [(TABLE_2, 1), (STRICT, 0)], ids=["as printed, <= W", "Definition 1, < W"]
)
def test_table_2_step_by_step_and_each_pair_in_the_slice_the_paper_has_it_in(table, more):
    w1, w2 = 2 * SECOND + more, 4 * SECOND + more
    j1, j2 = SlicedJoin(w1), SlicedJoin(w2)
    for second, operator, first_state, queue, second_state, output in table:
        if second in ARRIVALS:
            stream = ARRIVALS[second][0]
            j1.queue.append(Copy(stream, stream == "b", ROWS[second]))
        found = j1.run(j2) if operator == "J1" else j2.run(None)
        assert names(j1.state["a"]) == first_state.split()
        assert queued(j2) == queue.split()
        assert names(j2.state["a"]) == second_state.split()
        assert [a.name + b.name for a, b in found] == output.split()

    together = Counter(j1.results + j2.results)
    assert together == nested_loop_join(LEFT, RIGHT, Range(0, w2)), (
        "the union is the regular join (Theorem 1)"
    )
    chain = Chain.from_windows({"q1": Range(0, w1), "q2": Range(0, w2)})
    assert chain.cuts == (0, w1, w2)
    assert in_slices(chain, LEFT, RIGHT) == {0: Counter(j1.results), 1: Counter(j2.results)}


arrivals = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=14)
windows = st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True).map(sorted)


def run_chain(drawn, ends, order, *, one_way):
    """Let rows arrive in order of time while a scheduler picks operators as it likes; at last let all finish."""
    joins = [SlicedJoin(end) for end in ends]
    now, waiting = 0, deque()
    rows = {"a": [], "b": []}
    for place, (stream, later) in enumerate(drawn):
        now += later
        row = Event(KEY, now, f"{stream}{place}")
        rows[stream].append(row)
        waiting += [Copy(stream, male, row) for male in ((stream == "b",) if one_way else (True, False))]
    finish = (place for place in range(len(joins)) for _ in range(2 * len(waiting)))
    for place in (*(pick % len(joins) for pick in order), *finish):
        if place == 0 and waiting:
            joins[0].queue.append(waiting.popleft())
        if joins[place].queue:
            joins[place].run(joins[place + 1] if place + 1 < len(joins) else None)
        for stream in "ab":
            held = [row.name for join in joins for row in join.state[stream]]
            assert len(held) == len(set(held)), "the states of the slices are disjoint"
    assert not waiting
    assert not any(join.queue for join in joins)
    return joins, rows["a"], rows["b"]


@given(arrivals, windows, st.lists(st.integers(0, 3), max_size=30))
def test_theorem_1_the_slices_of_a_one_way_chain_are_disjoint_and_together_the_regular_join(
    drawn, ends, order
):
    """A one-way join looks back only: b finds the rows of a that came before it and are younger than the window."""
    joins, left, right = run_chain(drawn, ends, order, one_way=True)
    came = {row.name: int(row.name[1:]) for row in (*left, *right)}

    def earlier(pairs):
        """Leave out an a of the same instant that came after the b: a tie, which Definition 1 leaves open."""
        return Counter({(a, b): n for (a, b), n in pairs.items() if came[a.name] < came[b.name]})

    assert sum((Counter(join.results) for join in joins), Counter()) == earlier(
        nested_loop_join(left, right, Range(0, ends[-1]))
    )
    chain = Chain.from_windows({f"q{end}": Range(0, end) for end in ends})
    slices = in_slices(chain, left, right)
    assert [earlier(slices[level]) for level in slices] == [Counter(join.results) for join in joins]


@given(arrivals, windows, st.lists(st.integers(0, 3), max_size=30))
def test_theorem_2_so_are_those_of_a_binary_chain(drawn, ends, order):
    joins, left, right = run_chain(drawn, ends, order, one_way=False)
    whole = nested_loop_join(left, right, Range.window(ends[-1], ends[-1]))
    assert sum((Counter(join.results) for join in joins), Counter()) == whole

    chain = Chain.from_windows({f"q{end}": Range.window(end, end) for end in ends})
    slices = in_slices(chain, left, right)
    assert sum(slices.values(), Counter()) == whole
    for (start, end), join in zip(pairwise([0, *ends]), joins, strict=True):
        mine = [
            pairs
            for level, pairs in slices.items()
            if max(start, chain.slices[level].ages[0]) < min(end, chain.slices[level].ages[1])
        ]
        assert sum(mine, Counter()) == Counter(join.results), "what a slice of ages holds, from either side"
