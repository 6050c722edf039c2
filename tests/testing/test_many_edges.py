"""Edges of joins of more than two streams, each a case that once gave too much, too little, or too early a promise."""

from __future__ import annotations

import pytest

from penstock import testing
from penstock.errors import SqlError

NOON = "2026-01-01 12:00:00"


def stream(name, columns, lateness=5):
    return (
        f"CREATE STREAM {name} ({columns}, ts TIMESTAMP) "
        f"WITH (format = 'parquet', path = '{name}', time = 'ts', lateness = '{lateness} seconds');"
    )


def row(**values):
    return {"ts": NOON, **values}


def test_an_input_is_compared_by_all_its_terms_of_one_class():
    """A.k = B.k, A.m = B.k and A.m = B.j make A.k = A.m = B.k = B.j: pairing them off one by one says less."""
    script = (
        stream("A", "k INT, m INT, id INT")
        + stream("B", "k INT, j INT, id INT")
        + stream("C", "id INT")
        + "CREATE QUERY q AS SELECT A.id AS a, B.id AS b FROM A, B, C "
        "WHERE A.k = B.k AND A.m = B.k AND A.m = B.j AND B.id = C.id WINDOW 10 s;"
    )
    rows = {
        "A": [row(k=1, m=2, id=1), row(k=1, m=1, id=2)],
        "B": [row(k=2, j=1, id=1), row(k=1, j=1, id=2)],
        "C": [row(id=1), row(id=2)],
    }
    run = testing.run(script, rows)
    assert run["q"] == [{"a": 2, "b": 2}]
    testing.expect(run)


@pytest.mark.parametrize(
    ("windows", "setting"),
    [(("WINDOW 10 s", "WINDOW 5 ROWS"), ""), (("WINDOW 10 s", "WINDOW 20 s"), "SET strategy = 'isolated';")],
    ids=["counted", "isolated"],
)
def test_other_keys_are_those_of_the_readers_own_logs(windows, setting):
    """A key that may fail is evaluated for rows that somebody wants; another log's readers want other rows."""
    script = stream("A", "k STRING, m STRING, v INT") + stream("B", "k INT") + stream("C", "m INT") + setting
    for number, (window, wanted) in enumerate(zip(windows, ("A.v > 5", "A.v < 5"), strict=True)):
        script += (
            f"CREATE QUERY q{number} AS SELECT A.v FROM A, B, C "
            f"WHERE CAST(A.k AS INT) = B.k AND CAST(A.m AS INT) = C.m AND {wanted} {window};"
        )
    rows = {
        "A": [row(k="1", m="2", v=1), row(k="1", m="2", v=9)],
        "B": [row(k=1)],
        "C": [row(m=2)],
    }
    run = testing.run(script, rows)
    assert (run["q0"], run["q1"]) == ([{"v": 9}], [{"v": 1}])


def at(second):
    return f"2026-01-01 1{second // 3600}:{second % 3600 // 60:02d}:{second % 60:02d}"


def test_a_query_that_comes_later_knows_what_each_partner_let_go():
    """Rows of A wait 5 s for B and 600 s for C, whose watermark is far ahead of B's: they are gone with both.

    ::

        A   300 310        watermark of B 901                         watermark of C 3501
            gone by B from 896 on, by C from 2901 on: what is held of A begins at the earlier, 897
    """
    script = (
        stream("A", "k INT, id INT", 500)
        + stream("B", "k INT, id INT", 0)
        + stream("C", "k INT, id INT", 0)
        + "CREATE QUERY q AS SELECT A.id FROM A, B, C WHERE A.k = B.k AND B.k = C.k "
        "AND B.ts BETWEEN A.ts - INTERVAL 5 SECONDS AND A.ts + INTERVAL 5 SECONDS "
        "AND C.ts BETWEEN A.ts - INTERVAL 600 SECONDS AND A.ts + INTERVAL 600 SECONDS;"
    )
    with testing.Session(script) as session:
        for sent in (
            {"A": [300, 310], "B": [300], "C": [299]},
            {"B": [900], "C": [3500]},
            {"A": [700]},
            *({"B": [901 + turn], "C": [3501 + turn]} for turn in range(6)),
        ):
            for name, times in sent.items():
                key = 2 if name == "C" else 1
                session.send(name, [{"k": key, "id": each, "ts": at(each)} for each in times])
            session.turn()
        session.script("CREATE QUERY p AS SELECT A.id FROM A, B WHERE A.k = B.k WINDOW 1000 s;")
        session.turn()
        session.end()
        testing.expect(session)


def test_what_was_measured_stays_when_another_query_comes():
    script = "".join(stream(name, "k INT, j INT") for name in "ABCDE")
    script += "CREATE QUERY q AS SELECT A.k FROM A, B, C WHERE A.k = B.k AND B.j = C.j WINDOW 20 s;"
    with testing.Session(script) as session:
        for name in "ABC":
            session.send(name, [row(k=each, j=each) for each in range(4)])
        session.turn()
        before = session.status().groups[0].orders
        session.script("CREATE QUERY p AS SELECT D.k FROM D, E WHERE D.k = E.k WINDOW 20 s;")
        after = next(each for each in session.status().groups if each.orders).orders
    assert before == after
    assert before[0].steps[0].fanout is not None


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("A, B CROSS JOIN C WINDOW 5 s", "no condition connects B with A"),
        (
            "A, B, C WHERE A.k = B.k AND B.k = C.k AND B.ts BETWEEN A.ts AND A.ts + INTERVAL 3 SECONDS",
            "needs a window for C",
        ),
    ],
)
def test_what_would_grow_without_a_word_is_refused(query, said):
    script = "".join(stream(name, "k INT") for name in "ABC")
    with pytest.raises(SqlError, match=said):
        testing.run(f"{script}CREATE QUERY q AS SELECT A.k FROM {query};", {})


def test_a_cross_join_says_what_it_comes_to(caplog):
    script = "".join(stream(name, "k INT") for name in "ABC")
    script += "CREATE QUERY q AS SELECT A.k FROM A JOIN B ON A.k = B.k CROSS JOIN C WINDOW 5 s;"
    testing.run(script, {name: [row(k=each) for each in range(3)] for name in "ABC"})
    assert "a row of A meets 3 of C, by the window alone" in caplog.text


def test_results_are_read_back_after_a_query_is_given_a_third_stream():
    streams = "".join(stream(name, "k INT") for name in "ABC")
    two = "SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 5 s"
    with testing.Session(f"{streams}CREATE QUERY q AS {two};") as session:
        for name in "ABC":
            session.send(name, [row(k=1)])
        session.turn()
        session.script("ALTER QUERY q AS SELECT A.k FROM A, B, C WHERE A.k = B.k AND B.k = C.k WINDOW 5 s;")
        session.turn()
        assert {"k": 1} in session.results("q")
