"""Words that mean something: where an expression ends, units of time, and functions that are no function of one row.

`tests/spark/test_expressions.py` checks the lists of functions against Spark.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SUPPORTED = "a query selects, joins and filters two streams: SELECT ... FROM A, B WHERE ... WINDOW 1 min"

CLAUSES = _words("""
    AND AS BETWEEN BY CLUSTER CROSS DISTRIBUTE DIV ELSE END ESCAPE EXCEPT FROM GROUP HAVING IN INNER INTERSECT IS JOIN
    LATERAL LIKE LIMIT MINUS NATURAL NOT OFFSET ON OR ORDER QUALIFY SELECT SORT THEN UNION USING WHEN WHERE
""")
"""Words that are neither a column nor an alias unless they stand in backquotes or behind a dot."""

JOINS = _words("ANTI ASOF CROSS FULL INNER JOIN LEFT NATURAL RIGHT SEMI")
"""Words that begin a join, and are no alias of a stream."""

UNITS = _words("""
    MICROSECOND MICROSECONDS MILLISECOND MILLISECONDS NANOSECOND NANOSECONDS SECOND SECONDS MINUTE MINUTES HOUR HOURS
    DAY DAYS DAYOFYEAR WEEK WEEKS MONTH MONTHS QUARTER YEAR YEARS
""")
"""Units of intervals, and of functions that take a unit first."""

BY_UNIT = _words("DATEADD DATE_ADD DATEDIFF DATE_DIFF TIMEDIFF TIMESTAMPADD TIMESTAMPDIFF")
"""Functions whose first argument may be a unit."""

SEPARATED = {
    "EXTRACT": _words("FROM"),
    "OVERLAY": _words("PLACING FROM FOR"),
    "POSITION": _words("IN"),
    "SUBSTR": _words("FROM FOR"),
    "SUBSTRING": _words("FROM FOR"),
    "TRIM": _words("BOTH LEADING TRAILING FROM"),
}
"""Functions with words before and between their arguments, where others have commas."""

CONSTANTS = _words("CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER LOCALTIME SESSION_USER USER")
"""Functions that may be called without brackets, unless a column has their name."""

AGGREGATES = _words("""
    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or
    collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping
    grouping_id histogram_numeric kurtosis last last_value listagg max max_by mean median min min_by mode percentile
    percentile_approx regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop var_samp variance
""")
"""Functions of many rows."""

GENERATORS = _words("explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple")
"""Functions that make rows."""
