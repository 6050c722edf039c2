"""Scripts run without a JVM: what comes out is DuckDB's answer, however rows are cut and the engine restarted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from random import Random

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import testing
from penstock.errors import DamagedError, InputError
from tests.kernels.drawn import examples

STREAMS = """
CREATE STREAM T (Room INT, Name STRING, Value DOUBLE, ts TIMESTAMP)
    WITH (format = 'parquet', path = 'in/t', time = 'ts', lateness = '5 seconds');
CREATE STREAM H (Room BIGINT, Name STRING, Value DOUBLE, ts TIMESTAMP)
    WITH (format = 'parquet', path = 'in/h', time = 'ts', lateness = '2 seconds');
"""
QUERIES = {
    "plain": "SELECT T.Room, T.Value AS t, H.Value AS h FROM T, H WHERE T.Room = H.Room WINDOW 20 s",
    "picky": "SELECT T.Room, H.ts FROM T, H WHERE T.Room = H.Room AND H.Value > 50 AND T.Value <> 7 WINDOW 9 s",
    "both": "SELECT T.Value + H.Value AS v FROM T, H WHERE T.Room = H.Room AND T.Value > H.Value WINDOW 15 s",
    "named": "SELECT T.Name, H.Room FROM T, H WHERE lower(T.Name) = lower(H.Name) WINDOW 5 s",
    "counted": "SELECT T.ts AS a, H.ts AS b FROM T [ROWS 3], H [ROWS 2] WHERE T.Room = H.Room",
    "band": "SELECT T.ts AS a, H.ts AS b FROM T, H WHERE T.Value - H.Value BETWEEN -3 AND 3 WINDOW 4 s",
    "interval": "SELECT T.Room FROM T JOIN H ON T.Room = H.Room "
    "AND H.ts BETWEEN T.ts - INTERVAL 5 SECONDS AND T.ts + INTERVAL 2 SECONDS",
    "seconds": "SELECT T.ts AS a, H.ts AS b FROM T, H WHERE T.Room = H.Room "
    "AND CAST(T.ts AS LONG) - CAST(H.ts AS LONG) BETWEEN -3 AND 4 AND NOT unix_seconds(H.ts) > unix_seconds(T.ts) + 2",
    "units": "SELECT T.ts AS a, H.ts AS b FROM T, H WHERE T.Room = H.Room "
    "AND timestampdiff(SECOND, T.ts, H.ts) BETWEEN -2 AND 1",
}
START = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)


def script(*names, **options):
    clause = (
        f" WITH ({', '.join(f'{name} = {value!r}' for name, value in options.items())})" if options else ""
    )
    return STREAMS + "".join(f"CREATE QUERY {name}{clause} AS {QUERIES[name]};\n" for name in names)


def rows(source, count):
    """Rows about a second apart, some out of order, some later than allowed, some without room or value."""
    return [
        {
            "Room": source.choice([1, 2, 3, None]),
            "Name": source.choice(["a", "A", "b", None]),
            "Value": source.choice([7.0, float(source.randrange(100)), None]),
            "ts": START
            + dt.timedelta(
                seconds=number + source.choice([0, 0, 0, -3, -8, 2]),
                microseconds=source.choice([0, 0, 1, 999_999]),
            ),
        }
        for number in range(count)
    ]


@examples(12)
@given(
    st.integers(0, 2**31),
    st.sampled_from([None, 5, 12, "9 seconds", "20 seconds"]),
    st.sets(st.integers(1, 2), max_size=2),
    st.sampled_from([1, 2, 3]),
    st.sampled_from(["none", "filter-order", "sync-filter"]),
)
def test_every_query_is_duckdbs_answer_however_the_rows_come(seed, batch, restarts, tasks, order):
    source = Random(seed)
    streams = {"T": rows(source, 40), "H": rows(source, 40)}
    asked = script(*QUERIES) if order == "none" else script("plain", "both", "counted", order=order)
    restarts = restarts if batch is not None else ()
    run = testing.run(asked, streams, batch=batch, restart_after=restarts, tasks=tasks)
    testing.expect(run)


EXCLUDED = "FROM T JOIN H ON T.Room = H.Room AND H.ts BETWEEN T.ts + INTERVAL 10 SECONDS AND T.ts + INTERVAL 5 SECONDS"
EMPTY = {
    "pairs": ("", f"SELECT T.Room {EXCLUDED}"),
    "windowed": ("", f"SELECT T.Room {EXCLUDED} WINDOW 20 s"),
    "counted": ("", f"SELECT T.Room {EXCLUDED} WINDOW 5 ROWS"),
    "ordered": ("WITH (order = 'filter-order')", f"SELECT T.Room {EXCLUDED}"),
    "sliding": ("", f"SELECT COUNT(*) AS n {EXCLUDED} WINDOW 20 s EVERY 1 s"),
    "final": (
        "WITH (emit = 'final')",
        f"SELECT COUNT(*) AS n {EXCLUDED} GROUP BY date_trunc('minute', H.ts) WINDOW 9 s",
    ),
    "changes": ("WITH (emit = 'changes')", f"SELECT T.Room, COUNT(*) AS n {EXCLUDED} GROUP BY T.Room"),
    "many": ("", f"SELECT T.Room {EXCLUDED} JOIN H H2 ON H2.Room = H.Room AND H2.ts > H.ts"),
}


def test_queries_whose_conditions_exclude_each_other_are_empty_and_leave_the_others_alone():
    source = Random(7)
    streams = {"T": rows(source, 40), "H": rows(source, 40)}
    empty = "".join(f"CREATE QUERY {name} {options} AS {text};\n" for name, (options, text) in EMPTY.items())
    run = testing.run(script("plain") + empty, streams)
    assert [run[name] for name in EMPTY] == [[]] * len(EMPTY)
    assert run["plain"] == testing.run(script("plain"), streams)["plain"]
    assert run["plain"]


def test_results_are_rows_and_the_state_is_what_partners_to_come_may_meet():
    t = [{"Room": 1, "Value": 20.0 + each, "ts": START + dt.timedelta(minutes=each)} for each in range(2)]
    h = [{"room": 1, "value": 80.0, "ts": "2026-01-01 10:00:10"}]
    run = testing.run(script("plain"), {"t": t, "H": h}, ends=False)
    assert run["PLAIN"] == [{"Room": 1, "t": 20.0, "h": 80.0}]
    assert run.state_rows == 2, "those of T, since H has only come to 10:00:08; T is far beyond the row of H"


def test_rows_may_be_a_table_a_data_frame_or_batches():
    row = {"Room": 1, "Name": "x", "Value": 1.0, "ts": START}
    table = pa.table({name: [value] for name, value in row.items()})
    for given_rows in (table, pd.DataFrame([row]), [[row]], [table]):
        assert len(testing.run(script("plain"), {"T": given_rows, "H": [row]})["plain"]) == 1


def test_step_by_step_queries_come_change_and_go():
    row = {"Room": 1, "Name": "x", "Value": 60.0, "ts": START}
    with testing.Session(script("plain")) as session:
        session.send("T", [row])
        session.send("H", [row])
        assert session.results("plain") == [], "nothing is joined before a turn"
        session.turn()
        late = "SELECT T.Value FROM T, H WHERE T.Room = H.Room AND H.Value > 50 WINDOW 9 s"
        session.script(f"CREATE QUERY late AS {late};")
        session.turn()
        assert session.results("late") == [{"Value": 60.0}], "it has got the past that is held"
        testing.expect(session)
        session.restart()
        session.script("DROP QUERY plain;")
        assert [each.name for each in session.queries] == ["late"]
        session.send("T", [{**row, "ts": START - dt.timedelta(minutes=5)}])
        assert [each["ts"] for each in session.late("T")] == [START - dt.timedelta(minutes=5)]


@pytest.mark.parametrize(
    "read", [lambda session: session.results("plain"), lambda session: session.late("T")]
)
def test_a_damaged_file_is_an_error_and_no_other_row(read):
    with testing.Session(script("plain")) as session:
        for stream in "THT":
            session.send(stream, rows(Random(1), 200))
        session.end()
        assert read(session)
        for file in Path(session._folder).rglob("*.parquet"):
            column = pq.read_metadata(file).row_group(0).column(0)
            data = bytearray(file.read_bytes())
            start = column.dictionary_page_offset or column.data_page_offset
            data[start + column.total_compressed_size - 1] ^= 1
            file.write_bytes(data)
        with pytest.raises((DamagedError, OSError), match=r"damaged|checksum"):
            read(session)


def late_run(lateness, batches):
    """Send batches of event times (seconds) to T, one after the other, and give the status and T's late rows."""
    asked = script("plain").replace("lateness = '5 seconds'", f"lateness = '{lateness}'")
    with testing.Session(asked) as session:
        for times in batches:
            rows = [None if each is None else START + dt.timedelta(seconds=each) for each in times]
            session.send("T", [{"Room": 1, "ts": each} for each in rows])
            session.turn()
        return session.status(), session.late("T")


def test_a_status_warns_of_a_stream_with_many_late_rows_and_names_the_lateness_it_lacks():
    status, late = late_run("5 seconds", [[60, 61], [20.5, 30, None], [62, 56]])
    stream = next(each for each in status.to_json()["streams"] if each["name"] == "T")
    assert (stream["rows"], stream["late"], stream["no_time"]) == (7, 2, 1)
    assert (stream["lateness"], stream["behind"]) == (5_000_000, 40_500_000)
    assert stream["late_share"] == 2 / 7
    assert (
        stream["warning"] == "29 % of T late: raise `lateness`, now 5 s; the latest row was 41 s behind"
    )  # to the next second
    assert stream["watermark"] == int((START.timestamp() + 57) * 1e6)
    assert stream["watermark_iso"] == "2026-01-01T10:00:57.000000Z"
    assert [(row["ts"] is None, row["_reason"].split(":")[0]) for row in late] == [
        (False, "late"),
        (False, "late"),
        (True, "no event time"),
    ]


def test_a_status_warns_of_a_tenth_of_the_rows_and_not_of_less():
    shares = {9: True, 10: False}
    for timely, warns in shares.items():
        status, _ = late_run("0 seconds", [range(timely), [-1]])
        assert (status.streams[0].warning is not None) == warns, timely


def test_with_the_lateness_that_is_named_no_row_is_late():
    seed = 11
    source = Random(seed)
    batches = [[source.uniform(0, 100) for _ in range(5)] for _ in range(8)]
    status, late = late_run("1 second", batches)
    stream = status.streams[0]
    assert 0 < stream.late == len(late), f"seed {seed}"
    again, _ = late_run(f"{stream.behind} microseconds", batches)
    assert (again.streams[0].late, again.streams[0].behind) == (0, 0), f"seed {seed}"
    less, _ = late_run(f"{stream.behind - 1} microseconds", batches)
    assert less.streams[0].late == 1, f"seed {seed}"


def test_times_without_a_zone_are_written_as_the_clock_shows_them():
    asked = script("plain").replace("ts TIMESTAMP", "ts TIMESTAMP_NTZ")
    with testing.Session(asked) as session:
        session.send("T", [{"Room": 1, "ts": START.replace(tzinfo=None)}])
        session.turn()
        first, second = session.status().streams
    assert (first.watermark_iso, second.watermark_iso) == ("2026-01-01T09:59:55.000000", None)


@pytest.mark.parametrize(
    ("late", "why"),
    [
        ("SELECT T.Room FROM T, H WHERE T.Room = H.Room WINDOW 9 s", ""),
        (
            "SELECT T.Name FROM T, H WHERE T.Room = H.Room WINDOW 9 s",
            "column Name of T was not stored before",
        ),
        (
            "SELECT T.Name, T.ts, H.Name FROM T, H WHERE T.Room = H.Room WINDOW 9 s",
            "column Name of H was not stored before; columns Name, ts of T were not stored before",
        ),
        (
            "SELECT T.Name FROM T, H WHERE T.Value = H.Value WINDOW 9 s",
            "rows of H that it accepts were not all kept before; rows of T that it accepts were not all kept before",
        ),
    ],
)
def test_a_query_that_comes_late_says_why_rows_that_were_held_are_not_its_past(late, why):
    row = {"Room": 1, "Name": "x", "Value": 60.0, "ts": START}
    with testing.Session(script("plain")) as session:
        session.send("T", [row])
        session.send("H", [row])
        session.turn()
        session.script(f"CREATE QUERY late AS {late};")
        assert [each.lacking for each in session.status().queries] == ["", why]


def test_a_wrong_answer_is_shown_row_by_row():
    row = {"Room": 1, "Value": 1.0, "ts": START}
    run = testing.run(script("plain"), {"T": [row], "H": [row]})
    run.results["plain"].append({"Room": 9, "t": 1.0, "h": 1.0})
    with pytest.raises(
        AssertionError, match=r"query plain: 2 results, DuckDB has 1\n  too many: \(9, 1, 1\)"
    ):
        testing.expect(run)


def test_what_only_spark_knows_says_so():
    asked = (
        STREAMS
        + "CREATE QUERY q AS SELECT sha2(T.Name, 256) AS h FROM T, H WHERE T.Room = H.Room WINDOW 1 s;"
    )
    row = {"Room": 1, "Name": "x", "ts": START}
    with pytest.raises(testing.NeedsSparkError, match=r"SHA2\(.*\) needs Spark"):
        testing.run(asked, {"T": [row], "H": [row]})


def test_a_row_that_is_not_of_its_stream_is_refused_by_name():
    with pytest.raises(InputError, match="stream T has no column Rom: did you mean Room"):
        testing.run(script("plain"), {"T": [{"Rom": 1}]})
    with pytest.raises(InputError, match="stream X does not exist"):
        testing.run(script("plain"), {"X": []})
    with pytest.raises(InputError, match="write it as a dict"):
        testing.run(script("plain"), {"T": [[7]]})
    with pytest.raises(InputError, match=r"row 2 of stream T has 1\.5 in column Room, which is int"):
        testing.run(script("plain"), {"T": [{"Room": 1}, {"Room": 1.5}]})
    with pytest.raises(InputError, match="row 1 of stream T has 'yesterday' in column ts"):
        testing.run(script("plain"), {"T": [{"ts": "yesterday"}]})
    with pytest.raises(InputError, match="give a list of dicts"):
        testing.run(script("plain"), {"T": "in/t.parquet"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 0}, "batch is 0: give a number of rows"),
        ({"batch": "10"}, "batch is '10': give"),
        ({"tasks": 0}, "tasks is 0: it must be 1 or more"),
        ({"restart_after": [5]}, "restart_after has 5, and there are 1 rounds"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        testing.run(script("plain"), {"T": [], "H": []}, **options)


def test_a_query_that_does_not_exist_is_not_taken_for_right():
    run = testing.run(script("plain"), {"T": [], "H": []})
    with pytest.raises(InputError, match="nope"):
        testing.expect(run, "nope")
    with pytest.raises(InputError, match="the session is closed"):
        run.session.results("plain")


def test_a_number_is_no_condition():
    with pytest.raises(InputError, match="is no condition: it is not BOOLEAN"):
        testing.Session(
            STREAMS + "CREATE QUERY q AS SELECT T.Room FROM T, H WHERE T.Room = H.Room AND H.Room WINDOW 1 s;"
        )


def test_rows_of_a_stream_that_nobody_reads_yet_wait_in_its_source():
    row = {"Room": 1, "Value": 60.0, "ts": START}
    pair = "SELECT T.Value FROM T, T U WHERE T.Room = U.Room WINDOW 9 s"
    with testing.Session(f"{STREAMS} CREATE QUERY alone AS {pair};") as session:
        session.send("H", [row])
        session.script(f"CREATE QUERY plain AS {QUERIES['plain']};")
        session.send("T", [row])
        session.turn()
        assert len(session.results("plain")) == 1
        testing.expect(session)


def test_a_stream_may_have_columns_of_any_name():
    asked = """
        CREATE STREAM A (k0 INT, k INT, penstock_t INT, ts TIMESTAMP)
            WITH (format = 'parquet', path = 'a', time = 'ts');
        CREATE STREAM B (k0 INT, k INT, penstock_t INT, ts TIMESTAMP)
            WITH (format = 'parquet', path = 'b', time = 'ts');
        CREATE QUERY q AS SELECT A.k0 AS x, B.penstock_t AS y FROM A, B WHERE A.k = B.k WINDOW 1 s;"""
    rows = [{"k0": n, "k": 7, "penstock_t": n, "ts": START} for n in range(2)]
    run = testing.run(asked, {"A": rows[:1], "B": rows[1:]})
    assert run["q"] == [{"x": 0, "y": 1}]
    testing.expect(run)


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ("CAST(T.Value AS INT)", 2),
        ("CAST(T.ts AS STRING)", "2026-01-01 10:00:00"),
        ("CAST(T.Room AS TIMESTAMP)", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
        ("CAST(T.Room AS DECIMAL(4,1)) / 3", Decimal("0.333333")),
        ("T.ts - H.ts", dt.timedelta(0)),
    ],
)
def test_what_duckdb_alone_computes_otherwise_has_sparks_value_and_is_compared(output, value):
    asked = f"CREATE QUERY q AS SELECT {output} AS v FROM T, H WHERE T.Room = H.Room WINDOW 1 s;"
    row = {"Room": 1, "Value": 2.7, "ts": START}
    run = testing.run(STREAMS + asked, {"T": [row], "H": [row]})
    assert run["q"] == [{"v": value}]
    testing.expect(run)


SECONDS = [
    "CAST({} AS LONG)",
    "{}::INT",
    "CAST({} AS DOUBLE)",
    "unix_seconds({})",
    "unix_millis({})",
    "unix_micros({})",
    "CAST({} AS LONG) / 2",
    "CAST(CAST({} AS LONG) AS STRING)",
]


def test_times_as_numbers_are_duckdbs_before_and_after_1970():
    at = dt.datetime(1969, 12, 31, 23, 59, 50, 400_600, tzinfo=dt.UTC)
    times = [at + dt.timedelta(seconds=number * 1.25) for number in range(20)]
    some = [{"Room": 1, "Name": "a", "Value": 1.0, "ts": time} for time in times]
    outputs = ", ".join(f"{each.format('T.ts')} AS c{number}" for number, each in enumerate(SECONDS))
    asked = f"CREATE QUERY q AS SELECT {outputs} FROM T, H WHERE T.Room = H.Room WINDOW 2 s;"
    run = testing.run(STREAMS + asked, {"T": some, "H": some})
    testing.expect(run)
    assert {row["c0"] for row in run["q"]} >= {-10, -1, 0, 14}


def test_what_depends_on_another_clock_is_refused_before_any_row():
    asked = "SET spark.sql.session.timeZone = 'Europe/Berlin';" + STREAMS
    asked += "CREATE QUERY q AS SELECT hour(T.ts) AS h FROM T, H WHERE T.Room = H.Room WINDOW 1 s;"
    with pytest.raises(testing.NeedsSparkError, match="needs Spark"):
        testing.Session(asked)
