"""How often a source is asked: an option of the stream, which Spark's source does not see.

No JVM: of a DataFrame only its schema is asked, of Spark's writer only what it is told.
"""

from types import SimpleNamespace
from unittest.mock import patch

import pytest

import penstock
from penstock.engine.change.diff import stream_difference
from penstock.engine.sources.ingester import Ingester
from penstock.engine.sources.sources import open_source
from penstock.engine.tasks.parquet_reader import is_plain_parquet
from penstock.errors import InputError
from penstock.sql.script import parse_script
from penstock.state.files import open_files
from tests.engine.sources.test_promised_streams import FakeFrame, FakeReader


def declared(*options: str):
    """Declare a stream with these options."""
    given = ", ".join(["format = 'rate'", "time = 'ts'", *options])
    return parse_script(f"CREATE STREAM S (k BIGINT, ts TIMESTAMP) WITH ({given})").streams["S"]


class FakeWriter:
    """A streaming DataFrame, its session and its writer: keeps what it is told."""

    def __init__(self):
        self.told, self.settings = {}, {}
        self.conf = SimpleNamespace(set=self.settings.__setitem__)
        self.writeStream = self.sparkSession = self
        self.columns = []

    def queryName(self, _):  # noqa: N802 - Spark's name
        return self

    def option(self, *_):
        return self

    def foreachBatch(self, _):  # noqa: N802 - Spark's name
        return self

    def trigger(self, **how):
        self.told |= how
        return self

    def start(self):
        return self


def started(tmp_path, stream, *, once=False):
    """Start an ingester, and give the writer that it has told."""
    writer = FakeWriter()
    store = SimpleNamespace(files=open_files(str(tmp_path)))
    with patch("penstock.engine.sources.ingester.SourceIngest"):  # what becomes of batches is not asked here
        ingester = Ingester(store, None, SimpleNamespace(groups=()), stream, writer, committed=lambda: None)
    ingester.start(once=once)
    return writer


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "100 milliseconds"),
        (("trigger = '2 seconds'",), "2000 milliseconds"),
        (("Trigger = '1 min 30 s'",), "90000 milliseconds"),
        (("trigger = '0 seconds'",), "0 milliseconds"),
        (("trigger = '1 us'",), "1 milliseconds"),
    ],
)
def test_spark_is_told_how_often_to_ask(tmp_path, options, told):
    assert started(tmp_path, declared(*options)).told == {"processingTime": told}


def test_a_run_that_ends_reads_what_is_there(tmp_path):
    assert started(tmp_path, declared("trigger = '2 seconds'"), once=True).told == {"availableNow": True}


def test_sparks_check_for_an_empty_checkpoint_is_off_only_where_a_start_was_cut_off(tmp_path):
    assert started(tmp_path, declared()).settings == {}
    offsets = tmp_path / "checkpoint" / "s" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.5f0c7a5e-0000-4000-8000-000000000000.tmp").write_text("v1")
    check = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
    assert started(tmp_path, declared()).settings == {check: "false"}
    (offsets / "0").write_text("v1")
    assert started(tmp_path, declared()).settings == {}


def test_sparks_source_is_not_told():
    reader = FakeReader()
    with pytest.raises(InputError, match="enough"):
        open_source(reader, declared("TRIGGER = '2 seconds'", "rowsPerSecond = '3'"))
    assert reader.told == {"rowsPerSecond": "3"}


def test_it_does_not_say_how_files_are_read():
    files = "format = 'parquet', path = '/in', time = 'ts'"
    text = f"CREATE STREAM S (k BIGINT, ts TIMESTAMP) WITH ({files}, trigger = '1 s')"
    assert is_plain_parquet(parse_script(text).streams["S"])


def test_it_is_no_part_of_what_a_stream_is():
    for was, now in (((), ("1 s",)), (("1 s",), ("2 s",)), (("1 s",), ())):
        before, after = (declared(*(f"trigger = '{each}'" for each in given)) for given in (was, now))
        assert stream_difference([before], [after]) is None


def test_the_engine_takes_it_by_name(tmp_path):
    with penstock.Engine(tmp_path / "state") as engine:
        engine.stream("a", FakeFrame(), time="ts", trigger="2 seconds")
        assert engine._workload.streams["a"].options == (("trigger", "2 seconds"),)
        assert started(tmp_path, engine._workload.streams["a"]).told == {
            "processingTime": "2000 milliseconds"
        }
        engine.stream("b", FakeFrame(), trigger="0 s")
        for wrong, message in {
            "-1 s": "trigger '-1 s' is negative: it must be 0 or more",
            "2": "trigger '2' has no unit",
            "often": "trigger 'often' is not a length of time",
        }.items():
            with pytest.raises(InputError, match=message):
                engine.stream("c", FakeFrame(), time="ts", trigger=wrong)
        assert set(engine._workload.streams) == {"a", "b"}
