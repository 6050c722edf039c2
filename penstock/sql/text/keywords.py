"""Words with a meaning: those that end an expression, units of time, and functions of several rows.

`tests/spark/test_expressions.py` checks the lists of functions against Spark.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SUPPORTED = "write SELECT ... FROM A, B WHERE ... [GROUP BY ...] WINDOW 1 min"

CLAUSES = _words("""
    AND AS BETWEEN BY CLUSTER CROSS DISTRIBUTE DIV ELSE END ESCAPE EXCEPT FROM GROUP HAVING IN INNER INTERSECT IS JOIN
    LATERAL LIKE LIMIT MINUS NATURAL NOT OFFSET ON OR ORDER QUALIFY SELECT SORT THEN UNION USING WHEN WHERE
""")
"""Words that are neither a column nor an alias unless they stand in backquotes or behind a dot."""

JOINS = _words("ANTI ASOF CROSS FULL INNER JOIN LEFT NATURAL RIGHT SEMI")
"""Words that begin a join, and cannot be the alias of a stream."""

UNITS = _words("""
    MICROSECOND MICROSECONDS MILLISECOND MILLISECONDS NANOSECOND NANOSECONDS SECOND SECONDS MINUTE MINUTES HOUR HOURS
    DAY DAYS DAYOFYEAR WEEK WEEKS MONTH MONTHS QUARTER YEAR YEARS
""")
"""Units of intervals, and of functions that take a unit first."""

UNIT_FUNCTIONS = _words("DATEADD DATE_ADD DATEDIFF DATE_DIFF TIMEDIFF TIMESTAMPADD TIMESTAMPDIFF")
"""Functions whose first argument may be a unit."""

ARGUMENT_WORDS = {
    "EXTRACT": _words("FROM"),
    "OVERLAY": _words("PLACING FROM FOR"),
    "POSITION": _words("IN"),
    "SUBSTR": _words("FROM FOR"),
    "SUBSTRING": _words("FROM FOR"),
    "TRIM": _words("BOTH LEADING TRAILING FROM"),
}
"""Functions that take words before and between their arguments."""

CONSTANTS = _words("CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER LOCALTIME SESSION_USER USER")
"""Functions that may be called without brackets, unless a column has their name."""

AGGREGATES = _words("""
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg
    bool_and bool_or collect_list collect_set collect_union corr count count_if count_min_sketch covar_pop
    covar_samp every first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg
    kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float kurtosis last last_value listagg max max_by mean measure median min min_by mode
    percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept
    regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some std stddev stddev_pop
    stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance
""")
"""Functions of many rows."""

GENERATORS = _words("explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple")
"""Functions that return several rows."""
