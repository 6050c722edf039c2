"""Types of computed keys that only Spark can tell, for each equality of a join of many streams."""

from __future__ import annotations

import pytest

from penstock.engine.spark.schemas import with_key_types
from penstock.errors import InputError
from penstock.sql.bind.binder import bind_query
from penstock.sql.query import Edge, Key
from tests.sql.streams import stream

pytestmark = pytest.mark.spark

STREAMS = {name: stream(name, "k bigint, amount decimal(10,2), name string, ts timestamp") for name in "ABC"}


def typed(spark, condition):
    """Bind a join of three streams, and let Spark fill in the types that are left open."""
    text = f"SELECT A.k FROM A, B, C WHERE {condition} WINDOW 1 s"
    return with_key_types(bind_query("q", text, STREAMS), list(STREAMS.values()), lambda: spark)


def test_spark_is_asked_for_each_equality_whose_type_is_open(spark):
    query = typed(spark, "A.amount * 2 = B.amount AND B.k = C.k AND A.name = md5(C.name)")
    assert query.graph.edges == (
        Edge(0, 1, Key("amount * 2", "amount", "decimal(12,2)")),
        Edge(0, 2, Key("name", "MD5(name)", "string")),
        Edge(1, 2, Key("k", "k")),
    )


def test_spark_is_not_started_where_all_types_are_known():
    def never():
        raise AssertionError("Spark was asked")

    query = bind_query("q", "SELECT A.k FROM A, B, C WHERE A.k = B.k AND B.k = C.k WINDOW 1 s", STREAMS)
    assert with_key_types(query, list(STREAMS.values()), never) == query


def test_what_spark_cannot_compare_is_refused_with_the_equality(spark):
    with pytest.raises(InputError, match=r"query q cannot join on k = ARRAY\(name\)"):
        typed(spark, "A.k = B.k AND B.k = array(C.name)")
