"""Paper 1, Table 2, Figure 11 and what sections 1 to 5 say of costs: all by hand or by the cost model.

Table 2 is a chain of two one-way sliced joins, one operator run per second; every a matches every b, w1 = 2 s and w2 =
4 s.  The operators are those of Figure 6; the slices are the chain's own.  The table keeps a row that is exactly w old,
where Definition 1 (and Penstock) let it go; ``<= w`` is ``< w + 1 µs``, so the chain is cut one microsecond later here.

Figure 11 has two queries, Q1 with window W1, Q2 with window W2 and a selection on A, and is drawn over the window ratio
ρ = W1 / W2 and the selectivity of the selection.  Eq. 4 leaves out what grows with the rate and not its square (purges,
splitting and the chain's union); here savings come from the cost model at a rate so high that those terms vanish.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from operator import eq
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure as Picture

from benchmarks.printing import percent, percents, span
from papers.figure import CALIBRATED, CHECK, Outcome
from papers.paper1_sweep import DOWN, JOINS, OURS, UP, modelled, readers_of
from penstock.plan.chain import Chain, Slice
from penstock.plan.cost import isolated_cost, saving
from penstock.plan.facts import Independent, Statistics
from penstock.sql.query import SECOND, Range

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    """Step through a chain of two sliced joins, beside the paper."""
    out, rows = Outcome(), list(trace())
    outputs = [[each.rpartition("|")[2] for each in table] for table in (rows, PRINTED)]
    out.every("the output of every step is the paper's", map(eq, *outputs))
    same, by_itself = (list(map(eq, trace(who), PRINTED)) for who in ("b", "ab"))
    number = f"; with self-purge {sum(by_itself)}, all but step {by_itself.index(False) + 1}"
    out.every("states and queue are the paper's in every step", same, number)
    lines = []
    for second, operator, row, held in zip(range(1, 11), OPERATORS, rows, same, strict=True):
        shown = (second, ARRIVALS.get(second, ""), f"J{operator}", *row.split("|"), "yes" if held else "no")
        lines.append(shown)
    headings = ("T", "Arr.", "OP", "A::[0,2]", "Queue", "A::[2,4]", "Output", "as printed")
    out.table("Table 2", headings, lines)
    return out


GRID = tuple(float(each) for each in np.linspace(0.05, 0.95, 10))
"""Window ratios and selectivities over which savings are averaged."""

DRAWN = tuple(float(each) for each in np.linspace(0.05, 0.95, 7))  # and those at which the surfaces are drawn
HIGH_RATE, LONG = 1e9, 1000.0


class Savings(NamedTuple):
    """Eq. 4: the share of memory and of comparisons saved over pull-up and over push-down."""

    memory_up: float
    memory_down: float
    cpu_up: float
    cpu_down: float


@cache
def savings(ratio: float, select: float, join: float, rate: float = HIGH_RATE) -> Savings:
    """Price the three plans of the two queries and compare them."""
    readers = readers_of((ratio * LONG, LONG), ("", "σ"))
    costs = modelled(readers, Statistics(rate, rate, join, Independent({"σ": select})))
    rows = (saving(costs[OURS].rows, costs[rival].rows) for rival in (UP, DOWN))
    return Savings(*rows, *(saving(costs[OURS].cpu(), costs[rival].cpu()) for rival in (UP, DOWN)))


def equation_4(ratio: float, select: float, join: float) -> Savings:
    """Give the savings as the paper prints them."""
    down = ratio * (1 - select) + select + select * join + ratio * join
    return Savings(
        (1 - ratio) * (1 - select) / 2,
        ratio / (1 + 2 * ratio + (1 - ratio) * select),
        ((1 - ratio) * (1 - select) + (2 - ratio) * join) / (1 + 2 * join),
        select * join / down,
    )


def cpu_savings(queries: int, join: float, rate: float, select: float = 1.0) -> float:
    """Give what a Mem-Opt chain saves over pull-up: windows up to 30 s, all queries but the first with a selection."""
    conditions = [""] + ["σ" if select < 1 else ""] * (queries - 1)
    readers = readers_of((30 * (n + 1) / queries for n in range(queries)), conditions)
    costs = modelled(readers, Statistics(rate, rate, join, Independent({"σ": select})))
    return saving(costs[OURS].cpu(), costs[UP].cpu())


def fig11(_sweep: object) -> Outcome:
    """Draw the savings of state-slice over its rivals, by the cost model."""
    out, points = Outcome(), list(product(GRID, GRID, JOINS))
    saved = [savings(*point) for point in points]
    both = zip(points, saved, strict=True)
    off = max(abs(a - b) for point, each in both for a, b in zip(each, equation_4(*point), strict=True))
    out.claim("Eq. 4 follows from Eq. 1, 2 and 3", off < 1e-6, f"largest difference {off:.0e}")
    out.every("all savings are positive", (min(each) > 0 for each in saved))
    columns = list(zip(*saved, strict=True))
    for what, (up, down), low, high in (("memory", columns[:2], 0.2, 0.3), ("CPU", columns[2:], 0.1, 0.4)):
        worse, each_rival = mean(map(max, up, down)), (mean(up), mean(down))
        number = f"{percent(worse)} over the worse rival at each point; over pull-up, push-down {percents(each_rival)}"
        text = f"{span((low, high))} {what} saved on average"
        out.claim(text, low <= worse <= high, f"{number}, over both {percent(mean(each_rival))}", CALIBRATED)
    extreme = savings(0.001, 0.001, 0.1)
    out.claim("memory savings reach about 50 %", 0.45 < extreme.memory_up < 0.55, percent(extreme.memory_up))
    out.claim("CPU savings reach about 100 %", extreme.cpu_up > 0.95, percent(extreme.cpu_up))
    least = [savings(0.5, 1.0, join) for join in JOINS]
    factor = [each.cpu_up * (1 + 2 * join) / join for each, join in zip(least, JOINS, strict=True)]
    held = max(abs(each.memory_up) for each in least) < 1e-9 and max(factor) - min(factor) < 1e-6
    text = "without a selection: pull-up's memory, and CPU saved in proportion to S⋈ / (1 + 2 S⋈)"
    out.claim(text, held, f"factor {factor[0]:.2f} at ρ = 0.5")
    _sentences(out, saved)
    means = [
        [percent(mean(each)) for each in zip(*saved[n :: len(JOINS)], strict=True)] for n in range(len(JOINS))
    ]
    headings = ("S⋈", "memory / pull-up", "memory / push-down", "CPU / pull-up", "CPU / push-down")
    out.table("mean savings", headings, ((join, *each) for join, each in zip(JOINS, means, strict=True)))
    out.note("Eq. 2, missing in our copy, is derived from the text: see docs/papers/paper1.md.")
    out.pictures.append(_surfaces())
    return out


def _sentences(out: Outcome, saved: list[Savings]) -> None:
    """Check what sections 1, 3.2, 4.3 and 5.1 say of costs."""
    readers, statistics = readers_of((60, 3600), ("", "σ")), Statistics(1, 1, 0.1, Independent({"σ": 0.01}))
    shared = modelled(readers, statistics)[UP].rows
    times = [shared / isolated_cost([each], statistics).rows for each in readers]
    out.claim("1: the shared state is 60 times that of Q1", round(times[0]) == 60, f"{times[0]:.0f} times")
    number = f"{times[1]:.2f} times: a selection on A leaves all of B"
    out.claim("and 100 times that of Q2", round(times[1]) == 100, number)
    cheaper = [(each.cpu_up - each.cpu_down) / (1 - each.cpu_down) for each in saved]
    number = f"by {span(cheaper)}, mean {percent(mean(cheaper))}"
    out.claim("3.2: push-down costs much less CPU than pull-up", min(cheaper) > 0, number)
    grown = {n: [cpu_savings(n, 0.1, rate, 0.5) for rate in (20, 80)] for n in (2, 3, 12, 36)}
    more = [late - early for early, late in grown.values()]
    number = f"2, 3, 12, 36 queries, 20 to 80 rows/s: {percents(more, 1)} more"
    text = "4.3: CPU savings grow with λ, more so with many queries"
    out.claim(text, min(more) > 0 and more == sorted(more), number)
    bound = 2 / (20 * 30)
    held = cpu_savings(12, 0.9 * bound, 20) < 0 < cpu_savings(12, 1.1 * bound, 20)
    number = f"below S⋈ = 2 / λW = {bound:.4f} at 20 rows/s and 30 s"
    out.claim("5.1: at small S⋈ pull-up is cheaper than the Mem-Opt chain", held, number, CHECK)


def _surfaces() -> Picture:
    """Draw the three surfaces as the paper does."""
    ratio, select = np.meshgrid(DRAWN, DRAWN)
    by_join = [(join, f"S⋈ = {join}") for join in reversed(JOINS)]
    surfaces = {
        "(a) memory saved (%)": [(0, 0.1, "over PullUp"), (1, 0.1, "over PushDown")],
        "(b) CPU saved over PullUp (%)": [(2, *each) for each in by_join],
        "(c) CPU saved over PushDown (%)": [(3, *each) for each in by_join],
    }
    picture = Picture(figsize=(11, 3.9), layout="constrained", dpi=72)
    for number, (title, shown) in enumerate(surfaces.items(), 1):
        axes = picture.add_subplot(1, 3, number, projection="3d")
        for (kind, join, label), colour in zip(shown, ("tab:red", "tab:blue", "tab:green"), strict=False):
            z = np.array([[100 * savings(r, s, join)[kind] for r in DRAWN] for s in DRAWN])
            axes.plot_wireframe(ratio, select, z, color=colour, linewidth=0.7, label=label)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("window ratio ρ", fontsize=8)
        axes.set_ylabel("selectivity Sσ", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7, loc="upper left")
    return picture
