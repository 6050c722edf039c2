"""What each condition of a query is for: every conjunct of WHERE and ON goes to one of four places.

    l.k = r.k                          key           decides which rows can meet
    r.ts <= l.ts + INTERVAL 1 MINUTE   bound         decides for how long
    l.Value > 30                       predicate     evaluated once per row, when it arrives
    l.Value > r.Value                  residual      evaluated once per pair

Any of them may be missing; without a key, every two rows in the window meet.

In:  resolved conditions.
Out: `Conditions`: canonical, sorted, without repeats.
True: the four together hold for a pair exactly when the conditions as written do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.sql.bounds import Bound, read_bound
from penstock.sql.canonical import canonical, conjuncts, may_fail, show, show_bare
from penstock.sql.keys import make_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.sql.names import Scope
    from penstock.sql.query import Key, Side


@dataclass(slots=True)
class Conditions:
    """The conjuncts of one query, sorted out."""

    keys: list[Key] = field(default_factory=list)
    bounds: list[tuple[Bound, exp.Expr]] = field(default_factory=list)
    predicates: dict[Side, list[exp.Expr]] = field(default_factory=lambda: {"l": [], "r": []})
    residual: list[exp.Expr] = field(default_factory=list)

    def sorted_keys(self) -> tuple[Key, ...]:
        """Give the keys in canonical order."""
        return tuple(sorted(set(self.keys)))

    def sorted_predicates(self, side: Side) -> tuple[str, ...]:
        """Give one side's predicates in canonical order.

        Each is evaluated by itself, so one that may fail (``10 / x > 1``) is written behind the plain ones that may
        be there to guard it (``x <> 0``): all of them together are one predicate more.
        """
        plain = sorted({show_bare(each) for each in self.predicates[side] if not may_fail(each)})
        risky = sorted({show_bare(each) for each in self.predicates[side] if may_fail(each)})
        guarded = [f"({each})" for each in (*plain, *risky)]
        return (*plain, *([" AND ".join(guarded)] if plain and risky else risky))

    def sorted_residual(self) -> tuple[str, ...]:
        """Give the conditions on pairs in canonical order."""
        return tuple(sorted({show(each) for each in self.residual}))


def classify(scope: Scope, resolved: Iterable[exp.Expr]) -> Conditions:
    """Sort out the conjuncts of some resolved conditions."""
    found = Conditions()
    equal_times: list[Key] = []
    for tree in resolved:
        for each in conjuncts(canonical(tree)):
            _place(scope, each, found, equal_times)
    if not found.keys:
        found.keys = equal_times
    return found


def _place(scope: Scope, each: exp.Expr, found: Conditions, equal_times: list[Key]) -> None:
    """Put one conjunct where it belongs."""
    sides = sides_of(each)
    bound = read_bound(scope, each)
    if not sides:
        if not _always_true(each):
            found.residual.append(each)
    elif len(sides) == 1:
        (side,) = sides
        found.predicates[side].append(each)
    elif bound:
        found.bounds.append((bound, each))
        equal_times.extend(_key_of(scope, each))
    else:
        keys = _key_of(scope, each)
        found.keys.extend(keys)
        found.residual.extend([] if keys else [each])


def _key_of(scope: Scope, each: exp.Expr) -> list[Key]:
    """Read an equality between the two streams; nothing when it is something else."""
    if not isinstance(each, exp.EQ):
        return []
    first, second = each.left.unnest(), each.right.unnest()
    if (sides_of(first), sides_of(second)) == ({"l"}, {"r"}):
        return [make_key(scope, first, second, each)]
    if (sides_of(first), sides_of(second)) == ({"r"}, {"l"}):
        return [make_key(scope, second, first, each)]
    return []


def sides_of(tree: exp.Expr) -> set[Side]:
    """Say which sides a resolved tree reads."""
    return {"l" if column.table == "l" else "r" for column in tree.find_all(exp.Column)}


def _always_true(tree: exp.Expr) -> bool:
    """Recognise ``TRUE`` and ``1 = 1``."""
    if isinstance(tree, exp.EQ) and isinstance(tree.left, exp.Literal):
        return tree.left == tree.right
    return isinstance(tree, exp.Boolean) and bool(tree.this)
