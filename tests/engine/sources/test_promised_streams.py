"""Streams that promise something, given from Python: declared as in a script, and told apart by what they promise.

No JVM: of a DataFrame only its schema is asked, of Spark's reader only what it is told.
"""

import pytest
from pyspark.sql import types as T  # noqa: N812 - as Spark's own documents have it

import penstock
from penstock.engine.change.diff import stream_difference
from penstock.engine.sources.sources import open_source
from penstock.engine.workload import Workload
from penstock.errors import InputError, SqlError
from penstock.sql.bind.promises import Promise, PromisePattern, promises_of
from penstock.sql.script import parse_script

SCHEMA = T.StructType(
    [
        T.StructField("Item_Id", T.LongType()),
        T.StructField("kind", T.StringType()),
        T.StructField("ts", T.TimestampType()),
    ]
)


class FakeFrame:
    """A streaming DataFrame, as far as a declaration asks."""

    isStreaming = True  # noqa: N815 - Spark's name
    schema = SCHEMA


def workload(**options):
    """Register one stream, Bid."""
    made = Workload()
    made.add_stream("Bid", FakeFrame(), "ts", "0 seconds", options)
    return made


def test_a_stream_of_a_dataframe_promises_what_its_arguments_say():
    bid = workload(punctuation="KIND='closed'", punctuates="item_id", unique="TS").streams["Bid"]
    assert promises_of(bid) == (
        Promise("Bid", (PromisePattern("Item_Id", "value", "Item_Id"),), "kind = 'closed'"),
        Promise("Bid", (PromisePattern("ts", "value", "ts"),), is_data=True),
    )


def test_a_carrier_is_settled_against_its_stream():
    both = workload()
    both.add_stream(
        "Closed", FakeFrame(), "ts", "0 seconds", {"punctuation_of": "BID", "punctuates": "ITEM_ID"}
    )
    assert both.streams["Closed"].options == (("punctuation_of", "Bid"), ("punctuates", "Item_Id"))
    with pytest.raises(SqlError, match="stream Closed carries the promises of Bid and has no rows to join"):
        both.add_query("q", "SELECT B.kind FROM Bid B, Closed C WINDOW 1 s", None, {})
    with pytest.raises(InputError, match="Closed carries the promises of Bid: drop that first"):
        both.drop_stream("bid")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unique": "itm"}, "unique: stream Bid has no column itm"),
        ({"punctuates": "item_id"}, "stream Bid has punctuates without a punctuation"),
        ({"punctuation_of": "Sale", "punctuates": "item_id"}, "Sale, which is not declared before it"),
        ({"promises": "0"}, "promises cannot be 0"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_registered(options, message):
    made = Workload()
    with pytest.raises(InputError, match=message):
        made.add_stream("Bid", FakeFrame(), "ts", "0 seconds", options)
    assert not made.streams


def test_a_state_is_compared_by_what_is_promised_and_not_by_how_it_is_written():
    was, same, other = (
        workload(punctuation=condition, punctuates="item_id").streams["Bid"]
        for condition in ("kind = 'closed'", "(Kind) == 'closed'", "kind = 'ended'")
    )
    assert stream_difference([was], [same]) is None
    assert "its option punctuation was \"kind = 'closed'\"" in stream_difference([was], [other])
    assert "it had no option punctuates" in stream_difference(workload().streams.values(), [same])


class FakeReader:
    """A reader that keeps what it is told, and then says that this is all."""

    def __init__(self):
        self.told = {}

    @property
    def readStream(self):  # noqa: N802 - Spark's name
        return self

    def format(self, _):
        return self

    def option(self, name, value):
        self.told[name] = value
        return self

    def load(self):
        raise ValueError("enough")


def test_sparks_source_is_not_told_of_promises():
    text = """CREATE STREAM Bid (item_id BIGINT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', rowsPerSecond = '3',
      Punctuation = 'item_id > 5', Punctuates = 'item_id', Unique = 'ts', Promises = '7', Retain = '1 min')"""
    reader = FakeReader()
    with pytest.raises(InputError, match="enough"):
        open_source(reader, parse_script(text).streams["Bid"])
    assert reader.told == {"rowsPerSecond": "3"}


def test_the_engine_takes_them_by_name(tmp_path):
    with penstock.Engine(tmp_path / "state") as engine:
        engine.stream("Bid", FakeFrame(), time="ts", unique="item_id", promises=5)
        engine.stream("Closed", FakeFrame(), time="ts", punctuation_of="Bid", punctuates="item_id")
        with pytest.raises(InputError, match="add punctuates = '<column>'"):
            engine.stream("Sale", FakeFrame(), time="ts", punctuation="kind = 'closed'")


def test_the_engine_takes_the_ordered_column_by_name(tmp_path):
    with penstock.Engine(tmp_path / "state") as engine:
        engine.stream("a", FakeFrame(), ordered="item_id")
        engine.stream("b", FakeFrame())
        assert engine._workload.streams["a"].options == (("ordered", "Item_Id"),)
        with pytest.raises(InputError, match="ordered column item is not a column of c: "):
            engine.stream("c", FakeFrame(), ordered="item")
        with pytest.raises(InputError, match="declare ordered = 'Item_Id' on b"):
            engine.query("q", "SELECT a.item_id FROM a, b WHERE a.item_id = b.item_id")
        engine.stream("d", FakeFrame(), scrambling=3)
        engine.query("q", "SELECT a.item_id FROM a, d WHERE a.item_id = d.item_id")
        assert engine._workload.queries["q"].oblivious
