"""Secrets of a source go to Spark and nowhere else; what does not change a row's meaning may change."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.engine.change.diff import stream_difference
from penstock.errors import InputError, Place, SqlError
from penstock.sql.query import Column, Stream
from penstock.sql.script import parse_script
from penstock.sql.source_options import REDACTED, is_secret, redacted, why_unknown, without_stream_secrets
from penstock.state.codec import to_json

SECRETS = (
    "password",
    "kafka.sasl.jaas.config",
    "kafka.ssl.key.password",
    "kafka.ssl.keystore.key",
    "kafka.ssl.truststore.password",
    "kafka.ssl.keystore.certificate.chain",
    "kafka.sasl.oauthbearer.client.secret",
    "fs.s3a.secret.key",
    "fs.s3a.access.key",
    "aws.session.token",
    "azure.account.key",
    "my.apiKey",
    "eventhubs.sharedAccessSignature",
    "MY_PASSWD",
    "credentials",
)
OPEN = (
    "path",
    "subscribe",
    "kafka.bootstrap.servers",
    "header",
    "kafka.ssl.keystore.location",
    "maxFilesPerTrigger",
)
HUSH = "hush-4711"


def stream(**options: str) -> Stream:
    columns = (Column("k", "bigint"), Column("ts", "timestamp"))
    return Stream("s", columns, "ts", 0, "kafka", tuple(options.items()))


def test_what_spark_and_kafka_take_for_secret_is_secret() -> None:
    assert all(map(is_secret, SECRETS))
    assert not any(map(is_secret, OPEN))


@given(st.lists(st.tuples(st.sampled_from(SECRETS + OPEN), st.text(max_size=9))))
def test_a_stream_in_json_has_no_secret_and_says_which_are_missing(
    given_options: list[tuple[str, str]],
) -> None:
    options = {name: f"{HUSH}{value}" if is_secret(name) else value for name, value in given_options}
    again = without_stream_secrets(stream(**options))
    assert HUSH not in json.dumps(to_json(again))
    assert redacted(again.options) == [name for name in options if is_secret(name)]
    kept = {name: value for name, value in again.options if not is_secret(name)}
    assert kept == {name: value for name, value in options.items() if not is_secret(name)}


@pytest.mark.parametrize(
    "value",
    [
        f"mongodb://me:{HUSH}@host/db",
        f"https://host/x?sig=1&token={HUSH}&y=2",
        f"jdbc:x://host;password={HUSH}",
    ],
)
def test_a_login_in_a_url_is_a_secret_and_the_rest_of_it_is_kept(value: str) -> None:
    written = json.dumps(to_json(without_stream_secrets(stream(uri=value))))
    assert HUSH not in written
    assert "host" in written
    assert REDACTED in written


# What may change

FREE = {
    "maxFilesPerTrigger": "1", "MAXFILESPERTRIGGER": "2", "maxOffsetsPerTrigger": "5", "kafka.fetch.max.bytes": "7",
    "kafka.bootstrap.servers": "b2", "failOnDataLoss": "false", "cleanSource": "archive", "startingOffsets": "latest",
    "password": "other", "kafka.sasl.jaas.config": "other", "trigger": "2 seconds",
    "ordered": "k",
}  # fmt: skip


@pytest.mark.parametrize("name", FREE)
def test_an_option_that_leaves_rows_as_they_are_may_come_change_and_go(name: str) -> None:
    with_it, without = stream(subscribe="t", **{name: FREE[name]}), stream(subscribe="t")
    for was, now in (
        (with_it, without),
        (without, with_it),
        (with_it, stream(subscribe="t", **{name: "new"})),
    ):
        assert stream_difference([without_stream_secrets(was)], [now]) is None


def test_another_case_or_order_of_options_is_the_same_declaration() -> None:
    was, now = stream(subscribe="t", Header="x"), stream(header="x", SUBSCRIBE="t")
    assert stream_difference([was], [replace(now, format="Kafka")]) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lateness": 5_000_000}, "its lateness was 0 seconds"),
        (
            {"time": "k2", "columns": (Column("k", "bigint"), Column("k2", "timestamp"))},
            "its columns were k bigint, ts",
        ),
        ({"format": "csv"}, "its format was kafka"),
        ({"options": (("subscribe", "u"),)}, "its option subscribe was 't'"),
        ({"options": ()}, "its option subscribe was 't'"),
        ({"options": (("subscribe", "t"), ("header", "x"))}, "it had no option header"),
        ({"options": (("subscribe", "t"), ("retain", "1 hour"))}, "it had no option retain"),
        ({"name": "S"}, "it was called s"),
    ],
)
def test_whatever_changes_what_a_row_means_is_another_stream(change: dict[str, object], said: str) -> None:
    now = replace(stream(subscribe="t"), **change)  # type: ignore[arg-type]
    difference = stream_difference([stream(subscribe="t")], [now])
    assert difference is not None
    assert difference.startswith(f"stream {now.name} is not declared as it was: {said}")


def test_a_stream_does_not_print_its_options() -> None:
    assert HUSH not in repr(stream(password=HUSH))


# Errors

SCRIPT = f"""CREATE STREAM s (k BIGINT, v INT, ts TIMESTAMP) WITH (format = 'x.Source', time = 'ts', subscribe = 't',
  kafka.sasl.jaas.config = 'org.x.Login required username="me" password="{HUSH}";', password = "{HUSH}", token={HUSH},
  `ssl.key.password` = '{HUSH}', uri = 'db://me:{HUSH}@host/x', lateness = '1 s');
SET spark.hadoop.fs.s3a.secret.key = '{HUSH}';
CREATE QUERY q AS SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW 1 MIN;
"""
NAMES = (
    "kafka.sasl.jaas.config =",
    " password =",
    "token=",
    "`ssl.key.password` =",
    "secret.key =",
    "://me:",
)


@given(
    st.integers(0, len(SCRIPT)),
    st.integers(0, 12),
    st.sampled_from(["", "'", '"', ",", ")", "(", ";", "=", " ", "x", "`"]),
)
def test_no_error_about_a_script_shows_a_secret_wherever_the_script_is_damaged(
    at: int, cut: int, put: str
) -> None:
    """What is secret is told by names, so those are left whole."""
    text = SCRIPT[:at] + put + SCRIPT[at + cut :]
    assume(all(text.count(name) == SCRIPT.count(name) for name in NAMES))
    assert HUSH not in complaint(text), text


def complaint(text: str) -> str:
    """Give what is said about a script, if anything."""
    try:
        parse_script(text)
    except InputError as error:
        return str(error)
    return ""


# Misspelt options

KNOWN = {
    "parquet": "path mergeSchema maxfilespertrigger fs.s3a.endpoint parquet.crypto.factory.class int96RebaseMode",
    "csv": "path HEADER sep delimiter multiLine mode columnNameOfCorruptRecord unescapedQuoteHandling cleanSource",
    "json": "path primitivesAsString timestampNTZFormat recursiveFileLookup ignoreMissingFiles",
    "orc": "path mergeSchema maxFileAge",
    "text": "path wholetext lineSep",
    "avro": "path avroSchema mode",
    "xml": "path rowTag",
    "kafka": "kafka.bootstrap.servers subscribe startingOffsets maxOffsetsPerTrigger kafkaConsumer.pollTimeoutMs",
    "rate": "rowsPerSecond rampUpTime numPartitions",
    "socket": "host port",
    "org.me.Source": "whatever it takes",
}


def declared(source: str, names: str) -> str:
    """Write a CREATE STREAM with these options."""
    options = "".join(f", {name} = 'x'" for name in names.split())
    return f"CREATE STREAM s (k BIGINT, ts TIMESTAMP) WITH (format = '{source}', time = 'ts', trigger = '1 s'{options})"


@pytest.mark.parametrize("source", KNOWN)
def test_options_that_a_source_knows_pass_in_any_case(source: str) -> None:
    (stream,) = parse_script(declared(source, KNOWN[source])).streams.values()
    assert [name for name, _ in stream.options] == ["trigger", *KNOWN[source].split()]


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        ("parquet", "maxFilePerTrigger", "did you mean maxFilesPerTrigger?"),
        ("CSV", "haeder", "did you mean header?"),
        ("parquet", "header", "leave it out"),
        ("kafka", "startingOffset", "did you mean startingOffsets?"),
        ("kafka", "password", "leave it out"),
        ("rate", "rowPerSecond", "did you mean rowsPerSecond?"),
        ("json", "state_ttl", "leave it out"),
        ("binaryfile", "pathGlobFiltr", "did you mean pathGlobFilter?"),
    ],
)
def test_an_option_that_a_source_would_ignore_is_refused(source: str, name: str, said: str) -> None:
    path = "" if source in {"kafka", "rate"} else "path "
    text = declared(source, path + name)
    with pytest.raises(SqlError) as caught:
        parse_script(text)
    message = f"option {name} is unknown to a {source.lower()} source, which would ignore it: {said}"
    assert caught.value.message == message
    assert caught.value.place == Place(1, text.index(name) + 1, len(name))


@pytest.mark.parametrize(
    ("written", "short"),
    [
        ("org.apache.spark.sql.execution.datasources.v2.csv.CSVDataSourceV2", "csv"),
        ("org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat", "parquet"),
        ("org.apache.spark.sql.execution.datasources.binaryfile.BinaryFileFormat", "binaryfile"),
        ("org.apache.spark.sql.execution.streaming.sources.RateStreamProvider", "rate"),
        ("org.apache.spark.sql.execution.streaming.sources.RatePerMicroBatchProvider", "rate-micro-batch"),
        ("org.apache.spark.sql.execution.streaming.sources.TextSocketSourceProvider", "socket"),
        ("org.apache.spark.sql.kafka010.KafkaSourceProvider", "kafka"),
        ("org.apache.spark.sql.avro.AvroFileFormat", "avro"),
        ("org.apache.spark.sql.json", "json"),
        ("org.apache.spark.sql.execution.datasources.orc.DefaultSource", "orc"),
        ("com.databricks.spark.csv", "csv"),
    ],
)
def test_a_source_may_be_written_as_a_class_of_sparks(written: str, short: str) -> None:
    message = f"option nonsense is unknown to a {short} source, which would ignore it: leave it out"
    assert why_unknown(written, "nonsense", ()) == message


@pytest.mark.parametrize("written", ["org.apache.spark.sql.me.Source", "org.me.CSVDataSourceV2", "iceberg"])
def test_options_of_other_classes_are_known_to_them_only(written: str) -> None:
    assert why_unknown(written, "nonsense", ()) == ""
