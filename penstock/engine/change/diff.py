"""The difference between two plans: what becomes of the queries, what would be lost, and how streams differ.

Queries are compared by name and by meaning, then by how they are shared.

In:  the plan before, the plan to come, and the ledger.  Out: a `Change`, and sentences about losses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.views.waiting import is_waiting, lag_rows
from penstock.sql.query import SECOND
from penstock.sql.source_options import row_meaning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.plan.build import Plan
    from penstock.sql.query import Query, Stream
    from penstock.state.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the queries: those that are added, dropped, and altered under their old name.

    `moved` queries are unchanged but change state, because they share with others than before: stored rows do not move
    with them.  `failed` queries are stopped because they cannot be evaluated, with the reason; `resumed` ones had been
    stopped and have another definition now.  `strategy` is the new one, if it has changed.  `cuts` says why chains are
    cut elsewhere, if they are.  `carriers` are streams of promises that are read from now on, or no longer.
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
        """Return whether anything changes."""
        queries = self.added or self.dropped or self.altered or self.failed or self.resumed
        return bool(queries or self.strategy or self.cuts or self.carriers)

    def __str__(self) -> str:
        """Describe the change in a few words."""
        words = (
            ("add", self.added), ("drop", self.dropped), ("alter", self.altered), ("resume", self.resumed),
        )  # fmt: skip
        parts = [f"{word} {', '.join(names)}" for word, names in words if names]
        parts += [f"{name} failed: {reason}" for name, reason in self.failed.items()]
        parts += [f"strategy {self.strategy}"] if self.strategy else []
        parts += [f"promises by {', '.join(self.carriers)}"] if self.carriers else []
        return "; ".join(parts + ([self.cuts] if self.cuts else [])) or "nothing"


def find_change(before: Plan | None, after: Plan, why: str = "") -> Change:
    """Compare two plans: queries by name and by meaning, then how they are shared; `why` chains are cut elsewhere."""
    if before is None:
        return Change(added=tuple(query.name for query in after.queries))
    old, new = ({query.name: meaning(query) for query in plan.queries} for plan in (before, after))
    stopped, failed = ({stop.query.name: stop.reason for stop in plan.stopped} for plan in (before, after))
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
    """Return the streams of a plan that only carry promises of others."""
    return {stream.name for stream in plan.streams if stream.punctuation_of}


def meaning(query: Query) -> Query:
    """Return a query without its text and without what follows from the rest of it."""
    return replace(query, text="", comparisons=())


def _cuts(plan: Plan, queries: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the cuts of the chains that serve some queries."""
    names = set(queries)
    return {
        group.id: group.chain.cuts
        for group in plan.groups
        if any(member.query.name in names for member in group.members)
    }


def _logs(plan: Plan, query: str) -> set[str]:
    return {log.id for group, _, _ in plan.groups_of(query) for log in group.all_logs}


def losses(change: Change, before: Plan | None, plan: Plan, ledger: Ledger) -> list[str]:
    """List what a change would lose without an explicit request, one sentence each."""
    lost = []
    for name in change.dropped:
        gone = f"query {name} is not among the queries any more, and"
        results, held = ledger.query(name).results, ledger.hold(name).rows
        if results and before and sink_of(before.query(name)).in_state:
            lost.append(f"{gone} its {results:,} results in the state's table could not be read again")
        if held:
            lost.append(f"{gone} {held:,} results that wait for their order would never be delivered")
        if rows := _waiting_rows(before, ledger, name):
            lost.append(f"{gone} {rows:,} rows that wait for their order would never be joined for it")
    for name in change.altered + change.resumed:
        leaves = before and sink_of(before.query(name)).in_state and not sink_of(plan.query(name)).in_state
        if leaves and (results := ledger.query(name).results):
            lost.append(
                f"query {name} would leave the state's table, and its {results:,} results there could not be read again"
            )
    if change.moved:
        lost.append(
            f"{', '.join(change.moved)} would change state ({change.strategy}), and miss pairs of stored rows with "
            "rows to come"
        )
    return lost


def _waiting_rows(plan: Plan | None, ledger: Ledger, query: str) -> int:
    """Count the rows that wait for their order before they are joined for a query."""
    if plan is None or not any(plan.groups_of(query)):
        return 0
    group = plan.find(query)[0]
    return lag_rows(group, ledger, query) if is_waiting(plan, ledger, group) else 0


# --- streams --------------------------------------------------------------------------------------------------------


def stream_difference(before_all: Iterable[Stream], now_all: Iterable[Stream]) -> str | None:
    """Describe the first stream that is not declared as it was when the state was made; None if all are.

    Options that do not change the meaning of rows may differ (`penstock.sql.source_options`).
    """
    before = {stream.name.lower(): stream for stream in before_all}
    for now in now_all:
        was = before.get(now.name.lower())
        changed = next(_differences(was, now), None) if was else None
        if changed is not None:
            return f"stream {now.name} is not declared as it was: {changed}"
    return None


def _differences(was: Stream, now: Stream) -> Iterator[str]:
    """Describe how the second of two declarations differs from the first."""
    if (was.results is None) != (now.results is None):
        yield (
            "it was the results of a query" if was.results else "it was no query's results, but had a source"
        )
    if was.name != now.name:
        yield f"it was called {was.name}"
    columns, others = ({column.name: column.type for column in stream.columns} for stream in (was, now))
    if list(columns.items()) != list(others.items()):
        yield "its columns were " + ", ".join(f"{name} {kind}" for name, kind in columns.items())
    if was.time != now.time:
        yield f"its time was {was.time}"
    if was.lateness != now.lateness:
        yield f"its lateness was {was.lateness / SECOND:g} seconds"
    if was.format.lower() != now.format.lower():
        yield f"its format was {was.format or 'that of a DataFrame'}"
    before, after = row_meaning(was.options), row_meaning(now.options)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"its option {name} was {before[name]!r}" if name in before else f"it had no option {name}"
