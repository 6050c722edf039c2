"""Is this a query Penstock can run?  One that selects from, joins and filters two streams.

sqlglot reads all of SQL; this file refuses, each with its own sentence and place, what a window join is not:
aggregates, outer joins, subqueries, and so on.

In:  the tokens and the tree of one statement.
Out: nothing, or the `SqlError`; `tables` gives the two streams as written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.sql.canonical import MIRROR, RANGE_TESTS, show
from penstock.sql.tokens import Source, Span, depths, span_of_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUPPORTED = "a query selects, joins and filters two streams: SELECT ... FROM A, B WHERE ... WINDOW 1 min"
_TABLE = {"this", "db", "catalog", "alias"}
_READ = {"kind", "expressions", "from_", "joins", "where", "hint"}
_CLAUSES = {
    "with_": "WITH",
    "group": "GROUP BY",
    "having": "HAVING",
    "distinct": "DISTINCT",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "qualify": "QUALIFY",
    "windows": "WINDOW ... AS",
    "laterals": "LATERAL VIEW",
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
}
_JOIN_WORDS = {"LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "NATURAL", "ASOF"}
_AGGREGATE_NAMES = """
    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor
    bool_and bool_or collect_list collect_set corr count count_if count_min_sketch covar_pop
    covar_samp every first first_value grouping grouping_id histogram_numeric kurtosis last
    last_value listagg max max_by mean median min min_by mode percentile percentile_approx regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some
    std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop var_samp variance
"""
_AGGREGATES = frozenset(_AGGREGATE_NAMES.split())
_GENERATOR_NAMES = "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple"
_GENERATORS = frozenset(_GENERATOR_NAMES.split())


def check_statement(source: Source, tree: exp.Expr, tokens: Sequence[Token]) -> exp.Select:
    """Check that the tree is one SELECT without clauses we do not run."""
    span = span_of_tokens(tokens)
    if isinstance(tree, exp.SetOperation):
        name = type(tree).__name__.upper()
        raise source.error(_refusal(name), find_word(source, tokens, name) or span)
    if not isinstance(tree, exp.Select):
        raise source.error(f"this is not a query: {_SUPPORTED}", span)
    for arg, value in tree.args.items():
        if value and arg not in _READ:
            name = _CLAUSES.get(arg, arg.strip("_").upper())
            raise source.error(_refusal(name), find_word(source, tokens, name.split()[0]) or span)
    return tree


def check_expressions(source: Source, tree: exp.Select, span: Span) -> None:
    """Check that no expression aggregates, generates rows, or asks a query of its own."""
    for node in tree.walk():
        reason = _why_not(node) if node is not tree else None
        if reason:
            raise source.error(reason, source.span_of(node, source.span_of(node.parent or node, span)))


def _why_not(node: exp.Expr) -> str | None:
    """Say what is wrong with one node, if anything is."""
    if isinstance(node, exp.Query):
        return _refusal("a subquery")
    if isinstance(node, exp.Window):
        return _refusal("a window function (OVER)")
    if isinstance(node, (exp.Placeholder, exp.Parameter)):
        return "a parameter has no value here: write the value itself"
    return _wrong_call(node) or _wrong_comparison(node)


def _wrong_call(node: exp.Expr) -> str | None:
    """Refuse functions that do not give one value for one row."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if name in _AGGREGATES:
        return _refusal(f"the aggregate {name.upper()}")
    return _refusal(f"{name.upper()}, which makes rows,") if name in _GENERATORS else None


def _wrong_comparison(node: exp.Expr) -> str | None:
    """Refuse comparisons that engines read differently."""
    if type(node) not in MIRROR:
        return None
    sides = (node.this, node.expression)
    if any(isinstance(side, RANGE_TESTS) for side in sides):
        return f"brackets are needed to read {show(node)}: Spark and other engines group it differently"
    if any(isinstance(side.unnest(), exp.Tuple) for side in sides):
        return "lists of columns cannot be compared: write a.x = b.x AND a.y = b.y"
    return None


def tables(
    source: Source, tree: exp.Select, tokens: Sequence[Token], query: str
) -> tuple[exp.Table, exp.Table]:
    """Give the two streams of FROM, having checked that they are joined in a way we run."""
    _refuse_joins(source, tokens)
    origin = tree.args.get("from_")
    if not origin:
        raise source.error(f"query {query} reads no stream: {_SUPPORTED}", span_of_tokens(tokens))
    found = [origin.this, *(join.this for join in tree.args.get("joins") or [])]
    for each in found:
        _check_table(source, each, span_of_tokens(tokens))
    if len(found) == 1:
        span = source.span_of(found[0], span_of_tokens(tokens))
        raise source.error(f"{query} is a query with no join: name a second stream in FROM", span)
    if len(found) > len(("left", "right")):
        span = source.span_of(found[2], span_of_tokens(tokens))
        raise source.error(f"{query} joins {len(found)} streams: two are supported", span)
    return found[0], found[1]


def _check_table(source: Source, table: exp.Expr, default: Span) -> None:
    """Check that FROM names a stream and nothing more."""
    span = source.span_of(table, default)
    alias = table.args.get("alias")
    if isinstance(table, (exp.Subquery, exp.Lateral)):
        raise source.error(_refusal("a subquery in FROM"), span)
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise source.error(f"FROM names streams only: {_SUPPORTED}", span)
    more = [arg for arg, value in table.args.items() if value and arg not in _TABLE]
    if more or (alias and alias.args.get("columns")):
        raise source.error(f"this is not a stream and an alias: {_SUPPORTED}", span)


def _refuse_joins(source: Source, tokens: Sequence[Token]) -> None:
    """Refuse every join but the inner one; CROSS JOIN is an inner join whose conditions stand in WHERE."""
    for i, depth in enumerate(depths(tokens)):
        words = [source.words([token]).upper() for token in tokens[i : i + 3]]
        if depth == 0 and words[0] in _JOIN_WORDS and "JOIN" in words[1:]:
            name = " ".join(words[: words.index("JOIN") + 1])
            message = (
                f"{name} is not supported: joins are inner, written FROM A, B WHERE ... or A JOIN B ON ..."
            )
            raise source.error(message, (tokens[i].start, tokens[i + words.index("JOIN")].end + 1))


def find_word(source: Source, tokens: Sequence[Token], word: str) -> Span | None:
    """Find where a keyword stands outside brackets, skipping columns of that name."""
    for i, depth in enumerate(depths(tokens)):
        first = source.words([tokens[i]]).upper().split()[0]
        if depth == 0 and first == word and (i == 0 or tokens[i - 1].token_type != TokenType.DOT):
            return tokens[i].start, tokens[i].end + 1
    return None


def _refusal(what: str) -> str:
    return f"{what} is not supported: {_SUPPORTED}"
