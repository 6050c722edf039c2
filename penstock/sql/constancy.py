"""Whether a query's results are the same whenever they are computed: now, at every read, in another session.

Results that are only ever views over stored pairs are computed again at each read.  That is fine for ``l.a``, for
``l.x * 2.0`` on doubles or for a CASE of comparisons; not for ``rand()``, for a function of the user's, for ``l.a /
r.b`` (which may fail on some pair, or be null in a session without ANSI), or for a cast of a time to text.  So a text
is graded, and what is not known to be constant is taken not to be::

    ALWAYS     the same wherever and whenever it is computed, for every pair         may be computed at a read
    SESSION    the same for as long as a session's settings are, or an error         a plan of it may be used again
    ONCE       perhaps another value each time: randomness, clocks, users' functions

In:  bound texts over the columns of sides, and the types of those columns.  Out: a `Constancy`.
A text that is not understood is `ONCE`.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.sql.graph import is_side, sides_for
from penstock.sql.text.parser import parse_text
from penstock.sql.bind.safety import cannot_fail, is_unqualified
from penstock.sql.spark_types import type_of_field
from penstock.sql.text.tree import Column, Constant, Form, Name, nodes, quoted, rebuilt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.sql.query import Query, Stream
    from penstock.sql.text.tree import Tree


class Constancy(IntEnum):
    """How far one may rely on computing the same value again."""

    ONCE = 0
    SESSION = 1
    ALWAYS = 2


@lru_cache(maxsize=4096)
def constancy_of(query: Query, streams: tuple[Stream, ...]) -> Constancy:
    """Grade a query: what it selects, and its conditions on its rows."""
    types = {
        f"{side}.{column.name.lower()}": column.type
        for side, stream in zip(sides_for(len(streams)), streams, strict=True)
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
    columns: dict[Column, str] = {}
    written = parse_text(text)
    if written is None:
        return Constancy.ONCE
    tree = rebuilt(written, lambda node: _column(node, types, columns))
    if not is_steady(tree):
        return Constancy.ONCE
    # how backslashes and double quotes are read depends on settings
    plain = not {"\\", '"'} & set(text) and not any(_goes_by_settings(node, columns) for node in nodes(tree))
    return Constancy.ALWAYS if plain and _has_value(tree, columns) else Constancy.SESSION


def _column(node: Tree, types: Mapping[str, str], columns: dict[Column, str]) -> Tree:
    """Make a column of the name of one, or of a field of one, and note its type."""
    if not isinstance(node, Name) or not is_side(node.parts[0]) or len(node.parts) == 1:
        return node
    side, name, *fields = node.parts
    column = Column(side, ".".join(map(quoted, (name.lower(), *fields))))
    columns[column] = type_of_field(types.get(f"{side}.{name.lower()}", ""), fields)
    return column


def is_steady(tree: Tree) -> bool:
    """Say whether a tree gives the same for the same columns, in one session."""
    return all(map(_is_steady, nodes(tree)))


def _is_steady(node: Tree) -> bool:
    """Say whether a node gives the same for the same parts; any name that is no column may be a function."""
    if isinstance(node, Form):
        return node.head in _STEADY_FORMS or (
            node.head[:-1].lower() in _STEADY_FUNCTIONS and is_unqualified(node)
        )
    return isinstance(node, Column) or (isinstance(node, Constant) and node.kind != "variable")


def _has_value(tree: Tree, columns: Mapping[Column, str]) -> bool:
    """Say whether a tree has a value for every pair; a column or literal has one, also where its type is not known."""
    return not isinstance(tree, Form) or cannot_fail(tree, columns.__getitem__)


def _goes_by_settings(node: Tree, columns: Mapping[Column, str]) -> bool:
    """Say whether the value of a node may depend on a session's settings; times among themselves do not."""
    if isinstance(node, Constant):
        return node.kind == "typed" and not node.text.startswith("DATE ")
    if not isinstance(node, Form):
        return False
    kinds = {columns[each] for each in node.trees if isinstance(each, Column)}
    alike = (
        len(kinds) == 1 and all(isinstance(each, Column) for each in node.trees) and node.head in _COMPARISONS
    )
    delicate = any(each.startswith(_DELICATE_TYPES) for each in kinds)
    return node.head[:-1] in _FUNCTIONS_BY_SETTINGS or (delicate and not alike)


_COMPARISONS = (
    "=",
    "==",
    "<>",
    "!=",
    "<",
    "<=",
    "!>",
    ">",
    ">=",
    "!<",
    "<=>",
    "BETWEEN",
    "IN",
    "IS NULL",
    "IS NOT NULL",
)
_DELICATE_TYPES = ("timestamp", "float", "char", "varchar")
"""Types whose values become others by the session's zone, its ANSI mode, or the length they were declared with."""
_FUNCTIONS_BY_SETTINGS = (
    "LOWER",
    "UPPER",
    "YEAR",
    "MONTH",
    "DAY",
    "DAYOFMONTH",
    "DAYOFWEEK",
    "HOUR",
    "MINUTE",
    "SECOND",
)

_STEADY_WORDS = """
    ( NEG POS ~ . [ :: || = == <> != < <= !> > >= !< <=> + - * / % DIV & | ^ << >> >>> AND OR NOT CASE CAST( TRY_CAST(
    BETWEEN IN LIKE ILIKE RLIKE REGEXP EXTRACT( OVERLAY( POSITION( IF( IFF(
"""
_TESTS = ("BETWEEN", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP")
_STEADY_FORMS = frozenset(
    (
        *_STEADY_WORDS.split(),
        *(f"NOT {each}" for each in _TESTS),
        *(
            f"IS {no}{word}"
            for no in ("", "NOT ")
            for word in ("NULL", "TRUE", "FALSE", "UNKNOWN", "DISTINCT FROM")
        ),
    )
)
"""Forms other than calls that give the same value for the same parts, in one session."""

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
"""Functions that give the same value for the same arguments, in one session."""
