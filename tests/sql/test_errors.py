"""Everything a user can get wrong: the sentence, the line and the column.

Each case is a text with ``>>`` before the place the caret must stand at.
"""

# ruff: noqa: E501 - one case a line

import sys
import tracemalloc
from collections import Counter

import pytest

from penstock.errors import InputError, Place, SqlError
from penstock.sql.bind.binder import bind_query
from penstock.sql.script import parse_script
from tests.sql.streams import STREAMS, bind

SUPPORTED = "write SELECT ... FROM A, B WHERE ... [GROUP BY ...] WINDOW 1 min"
OK = "SELECT A.v FROM A, B WHERE A.k = B.k WINDOW 1 s"


def check(parse, marked, message):
    """Parse the text without its mark; the error must say `message` and point at the mark."""
    before, mark, _ = marked.partition(">>")
    assert mark, "the case does not say where the caret stands"
    with pytest.raises(SqlError) as caught:
        parse(marked.replace(">>", ""))
    assert message in caught.value.message
    lines = before.split("\n")
    found = caught.value.place
    assert (found.line, found.column) == (len(lines), len(lines[-1]) + 1)
    assert "\x1b" not in str(caught.value)


QUERIES = [
    # windows
    ("SELECT * FROM A, B\nWHERE A.k = B.k\n>>WINDOW 0 SECONDS", "window of q3 is 0 s: a WINDOW must be positive"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>WINDOW -5 min", "window of q3 is -5 min: a WINDOW must be positive"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>WINDOW 10", "window of q3 is 10, which has no unit: write one, such as 10 seconds"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>WINDOW ten seconds", "is not a length of time"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>WINDOW 10 secnds", "unknown unit secnds: did you mean seconds?"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>WINDOW 2 months", "no fixed length (months vary): state it in days"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>WINDOW 0.5 microseconds", "is not a whole number of microseconds"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>WINDOW", "window of q3 has no length"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>WINDOW 99999999999 days", "is longer than any time in Spark"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>WINDOW 2.5 ROWS", "is 2.5 ROWS: a number of rows is a whole number"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>WINDOW 0 ROWS", "window of q3 is 0 ROWS: a WINDOW must be positive"),
    ("SELECT * FROM A >>[ROWS 500], B WHERE A.k = B.k", "A has a window and B has none: write one after B too"),
    ("SELECT * FROM A >>[ROWS -1], B [NOW] WHERE A.k = B.k", "a window must be positive"),
    ("SELECT * FROM A >>[RANGE 0 s], B WHERE A.k = B.k WINDOW 1 s", "a window must be positive"),
    ("SELECT * FROM A >>[5 min], B WHERE A.k = B.k WINDOW 1 s", "a window after a stream is [RANGE 10 seconds]"),
    ("SELECT * FROM A >>[RANGE 5 min, B WHERE A.k = B.k WINDOW 1 s", "this [ is never closed"),
    ("SELECT * FROM A [NOW] >>[NOW], B WHERE A.k = B.k WINDOW 1 s", "this stream has two windows"),
    ("SELECT * FROM A x, B y >>[NOW] WHERE x.k = y.k", "y has a window and x has none: write one after x too"),
    (">>SELECT * FROM A, B WHERE A.k = B.k AND A.v = B.w", "q3 has no window, and A is joined on several: k, v. To have one, write WINDOW 1 min at its end, [RANGE 1 min]"),
    ("SELECT * FROM A x, B y WHERE x.k = y.k AND x.v > 1 AND (>>x.ts < y.ts OR x.ts > y.ts + INTERVAL 5 SECONDS)", "q3 has no window, and this condition is not recognised as a bound of time. Write it as y.ts BETWEEN x.ts - INTERVAL 10 SECONDS AND x.ts + INTERVAL 10 SECONDS, with any lengths, or write WINDOW 10 seconds at the end as well"),
    ("SELECT * FROM B JOIN A ON A.k = B.k AND A.v < B.w\n AND >>unix_seconds(A.ts) * (3 DIV 2) <= unix_seconds(B.ts)", "Write it as B.ts BETWEEN A.ts - INTERVAL 10 SECONDS AND A.ts +"),
    (">>SELECT * FROM A, B WHERE A.k = B.k AND B.seen < A.ts AND A.v < B.w", "no option of A and B declares"),
    ("SELECT * FROM A, B WHERE A.k = B.k AND >>window(A.ts, '5 s') = window(B.ts, '6 s')", "the windows of one side are 5 s long and begin at 0 s, those of the other 6 s long and begin at 0 s, so that no two are equal"),
    ("SELECT * FROM A, B WHERE A.k = B.k AND >>window(A.ts, '5 s') = window(B.ts, '5 s', '5 s', '1 s')", "and begin at 1 s, so that no two are equal. Give both one length and one start time"),
    ("SELECT * FROM A, B WHERE A.k = B.k AND >>window(A.ts, '5 s', '1 s') = window(B.ts, '5 s', '1 s')", "this window is 5 s long and begins every 1 s, and a row can be in one only"),
    ("SELECT * FROM A, B WHERE A.k = B.k AND >>A.ts < B.ts + INTERVAL 1 MONTH", "no fixed length"),
    # streams and columns
    ("SELECT * FROM A, >>Bb WHERE A.k = Bb.k WINDOW 1 s", "stream Bb is not declared: did you mean B?"),
    ("SELECT * FROM >>cat.A, B WHERE A.k = B.k WINDOW 1 s", "stream cat.A is not declared"),
    ("SELECT * FROM A, >>A WHERE A.k = A.k WINDOW 1 s", "both streams are called A: give each an alias"),
    ("SELECT A.>>vv FROM A, B WHERE A.k = B.k WINDOW 1 s", "stream A has no column vv: did you mean v?"),
    ("SELECT 1\nFROM A x, B y\nWHERE x.k = y.k AND >>z.v > 1 WINDOW 1 s", "unknown stream or alias z"),
    ("SELECT >>A.v FROM A x, B y WHERE x.k = y.k WINDOW 1 s", "A is called x in this query: write x"),
    ("SELECT >>k FROM A, B WHERE A.k = B.k WINDOW 1 s", "column k is in both streams: write A.k or B.k"),
    ("SELECT 1 FROM A, B WHERE A.k = B.k AND lower(>>nam) = 'x' WINDOW 1 s", "unknown column nam: did you mean Name?"),
    ("SELECT * FROM A JOIN B USING (>>v) WINDOW 1 s", "stream B has no column v"),
    ("SELECT A.v AS x, >>B.w AS X FROM A, B WHERE A.k = B.k WINDOW 1 s", "two columns of the result are called X"),
    ("SELECT >>A.v AS `Penstock.v` FROM A, B WHERE A.k = B.k WINDOW 1 s", "called Penstock.v: names that begin with penstock. are reserved"),
    ("SELECT A.v, A.v, >>A.v FROM A, B WHERE A.k = B.k WINDOW 1 s", "two columns of the result are called A_v"),
    ("SELECT >>* EXCEPT (k) FROM A, B WHERE A.k = B.k WINDOW 1 s", "takes no EXCEPT"),
    # types
    ("SELECT 1 FROM A, B WHERE >>A.k = B.flag WINDOW 1 s", "A.k is bigint and B.flag is boolean. CAST one of them"),
    ("SELECT 1 FROM B, A WHERE >>A.k = B.seen WINDOW 1 s", "B.seen is timestamp and A.k is bigint"),
    ("SELECT 1 FROM A, B WHERE >>A.tags = B.k WINDOW 1 s", "A.tags is array<int> and B.k is bigint"),
    ("SELECT 1 FROM A, B WHERE >>A.attrs = B.attrs WINDOW 1 s", "A MAP cannot be compared"),
    ("SELECT 1 FROM A, B WHERE A.k = B.k >>WINDOW ² ROWS", "is ² ROWS: a number of rows is a whole number"),
    ("SELECT 1 FROM A, B WHERE A.k = B.k >>WINDOW ٣ s", "is not a length of time"),
    ("SELECT IDENTIFIER('v') FROM A, B WHERE A.k = B.k WINDOW 1 s".replace("IDENT", ">>IDENT"), "write the name itself"),
    ("SELECT 1 + >>* FROM A, B WHERE A.k = B.k WINDOW 1 s", "* stands for columns"),
    ("SELECT A.k FROM A, B WHERE A.k = >>count(*) FILTER (WHERE TRUE) WINDOW 1 s", "an aggregate cannot stand in WHERE: put it in HAVING"),
    ("SELECT A.v > >>> 3 FROM A, B WHERE A.k = B.k WINDOW 1 s", "cannot read the query at >"),
    ("SELECT 1 FROM A, B WHERE A.k IS >>5 WINDOW 1 s", "cannot read the query at 5"),
    ("SELECT CASE >>END FROM A, B WHERE A.k = B.k WINDOW 1 s", "cannot read the query at END"),
    ("SELECT (A.v FROM A, B WHERE A.k = B.k WINDOW 1 s".replace(" FROM", " >>FROM"), "cannot read the query at FROM"),
    ("SELECT 1 FROM A, B WHERE A.k = B.k >>) WINDOW 1 s", "cannot read the query at )"),
    ("SELECT 1 FROM A, B WHERE A.k = B.k AND A.v > >>$1 WINDOW 1 s", "the character '$' means nothing here"),
    ("SELECT 1 FROM A, B WHERE >>(A.k, A.n) = (B.k, B.n) WINDOW 1 s", "lists of columns cannot be compared"),
    # what is not supported
    ("SELECT 1 FROM A JOIN B ON A.k = B.k >>WINDOW w AS (PARTITION BY k)", "named windows are for window functions"),
    ("SELECT A.v FROM A >>TABLESAMPLE (10 ROWS), B WHERE A.k = B.k WINDOW 1 s", "TABLESAMPLE is not supported: leave it out"),
    (">>WITH z AS (SELECT 1) SELECT A.v FROM A, B WHERE A.k = B.k WINDOW 1 s", "WITH is not supported"),
    ("SELECT * FROM A >>LEFT JOIN B ON A.k = B.k WINDOW 1 s", "LEFT JOIN is not supported: rows without a partner are not produced. Write JOIN"),
    ("SELECT * FROM A >>FULL OUTER JOIN B ON A.k = B.k WINDOW 1 s", "FULL OUTER JOIN is not supported: rows without a partner"),
    ("SELECT * FROM A >>LEFT SEMI JOIN B ON A.k = B.k WINDOW 1 s", "LEFT SEMI JOIN is not supported: a row is in the result once for each partner. Write JOIN ... ON ..., and GROUP BY"),
    ("SELECT * FROM A >>LEFT ANTI JOIN B ON A.k = B.k WINDOW 1 s", "LEFT ANTI JOIN is not supported: rows without a partner"),
    ("SELECT * FROM A >>NATURAL JOIN B WINDOW 1 s", "NATURAL JOIN is not supported: columns are not paired by their names. Name those"),
    ("SELECT * FROM >>A WHERE A.k = 1 WINDOW 1 s", "q3 is a query with no join"),
    ("SELECT * FROM A, B, >>Days WHERE A.k = B.k WINDOW 1 s", "no condition connects Days with A: write one, such as A.k = Days.k, or CROSS JOIN Days if each"),
    ("SELECT >>DISTINCT A.k FROM A, B WHERE A.k = B.k WINDOW 1 s", "DISTINCT is not supported"),
    ("SELECT A.k FROM A, B WHERE A.k = B.k >>ORDER BY A.k WINDOW 1 s", "ORDER BY is not supported"),
    ("SELECT A.k FROM A, B WHERE A.k = B.k >>LIMIT 3 WINDOW 1 s", "LIMIT is not supported"),
    ("SELECT 1 + >>median(A.v) FROM A, B WHERE A.k = B.k WINDOW 1 s", "the aggregate MEDIAN is not supported: choose from COUNT, SUM, AVG"),
    ("SELECT >>explode(A.tags) FROM A, B WHERE A.k = B.k WINDOW 1 s", "EXPLODE, which returns several rows, is not supported"),
    ("SELECT rank() >>OVER (ORDER BY A.v) FROM A, B WHERE A.k = B.k WINDOW 1 s", "a window function (OVER)"),
    ("SELECT 1 FROM A, B WHERE A.k = B.k AND A.v IN (>>SELECT v FROM A) WINDOW 1 s", "a subquery is not supported"),
    ("SELECT 1 FROM >>(SELECT * FROM A) x, B WHERE x.k = B.k WINDOW 1 s", "a subquery in FROM is not supported: name the stream itself"),
    ("SELECT 1 FROM >>(A JOIN B ON A.k = B.k) WINDOW 1 s", "brackets around a join are not supported: write A JOIN B ON"),
    ("SELECT v FROM A >>UNION SELECT w FROM B WINDOW 1 s", "UNION is not supported: write a query for each SELECT"),
    (f"{OK} >>UNION ALL {OK}", "UNION is not supported"),
    (f"{OK} >>INTERSECT ({OK})", "INTERSECT is not supported"),
    (f"{OK} >>EXCEPT DISTINCT {OK}", "EXCEPT is not supported"),
    (f"{OK} >>LIMIT 5", "LIMIT is not supported: leave it out, and apply it in Spark"),
    (f"{OK} >>ORDER BY A.v", "ORDER BY is not supported: leave it out; for results in the order of time"),
    (f"{OK} EVERY 1 s >>LIMIT 5", "LIMIT is not supported"),
    (f"{OK} >>WHERE A.v > 1", "WHERE stands behind WINDOW, which ends a query: write WHERE before it"),
    (f"{OK} >>GROUP BY A.v", "GROUP BY stands behind WINDOW"),
    (f"{OK} EVERY 1 s >>HAVING A.v > 1", "HAVING stands behind"),
    (f"{OK.replace('WINDOW', '>>WINDOW')} WINDOW 2 s", "this query has two WINDOW clauses: keep one"),
    ("SELECT 1 FROM A JOIN B ON A.k = B.k GROUP BY >>TUMBLE(A.ts, INTERVAL '1' MINUTE) WINDOW 1 s", "TUMBLE is not supported: group by window(A.ts, '1 minute')"),
    ("SELECT >>TUMBLE_END(A.ts, INTERVAL '1' MINUTE) FROM A JOIN B ON A.k = B.k WINDOW 1 s", "TUMBLE_END is not supported: group by window("),
    ("SELECT 1 FROM A JOIN B ON A.k = B.k GROUP BY >>hop(A.ts, INTERVAL '1' MINUTE, INTERVAL '1' HOUR) WINDOW 1 s", "HOP is not supported: write WINDOW 1 hour EVERY 1 min"),
    ("SELECT 1 FROM A JOIN B ON A.k = B.k GROUP BY >>SESSION(A.ts, INTERVAL '1' MINUTE) WINDOW 1 s", "SESSION is not supported: group by"),
    ("SELECT 1 FROM >>TABLE(TUMBLE(TABLE A, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) t, B WINDOW 1 s", "the table function TUMBLE is not supported: name the stream itself, and group by window("),
    ("SELECT 1 FROM A, >>HOP(TABLE B, DESCRIPTOR(ts), INTERVAL '1' MINUTE) WINDOW 1 s", "the table function HOP is not supported"),
    ("SELECT 1 FROM A JOIN B >>FOR SYSTEM_TIME AS OF A.ts ON A.k = B.k", "FOR SYSTEM_TIME AS OF is not supported: join both streams, with a condition"),
    ("SELECT 1 FROM A >>OUTER JOIN B ON A.k = B.k WINDOW 1 s", "OUTER JOIN is not supported: rows without a partner"),
    ("SELECT 1 FROM A x >>OUTER JOIN B ON x.k = B.k WINDOW 1 s", "OUTER JOIN is not supported"),
    ("SELECT 1 FROM >>range(10) x, B WHERE x.id = B.k WINDOW 1 s", "the table function RANGE is not supported: make a stream of its rows"),
    ("SELECT 1 FROM A JOIN >>explode(A.tags) x WINDOW 1 s", "the table function EXPLODE is not supported: explode the column before"),
    ("SELECT 1 FROM A, >>VALUES (1), (2) x WINDOW 1 s", "a table of VALUES is not supported: make a stream of its rows"),
    ("SELECT 1 FROM A JOIN B AS y >>FOR SYSTEM_TIME AS OF A.ts ON A.k = y.k", "FOR SYSTEM_TIME AS OF is not supported: join both"),
    ("SELECT 1 FROM A x >>TABLESAMPLE (10 PERCENT), B WHERE x.k = B.k WINDOW 1 s", "TABLESAMPLE is not supported: leave it out"),
    ("SELECT 1 FROM A, >>LATERAL explode(A.tags) t WINDOW 1 s", "LATERAL is not supported: explode the column before"),
    ("SELECT 1 FROM A, B WHERE A.k = B.k AND >>TUMBLE(A.ts, INTERVAL '1' MINUTE) = TUMBLE(B.ts, INTERVAL '1' MINUTE)", "to join on it, write window(A.ts, '1 minute') = window(B.ts, '1 minute')"),
    (f"{OK} >>AND A.v > 3", "this condition stands behind WINDOW, which ends a query: write this condition before it"),
    (f"{OK} EVERY 1 s >>OR A.v > 3", "this condition stands behind EVERY"),
    ("SELECT >>* EXCLUDE (k) FROM A, B WHERE A.k = B.k WINDOW 1 s", "* is every column and takes no EXCLUDE: list the columns you want"),
    ("SELECT >>A.* REPLACE (k + 1 AS k) FROM A, B WHERE A.k = B.k WINDOW 1 s", "takes no REPLACE"),
    ("SELECT >>* exclude FROM A, B WHERE A.k = B.k WINDOW 1 s", "* is every column and cannot be called exclude"),
    ("SELECT 1 FROM A >>VERSION AS OF 1, B WHERE A.k = B.k WINDOW 1 s", "VERSION AS OF is not supported"),
    ("SELECT 1 FROM A, >>LATERAL (SELECT * FROM B) WINDOW 1 s", "LATERAL is not supported: write A JOIN B"),
    ("SELECT 1 FROM A >>LATERAL VIEW explode(A.tags) t, B WHERE A.k = B.k WINDOW 1 s", "LATERAL VIEW is not supported: explode the column before"),
    ("SELECT 1 FROM A CROSS JOIN >>UNNEST(A.tags) WINDOW 1 s", "UNNEST is not supported"),
    ("SELECT 1 FROM A >>ASOF JOIN B ON A.k = B.k WINDOW 1 s", "ASOF JOIN is not supported: a row meets all partners"),
    ("SELECT >>/*+ STATE_TTL('A' = '1d') */ A.v FROM A, B WHERE A.k = B.k WINDOW 1 s", "the hint STATE_TTL is not supported: leave it out"),
    ("SELECT A.v FROM A, B >>/*+ x */ WHERE A.k = B.k WINDOW 1 s", "the hint x is not supported"),
    ("SELECT (>>*) FROM A, B WHERE A.k = B.k WINDOW 1 s", "* stands for columns and cannot stand in brackets: leave the brackets out"),
    ("SELECT ((>>*)) FROM A, B WHERE A.k = B.k WINDOW 1 s", "cannot stand in brackets"),
    ("SELECT A.k, (>>A.*) FROM A, B WHERE A.k = B.k WINDOW 1 s", "cannot stand in brackets"),
    ("SELECT COUNT((>>*)) FROM A, B WHERE A.k = B.k WINDOW 1 s", "cannot stand in brackets"),
    ("SELECT >>A.* AS x FROM A, B WHERE A.k = B.k WINDOW 1 s", "* is every column and cannot be called x"),
    (">>SELECT * FROM A, B WHERE A.v > B.w", "q3 has no window, and not all streams are joined on one attribute"),
    ("SELECT 1 FROM A, B WHERE A.k = B.k AND A.v > >>:p WINDOW 1 s", "a parameter has no value here"),
    # not SQL
    (">>SELECT A.v, FROM A, B WHERE A.k = B.k WINDOW 1 s", "cannot read the SELECT list"),
    (">>SELECT FROM A, B WHERE A.k = B.k WINDOW 1 s", "cannot read the SELECT list"),
    ("SELECT * FROM A, B WHERE A.k = B.k AND >>'oops WINDOW 1 s", "this ' is never closed"),
    ("SELECT * FROM A, B\nWHERE A.k = B.k >>/* oops WINDOW 1 s", "this comment is never closed"),
    ("SELECT A.k A>>.v FROM A, B WHERE A.k = B.k WINDOW 1 s", "cannot read the query at .: it does not belong"),
    ("SELECT * FROM A, B WHERE A.k = B.k >>AND WINDOW 1 s", "cannot read the query at AND: something is missing beside it"),
    (">>hello", f"this is not a query: {SUPPORTED}"),
    (">>", "query q3 is empty"),
    ("SELECT 1; >>SELECT 2", "this is a second query: give one at a time"),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "message"), QUERIES)
def test_a_wrong_query_is_refused_where_it_is_wrong(marked, message):
    check(bind, marked, message)


STREAM = "CREATE STREAM S (k BIGINT, ts TIMESTAMP) "
SCRIPTS = [
    (">>hello world", "hello world is not a statement: choose one of: CREATE STREAM"),
    (">>CRETE STREAM S (a INT)", "CRETE STREAM is not a statement: did you mean CREATE STREAM?"),
    (">>SELECT 1", "a SELECT in a script needs a name: CREATE QUERY name AS SELECT"),
    ("-- a comment\n/* and\nanother */ >>SHOW STREAMS;", "SHOW STREAMS is not a statement"),
    ("SHOW QUERIES >>q1", "the statement should end here"),
    (f"{STREAM[:-1]}>>)", "stream S needs WITH"),
    ("CREATE STREAM >>S (k BIGINT, ts TIMESTAMP) WITH (time = 'ts')", "stream S needs a format"),
    (f"{STREAM} WITH (format = >>'parquet', time = 'ts')", "reads parquet files and needs a path"),
    (f"{STREAM} WITH (format = 'rate', time = >>'tss')", "time column tss is not a column of S: did you mean ts?"),
    (f"{STREAM} WITH (format = 'rate', time = >>'k')", "time column k of S is bigint: it must be TIMESTAMP"),
    (f"{STREAM} WITH (format = 'rate', time = 'ts', lateness = >>'5')", "lateness '5' has no unit"),
    (f"{STREAM} WITH (format = 'rate', time = 'ts', lateness = >>'-5 s')", "lateness '-5 s' is negative"),
    (f"{STREAM} WITH (format = 'rate', time = 'ts', retain = >>'long')", "retain 'long' is not a length of time"),
    (f"{STREAM} WITH (format = 'rate', time = 'ts', trigger = >>'2')", "trigger '2' has no unit"),
    (f"{STREAM} WITH (format = 'rate', time = 'ts',\n  Trigger = >>'-1 s')", "trigger '-1 s' is negative: it must be 0"),
    (f"{STREAM} WITH (format = 'rate', time = 'ts', trigger = >>'often')", "trigger 'often' is not a length of time"),
    (f"{STREAM} WITH (format = 'rate', time = 'ts', >>triger = '1 s')", "did you mean trigger?"),
    (f"{STREAM} WITH (format = 'rate', time = 'ts', >>latness = '5 s')", "did you mean lateness?"),
    (f"{STREAM} WITH (format = 'rate', time = 'ts', >>TIME = 'ts')", "option TIME is given twice"),
    (f"{STREAM} WITH (format = 'rate' >>'x', time = 'ts')", "options are separated by commas"),
    (f"{STREAM} WITH (format = 'rate', time>>, k = 'ts')", "found ,: an option is written name = 'value'"),
    ("CREATE STREAM S (k >>BIGGINT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts')", "did you mean bigint?"),
    ("CREATE STREAM S (k BIGINT, >>K INT, ts TIMESTAMP) WITH (format = 'rate')", "column K of stream S is declared twice"),
    ("CREATE STREAM S (>>k, ts TIMESTAMP) WITH (format = 'rate')", "column k has no type"),
    ("CREATE STREAM S (k INT, c >>CHAR(5), ts DATE) WITH (format = 'rate')", "char(5) is for tables, where Spark pads and checks it: declare it STRING"),
    ("CREATE STREAM S (c >>ARRAY<VARCHAR(5)>, ts DATE) WITH (format = 'rate')", "declare it STRING"),
    ("CREATE STREAM S (>>`Penstock.t` INT, ts DATE) WITH (format = 'rate')", "column Penstock.t: names that begin with penstock. are reserved"),
    ("CREATE STREAM S (>>) WITH (format = 'rate')", "stream S has no columns"),
    ("CREATE STREAM >>'S' (k INT)", "a stream needs a name"),
    ("CREATE STREAM >>a (k INT, ts DATE) WITH (format = 'rate', time = 'ts')", "stream a is declared twice"),
    ("CREATE STREAM S (k INT, t DATE, >>WATERMARK FOR t AS t - INTERVAL '5' SECOND) WITH (format = 'rate')", "WATERMARK FOR is not supported: write WITH (time = 't', lateness = '5 seconds')"),
    ("CREATE STREAM S (k INT, >>PRIMARY KEY (k) NOT ENFORCED) WITH (format = 'rate')", "PRIMARY KEY is not supported: leave it out"),
    ("CREATE STREAM S (k INT, >>UNIQUE (k)) WITH (format = 'rate')", "UNIQUE is not supported: leave it out; if each value comes only once, write WITH (unique = '<columns>')"),
    ("CREATE STREAM S (k INT, >>CONSTRAINT pk PRIMARY KEY (k)) WITH (format = 'rate')", "CONSTRAINT is not supported: leave it out"),
    ("CREATE STREAM S (k INT >>PRIMARY KEY, d DATE) WITH (format = 'rate')", "PRIMARY KEY is not supported: leave it out"),
    ("CREATE STREAM S (k INT NOT NULL >>UNIQUE) WITH (format = 'rate')", "UNIQUE is not supported"),
    ("CREATE STREAM S (k DECIMAL(9,2) >>CHECK (k > 0)) WITH (format = 'rate')", "CHECK is not supported: write its condition into the WHERE"),
    ("CREATE STREAM S (k INT, >>FOREIGN KEY (k) REFERENCES T (k)) WITH (format = 'rate')", "FOREIGN KEY is not supported"),
    ("CREATE STREAM S (k INT >>DEFAULT 5) WITH (format = 'rate')", "DEFAULT is not supported: write COALESCE(column, value)"),
    ("CREATE STREAM S (k INT, >>t AS CAST(k AS DATE)) WITH (format = 'rate')", "a computed column is not supported"),
    (f"CREATE QUERY q AS {OK};\nCREATE QUERY >>Q AS {OK}", "query Q is declared twice"),
    (f"CREATE QUERY q WITH (sink = >>'parket') AS {OK}", "unknown sink parket: did you mean parquet?"),
    (f"CREATE QUERY q WITH (sink = >>'callback') AS {OK}", "sink callback is made in Python"),
    (f"CREATE QUERY q WITH (sink = >>'parquet') AS {OK}", "sink parquet needs a path"),
    (f"CREATE QUERY q WITH (>>path = 'x') AS {OK}", "option path is for sink = 'parquet', and this sink is table"),
    (f"CREATE QUERY q WITH (>>ordr = 'none') AS {OK}", "unknown query option ordr: did you mean order?"),
    (f"CREATE QUERY q WITH (>>order = 'sorted') AS {OK}", "order cannot be sorted: choose one of: none, sync-filter"),
    (f"CREATE QUERY q WITH (sink = 'parquet', path = 'x', >>compression = 'zip') AS {OK}", "compression cannot be zip: choose one of: snappy, none, gzip"),
    (f"CREATE QUERY q WITH (>>alpha = 'x') AS {OK}", "alpha cannot be x: it is the share of the time"),
    (f"CREATE QUERY q WITH (>>alpha = 1) AS {OK}", "alpha cannot be 1: it is the share of the time"),
    (f"CREATE QUERY q WITH (>>alpha = '-0.1') AS {OK}", "alpha cannot be -0.1"),
    (f"CREATE QUERY q WITH (>>alpha = 'nan') AS {OK}", "alpha cannot be nan"),
    (f"CREATE QUERY q WITH (>>idle_after = '0 s') AS {OK}", "idle_after '0 s' would leave every stream out"),
    (f"CREATE QUERY q WITH (>>max_lag = 'x') AS {OK}", "max_lag 'x' is not a length of time"),
    (f"CREATE QUERY q >>{OK}", "query q is written CREATE QUERY q AS SELECT"),
    ("CREATE QUERY q >>AS", "query q is empty"),
    ("SET >>stategy = 'x'", "unknown setting stategy: did you mean strategy?"),
    ("SET strategy = >>'memopt'", "strategy cannot be memopt: choose one of: mem-opt, cpu-opt, pull-up"),
    ("SET buffers = >>''", "buffers cannot be empty: choose one of: "),
    ("SET scheduler = >>fifo", "scheduler cannot be fifo: choose one of: lwo, swf, mqt"),
    ("SET memory = >>'lots'", "memory 'lots' is not an amount of memory: write one such as 2 GiB"),
    ("SET >>strategy", "a setting is written SET name = 'value'"),
    (f"CREATE QUERY q AS {OK};\nDROP STREAM >>a", "stream A is read by q: drop that first"),
    (f"CREATE QUERY q AS {OK};\nALTER QUERY q SET >>WINDOW 0 s", "window of q is 0 s: a WINDOW must be positive"),
    (f"CREATE QUERY q AS {OK};\nALTER QUERY q SET >>WINDOW 0 ROWS", "window of q is 0 ROWS: a WINDOW must be positive"),
    ("ALTER QUERY q SET >>order = 'none'", "write ALTER QUERY q SET WINDOW 5 min"),
    ("SHOW QUERIES;\n\nCREATE QUERY q AS\n SELECT A.v, A.>>zz FROM A, B WHERE A.k = B.k WINDOW 1 s", "has no column zz"),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "message"), SCRIPTS)
def test_a_wrong_script_is_refused_where_it_is_wrong(marked, message):
    check(lambda text: parse_script(text, STREAMS), marked, message)


def test_columns_and_streams_may_be_called_as_what_is_refused():
    columns = (
        "unique DECIMAL(9,2), check INT, constraint STRING, place STRUCT<unique: INT, check: INT>, ts DATE"
    )
    script = f"CREATE STREAM outer ({columns}) WITH (format = 'rate', time = 'ts')"
    script += "; CREATE QUERY q AS SELECT outer.check FROM outer, outer AS range WHERE outer.check = range.check WINDOW 1 s"
    (query,) = parse_script(script).queries
    assert query.streams == ("outer", "outer")


def test_the_caret_stands_under_the_name_in_the_script():
    with pytest.raises(SqlError) as caught:
        parse_script("SET scheduler = 'mqt';\nCREATE QUERY q AS SELECT *\nFROM A, Bx WINDOW 1 s", STREAMS)
    assert str(caught.value).splitlines()[1:] == ["  FROM A, Bx WINDOW 1 s", "          ^^"]
    assert caught.value.place == Place(3, 9, 2)


def test_an_unknown_option_from_python_is_refused():
    with pytest.raises(InputError, match="unknown query option ordr: did you mean order"):
        bind_query("q", OK, STREAMS, options={"ordr": "none"})


# Large scripts

WIDE = "CREATE STREAM W (%s, ts DATE) WITH (format = 'x.Source', time = 'ts', %s)"


def calls_to_parse(columns):
    """Count the calls of Python functions for a stream with so many columns and options."""
    text = WIDE % (
        ", ".join(f"c{i} INT" for i in range(columns)),
        ", ".join(f"o{i} = 1" for i in range(columns)),
    )
    calls = Counter()
    sys.setprofile(lambda _frame, event, _argument: calls.update([event]))
    try:
        parse_script(text)
    finally:
        sys.setprofile(None)
    return calls["call"]


def test_work_is_linear_in_columns_and_options():
    calls_to_parse(10)  # what is cached is cached
    assert calls_to_parse(800) < 4.5 * calls_to_parse(200)


LITERALS = {"'{}'": "x", '"{}"': "x", "r'{}'": "x", "'{}' ": r"\n", "'{}''{}'": "''", '"{}\\""': '""'}


@pytest.mark.parametrize("form", LITERALS)
def test_a_long_literal_takes_a_few_times_its_size(form):
    text = form.replace("{}", LITERALS[form] * 300_000)
    tracemalloc.start()
    try:
        bind(f"SELECT A.v FROM A, B WHERE A.k = B.k AND A.name = {text} WINDOW 1 s")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(text)


@pytest.mark.parametrize("literal", ["'{}'", "/* {} */ 1", "-- {}\n1"])
def test_an_error_about_a_long_line_shows_what_is_around_the_caret(literal):
    long = literal.format("x" * 1_000_000)
    with pytest.raises(SqlError) as caught:
        bind(f"SELECT {long} AS a, A.zz, {long} AS b FROM A, B WHERE A.k = B.k WINDOW 1 s")
    message, line, carets = str(caught.value).splitlines()
    assert "stream A has no column zz" in message
    assert len(line) < 170
    at = carets.index("^")
    assert line[at : at + carets.count("^")] == "zz"
    assert line.strip(" ")[0] == ("…" if "\n" not in literal else "1")
    assert line.endswith("…")


def test_an_error_about_a_long_name_does_not_repeat_it():
    with pytest.raises(SqlError) as caught:
        bind(f"SELECT A.`{'x' * 1_000_000}` FROM A, B WHERE A.k = B.k WINDOW 1 s")
    assert len(str(caught.value)) < 2_500
    assert "choose one of: k, n, v" in str(caught.value)
