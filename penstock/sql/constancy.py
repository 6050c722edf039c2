"""Whether a query's results are the same whenever they are computed: now, at every read, in another session.

Results that are only ever views over stored pairs are computed again at each read.  That is fine for ``l.a``, for
``l.x * 2.0`` on doubles or for a CASE of comparisons; not for ``rand()``, for a function of the user's, for ``l.a /
r.b`` (which may fail on some pair, or be null in a session without ANSI), or for a cast of a time to text.  So a text
is graded, and what is not known to be constant is taken not to be::

    ALWAYS     the same wherever and whenever it is computed, for every pair         may be computed at a read
    SESSION    the same for as long as a session's settings are, or an error         a plan of it may be used again
    ONCE       perhaps another value each time: randomness, clocks, users' functions

In:  bound texts over ``l.`` and ``r.`` columns, and the types of those columns.  Out: a `Constancy`.
A text that is not understood is `ONCE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp

from penstock.sql.dialect import PlainSpark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.sql.query import Query, Stream


class Constancy(IntEnum):
    """How far one may rely on computing the same value again."""

    ONCE = 0
    SESSION = 1
    ALWAYS = 2


@dataclass(frozen=True, slots=True)
class _Value:
    """What is known of an expression: its grade, and what kind of value it has where that matters.

    Kinds are ``whole``, ``floating`` (a DOUBLE), ``digits`` (a literal without a point) and ``number`` (one with),
    ``text``, ``boolean``, ``null``; the type itself for all others; empty where it does not follow from the text.
    """

    grade: Constancy
    kind: str = ""


_UNKNOWN = _Value(Constancy.ONCE)


@lru_cache(maxsize=4096)
def constancy_of(query: Query, left: Stream, right: Stream) -> Constancy:
    """Grade a query: what it selects, and its conditions on both rows."""
    types = {
        f"{side}.{column.name.lower()}": column.type
        for side, stream in (("l", left), ("r", right))
        for column in stream.columns
    }
    texts = [each.expression for each in query.outputs if each.column is None]
    return grade_texts([*texts, *query.residual], types)


def grade_texts(texts: Iterable[str], types: Mapping[str, str]) -> Constancy:
    """Grade expressions; the least constant one decides.

    >>> grade_texts(["l.x * 2 + r.x", "l.v > r.v"], {"l.x": "double", "r.x": "double", "l.v": "int", "r.v": "int"}).name
    'ALWAYS'
    >>> grade_texts(["l.v / r.v"], {"l.v": "int", "r.v": "int"}).name
    'SESSION'
    >>> grade_texts(["rand() < 0.5"], {}).name
    'ONCE'
    """
    return min((_grade_text(each, types) for each in texts), default=Constancy.ALWAYS)


def _grade_text(text: str, types: Mapping[str, str]) -> Constancy:
    """Grade one expression; how quotes and backslashes are read depends on settings."""
    try:
        trees = sqlglot.parse(text, dialect=PlainSpark)
        grade = _grade(trees[0], types).grade if len(trees) == 1 else Constancy.ONCE
    except (sqlglot.ParseError, sqlglot.TokenError, RecursionError):
        return Constancy.ONCE
    return min(grade, Constancy.SESSION) if {"\\", '"'} & set(text) else grade


def _grade(tree: object, types: Mapping[str, str]) -> _Value:
    """Grade a tree by what stands at its top, and by its parts."""
    if isinstance(tree, exp.Paren):
        return _grade(tree.this, types)
    if isinstance(tree, exp.Column):
        return _column(tree, types)
    if type(tree) in _CONSTANTS:
        return _Value(Constancy.ALWAYS, _CONSTANTS[type(tree)](tree))
    found = _PARTS[type(tree)](tree) if type(tree) in _PARTS else None
    return _UNKNOWN if found is None else _computed(tree, [_grade(each, types) for each in found])


def _computed(tree: object, parts: list[_Value]) -> _Value:
    """Grade what is computed from parts."""
    grade = min((each.grade for each in parts), default=Constancy.ALWAYS)
    rule = _RULES.get(type(tree))
    kind = rule(tree, [each.kind for each in parts]) if rule and grade == Constancy.ALWAYS else None
    return _Value(min(grade, Constancy.SESSION)) if kind is None else _Value(grade, kind)


def _column(tree: exp.Column, types: Mapping[str, str]) -> _Value:
    """Grade a column of either row, or a field of one; any other name may be a function without brackets."""
    first, name, *fields = (*(part.name for part in tree.parts), "")
    if first not in {"l", "r"} or not name or not isinstance(tree.parts[-1], exp.Identifier):
        return _UNKNOWN
    declared = types.get(f"{first}.{name.lower()}", "")
    return _Value(Constancy.ALWAYS, "" if len(fields) > 1 else _KINDS.get(declared, declared))


_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "whole"),
    "double": "floating",
    "string": "text",
}

_CONSTANTS: dict[type, Callable[[Any], str]] = {
    exp.Literal: lambda tree: "text" if tree.is_string else "digits" if tree.is_int else "number",
    exp.Boolean: lambda _: "boolean",
    exp.Null: lambda _: "null",
    exp.Var: lambda _: "",  # the word of an EXTRACT or an INTERVAL
}


def _branches(tree: exp.Case) -> list[object]:
    """List the parts of a CASE: what is asked about, conditions and values in turn, the default."""
    branches = [part for each in tree.args["ifs"] for part in (each.this, each.args["true"])]
    return [each for each in (tree.this, *branches, tree.args.get("default")) if each is not None]


def _arguments(tree: exp.Anonymous) -> list[object] | None:
    """List the arguments of a function, if it is known."""
    return list(tree.expressions) if str(tree.this).lower() in _FUNCTIONS else None


_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_OPERATORS = (
    *_COMPARISONS, exp.And, exp.Or, exp.Not, exp.Is, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv,
    exp.DPipe, exp.Like, exp.ILike, exp.RegexpLike, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot,
    exp.Between, exp.If, exp.Substring, exp.Trim, exp.Extract, exp.Bracket, exp.Interval, exp.StrPosition, exp.Overlay,
)  # fmt: skip

_PARTS: dict[type, Callable[[Any], list[object] | None]] = {
    **dict.fromkeys(_OPERATORS, lambda tree: list(tree.iter_expressions())),
    **dict.fromkeys((exp.Cast, exp.TryCast), lambda tree: [tree.this]),
    exp.Case: _branches,
    exp.In: lambda tree: [tree.this, *tree.expressions] if tree.expressions else None,
    exp.Anonymous: _arguments,
}
"""What is known, and the parts it is made of; None for what is not known after all."""


def _case(tree: exp.Case, kinds: list[str]) -> str | None:
    """Give the kind of a CASE: of all its branches, if its conditions are conditions."""
    asked = kinds.pop(0) if tree.this is not None else None
    count = len(tree.args["ifs"])
    tested, branches = kinds[: 2 * count : 2], [*kinds[1 : 2 * count : 2], *kinds[2 * count :]]
    valid = _are(tested, "boolean") if asked is None else _common([asked, *tested])
    return _common(branches) if valid else None


def _arithmetic(tree: object, kinds: list[str]) -> str | None:
    """Give the kind of a sum, a product or a negative: never fails on floating numbers."""
    literal = isinstance(tree, exp.Neg) and kinds[0] in {"digits", "number"}
    return kinds[0] if literal else _floating(kinds)


def _function(tree: exp.Anonymous, kinds: list[str]) -> str | None:
    """Give the kind of what a function gives."""
    rule = _STEADFAST.get(str(tree.this).lower())
    return rule(kinds) if rule else None


def _are(kinds: Iterable[str], kind: str) -> bool:
    """Say whether all are of a kind, or null."""
    return set(kinds) <= {kind, "null"}


_RULES: dict[type, Callable[[Any, list[str]], str | None]] = {
    **dict.fromkeys(
        (*_COMPARISONS, exp.Between, exp.In), lambda _, kinds: "boolean" if _common(kinds) else None
    ),
    **dict.fromkeys(
        (exp.And, exp.Or, exp.Not), lambda _, kinds: "boolean" if _are(kinds, "boolean") else None
    ),
    **dict.fromkeys((exp.Neg, exp.Add, exp.Sub, exp.Mul), _arithmetic),
    **dict.fromkeys(
        (exp.Cast, exp.TryCast),
        lambda tree, kinds: (
            _floating([*kinds, "floating"]) if tree.to.this == exp.DataType.Type.DOUBLE else None
        ),
    ),
    exp.Is: lambda tree, _: "boolean" if isinstance(tree.expression, exp.Null | exp.Boolean) else None,
    exp.If: lambda _, kinds: _common(kinds[1:]) if _are(kinds[:1], "boolean") else None,
    exp.DPipe: lambda _, kinds: "text" if _are(kinds, "text") else None,
    exp.Case: _case,
    exp.Anonymous: _function,
}
"""The kind of what is computed from parts that are always the same; None if it is not always the same itself."""


def _common(kinds: Iterable[str]) -> str | None:
    """Give the kind that values are compared as, if that needs no setting and cannot fail.

    >>> _common(["whole", "digits"]), _common(["floating", "number", "null"]), _common(["text", "whole"])
    ('whole', 'floating', None)
    """
    found = set(kinds) - {"null"}
    if not found:
        return "null"
    if len(found) == 1:
        return found.pop() or None
    if found <= {"whole", "digits"}:
        return "whole"
    if found <= {"digits", "number"}:
        return "number"
    return _floating(found)


def _floating(kinds: Iterable[str]) -> str | None:
    """Say whether arithmetic on some kinds is done in floating numbers, which never fails.

    What a FLOAT becomes together with a whole number depends on whether the session is in ANSI mode.
    """
    found = set(kinds) - {"null"}
    fits = found <= {"floating", "whole", "digits", "number"} or found == {"floating", "float"}
    if "floating" in found and fits:
        return "floating"
    return "float" if found == {"float"} else None


_STEADFAST: dict[str, Callable[[list[str]], str | None]] = {
    **dict.fromkeys(("coalesce", "ifnull", "nvl", "nullif", "greatest", "least"), _common),
    "abs": _floating,
    "concat": lambda kinds: "text" if _are(kinds, "text") else None,
    **dict.fromkeys(
        ("length", "char_length", "character_length"),
        lambda kinds: "whole" if _are(kinds, "text") else None,
    ),
}
"""Functions that are constant for some kinds of arguments, and what they give then."""


_STEADY = """
    acos acosh add_months array array_contains array_distinct array_except array_intersect array_join array_max
    array_min array_position array_remove array_sort array_union arrays_overlap arrays_zip ascii asin asinh atan
    atan2 atanh base64 bin bit_count bit_length bround btrim cardinality cbrt ceil ceiling chr concat_ws
    contains conv cos cosh cot crc32 date_add date_diff date_format date_from_unix_date date_part date_sub
    date_trunc datediff day dayofmonth dayofweek dayofyear decode degrees div element_at elt encode endswith exp
    explode factorial find_in_set flatten floor format_number format_string from_json from_unixtime
    from_utc_timestamp get get_json_object getbit greatest hash hex hour hypot initcap instr isnan isnotnull
    isnull json_tuple last_day lcase left levenshtein ln locate log log10 log1p log2 lower lpad ltrim make_date
    make_interval make_timestamp map map_entries map_from_arrays map_from_entries map_keys map_values mask md5
    minute mod month months_between named_struct nanvl negative next_day nvl2 octet_length overlay parse_url
    pmod position positive pow power printf quarter radians regexp_extract regexp_extract_all regexp_like
    regexp_replace regexp_substr repeat replace reverse right rint round rpad rtrim second sequence sha sha1
    sha2 shiftleft shiftright sign signum sin sinh size slice sort_array soundex space split split_part sqrt
    startswith str_to_map struct substr substring substring_index tan tanh timestamp_micros timestamp_millis
    timestamp_seconds to_char to_date to_json to_number to_timestamp to_unix_timestamp to_utc_timestamp
    translate trim trunc try_add try_divide try_element_at try_multiply try_subtract try_to_number
    try_to_timestamp ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds upper url_decode
    url_encode weekday weekofyear xxhash64 year
"""
_FUNCTIONS: frozenset[str] = frozenset(_STEADY.split()) | set(_STEADFAST)
"""Functions that give the same value for the same arguments, in one session."""
