"""Whole scripts: each statement, and what stands after the last."""

import pytest

from penstock.sql.query import FOREVER, Column, Range, Sink
from penstock.sql.script import (
    AlterQuery,
    CreateQuery,
    CreateStream,
    DropQuery,
    DropStream,
    Explain,
    SetOption,
    ShowQueries,
    altered,
    parse_script,
)
from penstock.sql.text.windows import WindowSpec
from tests.sql.streams import STREAMS

S = 1_000_000
SURFACE = """
CREATE STREAM Temperature (LocationId BIGINT, Value DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/temperature', time = 'ts', lateness = '5 seconds',
        maxFilesPerTrigger = '2');
CREATE STREAM Humidity    (LocationId BIGINT, Value DOUBLE, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'data/humidity', time = 'ts', lateness = '5 seconds');

CREATE QUERY q1 WITH (sink = 'parquet', path = 'out/q1') AS
SELECT A.* FROM Temperature A, Humidity B
WHERE A.LocationId = B.LocationId
WINDOW 1 min;

CREATE QUERY q2 WITH (sink = 'parquet', path = 'out/q2', order = 'adaptive') AS
SELECT A.LocationId, A.Value AS t, B.Value AS h, A.ts AS a_ts, B.ts AS b_ts
FROM Temperature A JOIN Humidity B ON A.LocationId = B.LocationId
WHERE A.Value > 30 AND B.Value BETWEEN 10 AND 20
WINDOW 60 min;

SET strategy = 'mem-opt';        -- mem-opt | cpu-opt | pull-up | push-down | isolated
SET scheduler = 'mqt';           -- lwo | swf | mqt
"""
OK = "SELECT A.v FROM A, B WHERE A.k = B.k WINDOW 1 s"
DECLARED = "(k BIGINT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts')"


def test_the_example_of_the_surface_reads_as_it_should():
    script = parse_script(SURFACE)
    q1, q2 = script.queries
    temperature = script.streams["Temperature"]
    assert temperature.columns[1] == Column("Value", "double")
    assert (temperature.format, temperature.time, temperature.lateness) == ("parquet", "ts", 5 * S)
    assert temperature.options == (("path", "data/temperature"), ("maxFilesPerTrigger", "2"))
    assert q1.signature == q2.signature
    assert (q1.left, q1.right) == ("Humidity", "Temperature")
    assert q1.window == Range(-60 * S + 1, 60 * S)
    assert q2.window == Range(-3600 * S + 1, 3600 * S)
    assert q2.left_predicates == ("Value <= 20", "Value >= 10")
    assert q2.right_predicates == ("Value > 30",)
    assert q2.sink == Sink("parquet", (("path", "out/q2"),))
    assert q2.options == (("order", "adaptive"),)
    assert [each.name for each in q2.outputs] == ["LocationId", "t", "h", "a_ts", "b_ts"]
    assert script.settings == {"strategy": "mem-opt", "scheduler": "mqt"}
    assert q1.text.startswith("SELECT A.*")
    assert q1.text.endswith("WINDOW 1 min")


def test_every_statement_is_kept_in_order():
    text = f"""
    /* all of them */ create stream S {DECLARED}; Drop Stream s; set Memory = 2G;
    CREATE QUERY `my q` AS {OK};; ALTER QUERY `MY Q` SET WINDOW 5 min;
    SHOW QUERIES; EXPLAIN; EXPLAIN `my Q`;
    DROP QUERY `my Q`; DROP QUERY elsewhere;
    SET spark.sql.shuffle.Partitions = 4 -- the last needs no semicolon
    """
    script = parse_script(text, STREAMS)
    kinds = [type(each) for each in script.statements]
    assert kinds == [
        CreateStream, DropStream, SetOption, CreateQuery, AlterQuery, ShowQueries, Explain, Explain,
        DropQuery, DropQuery, SetOption,
    ]  # fmt: skip
    assert script.statements[1:3] == (DropStream("S"), SetOption("memory", "2g"))
    assert script.statements[4] == AlterQuery("my q", WindowSpec("range", 300 * S, "5 min"))
    assert script.statements[6:10] == (
        Explain(None),
        Explain("my q"),
        DropQuery("my q"),
        DropQuery("elsewhere"),
    )
    assert script.settings == {"memory": "2g", "spark.sql.shuffle.Partitions": "4"}
    assert (script.queries, script.streams) == ((), {})


def test_an_empty_script_says_nothing():
    assert parse_script(" -- nothing\n").statements == ()


def test_alter_replaces_the_window_clauses_and_keeps_conditions_on_time():
    select = "SELECT A.v FROM A [RANGE 9 s] x -- old\n, B [NOW] WHERE x.k = B.k AND x.ts <= B.ts"
    script = parse_script(
        f"CREATE QUERY q AS {select.replace('A.v', 'x.v')}; ALTER QUERY q SET WINDOW 5 s", STREAMS
    )
    (query,) = script.queries
    assert query.window == Range(0, 5 * S)
    assert query.text.endswith("\nWINDOW 5 s")
    assert "RANGE" not in query.text
    assert script.statements[0].query.window == Range(0, 9 * S)


def test_alter_goes_over_from_time_to_rows_and_back():
    text = f"CREATE QUERY q AS {OK}; ALTER QUERY q SET WINDOW 500 ROWS"
    (query,) = parse_script(text, STREAMS).queries
    assert (query.window, query.rows) == (Range(-500, 500), (True, True))
    (query,) = parse_script(f"{text}; ALTER QUERY q SET WINDOW 5 s", STREAMS).queries
    assert (query.window, query.rows) == (Range(-5 * S + 1, 5 * S), (False, False))


def test_a_name_is_free_again_after_drop():
    text = f"CREATE QUERY q AS {OK}; DROP QUERY Q; CREATE QUERY q AS {OK.replace('1 s', '2 s')}"
    assert [each.window.hi for each in parse_script(text, STREAMS).queries] == [2 * S]


def test_known_streams_are_visible_but_not_part_of_the_script():
    script = parse_script(f"CREATE QUERY q AS {OK}", STREAMS)
    assert script.streams == {}
    assert script.queries[0].left == "A"


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("DECIMAL(10,2)", "decimal(10,2)"),
        ("decimal", "decimal(10,0)"),
        ("NUMERIC(5)", "decimal(5,0)"),
        ("LONG", "bigint"),
        ("INTEGER NOT NULL", "int"),
        ("STRING COMMENT 'a, b'", "string"),
        ("ARRAY<MAP<STRING, INT>>", "array<map<string,int>>"),
        ("STRUCT<a: INT, `b c`: ARRAY<STRING>, D STRING>", "struct<a:int,`b c`:array<string>,D:string>"),
        ("STRUCT<`x.y`: STRUCT<`it``s`: INT>>", "struct<`x.y`:struct<`it``s`:int>>"),
        ("TIMESTAMP_NTZ", "timestamp_ntz"),
        ("TIMESTAMP_LTZ", "timestamp"),
        ("STRING COLLATE UTF8_LCASE NOT NULL", "string collate UTF8_LCASE"),
        ("ARRAY<string collate unicode_ci>", "array<string collate UNICODE_CI>"),
        ("STRING COLLATE UTF8_BINARY", "string"),
        ("VARIANT", "variant"),
        ("ARRAY<ARRAY<ARRAY<INT>>>", "array<array<array<int>>>"),
        ("INTERVAL DAY TO SECOND", "interval day to second"),
    ],
)
def test_any_spark_type_may_be_declared(declared, kind):
    text = f"CREATE STREAM S (`a b` {declared}, day DATE) WITH (format = 'rate', time = 'DAY')"
    declared_stream = parse_script(text).streams["S"]
    assert declared_stream.columns[0] == Column("a b", kind)
    assert declared_stream.time == "day"


def test_options_of_the_source_keep_their_case_and_may_have_dots():
    text = """CREATE STREAM S (k INT, ts TIMESTAMP) WITH (FORMAT = 'kafka', Time = 'ts',
      'kafka.bootstrap.servers' = 'h:1', startingOffsets = "earliest", kafka.group.id = 'g',
      maxOffsetsPerTrigger = 10, RETAIN = '7 days', Trigger = '1 s', minPartitions = -1)"""
    assert parse_script(text).streams["S"].options == (
        ("kafka.bootstrap.servers", "h:1"),
        ("startingOffsets", "earliest"),
        ("kafka.group.id", "g"),
        ("maxOffsetsPerTrigger", "10"),
        ("retain", "7 days"),
        ("trigger", "1 s"),
        ("minPartitions", "-1"),
    )


@pytest.mark.parametrize(
    ("options", "sink", "own"),
    [
        ("", Sink("table"), ()),
        ("WITH (sink = 'console')", Sink("console"), ()),
        ("WITH (sink = 'NOOP', alpha = 0.5)", Sink("noop"), (("alpha", "0.5"),)),
        (
            "WITH (path = 'o', sink = 'parquet', compression = 'ZSTD', max_lag = '2 s', idle_after = '1 m')",
            Sink("parquet", (("path", "o"), ("compression", "zstd"))),
            (("idle_after", "1 m"), ("max_lag", "2 s")),
        ),
    ],
)
def test_the_options_of_a_query_are_its_sink_and_its_own(options, sink, own):
    (query,) = parse_script(f"CREATE QUERY q {options} AS {OK}", STREAMS).queries
    assert (query.sink, query.options) == (sink, own)


def test_a_thousand_queries_are_read_in_seconds():
    text = ";\n".join(f"CREATE QUERY q{i} AS {OK}" for i in range(1000))
    assert len(parse_script(text, STREAMS).queries) == 1000


def test_unbounded_on_both_sides_is_the_whole_of_time():
    (query,) = parse_script(
        "CREATE QUERY q AS SELECT 1 FROM A [UNBOUNDED], B [RANGE UNBOUNDED] WHERE A.k = B.k", STREAMS
    ).queries
    assert query.window == Range(-FOREVER + 1, FOREVER)


def test_a_query_can_be_defined_anew_and_keeps_its_sink():
    select = "SELECT A.v FROM A, B WHERE A.k = B.k AND A.v > 1 WINDOW 5 s"
    script = parse_script(f"CREATE QUERY q WITH (sink = 'noop') AS {OK}; ALTER QUERY Q AS {select}", STREAMS)
    (query,) = script.queries
    assert query.sink.kind == "noop"
    assert query.left_predicates == ("v > 1",)
    assert script.statements[-1] == AlterQuery("q", select=select)
    elsewhere = parse_script(f"ALTER QUERY other AS {select}", STREAMS)
    assert altered(query, elsewhere.statements[0], STREAMS) == query
