"""Queries read as streams: what they are then, and what is refused, with the place and the way out."""

from __future__ import annotations

import pytest

from penstock.errors import InputError, SqlError
from penstock.sql.query import Column, Results
from penstock.sql.script import parse_script

STREAMS = (
    "".join(
        f"CREATE STREAM S{number} (epoch BIGINT, d DATE, v DOUBLE, t STRING) WITH (format = 'parquet', path = 's', "
        "ordered = 'epoch');\n"
        for number in range(1, 5)
    )
    + "CREATE STREAM T (epoch BIGINT, v DOUBLE, ts TIMESTAMP) WITH (format = 'parquet', path = 't', time = 'ts');\n"
)
Q1 = (
    "CREATE QUERY q1 AS SELECT S1.epoch, S2.epoch AS same, S1.v AS v1, CAST(S1.v + S2.v AS FLOAT) AS both, "
    "S1.v + S2.v AS `to tal` FROM S1, S2 WHERE S1.epoch = S2.epoch;\n"
)
Q2 = "CREATE QUERY q2 AS SELECT q1.epoch, q1.v1, S3.v FROM q1, S3 WHERE q1.epoch = S3.epoch;\n"


def test_a_query_is_a_stream_of_its_columns_known_by_their_order_of_arrival():
    script = parse_script(STREAMS + Q1 + Q2)
    stream = script.inputs["q1"]
    assert stream.columns == (
        Column("epoch", "bigint"),
        Column("same", "bigint"),
        Column("v1", "double"),
        Column("both", "float"),
    )
    assert stream.timeless
    assert stream.results == Results(("epoch", "same"), ("to tal",))
    assert script.queries[1].streams == ("q1", "S3")
    assert script.queries[1].oblivious


def test_names_are_found_whatever_their_case_and_streams_go_before_queries():
    script = parse_script(
        STREAMS + Q1 + "CREATE QUERY q2 AS SELECT x.V1 FROM Q1 x, S3 WHERE X.SAME = s3.epoch"
    )
    assert script.queries[1].streams == ("q1", "S3")
    own = "CREATE QUERY S3 AS SELECT S1.epoch FROM S1, S2 WHERE S1.epoch = S2.epoch;"
    read = parse_script(
        f"{STREAMS}{own} CREATE QUERY q2 AS SELECT S3.t FROM S3, S4 WHERE S3.epoch = S4.epoch"
    )
    assert read.inputs["S3"].results is None


def test_a_script_reads_queries_that_were_created_elsewhere():
    before = parse_script(STREAMS + Q1)
    after = parse_script(Q2, before.streams, before.queries)
    assert [each.name for each in after.queries] == ["q2"]
    with pytest.raises(SqlError, match="query q1 is read by q2: drop that first"):
        parse_script(Q2 + "DROP QUERY q1", before.streams, before.queries)


REFUSED = {
    "a column that is computed": (
        "SELECT q1.>>`to tal`<< FROM q1, S3 WHERE q1.epoch = S3.epoch",
        "column to tal of query q1 is computed, and its type is unknown: write CAST(... AS <type>) AS `to tal` there",
    ),
    "all columns": (
        "SELECT >>*<< FROM q1, S3 WHERE q1.epoch = S3.epoch",
        "column to tal of query q1 is computed",
    ),
    "all of one": (
        "SELECT >>q1.*<< FROM q1, S3 WHERE q1.epoch = S3.epoch",
        "column to tal of query q1 is computed",
    ),
    "no such column": (
        "SELECT q1.>>v2<< FROM q1, S3 WHERE q1.epoch = S3.epoch",
        "query q1 has no column v2: choose one of: epoch, same, v1, both",
    ),
    "no such query": (
        "SELECT S3.v FROM >>windwed<< w, S3 WHERE w.epoch = S3.epoch",
        "stream windwed is not declared",
    ),
    "itself": (
        "SELECT S3.v FROM >>q<<, S3 WHERE q.epoch = S3.epoch",
        "q cannot read its own results: name another query, or a stream",
    ),
    "what has no order": (
        ">>SELECT S3.v FROM q1, S3 WHERE q1.v1 = S3.v<<",
        "so its order is unknown: join on q1.epoch or q1.same, or let it write to a parquet sink",
    ),
    "something computed of it": (
        ">>SELECT S3.v FROM q1, S3 WHERE q1.epoch + 1 = S3.epoch<<",
        "q is joined with q1 on epoch + 1, which is not the join column of q1 itself",
    ),
    "a window": (
        ">>SELECT q1.v1 FROM q1, T WHERE q1.epoch = T.epoch<< WINDOW 1 min",
        "q has a window, and the results of query q1 have no event time: leave windows and conditions on time out",
    ),
    "a query with a window": (
        "SELECT S3.v FROM >>windowed<< w, S3 WHERE w.epoch = S3.epoch",
        "windowed has a window, and queries read only joins without one directly: let it write to a parquet",
    ),
    "aggregates": (
        "SELECT S3.v FROM >>counted<< c, S3 WHERE c.epoch = S3.epoch",
        "counted answers with aggregates, which a join cannot read directly: let it write to a parquet sink",
    ),
}


@pytest.mark.parametrize(("select", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_where_it_stands(select, message):
    others = (
        "CREATE QUERY windowed AS SELECT x.epoch FROM T x, T y WHERE x.epoch = y.epoch WINDOW 1 min;\n"
        "CREATE QUERY counted AS SELECT x.epoch, COUNT(*) AS n FROM T x, T y WHERE x.epoch = y.epoch GROUP BY x.epoch "
        "WINDOW 1 min EVERY 1 min;\n"
    )
    start, end = select.index(">>"), select.index("<<") - len(">>")
    text = f"CREATE QUERY q AS {select.replace('>>', '').replace('<<', '')}"
    with pytest.raises(SqlError) as refused:
        parse_script(STREAMS + Q1 + others + text)
    assert message in refused.value.message
    place = refused.value.place
    assert (place.column - 1, place.length) == (len("CREATE QUERY q AS ") + start, end - start)


CHANGES = {
    "drop": ("DROP QUERY q1", "query q1 is read by q2: drop that first"),
    "columns": (
        "ALTER QUERY q1 AS SELECT S1.epoch FROM S1, S2 WHERE S1.epoch = S2.epoch",
        "columns must stay as they are (epoch bigint, same bigint, v1 double, both float): drop that first, or create",
    ),
    "a window": (
        "ALTER QUERY q1 AS SELECT T.epoch FROM T, T u WHERE T.epoch = u.epoch WINDOW 1 s",
        "query q1 is read by q2: q1 has a window",
    ),
    "a circle": (
        "ALTER QUERY q1 AS SELECT q2.epoch FROM q2, S1 WHERE q2.epoch = S1.epoch",
        "q2 reads the results of q1, which cannot read them again",
    ),
    "a stream of its name": (
        "CREATE STREAM Q1 (epoch BIGINT) WITH (format = 'parquet', path = 'x')",
        "q2 reads the results of query Q1: give the stream another name",
    ),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_who_is_read_stays_as_it_is(change, message):
    with pytest.raises(InputError) as refused:
        parse_script(STREAMS + Q1 + Q2 + change)
    assert message in str(refused.value)


def test_conditions_of_a_query_that_is_read_may_change():
    changed = Q1.replace("CREATE", "ALTER").replace(";", " AND S1.v > 0;")
    script = parse_script(STREAMS + Q1 + Q2 + changed)
    assert script.queries[0].left_predicates == ("v > 0",)


def test_a_query_is_suggested_for_a_name_that_is_like_its_own():
    named = Q1.replace("q1", "located")
    with pytest.raises(SqlError, match="stream loacted is not declared: did you mean located"):
        parse_script(
            STREAMS + named + "CREATE QUERY q2 AS SELECT S3.v FROM loacted x, S3 WHERE x.epoch = S3.epoch"
        )
