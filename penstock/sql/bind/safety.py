"""Expressions that cannot fail, whatever the data, and expressions that may be evaluated again.

Spark (ANSI) raises an error where a sum overflows, where a cast meets a text that is no number, or where a division
meets a zero.  It evaluates ``a AND b`` from the left, so that a may guard b.  An expression that cannot fail needs no
guard.  It may be evaluated for every row, in any order, and shared by all queries.  Any other expression is evaluated
only where its own query would evaluate it.

The expressions that cannot fail are a short list: columns and literals, comparisons that Spark need not cast with a
risk, tests for NULL, LIKE with a plain pattern, AND, OR and NOT of those, arithmetic of floating numbers, and a few
functions.

In:  a tree, and the declared types of its columns.
Out: whether it can fail (`cannot_fail`), and whether it has the same value again (`Constancy`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from enum import IntEnum
from functools import lru_cache
from itertools import combinations

from penstock.sql.query import Query, Stream, is_side, sides_for
from penstock.sql.spark_types import (
    FLOATING_TYPES,
    TIME_TYPES,
    WHOLE_TYPES,
    SparkType,
    common_type,
    known_type,
    never_fails,
)
from penstock.sql.text.parser import parse_text
from penstock.sql.text.tree import (
    ColumnRef,
    Constant,
    Form,
    Name,
    Tree,
    cast_type,
    folded,
    nodes,
    quoted,
    rebuilt,
    unwrapped,
)

Types = Callable[[ColumnRef], str]
"""How to look up the type of a column."""

_COMPARISON_WORDS = "= == <> != < <= !> > >= !< <=> BETWEEN IN"
_INT_DIGITS, _LONG_DIGITS = 9, 18
"""The digits that fit into every INT and every BIGINT."""
_DAY = re.compile(r"'[0-9]{4}-[0-9]{2}-[0-9]{2}'")


def cannot_fail(tree: Tree, type_of: Types) -> bool:
    """Check whether a tree has a value for every row."""
    return bool(folded(tree, lambda node, kinds: _safe_type(node, kinds, type_of)))


def _safe_type(node: Tree, kinds: list[str], type_of: Types) -> str:
    """Return the type of a node that cannot fail; empty if it may fail.  `kinds` are the types of its trees."""
    if isinstance(node, ColumnRef):
        return type_of(node)
    if isinstance(node, Constant):
        return _literal(node)
    rule = _RULES.get(node.head) if isinstance(node, Form) and is_unqualified(node) else None
    if not rule or not isinstance(node, Form):
        return ""
    known = all(
        kind or isinstance(unwrapped(part), Constant) for kind, part in zip(kinds, node.trees, strict=True)
    )
    return rule(node, kinds) if known else ""


def _literal(constant: Constant) -> str:
    """Return the type of a literal; empty if only Spark can determine it."""
    text = constant.text.lstrip("-")
    if constant.kind == "string":
        return "string"
    if constant.kind == "number" and text.isdecimal():
        return "int" if len(text) <= _INT_DIGITS else "bigint" if len(text) <= _LONG_DIGITS else ""
    if constant.kind == "number" and re.fullmatch(r"[0-9]*\.[0-9]+|[0-9]+\.", text):
        digits, scale = len(text.replace(".", "").lstrip("0")), len(text.partition(".")[2])
        return f"decimal({max(digits, scale, 1)},{scale})"
    if constant.kind == "number" and re.fullmatch(r"[0-9.]+e[+-]?[0-9]{1,2}", text, re.IGNORECASE):
        return "double"
    if constant.kind == "typed" and text.startswith("DATE ") and _is_day(text.removeprefix("DATE ")):
        return "date"
    words = {"TRUE": "boolean", "FALSE": "boolean", "NULL": "void"}
    return words.get(text, "") if constant.kind == "word" else ""


def _is_day(text: str) -> bool:
    try:
        return bool(_DAY.fullmatch(text) and date.fromisoformat(text[1:-1]))
    except ValueError:
        return False


def is_unqualified(tree: Form) -> bool:
    """Check that a call names no database: ``x.length(s)`` may be any function."""
    return not tree.head.endswith("(") or tree.parts[0] in {tree.head, "("}


def _first(_: Form, kinds: list[str]) -> str:
    return kinds[0]


def _truth(_: Form, kinds: list[str]) -> str:
    return "boolean" if set(kinds) <= {"boolean", "void"} else ""


def _boolean(_: Form, kinds: list[str]) -> str:
    return "boolean" if all(kinds) else ""


def _compared(tree: Form, kinds: list[str]) -> str:
    return "boolean" if _comparable(kinds, tree.trees) else ""


def _like(tree: Form, kinds: list[str]) -> str:
    """Accept LIKE with a pattern without escapes."""
    pattern = tree.trees[1]
    plain = (
        isinstance(pattern, Constant) and "\\" not in pattern.text and isinstance(tree.parts[-1], Constant)
    )
    return "boolean" if plain and kinds == ["string", "string"] else ""


def _sum(_: Form, kinds: list[str]) -> str:
    """Add floating numbers, which do not overflow; beside one of them, decimals become floating too."""
    numbers = _are_numbers([kind for kind in kinds if not kind.startswith("decimal")])
    return "double" if numbers and any(kind in FLOATING_TYPES for kind in kinds) else ""


def _quotient(tree: Form, kinds: list[str]) -> str:
    """Accept a division by a literal other than zero."""
    divisor = unwrapped(tree.trees[1])
    divides = isinstance(divisor, Constant) and divisor.kind == "number" and _is_not_zero(divisor.text)
    if not divides or not _are_numbers(kinds):
        return ""
    return "double" if tree.head == "/" or any(kind in FLOATING_TYPES for kind in kinds) else "bigint"


def _is_not_zero(number: str) -> bool:
    """Check that a literal is not zero, also after rounding: ``1e-400`` is zero."""
    try:
        return float(number.rstrip("LlSsYyDdFfBb")) != 0
    except ValueError:
        return False


def _are_numbers(kinds: list[str]) -> bool:
    return set(kinds) <= {*WHOLE_TYPES, *FLOATING_TYPES}


def _function(tree: Form, kinds: list[str]) -> str:
    """Return the type of a function that has a value, or NULL, for all arguments of these types."""
    result, *signatures = _FUNCTIONS[tree.head[:-1]]
    return result if " ".join(kinds) in signatures else ""


_FUNCTIONS = {
    **dict.fromkeys(("LOWER", "UPPER", "TRIM", "LTRIM", "RTRIM", "REVERSE"), ("string", "string")),
    **dict.fromkeys(("SUBSTRING", "SUBSTR"), ("string", "string int", "string int int")),
    **dict.fromkeys(("LEFT", "RIGHT"), ("string", "string int")),
    "GET_JSON_OBJECT": ("string", "string string"),
    "CONCAT": ("string", "string string", "string string string"),
    **dict.fromkeys(("LENGTH", "CHAR_LENGTH"), ("int", "string")),
    **dict.fromkeys(("INSTR", "LOCATE"), ("int", "string string")),
    **dict.fromkeys(("STARTSWITH", "ENDSWITH", "CONTAINS"), ("boolean", "string string")),
    **dict.fromkeys(("YEAR", "MONTH", "DAY", "DAYOFMONTH", "DAYOFWEEK"), ("int", "date", "timestamp")),
    **dict.fromkeys(("HOUR", "MINUTE", "SECOND"), ("int", "timestamp")),
    "ABS": ("double", "double"),  # of whole numbers it may overflow
    "ISNAN": ("boolean", "float", "double"),
}
"""Functions that cannot fail: the type of the result, then the types of the arguments."""


def _same(_: Form, kinds: list[str]) -> str:
    return kinds[0] if len(set(kinds)) == 1 else ""


def _greatest(_: Form, kinds: list[str]) -> str:
    """Return the common type of numbers."""
    numbers = set(kinds)
    if numbers <= set(WHOLE_TYPES):
        return max(numbers, key=WHOLE_TYPES.index)
    return "double" if numbers <= {*WHOLE_TYPES, "double"} else ""


def _texts(_: Form, kinds: list[str]) -> str:
    return "string" if set(kinds) == {"string"} else ""


def _if(_: Form, kinds: list[str]) -> str:
    return _branches(kinds[:1], kinds[1:])


def _case(tree: Form, kinds: list[str]) -> str:
    """Return the type of CASE: its conditions are boolean, or the compared values have one type."""
    asked = tree.parts[1] == " "
    values = [index for index, part in enumerate(_words(tree)) if part in {" THEN ", " ELSE "}]
    tested = [kind for index, kind in enumerate(kinds) if index not in values]
    if asked:
        tested = ["boolean"] if len(set(tested)) == 1 else [""]
    return _branches(tested, [kinds[index] for index in values])


def _words(tree: Form) -> list[str]:
    """List the word before each of a form's trees."""
    return [
        str(before)
        for before, part in zip(tree.parts, tree.parts[1:], strict=False)
        if not isinstance(part, str)
    ]


def _branches(tested: list[str], values: list[str]) -> str:
    """Return the type that all values have, if the conditions are boolean."""
    types = set(values) - {"void"}
    return types.pop() if set(tested) <= {"boolean", "void"} and len(types) == 1 else ""


def _cast(tree: Form, kinds: list[str]) -> str:
    """Accept a cast to a type that every value fits in."""
    source, target = known_type(kinds[0]), known_type(cast_type(tree))
    return str(target) if source and target and never_fails(source, target) else ""


_RULES: dict[str, Callable[[Form, list[str]], str]] = {
    "(": _first,
    **dict.fromkeys(("AND", "OR", "NOT"), _truth),
    **dict.fromkeys(
        (f"IS {no}{word}" for no in ("", "NOT ") for word in ("TRUE", "FALSE", "UNKNOWN")), _truth
    ),
    **dict.fromkeys(("IS NULL", "IS NOT NULL", "ISNULL(", "ISNOTNULL("), _boolean),
    **dict.fromkeys(_COMPARISON_WORDS.split(), _compared),
    **dict.fromkeys(("IS DISTINCT FROM", "IS NOT DISTINCT FROM", "NOT BETWEEN", "NOT IN"), _compared),
    **dict.fromkeys(("LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"), _like),
    **dict.fromkeys(("NEG", "+", "-", "*"), _sum),
    **dict.fromkeys(("/", "%"), _quotient),
    **dict.fromkeys((f"{name}(" for name in _FUNCTIONS), _function),
    **dict.fromkeys(("GREATEST(", "LEAST("), _greatest),
    "||": _texts,
    "IF(": _if,
    "CASE": _case,
    **dict.fromkeys(("COALESCE(", "NVL(", "IFNULL("), _same),
    **dict.fromkeys(("CAST(", "::"), _cast),
}
"""How to find the type of each form that cannot fail; each rule gets the form and the types of its trees."""


def _comparable(kinds: list[str], trees: tuple[Tree, ...]) -> bool:
    """Check whether Spark compares values without a cast that may fail."""
    if _are_days(kinds, trees):
        return True
    types = [known_type(kind) for kind in sorted(set(kinds) - {"void"})]
    known = [kind for kind in types if kind and not kind.holds("map", "variant")]
    return len(known) == len(types) and all(
        one.name == other.name == "string" or _both_widen(one, other) for one, other in combinations(known, 2)
    )


def _both_widen(one: SparkType, other: SparkType) -> bool:
    """Check whether every value of two numbers fits in their common type."""
    if not {one.name, other.name} <= {*WHOLE_TYPES, *FLOATING_TYPES, "decimal"}:
        return False
    common = known_type(common_type(str(one), str(other)) or "void")
    return bool(common and never_fails(one, common) and never_fails(other, common))


def _are_days(kinds: list[str], trees: tuple[Tree, ...]) -> bool:
    """Check whether a date or timestamp is compared with literals that are valid dates."""
    value, *literals = (unwrapped(tree) for tree in trees)
    days = (
        isinstance(literal, Constant) and _is_day(literal.text.removeprefix("DATE ")) for literal in literals
    )
    return kinds[0] in TIME_TYPES and not isinstance(value, Constant) and all(days)


_STRICT_WORDS = "( = <> < <= > >= + - * / % DIV NEG :: . [ NOT"
_STRICT_FORMS = frozenset(_STRICT_WORDS.split())
"""Forms that evaluate all their trees."""
_LAZY_FUNCTIONS = frozenset({"IF(", "IFF(", "COALESCE(", "NVL(", "NVL2(", "IFNULL(", "NULLIF(", "DECODE("})
"""Functions that do not evaluate all their arguments."""


@lru_cache(maxsize=4096)
def always_succeeds(text: str, stream: Stream) -> bool:
    """Check whether an expression has a value for every row of a stream."""
    tree = _parsed(text, stream)
    return tree is not None and _succeeds(tree, stream)


@lru_cache(maxsize=4096)
def guards_nothing(text: str, stream: Stream) -> bool:
    """Check whether Spark evaluates all parts of an expression for every row, so that no part guards another.

    ``f(s) > 5`` guards nothing, even if f may fail.  ``x = 0 OR 10 / x > 1`` has a guard, and so has ``y > 10 / x``:
    where y is NULL, Spark does not evaluate x.
    """
    tree = _parsed(text, stream)
    while isinstance(tree, Form) and not _succeeds(tree, stream):
        if not (tree.head in _STRICT_FORMS or (tree.head.endswith("(") and tree.head not in _LAZY_FUNCTIONS)):
            return False
        operands = tree.trees or (Constant("NULL"),)
        if not all(isinstance(operand, Constant) for operand in operands[1:]):
            return all(_succeeds(operand, stream) for operand in operands)
        tree = operands[0]
    return tree is not None


def _parsed(text: str, stream: Stream) -> Tree | None:
    """Read a text with its names as columns of a stream; None if it cannot be read."""
    tree = parse_text(text)
    return None if tree is None else rebuilt(tree, lambda node: _column(node, stream))


def _column(node: Tree, stream: Stream) -> Tree:
    column = stream.column(node.parts[0]) if isinstance(node, Name) and len(node.parts) == 1 else None
    return ColumnRef("l", column.name) if column else node


def _succeeds(tree: Tree, stream: Stream) -> bool:
    return cannot_fail(tree, lambda column: stream.type_of(column.name))


class Constancy(IntEnum):
    """When an expression has the same value again: never for sure, within one session, or always."""

    ONCE = 0
    SESSION = 1
    ALWAYS = 2


@lru_cache(maxsize=4096)
def constancy_of(query: Query, streams: tuple[Stream, ...]) -> Constancy:
    """Return the constancy of a query: of its outputs, and of its conditions on pairs."""
    types = {
        f"{side}.{column.name.lower()}": column.type
        for side, stream in zip(sides_for(len(streams)), streams, strict=True)
        for column in stream.columns
    }
    texts = [output.expression for output in query.outputs if output.column is None]
    return grade_texts([*texts, *query.residual], types)


def grade_texts(texts: Iterable[str], types: Mapping[str, str]) -> Constancy:
    """Return the constancy of the least constant expression.

    >>> grade_texts(["l.x * 2 + r.x", "l.v > r.v"], {"l.x": "double", "r.x": "double", "l.v": "int", "r.v": "int"}).name
    'ALWAYS'
    >>> grade_texts(["l.v / r.v"], {"l.v": "int", "r.v": "int"}).name
    'SESSION'
    >>> grade_texts(["rand() < 0.5"], {}).name
    'ONCE'
    """
    return min((_grade_text(text, types) for text in texts), default=Constancy.ALWAYS)


def _grade_text(text: str, types: Mapping[str, str]) -> Constancy:
    columns: dict[ColumnRef, str] = {}
    written = parse_text(text)
    if written is None:
        return Constancy.ONCE
    tree = rebuilt(written, lambda node: _column_constancy(node, types, columns))
    if not is_steady(tree):
        return Constancy.ONCE
    # settings decide how backslashes and double quotes are read
    plain = not {"\\", '"'} & set(text) and not any(_goes_by_settings(node, columns) for node in nodes(tree))
    has_value = not isinstance(tree, Form) or cannot_fail(tree, columns.__getitem__)
    return Constancy.ALWAYS if plain and has_value else Constancy.SESSION


def _column_constancy(node: Tree, types: Mapping[str, str], columns: dict[ColumnRef, str]) -> Tree:
    """Replace a name, with its fields, by a column, and note its type."""
    if not isinstance(node, Name) or not is_side(node.parts[0]) or len(node.parts) == 1:
        return node
    side, name, *fields = node.parts
    column = ColumnRef(side, ".".join(map(quoted, (name.lower(), *fields))))
    kind = known_type(types.get(f"{side}.{name.lower()}", ""), *fields)
    columns[column] = str(kind) if kind else ""
    return column


def is_steady(tree: Tree) -> bool:
    """Check whether a tree has the same value for the same columns, within one session."""
    return all(map(_is_steady, nodes(tree)))


def _is_steady(node: Tree) -> bool:
    """Check whether a node depends on its parts only; a name that is no column may be a function."""
    if isinstance(node, Form):
        return node.head in _STEADY_FORMS or (
            node.head[:-1].lower() in _STEADY_FUNCTIONS and is_unqualified(node)
        )
    return isinstance(node, ColumnRef) or (isinstance(node, Constant) and node.kind != "variable")


def _goes_by_settings(node: Tree, columns: Mapping[ColumnRef, str]) -> bool:
    """Check whether the value of a node may depend on session settings; comparing two times does not."""
    if isinstance(node, Constant):
        return node.kind == "typed" and not node.text.startswith("DATE ")
    if not isinstance(node, Form):
        return False
    kinds = {columns[part] for part in node.trees if isinstance(part, ColumnRef)}
    alike = (
        len(kinds) == 1
        and all(isinstance(part, ColumnRef) for part in node.trees)
        and node.head in _COMPARISONS
    )
    delicate = any(kind.startswith(_DELICATE_TYPES) for kind in kinds)
    return node.head[:-1] in _FUNCTIONS_BY_SETTINGS or (delicate and not alike)


_COMPARISONS = frozenset({*_COMPARISON_WORDS.split(), "IS NULL", "IS NOT NULL"})
_DELICATE_TYPES = ("timestamp", "float", "char", "varchar")
"""Types whose values depend on the session's zone, on its ANSI mode, or on a declared length."""
_NAMES_BY_SETTINGS = "LOWER UPPER YEAR MONTH DAY DAYOFMONTH DAYOFWEEK HOUR MINUTE SECOND"
_FUNCTIONS_BY_SETTINGS = frozenset(_NAMES_BY_SETTINGS.split())

_STEADY_WORDS = """
    ( NEG POS ~ . [ :: || = == <> != < <= !> > >= !< <=> + - * / % DIV & | ^ << >> >>> AND OR NOT CASE CAST( TRY_CAST(
    BETWEEN IN LIKE ILIKE RLIKE REGEXP EXTRACT( OVERLAY( POSITION( IF( IFF(
"""
_TESTS = ("BETWEEN", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP")
_STEADY_FORMS = frozenset(
    (
        *_STEADY_WORDS.split(),
        *(f"NOT {test}" for test in _TESTS),
        *(
            f"IS {no}{word}"
            for no in ("", "NOT ")
            for word in ("NULL", "TRUE", "FALSE", "UNKNOWN", "DISTINCT FROM")
        ),
    )
)
"""Forms other than calls that have the same value for the same trees, within one session."""

_STEADY_NAMES = """
    abs acos acosh add_months array array_contains array_distinct array_except array_intersect array_join array_max
    array_min array_position array_remove array_sort array_union arrays_overlap arrays_zip ascii asin asinh atan
    atan2 atanh base64 bin bit_count bit_length bround btrim cardinality cbrt ceil ceiling char_length
    character_length chr coalesce concat concat_ws contains conv cos cosh cot crc32 date_add date_diff date_format
    date_from_unix_date date_part date_sub date_trunc datediff day dayofmonth dayofweek dayofyear decode degrees div
    element_at elt encode endswith exp explode factorial find_in_set flatten floor format_number format_string
    from_json from_unixtime from_utc_timestamp get get_json_object getbit greatest hash hex hour hypot ifnull
    initcap instr isnan isnotnull isnull json_tuple last_day lcase least left length levenshtein ln locate log log10
    log1p log2 lower lpad ltrim make_date make_interval make_timestamp map map_entries map_from_arrays
    map_from_entries map_keys map_values mask md5 minute mod month months_between named_struct nanvl negative
    next_day nullif nvl nvl2 octet_length overlay parse_url pmod position positive pow power printf quarter radians
    regexp_extract regexp_extract_all regexp_like regexp_replace regexp_substr repeat replace reverse right rint
    round rpad rtrim second sequence sha sha1 sha2 shiftleft shiftright sign signum sin sinh size slice sort_array
    soundex space split split_part sqrt startswith str_to_map struct substr substring substring_index tan tanh
    timestamp_micros timestamp_millis timestamp_seconds timestampadd timestampdiff to_char to_date to_json
    to_number to_timestamp to_unix_timestamp to_utc_timestamp translate trim trunc try_add try_divide
    try_element_at try_multiply try_subtract try_to_number try_to_timestamp ucase unbase64 unhex unix_date unix_micros
    unix_millis unix_seconds upper url_decode url_encode weekday weekofyear xxhash64 year
"""
_STEADY_FUNCTIONS = frozenset(_STEADY_NAMES.split())
"""Functions that return the same value for the same arguments, within one session."""
