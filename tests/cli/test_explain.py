"""Planning without Spark: what a state knows already is not asked again."""

from dataclasses import replace

from penstock.cli.explain import with_registered_types
from penstock.sql.bind.binder import bind_query
from penstock.sql.query import Column, Key, Stream

COLUMNS = (Column("k", "bigint"), Column("s", "string"), Column("ts", "timestamp"))
STREAMS = {name: Stream(name, COLUMNS, "ts") for name in ("A", "B")}


def test_a_computed_key_has_the_type_that_spark_gave_it_so_that_an_unchanged_query_is_unchanged():
    query = bind_query("q", "SELECT A.k FROM A, B WHERE A.k = B.k AND md5(A.s) = B.s WINDOW 1 s", STREAMS)
    assert query.keys == (Key("MD5(s)", "s"), Key("k", "k"))
    registered = replace(query, keys=(Key("MD5(s)", "s", "string"), Key("k", "k")))
    assert with_registered_types(query, registered) == registered
    assert with_registered_types(query, None) == query
