"""FROM of many streams means what Spark's own means: which columns ``*`` has, and what USING and ON can see."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from penstock.errors import SqlError
from penstock.sql.bind.binder import bind_query
from tests.sql.streams import stream

pytestmark = pytest.mark.spark

STREAMS = {
    "A": stream("A", "k bigint, x bigint, v double, ts timestamp"),
    "B": stream("B", "k bigint, y bigint, v double, ts timestamp"),
    "C": stream("C", "K bigint, x bigint, y bigint, ts timestamp"),
}

ALIKE = (
    "* FROM A, B, C WHERE A.k = B.k AND B.k = C.k",
    "* FROM C JOIN A USING (k) JOIN B USING (k)",
    "* FROM A JOIN B USING (k) JOIN C USING (y)",
    "* FROM A JOIN B USING (v, k) JOIN C USING (x, y)",
    "* FROM A JOIN B USING (k), C WHERE C.y = B.y",
    "* FROM A JOIN B ON x = y JOIN C ON A.x = C.x",
    "* FROM A JOIN B USING (k) CROSS JOIN C",
    "k, B.k FROM A JOIN B USING (k) JOIN C USING (k)",
    "B.*, A.x FROM A, B JOIN C ON A.k = C.k AND B.k = C.k",
)

REFUSED = (
    "* FROM A JOIN B ON A.k = C.k JOIN C ON B.k = C.k",
    "k FROM A JOIN B USING (k), C WHERE B.k = C.k",
    "x FROM A JOIN B USING (k) JOIN C USING (k)",
    "* FROM A JOIN B USING (x) JOIN C USING (k)",
)


@pytest.fixture(scope="module")
def views(spark):
    """Give Spark a view for each stream."""
    for name, each in STREAMS.items():
        columns = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in each.columns)
        spark.sql(f"SELECT {columns}").createOrReplaceTempView(name)
    yield spark
    for name in STREAMS:
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("text", ALIKE)
def test_a_result_has_the_columns_that_sparks_has(views, text):
    query = bind_query("q", f"SELECT {text} WINDOW 1 s", STREAMS)
    assert [each.column[1] for each in query.outputs] == views.sql(f"SELECT {text}").columns


def test_a_column_of_using_that_two_streams_have_is_refused_where_spark_takes_the_first(views):
    text = "SELECT * FROM A, B JOIN C USING (k)"
    assert views.sql(text).columns == [*"kxv", "ts", *"kyv", "ts", *"xy", "ts"]
    with pytest.raises(SqlError, match=r"k may be A\.k or B\.k, and USING takes one: write ON A\.k = C\.k"):
        bind_query("q", f"{text} WINDOW 1 s", STREAMS)


@pytest.mark.parametrize("text", REFUSED)
def test_what_spark_finds_ambiguous_or_unknown_is_refused(views, text):
    with pytest.raises(AnalysisException):
        views.sql(f"SELECT {text}")
    with pytest.raises(SqlError):
        bind_query("q", f"SELECT {text} WINDOW 1 s", STREAMS)
