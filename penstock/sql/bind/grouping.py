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

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
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
from penstock.sql.query import Aggregation, Answer, Bucket, Emit, Measure, OutputColumn
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
from penstock.sql.text.windows import Every, WindowSpec
from penstock.sql.units import show_duration

Stated = tuple[WindowSpec, ...] | None
"""The windows of the streams, in the order of their sides."""


_INSTANTS, _MAX_INSTANTS = 60, 3600
"""The default number of instants in a window, and the largest tried to divide it evenly."""

_ADDED_NAMES = {"sliding": ("window_end",), "final": (), "changes": ("_op", "_seq")}
"""The columns that each `emit` adds to a result."""


def make_aggregation(
    scope: Scope,
    select: Select,
    *,
    every: Every | None,
    stated: Stated,
    options: Mapping[str, str],
    query: str,
) -> tuple[tuple[OutputColumn, ...], list[Tree], Aggregation]:
    """Bind the groups of an aggregate query, and when it answers; also return the trees of the outputs."""
    emit = cast("Emit", options.get("emit", "sliding"))
    window = _time_window(scope, select)
    entries = list_entries(replace(scope, aliases=window), select.items)
    names = unique_names(scope, entries)
    _refuse_added_names(scope, names, entries, emit)
    items = window | {name.lower(): entry.tree for name, entry in zip(names, entries, strict=True)}
    groups = Groups(scope, _keys(replace(scope, aliases=items), select, entries))
    answers = [groups.answer(name, entry.tree) for name, entry in zip(names, entries, strict=True)]
    having = ""
    if select.having is not None:
        condition = _having(scope, groups.keys, items).resolve(select.having)
        _refuse_no_pairs(scope, condition)
        having = show(groups.rewritten(condition))
    if emit == "changes":
        _refuse_missing_keys(scope, groups.keys, answers, query)
    if emit != "sliding" and every:
        raise scope.error(
            f"EVERY is for sliding answers, and emit of {query} is {emit}: leave one of them out",
            every.span,
        )
    step, reach = (
        _sliding(scope, every, stated, query) if emit == "sliding" else (0, (0,) * len(scope.inputs))
    )
    outputs = {f"g{number}": key for number, key in enumerate(groups.keys)}
    outputs |= {f"x{number}": argument for number, argument in enumerate(groups.arguments)}
    outputs = {name: without_time_windows(scope, tree) for name, tree in outputs.items()}
    found = next(filter(None, (bucket_end(scope, key) for key in groups.keys)), None)
    bucket = None
    if emit == "final" and found:
        side, outputs["e0"] = found
        bucket = Bucket(side, len(outputs) - 1)
    aggregation = Aggregation(
        emit=emit,
        groups=len(groups.keys),
        measures=tuple(groups.measures),
        answers=tuple(answers),
        having=having,
        every=step,
        reach=reach,
        bucket=bucket,
    )
    made = tuple(
        replace(make_output(name, tree), remainder=remainder_of(tree, scope.type_of))
        for name, tree in outputs.items()
    )
    return made, list(outputs.values()), aggregation


def refuse_emission(scope: Scope, every: Every | None, options: Mapping[str, str], query: str) -> None:
    """Refuse EVERY and `emit` in a query that answers with pairs."""
    fix = "leave it out, or aggregate, as in SELECT COUNT(*) ... or GROUP BY"
    if every:
        raise scope.error(f"EVERY is for aggregates, and {query} has none: {fix}", every.span)
    if "emit" in options:
        raise scope.error(
            f"emit = '{options['emit']}' is for aggregates, and {query} has none: {fix}", scope.span
        )


# --- keys and HAVING --------------------------------------------------------------------------------------------


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
        return not is_negated and _is_count(scope, trees[0]) and max(numbers) < 1
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
    trees = map(unwrapped, select.grouping or ())
    window = next(filter(is_time_window, trees), None)
    return {} if window is None else {"window": scope.resolve(window)}


def _having(scope: Scope, keys: Sequence[Tree], items: Mapping[str, Tree]) -> Scope:
    """Let HAVING see the SELECT list: as in Spark, an item hides a column that is not grouped."""
    grouped = {key.name.lower() for key in map(unwrapped, keys) if isinstance(key, ColumnRef)}
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
    if not select.grouping:  # GROUP BY ALL
        trees = [entry.tree for entry in entries if not has_aggregate(entry.tree)]
    else:
        trees = [_key(scope, part, entries) for part in select.grouping]
    keys, identities = dict[int, Tree](), Identities(scope.type_of)
    for key in trees:
        refuse_incomparable(scope, key, "GROUP BY compares")
        keys.setdefault(identities.number(key), key)
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
    position = int(ordinal.text) if len(ordinal.text) < len("1000000") else 0
    if not 0 < position <= len(entries):
        raise scope.error(
            f"GROUP BY {ordinal.text} is no item of the SELECT list: it has items 1 to {len(entries)}",
            ordinal,
        )
    entry = entries[position - 1]
    if has_aggregate(entry.tree):
        raise scope.error(
            f"GROUP BY {position} is an aggregate, {entry.name}: only columns can be grouped by", ordinal
        )
    return entry.tree


class Groups:
    """The keys of an aggregate query, and the measures and arguments that its expressions over groups need."""

    def __init__(self, scope: Scope, keys: list[Tree]) -> None:
        self.scope = scope
        self.keys = keys
        self.arguments: list[Tree] = []
        self.measures: list[Measure] = []
        self.identities = Identities(scope.type_of)
        self.key_numbers = {self.identities.number(key): number for number, key in enumerate(keys)}
        self.numbers = dict(self.key_numbers)
        """The number of each key and argument among the pair outputs, by its identity."""

    def answer(self, name: str, tree: Tree) -> Answer:
        """Build an answer of an item of the SELECT list."""
        rewritten = self.rewritten(tree)
        plain = isinstance(rewritten, Constant) and rewritten.kind == "answer"
        return Answer(name, show(rewritten), show(rewritten) if plain else "")

    def rewritten(self, tree: Tree) -> Tree:
        """Write a resolved tree over ``g0 g1 …`` and ``a0 a1 …``."""
        bare = unwrapped(tree)
        if isinstance(bare, Constant):
            return self._grouped(bare) or tree
        return without_time_windows(self.scope, run(self._rewrite(bare, in_lambda=False)))

    def _rewrite(self, tree: Tree, *, in_lambda: bool) -> Generator[Any, Any, Tree]:
        if isinstance(tree, Constant):  # unchanged even if grouped by: some functions take literals only
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
            trees.append((yield self._rewrite(part, in_lambda=inside)))  # noqa: PERF401 - cannot yield
        return tree.with_trees(trees)

    def _grouped(self, tree: Tree) -> Constant | None:
        """Find the group key that is equal to a tree."""
        number = self.key_numbers.get(self.identities.number(tree)) if self.keys else None
        return None if number is None else Constant(f"g{number}", "answer", tree.span)

    def _measure(self, call: Form) -> int:
        """Return the number of an aggregate, and register it if it is new."""
        aggregate = read_aggregate(self.scope, call)
        arguments = tuple(map(self._argument, aggregate.arguments))
        if aggregate.distinct:
            arguments = tuple(dict.fromkeys(arguments))
        measure = Measure(aggregate.function, arguments, aggregate.distinct)
        if measure not in self.measures:
            self.measures.append(measure)
        return self.measures.index(measure)

    def _argument(self, tree: Tree) -> int:
        """Return the number of an aggregate's argument, and register it if it is new."""
        identity = self.identities.number(tree)
        if identity not in self.numbers:
            self.numbers[identity] = len(self.keys) + len(self.arguments)
            self.arguments.append(tree)
        return self.numbers[identity]

    def _ungrouped(self, tree: Tree) -> SqlError:
        name = show(tree)
        if isinstance(tree, ColumnRef):
            name = f"{self.scope.side(tree.side).alias}.{tree.name}"
        added = "add it to GROUP BY" if self.keys else f"add GROUP BY {name}"
        return self.scope.error(
            f"{name} is neither grouped nor in an aggregate, so it has several values in a group: {added}, "
            f"or wrap it, as in MAX({name})",
            tree,
        )


# --- when to answer ---------------------------------------------------------------------------------------------


def _refuse_missing_keys(scope: Scope, keys: list[Tree], answers: list[Answer], query: str) -> None:
    """Refuse changes whose group the result does not show."""
    selected = {answer.plain for answer in answers}
    for number, key in enumerate(keys):
        if f"g{number}" not in selected:
            raise scope.error(
                f"{query} emits changes, and this group key is not in its SELECT list, so its rows do not identify "
                "their group: add the key there",
                key,
            )


def _refuse_added_names(scope: Scope, names: list[str], entries: list[Entry], emit: Emit) -> None:
    """Refuse names of columns that `emit` adds to the result."""
    for name, entry in zip(names, entries, strict=True):
        if name.lower() in _ADDED_NAMES[emit]:
            raise scope.error(
                f"a column of the result is called {name}, like one that emit = '{emit}' adds: give it another name "
                "with AS",
                entry.span,
            )


def _sliding(scope: Scope, every: Every | None, stated: Stated, query: str) -> tuple[int, tuple[int, ...]]:
    """Return the time between instants, and how far back each stream is read."""
    if stated is None:
        raise scope.error(
            f"{query} aggregates, and has no WINDOW that slides: add WINDOW 1 min EVERY 10 s (other conditions stay), "
            "or WITH (emit = 'final') or (emit = 'changes')",
            scope.span,
        )
    for window in stated:
        if not window.slides:
            reason = f"counts rows ({window.text})" if window.kind == "rows" else "is unbounded"
            raise scope.error(
                f"{query} aggregates over a window that {reason}, and sliding answers need a length of time: give "
                "every stream one, as in WINDOW 1 min EVERY 10 s, or write WITH (emit = 'final') or "
                "(emit = 'changes')",
                window.span,
            )
    lengths = tuple(window.length for window in stated)
    longest = max(lengths)
    if every and every.length > longest:
        raise scope.error(
            f"EVERY of {query} is {show_duration(every.length)} and its window {show_duration(longest)}, so that pairs "
            "between two instants would be lost: EVERY must not be longer than the window",
            every.span,
        )
    return every.length if every else default_every(longest), lengths


def default_every(window: int) -> int:
    """Return the default time between two instants in microseconds.

    It is the largest whole part of the window from 1/60 down to 1/3600, so that a window always ends where another
    begins.  Without such a part it is 1/60 of the window, and at least a microsecond.

    >>> default_every(3_600_000_000), default_every(60_000_000), default_every(10_000_000), default_every(7)
    (60000000, 1000000, 156250, 1)
    """
    parts = next(
        (number for number in range(_INSTANTS, _MAX_INSTANTS + 1) if window % number == 0), _INSTANTS
    )
    return max(1, window // parts)
