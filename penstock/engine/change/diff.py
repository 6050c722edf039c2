"""What becomes of the queries when one plan follows another, and what would be lost by it.

Queries are compared by name and by meaning, then by how they are shared.

In:  the plan before, the plan to come, and the ledger.  Out: a `Change`, and sentences about what would be lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.engine.views.waiting import is_waiting, lag_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.plan.build import Plan
    from penstock.sql.query import Query
    from penstock.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the queries: those that are new, gone, and differently defined under their old name.

    `moved` are those that stay as they are and get state of their own, or share again: what is held does not go with
    them.  `failed` are those that are stopped because they cannot be evaluated, with the reason; `resumed` those that
    had been, and are defined otherwise now.  `strategy` is the new one, if it is another; `cuts` says why chains are
    cut elsewhere, if they are.  `carriers` are streams of promises that are read from here on, or no more.
    """

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    resumed: tuple[str, ...] = ()
    strategy: str = ""
    cuts: str = ""
    carriers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Say whether anything changes."""
        queries = self.added or self.dropped or self.altered or self.failed or self.resumed
        return bool(queries or self.strategy or self.cuts or self.carriers)

    def __str__(self) -> str:
        """Say what changes, in a few words."""
        words = (
            ("add", self.added), ("drop", self.dropped), ("alter", self.altered), ("resume", self.resumed),
        )  # fmt: skip
        parts = [f"{word} {', '.join(names)}" for word, names in words if names]
        parts += [f"{name} failed: {reason}" for name, reason in self.failed.items()]
        parts += [f"strategy {self.strategy}"] if self.strategy else []
        parts += [f"promises by {', '.join(self.carriers)}"] if self.carriers else []
        return "; ".join(parts + ([self.cuts] if self.cuts else [])) or "nothing"


def find_change(before: Plan | None, after: Plan, why: str = "") -> Change:
    """Compare two plans: queries by name and by meaning, then how they are shared; `why` the chains are cut anew."""
    if before is None:
        return Change(added=tuple(query.name for query in after.queries))
    old, new = ({query.name: meaning(query) for query in plan.queries} for plan in (before, after))
    stopped, failed = ({each.query.name: each.reason for each in plan.stopped} for plan in (before, after))
    altered = tuple(name for name in new if name in old and new[name] != old[name])
    stay = [name for name in new if name in old and name not in altered]
    recut = before.strategy == after.strategy and _cuts(before, stay) != _cuts(after, stay)
    return Change(
        added=tuple(name for name in new if name not in old and name not in stopped),
        dropped=tuple(name for name in (*old, *stopped) if name not in new and name not in failed),
        altered=altered,
        moved=tuple(name for name in stay if _logs(before, name) != _logs(after, name)),
        failed={name: reason for name, reason in failed.items() if name in old},
        resumed=tuple(name for name in new if name in stopped),
        strategy=after.strategy if after.strategy != before.strategy else "",
        cuts=why if recut else "",
        carriers=tuple(sorted(_carriers(before) ^ _carriers(after))),
    )


def _carriers(plan: Plan) -> set[str]:
    """Name the streams of a plan that only carry the promises of others."""
    return {each.name for each in plan.streams if each.punctuation_of}


def meaning(query: Query) -> Query:
    """Leave out of a query what only shows it, or follows from the rest of it."""
    return replace(query, text="", comparisons=())


def _cuts(plan: Plan, queries: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Say where the chains are cut that serve some queries."""
    names = set(queries)
    return {
        group.id: group.chain.cuts
        for group in plan.groups
        if any(member.query.name in names for member in group.members)
    }


def _logs(plan: Plan, query: str) -> set[str]:
    """List the logs that a query reads."""
    return {log.id for group, _, _ in plan.groups_of(query) for log in group.all_logs}


def losses(change: Change, before: Plan | None, plan: Plan, ledger: Ledger) -> list[str]:
    """Say what a change would lose that nobody asked to lose, one sentence each."""
    lost = [
        f"query {name} is not among the queries any more, and its {count:,} results in the state's table could not be "
        "read again"
        for name in change.dropped
        if before and before.query(name).sink.kind == "table" and (count := ledger.query(name).results)
    ]
    lost += [
        f"query {name} would leave the state's table, and its {count:,} results there could not be read again"
        for name in change.altered + change.resumed
        if before
        and before.query(name).sink.kind == "table"
        and plan.query(name).sink.kind != "table"
        and (count := ledger.query(name).results)
    ]
    lost += [
        f"query {name} is not among the queries any more, and {held:,} results that are held until it is their turn "
        "would never be delivered"
        for name in change.dropped
        if (held := ledger.hold(name).rows)
    ]
    lost += [
        f"query {name} is not among the queries any more, and {rows:,} rows that wait until it is their turn would "
        "never be joined for it"
        for name in change.dropped
        if before
        and any(before.groups_of(name))
        and is_waiting(before, ledger, group := before.find(name)[0])
        and (rows := lag_rows(group, ledger, name))
    ]
    if change.moved:
        lost.append(
            f"{', '.join(change.moved)} would go over to other state ({change.strategy}), and miss the pairs of rows "
            "held now with rows to come"
        )
    return lost
