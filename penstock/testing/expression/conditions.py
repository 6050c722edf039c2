"""Conditions and choices: comparisons, tests, AND OR NOT, CASE, and functions that are short for them.

DuckDB evaluates both sides of AND and OR, and all items of IN.  So an operand that can fail is guarded by a CASE, and
Spark's order of evaluation is kept::

    a AND b      CASE WHEN NOT a THEN FALSE ELSE a AND b END

In:  nodes of operands.  Out: a node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.sql.spark_types import TIME_TYPES
from penstock.testing.expression.casts import alike, compared
from penstock.testing.expression.node import BOOLEAN, Refusal, combine, null, only_spark, strict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.testing.expression.node import EvaluationSettings, Node

COMPARISONS = {
    "=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", "!>": "<=", ">": ">", ">=": ">=", "!<": ">=",
}  # fmt: skip


def compare(head: str, sides: Sequence[Node], settings: EvaluationSettings) -> Node:
    """Return ``left = right`` and the like."""
    return strict(BOOLEAN, f"{{0}} {COMPARISONS[head]} {{1}}", compared(sides, settings))


def same(sides: Sequence[Node], settings: EvaluationSettings) -> Node:
    """Return ``left <=> right``, which is never NULL."""
    left, right = compared(sides, settings)
    return combine(BOOLEAN, f"({left.sql} IS NOT DISTINCT FROM {right.sql})", [left, right])


def is_null(node: Node) -> Node:
    """Return ``node IS NULL``."""
    return combine(BOOLEAN, f"({node.sql} IS NULL)", [node])


def is_truth(node: Node, wanted: bool) -> Node:
    """Return ``node IS TRUE`` or ``node IS FALSE``."""
    condition = _condition(node)
    return combine(BOOLEAN, f"({condition.sql} IS NOT DISTINCT FROM {str(wanted).upper()})", [condition])


def negation(node: Node) -> Node:
    """Return ``NOT node``."""
    return strict(BOOLEAN, "NOT {0}", [_condition(node)])


def _condition(node: Node) -> Node:
    """Take a node as a condition."""
    if node.kind.name == "void":
        return null(BOOLEAN)
    if node.kind != BOOLEAN:
        raise Refusal(f"it is {node.kind} and no condition")
    return node


def connect(head: str, nodes: Sequence[Node]) -> Node:
    """Return ``a AND b AND c``, or the same with OR: evaluated from the left until one operand decides."""
    operands = [_condition(node) for node in nodes]
    sql = f"({f' {head} '.join(node.sql for node in operands)})"
    if any(node.fails for node in operands[1:]):
        decided, value = ("NOT {}", "FALSE") if head == "AND" else ("{}", "TRUE")
        tests = " ".join(f"WHEN {decided.format(node.sql)} THEN {value}" for node in operands[:-1])
        sql = f"(CASE {tests} ELSE {sql} END)"
    return combine(BOOLEAN, sql, operands)


def between(nodes: Sequence[Node], settings: EvaluationSettings) -> Node:
    """Return ``value BETWEEN low AND high``."""
    value, low, high = nodes
    return connect("AND", [compare(">=", [value, low], settings), compare("<=", [value, high], settings)])


def listed(value: Node, items: Sequence[Node], settings: EvaluationSettings) -> Node:
    """Return ``value IN (...)``."""
    every, times = [value, *items], value.kind.name in TIME_TYPES
    asked, *others = alike(every, settings, strings=times) if len(items) > 1 else compared(every, settings)
    if any(node.fails for node in others):
        return connect("OR", [strict(BOOLEAN, "{0} = {1}", [asked, node]) for node in others])
    return combine(BOOLEAN, f"({asked.sql} IN ({', '.join(node.sql for node in others)}))", [asked, *others])


def choose(tests: Sequence[Node], values: Sequence[Node], settings: EvaluationSettings) -> Node:
    """Return CASE: the value of the first test that holds, or the last value, which stands behind ELSE."""
    conditions = [_condition(test) for test in tests]
    if any(test.kind.name == "void" for test in tests):
        raise Refusal("Spark takes no NULL for a condition")
    *results, last = alike(values, settings)
    branches = " ".join(
        f"WHEN {test.sql} THEN {result.sql}" for test, result in zip(conditions, results, strict=True)
    )
    return combine(last.kind, f"(CASE {branches} ELSE {last.sql} END)", [*conditions, *results, last])


def coalesce(nodes: Sequence[Node], settings: EvaluationSettings) -> Node:
    """Return COALESCE."""
    values = alike(nodes, settings)
    return combine(values[0].kind, f"coalesce({', '.join(node.sql for node in values)})", values)


def like(nodes: Sequence[Node], escape: str) -> Node:
    """Return ``value LIKE pattern``; Spark's escape is a backslash, and DuckDB has none by itself."""
    value, pattern = nodes
    if not {value.kind.name, pattern.kind.name} <= {"string", "void"}:
        raise Refusal("only Spark compares with LIKE what is no string")
    quoted = re.escape(escape)
    if isinstance(pattern.literal, str) and not re.fullmatch(
        f"(?:[^{quoted}]|{quoted}[%_{quoted}])*", pattern.literal, re.DOTALL
    ):
        raise Refusal(f"the pattern '{pattern.literal}' escapes what needs no escape")
    sign = "''" if escape == "'" else escape
    test = f"{{0}} LIKE {{1}} ESCAPE '{sign}'"
    if not isinstance(pattern.literal, str):
        beyond = only_spark("a LIKE pattern with an escape")
        test = f"CASE WHEN contains({{1}}, '{sign}') THEN {beyond} ELSE {test} END"
    return strict(BOOLEAN, test, nodes)
