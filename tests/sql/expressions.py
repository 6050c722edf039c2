"""Random expressions of Spark SQL over two streams, in every syntax, oddly spaced and spelled.

They have types, so that Spark accepts nearly all of them.  `expressions(kind)` draws one; `KINDS` are the types.
"""

# ruff: noqa: E501, ISC004 - a list of texts

from __future__ import annotations

from hypothesis import strategies as st

from penstock.sql.query import Column, Stream

TYPES = {
    "A": {
        "k": "bigint", "ts": "timestamp", "n": "int", "v": "double", "s": "string", "flag": "boolean", "day": "date",
        "tags": "array<int>", "attrs": "map<string,int>", "place": "struct<City:string,zip:int>", "a.b": "int",
        "order": "string", "amount": "decimal(10,2)",
    },
    "B": {
        "j": "bigint", "at": "timestamp", "m": "int", "w": "double", "t": "string", "ok": "boolean", "date": "date",
        "list": "array<int>", "it`s": "string", "x y": "int",
    },
}  # fmt: skip
STREAMS = {
    name: Stream(name, tuple(Column(*each) for each in columns.items()), {"A": "ts", "B": "at"}[name])
    for name, columns in TYPES.items()
}
ROWS = (
    "1L, TIMESTAMP'2024-05-06 07:08:09', 7, 1.5D, 'abc', true, DATE'2024-02-29', array(1, 2, 3), map('a', 1), "
    "named_struct('City', 'Oslo', 'zip', 5), 4, 'z', 12.34BD, 1L, TIMESTAMP'2024-05-06 07:00:00', 3, -2.5D, 'b%', false, "
    "DATE'2024-03-01', array(3, 1, 2), 'q', 9",
    "2L, TIMESTAMP'1969-12-31 23:59:59', 0, 0D, '', false, DATE'1970-01-01', array(5, 0, NULL), map('b', 2, 'a', 0), "
    "named_struct('City', NULL, 'zip', 0), -1, 'A', 0BD, 2L, TIMESTAMP'2024-05-06 07:00:00', 1, 3D, 'abc', true, "
    "DATE'2024-02-28', array(0, 0, 7), '', 2",
    "3L, TIMESTAMP'2024-05-06 07:08:09', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 3L, "
    "TIMESTAMP'2024-05-06 07:08:09', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
)
"""Values of all columns of A, then of B, as Spark SQL."""

COLUMNS = {
    "number": [
        "A.n",
        "a.N",
        "n",
        "B.m",
        "m",
        "A.`a.b`",
        "B.`x y`",
        "`x y`",
        "A.place.zip",
        "place.ZIP",
        "A.k",
        "B.j",
        "k",
    ],
    "double": ["A.v", "v", "B.w", "b . w", "w"],
    "text": ["A.s", "s", "B.t", "A.order", "A.`order`", "B.`it``s`", "`it``s`", "A.place.City", "t"],
    "truth": ["A.flag", "flag", "B.ok"],
    "day": ["A.day", "B.date", "B.`date`"],
    "time": ["A.ts", "B.at", "ts"],
    "list": ["A.tags", "B.list", "tags"],
}
KINDS = tuple(COLUMNS)
LITERALS = {
    "number": ["1", "-2", "3L", "0Y", "7S", "- 5", "+1", "12"],
    "double": ["1.5D", "1e3", "-2.5e-1", ".5F", "1.D", "2E0D"],
    "text": ["'x'", '"y"', "'it''s'", '"a""b"', r"'a\'b'", r"r'\d+'", "'a' 'b'", r"'\u0041'", "'%_'", "''", 'R"\\"', "'--x'",
             "'/* no */'", "'A.n'", "'`'"],
    "truth": ["true", "FALSE", "(1 = 1)"],
    "day": ["DATE'2024-01-31'", 'date "2024-02-29"', "DATE '2020-01-01'"],
    "time": ["TIMESTAMP'2024-01-01 00:00:00'", "timestamp_ltz '2020-02-03 04:05:06'"],
    "list": ["array(1, 2)", "ARRAY()", "sequence(1, 3)"],
}  # fmt: skip
FORMS = {
    "number": [
        "{number} + {number}", "{number} - {number}", "{number}*{number}", "({number})", "-{number}", "~ {number}",
        "{number} & {number}", "{number} | {number}", "{number} ^ {number}", "{number} << 2", "{number} >> 1",
        "{number} >>> 3", "{number} DIV 3", "{number} % 7", "coalesce({number}, {number})", "length({text})",
        "CAST({double} AS INT)", "{number}::BIGINT", "({number})::decimal(30, 2)::int", "if({truth}, {number}, {number})",
        "CASE WHEN {truth} THEN {number} ELSE {number} END", "case {number} when {number} then 1 when 2 then {number} end",
        "size({list})", "{list}[0]", "A.attrs['a']", "element_at(A.attrs, 'a')", "extract(DAY FROM {day})",
        "EXTRACT(week from {time})", "datediff({day}, {day})", "DATEDIFF(DAY, {time}, {time})",
        "timestampdiff(HOUR, {time}, {time})", "position('a' IN {text})", "locate('a', {text})", "hash({text}, {number})",
        "aggregate({list}, 0, (acc, e) -> acc + coalesce(e, 0))", "struct({number} AS a, {text} b).a",
        "named_struct('p', {number}, 'q', 2).p", "greatest({number}, {number}, 1)", "/* n */ {number}", "year({day})",
        "array_max(transform({list}, e -> e + {number}))", "map('k', {number})['k']", "({number}, 2).col1", "abs({number})",
        "array({number}, {number})[1]", "try_cast({text} AS INT)", "nullif({number}, 0)", "try_divide({number}, 0)::int",
        "size(map_filter(A.attrs, (k1, v1) -> v1 > {number}))", "unix_date({day})",
    ],
    "double": [
        "{double} + {number}", "{double} * {double}", "{number} / 4", "cast({number} as double)", "{number}::double",
        "round({double}, 1)", "CASE WHEN {truth} THEN {double} END", "sqrt(abs({double}))", "-{double}",
        "nanvl({double}, 0D)",
    ],
    "text": [
        "{text} || {text}", "concat({text}, {text})", "lower({text})", "UPPER( {text} )", "substring({text}, 1, 2)",
        "substring({text} FROM 2)", "substr({text} from 1 for 1)", "trim({text})", "TRIM(BOTH 'a' FROM {text})",
        "trim(LEADING FROM {text})", "trim(trailing 'c' from {text})", "overlay({text} PLACING 'z' FROM 1 FOR 1)",
        "cast({number} AS string)", "{number}::STRING", "left({text}, 1)", "replace({text}, 'a', 'b')",
        "CASE {text} WHEN 'x' THEN {text} ELSE 'no' END", "date_format({time}, 'yyyy')", "mask({text}, upperChar => 'Q')",
        "concat_ws(',', {text}, {text})", "coalesce({text}, 'none')", "{text} COLLATE UTF8_LCASE COLLATE UTF8_BINARY",
        "to_json(struct({number} AS a, {text} AS b))", "({text})", "array_join(transform({list}, e -> cast(e AS string)), ',')",
        "cast(array({text}) AS array<string>)[0]", "regexp_extract({text}, r'(\\w)', 1)", "{text} -- c\n || 'd'",
    ],
    "truth": [
        "{number} = {number}", "{number}=={number}", "{number} <> {number}", "{number}!={number}", "{number} < {number}",
        "{double} <= {number}", "{text} > {text}", "{number} >= 3", "{number} !> 3", "{number} !< 3", "{text} <=> {text}",
        "{number} IS NULL", "{text} is not null", "{truth} IS TRUE", "{truth} IS NOT FALSE", "{truth} IS UNKNOWN",
        "{number} IS DISTINCT FROM {number}", "{text} IS NOT DISTINCT FROM {text}", "{number} IN (1, {number}, 3)",
        "{text} NOT IN ('x', {text})", "{number} BETWEEN {number} AND {number}", "{day} NOT BETWEEN {day} AND {day}",
        "{text} LIKE 'a%'", "{text} NOT LIKE '%b'", "{text} LIKE 'x!%' ESCAPE '!'", "{text} ILIKE {text}", "{text} RLIKE '^a'",
        "{text} regexp 'b'", "{text} LIKE ANY ('a%', {text})", "{text} NOT LIKE ALL ('b', 'c')", "{text} ilike some ('A%')",
        "NOT {truth}", "!{truth}", "not not {truth}", "{truth} AND {truth}", "{truth} OR {truth}", "({truth})",
        "{truth} and {truth} or not {truth}", "exists({list}, e -> e > {number})", "forall({list}, e -> e >= 0 OR {truth})",
        "array_contains({list}, {number})", "{truth} = {truth}", "{number} = {number} = {truth}", "{number} < {number} IS NULL",
        "{number} = {number} IN ({truth}, false)", "{day} < {day}", "{time} - {time} < INTERVAL '1' DAY",
        "{time} > {time} - INTERVAL 1 HOUR 30 MINUTES", "{number} & 1 = 1", "{number} | 1 = {number} ^ 2",
        "coalesce({truth}, {truth})", "CASE WHEN {truth} THEN {truth} ELSE {truth} END", "isnull({text})",
        "exists({list}, n -> n > A.n)", "exists({list}, l -> l > A.n)", "startswith({text}, 'a')",
    ],
    "day": ["date_add({day}, 1)", "{day} + INTERVAL 1 DAY", "CAST({time} AS DATE)", "({day})", "{time}::date",
            "date_sub({day}, {number} % 10)", "last_day({day})", "dateadd(DAY, 2, {day})::date", "coalesce({day}, {day})"],
    "time": ["{time} + INTERVAL '1' DAY", "{time} - INTERVAL '01:30' MINUTE TO SECOND", "cast({day} as timestamp)",
             "timestampadd(MINUTE, 5, {time})", "date_trunc('HOUR', {time})", "({time})", "{time} + INTERVAL 1 DAY 2 HOURS",
             "{time} + INTERVAL '1 day 2 hours'", "{time} + INTERVAL -5 SECONDS"],
    "list": ["filter({list}, e -> e > 0)", "transform({list}, (e, i) -> e + i)", "array({number}, {number})", "sort_array({list})",
             "transform({list}, e -> e + {number})", "slice({list}, 1, 2)", "array_sort({list}, (p, q) -> p - q)",
             "transform({list}, e -> size(filter({list}, f -> f > e)))", "split('1,2', ',')::array<int>"],
}  # fmt: skip


@st.composite
def expressions(draw, kind: str, depth: int = 3) -> str:
    """Draw an expression of one kind; an operand stands in brackets, or at the reader's own risk without."""
    leaf = st.sampled_from([*COLUMNS[kind], *COLUMNS[kind], *LITERALS[kind]])
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(leaf)
    text = draw(st.sampled_from(FORMS[kind]))
    pieces = text.replace("}", "{").split("{")
    for place in range(1, len(pieces), 2):
        inner = draw(expressions(pieces[place], depth - 1))
        pieces[place] = f"({inner})" if draw(st.integers(0, 5)) else inner
    return draw(spaced("".join(pieces)))


@st.composite
def spaced(draw, text: str) -> str:
    """Put a comment or another gap before or behind a text."""
    gap = draw(st.sampled_from(["", "", "", "", " ", "\t\n ", " /* c /* d */ */ ", " -- A.n 'x\n "]))
    return f"{gap}{text}" if draw(st.booleans()) else f"{text}{gap}"
