"""EXPLAIN with numbers: what is known of the streams, what the plan should cost and does, what each rival would (S11).

The predictions are the paper's Eq. 1 to 3, for any number of queries: rows held, and comparisons a second as nested
loops would make them.  Beside them stand the engine's own: seconds of work in a second of the streams, by the prices of
`penstock.plan.prices`; and what was measured.

In:  a plan, the ledger it runs on (an empty one before the first run), and its files.
Out: `Costs` per signature; as text, or as JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.engine.measure import measure, signatures
from penstock.engine.status import held_rows
from penstock.errors import InputError
from penstock.plan.compare import Offer, Pricing, chosen_cuts
from penstock.plan.cost import saving
from penstock.plan.share import CHOSEN, divide
from penstock.sql.interval import show_duration
from penstock.sql.query import SIDES
from penstock.sql.sizes import show_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.engine.measure import Measured
    from penstock.log.files import Files
    from penstock.log.ledger import Ledger
    from penstock.plan.build import Plan
    from penstock.sql.query import Query, Side, Signature


MOST_NAMES = 4
"""Queries that are named in a heading."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured of one signature: rows held by its joins, pairs and seconds of work a second."""

    rows: int
    pairs: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Costs:
    """One signature: what is known of its streams, what each strategy would cost, and what was found."""

    left: str
    right: str
    queries: str
    strategy: str
    known: Measured
    shares: dict[Side, dict[str, float]]
    offers: tuple[Offer, ...]
    found: Found | None

    @property
    def mine(self) -> Offer:
        """Give the offer of the strategy that runs; without a budget `auto` is `cpu-opt`."""
        named = {each.strategy: each for each in self.offers}
        return named.get(self.strategy) or named["cpu-opt"]

    def to_json(self) -> dict[str, Any]:
        """Write as a JSON object."""
        known = self.known.known
        return {
            "left": self.left,
            "right": self.right,
            "queries": self.queries,
            "strategy": self.strategy,
            "measured": self.known.seen,
            "rates": [known.left_rate, known.right_rate],
            "join_selectivity": known.join,
            "row_bytes": known.row_bytes,
            "selectivities": self.shares,
            "prices": self.known.prices.to_json(),
            "offers": [asdict(each) for each in self.offers],
            "found": asdict(self.found) if self.found else None,
        }


def costs(plan: Plan, ledger: Ledger, files: Files | None, budget: float | None = None) -> list[Costs]:
    """Price a plan and its rivals, signature by signature; with files, also count what is held."""
    return [_costs(plan, ledger, files, signature, budget) for signature in signatures(plan)]


def _costs(
    plan: Plan, ledger: Ledger, files: Files | None, signature: Signature, budget: float | None
) -> Costs:
    """Price one signature."""
    known = measure(plan, ledger, signature)
    pricing = Pricing(known.readers, known.known, known.prices, known.pace)
    shares = {
        side: {
            condition: known.known.selection(side).any_of({condition})
            for condition in sorted({each.condition(side) for each in known.readers} - {""})
        }
        for side in SIDES
    }
    offers = tuple(pricing.offers(budget, _joins(signatures(plan)[signature])))
    return Costs(
        signature.left,
        signature.right,
        _named([query.name for query in signatures(plan)[signature]]),
        plan.strategy,
        known,
        shares,
        offers,
        _found(plan, ledger, files, signature, known) if files is not None and known.pairs else None,
    )


def _named(names: list[str]) -> str:
    """Name a few queries, count many."""
    return (
        ", ".join(names)
        if len(names) <= MOST_NAMES
        else f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    )


def _joins(queries: tuple[Query, ...]) -> int:
    """Count the joins that push-down would make; one where it would refuse, which its offer then says."""
    try:
        return len(divide(queries, "push-down"))
    except InputError:
        return 1


def _found(plan: Plan, ledger: Ledger, files: Files, signature: Signature, known: Measured) -> Found:
    """Count what the joins of a signature hold."""
    rows = sum(
        held_rows(group, ledger, files)
        for group in plan.groups
        if group.signature == signature and group.id in ledger.groups
    )
    return Found(rows, known.pairs, known.seconds)


# --- as text -------------------------------------------------------------------------------------------


def cost_lines(found: Iterable[Costs], *, compare: bool = False) -> Iterator[str]:
    """Write the costs; with `compare`, also where each chain would be cut, and what it saves (Eq. 4)."""
    for each in found:
        yield ""
        yield f"Costs of {each.left} l ⋈ {each.right} r ({each.queries}), strategy {each.strategy}"
        yield from _known_lines(each)
        yield from _offer_lines(each)
        if compare:
            yield from _compare_lines(each)


def _known_lines(costs: Costs) -> Iterator[str]:
    """Say what the costs depend on, and whether anybody has measured it."""
    known = costs.known.known
    how = "measured" if costs.known.seen else "assumed: too little has come to measure it"
    yield f"  streams ({how})"
    yield f"    rates       l {known.left_rate:,.0f}, r {known.right_rate:,.0f} rows a second of event time"
    yield f"    rows        {show_size(known.row_bytes)} each; of all pairs, {known.join:.3g} join (S⋈)"
    for side in SIDES:
        for condition, share in costs.shares[side].items():
            yield f"    {side} keeps     {share:6.1%}  {condition}"


def _offer_lines(costs: Costs) -> Iterator[str]:
    """Write a table: every strategy, the one that runs marked, and what was measured of it."""
    yield "  predicted     joins slices    rows held      state  comparisons/s   work"
    for each in costs.offers:
        mark = "*" if each is costs.mine else " "
        if each.refused:
            yield f"  {mark} {each.strategy:<10} not possible: {each.refused}"
            continue
        slices = str(each.slices) if each.slices else "-"
        yield (
            f"  {mark} {each.strategy:<11} {each.joins:>5} {slices:>6} {each.rows:>12,.0f} "
            f"{show_size(each.bytes):>10} {each.comparisons:>14,.0f} {each.seconds:>6.1%}"
        )
    if costs.found is not None:
        pairs = f"{costs.found.pairs:,.0f} pairs/s"
        yield (
            f"  measured                   {costs.found.rows:>12,} {'':>10} {pairs:>14} {costs.found.seconds:>6.1%}"
        )
    yield "  (comparisons as nested loops make them, Eq. 1-3; work: seconds of units in a second of the streams)"


def _compare_lines(costs: Costs) -> Iterator[str]:
    """Say where each chain would be cut, and what the running strategy saves against each other one."""
    known = costs.known
    for strategy in ("mem-opt", *sorted(CHOSEN - {"auto"})):
        cuts = chosen_cuts(strategy, known.readers, known.known, known.prices).cuts
        for side in SIDES:
            ages = " ".join(show_duration(age) for age in cuts.side(side))
            yield f"  {strategy} cuts {side}  {ages or '(nothing is held on this side)'}"
    mine = costs.mine
    for each in costs.offers:
        if each.strategy != mine.strategy and not each.refused and not mine.refused:
            yield f"  {mine.strategy} against {each.strategy:<10} {_savings(mine, each)}"


def _savings(mine: Offer, other: Offer) -> str:
    """Say how much less, or more, one strategy holds, compares and works than another (Eq. 4)."""
    words = (("memory", "rows"), ("comparisons", "comparisons"), ("work", "seconds"))
    shares = [
        (saving(getattr(mine, field), getattr(other, field)), word)
        for word, field in words
        if getattr(other, field)
    ]
    return ", ".join(
        f"{abs(share) * 100:.0f} % {'less' if share >= 0 else 'more'} {word}" for share, word in shares
    )
