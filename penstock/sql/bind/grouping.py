"""GROUP BY, HAVING and the SELECT list of an aggregate query.

Group keys and the arguments of aggregates are computed for each pair.  All other expressions are computed once per
group, from the keys ``g0 g1 …`` and the aggregates ``a0 a1 …``::

    SELECT A.k, MAX(A.v - B.v) + 1 AS m, COUNT(*) FROM ... GROUP BY A.k HAVING MAX(A.v - B.v) > 5

        of each pair      g0 = l.k      x0 = l.v - r.v
        measures          a0 = max(x0)  a1 = count()
        answers           k = g0        m = a0 + 1        `COUNT(*)` = a1
        having            a0 > 5

Equal expressions (`penstock.sql.bind.canonical`) are computed once.  A name in GROUP BY or HAVING is a column, if there
is one of that name, or else an item of the SELECT list.

In:  a SELECT as it was read, and the scope of its streams.
Out: the outputs of each pair, and an `Aggregation`.
True: answers and HAVING read group keys and measures, and no column.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf
from typing import Any, cast

from penstock.errors import SqlError
from penstock.sql.bind.aggregates import Aggregate, read_aggregate, refuse_incomparable
from penstock.sql.bind.canonical import MIRROR, SPELLINGS, Identities, conjuncts
from penstock.sql.bind.linear import plain_number
from penstock.sql.bind.outputs import Entry, list_entries, make_output, remainder_of, unique_names
from penstock.sql.bind.scope import Scope
from penstock.sql.bind.time_windows import bucket_end, is_time_window, without_time_windows
from penstock.sql.query import Aggregation, Answer, Bucket, Emit, Measure, Output
from penstock.sql.text.select import Select
from penstock.sql.text.tree import (
    ColumnRef,
    Constant,
    Form,
    Tree,
    has_aggregate,
    is_aggregate,
    nodes,
    run,
    show,
    unwrapped,
)
from penstock.sql.text.windows import Every, WindowClause
from penstock.sql.units import show_duration

Stated = tuple[WindowClause, ...] | None
"""The window clauses of the streams, in the order of their sides."""


@dataclass(slots=True)
class Groups:
    """An aggregate query's keys, measures and answers; `arguments` are those of measures that are no keys."""

    keys: list[Tree]
    arguments: list[Tree] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    """The position of each answer in the text."""
    having: str = ""

    @property
    def trees(self) -> list[Tree]:
        """The expressions that are computed for each pair."""
        return [*self.keys, *self.arguments]

    @property
    def names(self) -> list[str]:
        keys = [f"g{number}" for number in range(len(self.keys))]
        return [*keys, *(f"x{number}" for number in range(len(self.arguments)))]


def make_groups(scope: Scope, select: Select) -> Groups:
    """Read the keys, measures and answers of an aggregate query."""
    window = _time_window(scope, select)
    entries = list_entries(replace(scope, aliases=window), select.items)
    names = unique_names(scope, entries)
    items = window | {name.lower(): entry.tree for name, entry in zip(names, entries, strict=True)}
    groups = Groups(_keys(replace(scope, aliases=items), select, entries))
    reading = _GroupRewriter(scope, groups)
    for name, entry in zip(names, entries, strict=True):
        groups.answers.append(_answer(name, reading.over_groups(entry.tree)))
        groups.spans.append(entry.span)
    if select.having is not None:
        having = _having(scope, groups, items).resolve(select.having)
        _refuse_no_pairs(scope, having)
        groups.having = show(reading.over_groups(having))
    return groups


def _refuse_no_pairs(scope: Scope, having: Tree) -> None:
    """Refuse ``COUNT(*) = 0``: every group has a pair."""
    for condition in conjuncts(having):
        if _is_never(scope, condition):
            raise scope.error(
                "no group has COUNT(*) = 0, as rows without a partner are not in the result. Leave this condition "
                "out, and find such rows in Spark by joining the data of the stream with the results",
                condition,
            )


def _is_never(scope: Scope, condition: Tree) -> bool:
    """Check whether a condition asks for a group without pairs."""
    is_negated = False
    while isinstance(condition, Form) and condition.head in {"NOT", "("}:
        is_negated ^= condition.head == "NOT"
        condition = condition.trees[0]
    if not isinstance(condition, Form):
        return False
    head, trees = SPELLINGS.get(condition.head, condition.head), [unwrapped(part) for part in condition.trees]
    if head in {"BETWEEN", "IN"}:
        numbers = [_number(part) for part in (trees[2:] if head == "BETWEEN" else trees[1:])]
        return not is_negated and _is_count(scope, trees[0]) and all(one < 1 for one in numbers)
    if head not in MIRROR:
        return False
    if isinstance(trees[0], Constant):
        head, trees = MIRROR[head], trees[::-1]
    operator, number = _OPPOSITES.get(head, "") if is_negated else head, _number(trees[1])
    is_less = number <= 1 if operator == "<" else number < 1 and operator in {"=", "<=>", "<="}
    return is_less and _is_count(scope, trees[0])


_OPPOSITES = {"<>": "=", ">=": "<", ">": "<="}
"""Comparisons that become ``=``, ``<`` or ``<=`` under NOT."""


def _is_count(scope: Scope, tree: Tree) -> bool:
    return isinstance(tree, Form) and is_aggregate(tree) and read_aggregate(scope, tree) == Aggregate("count")


def _number(tree: Tree) -> Fraction | float:
    """Read a literal number; infinity if it is anything else."""
    number = plain_number(tree) if isinstance(tree, Constant) else None
    return inf if number is None else number


def _time_window(scope: Scope, select: Select) -> dict[str, Tree]:
    """Make ``window(...)`` of GROUP BY known by the name `window`, as in ``SELECT window.start``."""
    trees = map(unwrapped, select.grouping.trees if select.grouping else ())
    window = next(filter(is_time_window, trees), None)
    return {} if window is None else {"window": scope.resolve(window)}


def _answer(name: str, tree: Tree) -> Answer:
    plain = isinstance(tree, Constant) and tree.kind == "answer"
    return Answer(name, show(tree), show(tree) if plain else "")


def _having(scope: Scope, groups: Groups, items: Mapping[str, Tree]) -> Scope:
    """Let HAVING see the SELECT list: as in Spark, an item hides a column that is not grouped."""
    grouped = {key.name.lower() for key in map(unwrapped, groups.keys) if isinstance(key, ColumnRef)}
    preferred = {
        name: tree
        for name, tree in items.items()
        if scope.owners(name) and (name not in grouped or scope.is_ambiguous(name))
    }
    return replace(scope, aliases=items, preferred=preferred)


def _keys(scope: Scope, select: Select, entries: list[Entry]) -> list[Tree]:
    """Resolve the expressions of GROUP BY without repeats."""
    if select.grouping is None:
        return []
    if select.grouping.all:
        trees = [entry.tree for entry in entries if not has_aggregate(entry.tree)]
    else:
        trees = [_key(scope, part, entries) for part in select.grouping.trees]
    keys, identities = dict[int, "Tree"](), Identities(scope.type_of)
    for part in trees:
        refuse_incomparable(scope, part, "GROUP BY compares")
        keys.setdefault(identities.number(part), part)
    return list(keys.values())


def _key(scope: Scope, tree: Tree, entries: list[Entry]) -> Tree:
    """Resolve one expression of GROUP BY; a whole number is the position of an item."""
    bare = unwrapped(tree)
    if isinstance(bare, Constant) and bare.kind == "number" and bare.text.lstrip("-").isdecimal():
        return _item(scope, bare, entries)
    key = scope.resolve(tree)
    wrong = next(filter(is_aggregate, nodes(key)), None)
    if wrong:
        raise scope.error(
            "an aggregate cannot stand in GROUP BY: group by columns, and put conditions on aggregates in HAVING",
            tree,
        )
    return key


def _item(scope: Scope, ordinal: Constant, entries: list[Entry]) -> Tree:
    """Find the item of the SELECT list that a number in GROUP BY means."""
    place = int(ordinal.text) if len(ordinal.text) < len("1000000") else 0
    if not 0 < place <= len(entries):
        raise scope.error(
            f"GROUP BY {ordinal.text} is no item of the SELECT list: it has items 1 to {len(entries)}",
            ordinal,
        )
    tree = entries[place - 1].tree
    if has_aggregate(tree):
        raise scope.error(
            f"GROUP BY {place} is an aggregate, {entries[place - 1].name}: only columns can be grouped by",
            ordinal,
        )
    return tree


class _GroupRewriter:
    """Rewrites resolved trees over keys and measures, and registers the measures and their arguments."""

    def __init__(self, scope: Scope, groups: Groups) -> None:
        self.scope = scope
        self.groups = groups
        self.identities = Identities(scope.type_of)
        self.keys = {self.identities.number(key): place for place, key in enumerate(groups.keys)}
        self.places = dict(self.keys)
        """The position of each key and argument among the pair outputs, by its identity."""

    def over_groups(self, tree: Tree) -> Tree:
        """Write a tree over ``g0 g1 …`` and ``a0 a1 …``."""
        bare = unwrapped(tree)
        if isinstance(bare, Constant):
            return self._grouped(bare) or tree
        return without_time_windows(self.scope, run(self._over_groups(bare, in_lambda=False)))

    def _over_groups(self, tree: Tree, *, in_lambda: bool) -> Generator[Any, Any, Tree]:
        if isinstance(tree, Constant):  # as it is, also if grouped by: some functions take literals only
            return tree
        grouped = self._grouped(tree)
        if grouped:
            return grouped
        if not isinstance(tree, Form):
            raise self._ungrouped(tree)
        if is_aggregate(tree):
            if in_lambda:
                raise self.scope.error("an aggregate cannot stand in a lambda: aggregate outside it", tree)
            return Constant(f"a{self._measure(tree)}", "answer", tree.span)
        inside = in_lambda or tree.head == "->"
        trees = []
        for part in tree.trees:
            trees.append((yield self._over_groups(part, in_lambda=inside)))  # noqa: PERF401 - cannot yield
        return tree.with_trees(tuple(trees))

    def _grouped(self, tree: Tree) -> Constant | None:
        """Find the group key that is equal to a tree."""
        place = self.keys.get(self.identities.number(tree)) if self.keys else None
        return None if place is None else Constant(f"g{place}", "answer", tree.span)

    def _measure(self, call: Form) -> int:
        """Return the number of an aggregate, and register it if it is new."""
        aggregate = read_aggregate(self.scope, call)
        arguments = tuple(map(self._argument, aggregate.arguments))
        if aggregate.distinct:
            arguments = tuple(dict.fromkeys(arguments))
        measure = Measure(aggregate.function, arguments, aggregate.distinct)
        if measure not in self.groups.measures:
            self.groups.measures.append(measure)
        return self.groups.measures.index(measure)

    def _argument(self, tree: Tree) -> int:
        """Return the number of an aggregate's argument, and register it if it is new."""
        number = self.identities.number(tree)
        if number not in self.places:
            self.places[number] = len(self.groups.trees)
            self.groups.arguments.append(tree)
        return self.places[number]

    def _ungrouped(self, tree: Tree) -> SqlError:
        name = show(tree)
        if isinstance(tree, ColumnRef):
            name = f"{self.scope.side(tree.side).alias}.{tree.name}"
        added = "add it to GROUP BY" if self.groups.keys else f"add GROUP BY {name}"
        return self.scope.error(
            f"{name} is neither grouped nor in an aggregate, so a group has no one value of it: {added}, "
            f"or wrap it, as in MAX({name})",
            tree,
        )


_INSTANTS, _MOST_INSTANTS = 60, 3600
"""The default number of instants in a window, and the largest tried to divide it evenly."""

_ADDED_NAMES = {"sliding": ("window_end",), "final": (), "changes": ("_op", "_seq")}
"""The columns that each `emit` adds to a result."""

_WAYS_OUT = (
    "add WINDOW 1 min EVERY 10 s (other conditions stay), or WITH (emit = 'final') or (emit = 'changes')"
)


def make_aggregation(
    scope: Scope,
    select: Select,
    *,
    every: Every | None,
    stated: Stated,
    options: Mapping[str, str],
    query: str,
) -> tuple[tuple[Output, ...], list[Tree], Aggregation]:
    """Bind the groups of an aggregate query, and when it answers."""
    emit = cast("Emit", options.get("emit", "sliding"))
    groups = make_groups(scope, select)
    names, trees = groups.names, [without_time_windows(scope, part) for part in groups.trees]
    _refuse_names(scope, groups, emit)
    if emit == "changes":
        _refuse_missing_keys(scope, groups, query)
    if emit != "sliding" and every:
        raise scope.error(
            f"EVERY is for sliding answers, and emit of {query} is {emit}: leave one of them out",
            every.span,
        )
    step, reach = (
        _sliding(scope, every, stated, query) if emit == "sliding" else (0, (0,) * len(scope.inputs))
    )
    bucket = next(filter(None, (bucket_end(scope, key) for key in groups.keys)), None)
    if emit == "final" and bucket:
        names, trees = [*names, "e0"], [*trees, bucket[1]]
    aggregation = Aggregation(
        emit=emit,
        groups=len(groups.keys),
        measures=tuple(groups.measures),
        answers=tuple(groups.answers),
        having=groups.having,
        every=step,
        reach=reach,
        bucket=Bucket(bucket[0], len(trees) - 1) if emit == "final" and bucket else None,
    )
    outputs = tuple(
        replace(make_output(name, tree), remainder=remainder_of(tree, scope.type_of))
        for name, tree in zip(names, trees, strict=True)
    )
    return outputs, trees, aggregation


def refuse_emission(scope: Scope, every: Every | None, options: Mapping[str, str], query: str) -> None:
    """Refuse EVERY and `emit` in a query that answers with pairs."""
    way_out = "leave it out, or aggregate, as in SELECT COUNT(*) ... or GROUP BY"
    if every:
        raise scope.error(f"EVERY is for aggregates, and {query} has none: {way_out}", every.span)
    if "emit" in options:
        raise scope.error(
            f"emit = '{options['emit']}' is for aggregates, and {query} has none: {way_out}", scope.span
        )


def _refuse_missing_keys(scope: Scope, groups: Groups, query: str) -> None:
    """Refuse changes whose group the result does not show."""
    selected = {answer.plain for answer in groups.answers}
    for number, key in enumerate(groups.keys):
        if f"g{number}" not in selected:
            raise scope.error(
                f"{query} emits changes, and this group key is not in its SELECT list, so its rows do not identify "
                "their group: add the key there",
                key,
            )


def _refuse_names(scope: Scope, groups: Groups, emit: Emit) -> None:
    """Refuse names that the result has already."""
    for answer, span in zip(groups.answers, groups.spans, strict=True):
        if answer.name.lower() in _ADDED_NAMES[emit]:
            raise scope.error(
                f"a column of the result is called {answer.name}, like one that emit = '{emit}' adds: give it another "
                "name with AS",
                span,
            )


def _sliding(scope: Scope, every: Every | None, stated: Stated, query: str) -> tuple[int, tuple[int, ...]]:
    """Return the time between instants, and how far back each stream is read."""
    if stated is None:
        raise scope.error(f"{query} aggregates, and has no WINDOW that slides: {_WAYS_OUT}", scope.span)
    for clause in stated:
        if not clause.spec.slides:
            raise _no_end(scope, clause, query)
    lengths = tuple(clause.spec.length for clause in stated)
    longest = max(lengths)
    if every and every.length > longest:
        raise scope.error(
            f"EVERY of {query} is {show_duration(every.length)} and its window {show_duration(longest)}, so that pairs "
            "between two instants would be lost: EVERY must not be longer than the window",
            every.span,
        )
    return every.length if every else default_every(longest), lengths


def _no_end(scope: Scope, clause: WindowClause, query: str) -> SqlError:
    what = f"counts rows ({clause.spec.text})" if clause.spec.kind == "rows" else "is unbounded"
    return scope.error(
        f"{query} aggregates over a window that {what}, and sliding answers need a length of time: give every stream "
        "one, as in WINDOW 1 min EVERY 10 s, or write WITH (emit = 'final') or (emit = 'changes')",
        clause.span,
    )


def default_every(window: int) -> int:
    """Return the default time between two instants in microseconds.

    It is the largest whole part of the window from 1/60 down to 1/3600, so that a window always ends where another
    begins.  Without such a part it is 1/60 of the window, and at least a microsecond.

    >>> default_every(3_600_000_000), default_every(60_000_000), default_every(10_000_000), default_every(7)
    (60000000, 1000000, 156250, 1)
    """
    parts = next(
        (number for number in range(_INSTANTS, _MOST_INSTANTS + 1) if window % number == 0), _INSTANTS
    )
    return max(1, window // parts)
