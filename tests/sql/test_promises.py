"""What a stream says about rows that will not come: every way to declare it, and every way to get it wrong."""

# ruff: noqa: E501 - one case a line

from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from penstock.engine.change.diff import stream_difference
from penstock.errors import InputError, SqlError
from penstock.sql.bind.promises import (
    DEFAULT_BUDGET,
    PROMISE_OPTIONS,
    Promise,
    PromisePattern,
    carriers_of,
    promise_budget,
    promises_of,
    settled_promises,
)
from penstock.sql.query import Stream
from penstock.sql.script import parse_script
from penstock.sql.source_options import is_free, without_stream_secrets
from penstock.sql.spark_types import parse_type, widens
from penstock.state.codec import from_json, to_json
from tests.sql.streams import stream as declared
from tests.sql.test_errors import check

COLUMNS = (
    "Item_Id bigint, small int, price double, amount decimal(10,2), kind string, told string collate UTF8_LCASE, "
    "done boolean, day date, raw binary, items array<int>, words array<string>, lo int, hi bigint, "
    "place struct<City:string,zip:int>, attrs map<string,int>, any variant, for interval day, ts timestamp"
)
BID = declared("Bid", COLUMNS)
CLOSED = declared(
    "Closed", "auction int, items array<bigint>, lo smallint, kind string, at timestamp", time="at"
)


def bid(**options: str) -> Stream:
    """Declare Bid with options about promises."""
    return replace(BID, options=tuple(options.items()))


def closed(**options: str) -> Stream:
    """Declare a stream that carries promises of Bid."""
    return replace(CLOSED, options=(("punctuation_of", "bid"), *options.items()))


def value(column: str, low: str = "") -> PromisePattern:
    """Give the pattern of one value."""
    return PromisePattern(column, "value", low or column)


class TestLegalForms:
    """What is declared is what is promised, with names as they are declared."""

    @pytest.mark.parametrize(
        ("punctuates", "patterns"),
        [
            ("item_id", (value("Item_Id"),)),
            ("ITEM_ID = Small", (value("Item_Id", "small"),)),
            ("item_id IN items", (PromisePattern("Item_Id", "list", "items"),)),
            ("item_id in ITEMS", (PromisePattern("Item_Id", "list", "items"),)),
            ("item_id BETWEEN lo AND hi", (PromisePattern("Item_Id", "range", "lo", "hi"),)),
            ("`item_id`, kind, day", (value("Item_Id"), value("kind"), value("day"))),
            (
                "item_id between lo and hi,kind IN words",
                (PromisePattern("Item_Id", "range", "lo", "hi"), PromisePattern("kind", "list", "words")),
            ),
            ("ts", (value("ts"),)),
            ("done", (value("done"),)),
            ("for", (value("for"),)),
            ("raw BETWEEN raw AND raw", (PromisePattern("raw", "range", "raw", "raw"),)),
            ("amount IN items", None),
            ("price BETWEEN small AND price", (PromisePattern("price", "range", "small", "price"),)),
        ],
    )
    def test_punctuates(self, punctuates, patterns):
        """Each form gives its patterns, in the order of the text."""
        stream = bid(punctuation="kind = 'closed'", punctuates=punctuates)
        if patterns is None:
            with pytest.raises(InputError, match="does not become"):
                promises_of(stream)
        else:
            assert promises_of(stream) == (Promise("Bid", patterns, "kind = 'closed'"),)

    def test_unique(self):
        """Every row is the last of its values, and data."""
        assert promises_of(bid(unique="ITEM_ID, ts")) == (
            Promise("Bid", (value("Item_Id"), value("ts")), "", is_data=True),
        )

    def test_both(self):
        """A stream may have punctuations and be unique."""
        first, second = promises_of(bid(punctuation="done", punctuates="kind", unique="item_id"))
        assert (first.condition, first.is_data) == ("done", False)
        assert second == Promise("Bid", (value("Item_Id"),), is_data=True)

    def test_a_carrier(self):
        """Left stand the columns of the other stream, right those of its own."""
        carrier = settled_promises(closed(punctuates="ITEM_ID = Auction, KIND"), {"Bid": BID})
        assert promises_of(carrier) == (Promise("Bid", (value("Item_Id", "auction"), value("kind"))),)
        assert carrier.punctuation_of == "Bid"
        assert carriers_of("BID", {"Bid": BID, "Closed": carrier}) == ["Closed"]

    def test_a_carrier_of_which_some_rows_mean_nothing(self):
        """With a condition, only rows for which it holds are promises."""
        (promise,) = promises_of(
            closed(punctuates="item_id BETWEEN lo AND auction", punctuation="KIND='end'")
        )
        assert promise.condition == "kind = 'end'"

    def test_nearly_all_streams(self):
        """A stream without these options promises nothing."""
        assert promises_of(BID) == ()
        assert settled_promises(BID, {}) is BID
        assert (BID.punctuation_of, promise_budget(BID)) == ("", DEFAULT_BUDGET)

    def test_the_number_remembered(self):
        """It is read as a number; a stream may have it for the promises that another carries."""
        assert promise_budget(bid(promises=" 100000 ")) == 100_000
        assert promises_of(bid(promises="5")) == ()


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("kind = 'closed'", "kind = 'closed'"),
        ("KIND='closed' and Bid.PRICE is null", "kind = 'closed' AND price IS NULL"),
        ("done", "done"),
        ("NOT (done)", "NOT done"),
        ("place.City = 'x'", "place.City = 'x'"),
        ("exists(items, lo -> lo > 3)", "EXISTS(items, lo_1 -> lo_1 > 3)"),
        ("my_function(price)", "MY_FUNCTION(price)"),
        ("CAST(kind AS BOOLEAN)", "CAST(kind AS BOOLEAN)"),
        ("done OR NOT (kind)", "done OR NOT kind"),
        ("done AND NOT any", "done AND NOT `any`"),
        ("NOT " * 3000 + "done", "NOT " * 3000 + "done"),
        ("unix_timestamp(ts) > 5", "UNIX_TIMESTAMP(ts) > 5"),
    ],
)
def test_a_condition_is_written_in_one_way(text, condition):
    """Names as declared, brackets where needed; written again it stays as it is."""
    (promise,) = promises_of(bid(punctuation=text, punctuates="item_id"))
    assert promise.condition == condition
    assert promises_of(bid(punctuation=condition, punctuates="item_id")) == (promise,)


WRONG = [
    # options that need each other
    (
        {"punctuation": "done"},
        "stream Bid has punctuation without punctuates: add punctuates = '<column>'",
    ),
    (
        {"punctuates": "item_id"},
        "stream Bid has punctuates without a punctuation: add punctuation",
    ),
    ({"punctuation_of": "Other"}, "stream Bid has punctuation_of without punctuates"),
    (
        {"punctuation_of": "BID", "punctuates": "item_id"},
        "punctuation_of of stream Bid names the stream itself: leave it out",
    ),
    ({"punctuation_of": " ", "punctuates": "item_id"}, "punctuation_of names no stream"),
    (
        {"punctuation_of": "A", "unique": "item_id"},
        "has no data: declare unique with A",
    ),
    # the number remembered
    (
        {"promises": "0"},
        "promises cannot be 0: it is how many promises stream Bid remembers, a whole number from 1",
    ),
    ({"promises": "-1"}, "promises cannot be -1"),
    ({"promises": "1.5"}, "promises cannot be 1.5"),
    ({"promises": "many"}, "promises cannot be many"),
    ({"promises": "9" * 5000}, "promises cannot be 999"),
    ({"promises": ""}, "promises cannot be "),
    # the form of lists
    ({"unique": ""}, "unique '' cannot be read: write 'item_id', or several columns with commas"),
    ({"unique": "item_id kind"}, "unique 'item_id kind' cannot be read"),
    ({"unique": "item_id = small"}, "unique 'item_id = small' cannot be read"),
    ({"unique": "kind, item_id, ITEM_ID"}, "unique names item_id twice: a column can stand there once"),
    ({"unique": "itm_id"}, "unique: stream Bid has no column itm_id: did you mean Item_Id?"),
    (
        {"unique": "place"},
        "unique names place, which is struct<City:string,zip:int>: a promise is about plain values",
    ),
]
PUNCTUATES = [
    (
        "",
        "punctuates '' cannot be read: write 'item_id', 'item_id = auction', 'item_id IN items', 'item_id BETWEEN lo AND hi'",
    ),
    ("item_id,", "cannot be read"),
    ("item_id IN (1, 2)", "cannot be read"),
    ("item_id BETWEEN lo", "cannot be read"),
    ("item_id BETWEEN AND hi", "cannot be read"),
    ("item_id > lo", "cannot be read"),
    ("place.zip", "cannot be read"),
    ("item_id 'x", "cannot be read"),
    ("item_id = 'x", "cannot be read"),
    ("item_id, ITEM_ID IN items", "punctuates names item_id twice: a column can stand there once"),
    ("itemid", "punctuates: stream Bid has no column itemid: did you mean Item_Id?"),
    ("item_id = smal", "punctuates: stream Bid has no column smal: did you mean small?"),
    ("item_id BETWEEN lo AND high", "stream Bid has no column high"),
    ("items", "punctuates names items, which is array<int>: a promise is about plain values"),
    ("attrs", "punctuates names attrs, which is map<string,int>"),
    ("any", "punctuates names any, which is variant"),
    (
        "told",
        "punctuates names told, which is string collate UTF8_LCASE: a promise is about plain values, compared byte by byte. Name a column of numbers, of text without a collation, or of times",
    ),
    (
        "item_id IN small",
        "punctuates has Item_Id IN small, and small is int: IN needs a column that is an array. For one value write Item_Id = small",
    ),
    (
        "item_id IN words",
        "punctuates compares Item_Id, which is bigint, with words: words holds string, which does not become bigint without loss",
    ),
    (
        "small = item_id",
        "punctuates compares small, which is int, with Item_Id: Item_Id is bigint, which does not become int without loss. Give both one type",
    ),
    ("kind = told", "told is string collate UTF8_LCASE, which does not become string"),
    ("ts = day", "day is date, which does not become timestamp without loss"),
    ("small BETWEEN lo AND hi", "hi is bigint, which does not become int without loss"),
    (
        "done BETWEEN done AND done",
        "punctuates has a range of done, which is boolean: a range is of numbers, texts, times or binary values. Write done = done, or done IN an array",
    ),
    ("for BETWEEN for AND for", "punctuates has a range of for, which is interval day"),
]
CONDITIONS = [
    (
        "",
        "punctuation '': there is nothing in it: write a condition on the columns of Bid, such as kind = 'closed'",
    ),
    ("knd = 'closed'", "unknown column knd: did you mean kind?"),
    ("Bd.kind = 'closed'", "unknown stream or alias Bd: did you mean Bid?"),
    ("kind =", "cannot read it at =: write a condition on the columns of Bid"),
    ("kind = 'closed' extra", "found extra: write a condition on the columns of Bid"),
    ("kind = 'closed", "this ' is never closed: write a condition"),
    ("kind", "punctuation 'kind' is string, and no condition: compare it with something"),
    ("(price)", "punctuation '(price)' is double, and no condition"),
    ("place.zip", "is int, and no condition"),
    ("price + 1", "punctuation 'price + 1' is a number, and no condition"),
    ("-price", "is a number, and no condition"),
    ("kind || 'x'", "is a string, and no condition"),
    ("kind::int", "is int, and no condition"),
    ("CAST(kind AS DATE)", "is date, and no condition"),
    ("done AND price", "is double, and no condition"),
    ("NOT day", "is date, and no condition"),
    ("done AND 5", "is a number, and no condition"),
    (
        "TRUE",
        "punctuation 'TRUE' reads no column, so that it holds for every row or for none: write a condition on a column",
    ),
    ("'closed'", "reads no column"),
    ("1 = 1", "reads no column"),
    (
        "count(*) > 1",
        "punctuation 'count(*) > 1' has an aggregate: a condition must depend on one row",
    ),
    ("price = max(price)", "has an aggregate"),
    ("first(price) > 1", "the aggregate FIRST is not supported: write a condition"),
    ("explode(items) > 1", "EXPLODE, which returns several rows, is not supported: write a condition"),
    ("(SELECT 1) = price", "a subquery is not supported: write a condition"),
    (
        "row_number() OVER (ORDER BY ts) = price",
        "a window function (OVER) is not supported: write a condition",
    ),
    (
        "rand() < price",
        "punctuation 'rand() < price' has rand(), which may return another value for the same row: use columns alone",
    ),
    ("kind = uuid()", "has uuid(), which may return another value"),
    ("ts < current_timestamp", "has current_timestamp(), which may return another value"),
    ("ts < now()", "has now(), which may return another value"),
    ("unix_timestamp() > lo", "has unix_timestamp(), which may return another value"),
    ("struct(*) IS NULL AND rand() > 0.5", "has rand()"),
]
CASES = [
    *WRONG,
    *(({"punctuation": "done", "punctuates": text}, message) for text, message in PUNCTUATES),
    *(({"punctuates": "item_id", "punctuation": text}, message) for text, message in CONDITIONS),
]


def quoted(text: str) -> str:
    """Write a text as a string of SQL."""
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize(("options", "message"), CASES, ids=str)
def test_what_is_wrong_is_said(options, message):
    """From Python there is nothing to point at; the message says it all."""
    with pytest.raises(InputError) as caught:
        promises_of(bid(**options))
    assert message in str(caught.value)
    assert not isinstance(caught.value, SqlError)


@pytest.mark.parametrize(("options", "message"), CASES, ids=str)
def test_a_script_points_at_the_option_that_is_wrong(options, message):
    """The caret stands under the value of the first option that cannot be right."""
    columns = ", ".join(f"`{each.name}` {each.type}" for each in BID.columns)
    with pytest.raises(InputError) as plain:
        promises_of(bid(**options))
    written = [
        f"  {key.upper()} = {'>>' * (key == plain.value.option)}{quoted(text)}"
        for key, text in options.items()
    ]
    listed = ",\n".join(written)
    check(
        parse_script,
        f"CREATE STREAM Bid ({columns})\nWITH (format = 'rate', time = 'ts',\n{listed})",
        message,
    )


SCRIPT = """CREATE STREAM Bid (item_id BIGINT, note STRING, ts TIMESTAMP) WITH (format = 'rate', time = 'ts');
CREATE STREAM A (item_id BIGINT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts');
CREATE STREAM Closed (Auction INT, far DECIMAL(20,0), ts TIMESTAMP)
  WITH (format = 'rate', time = 'ts', Punctuation_Of = 'BID', PUNCTUATES = 'Item_ID = auction');
"""
CARRIERS = [
    (
        "CREATE STREAM C (x INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', punctuates = 'item_id = x', punctuation_of = >>'Bdi')",
        "stream C carries the promises of Bdi, which is not declared before it: did you mean Bid?",
    ),
    (
        "CREATE STREAM C (x INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', punctuates = 'item_id = x', punctuation_of = >>'closed')",
        "stream Closed carries the promises of Bid itself: name a stream that has rows",
    ),
    (
        "CREATE STREAM C (x INT, ts DATE) WITH (format = 'rate', time = 'ts', punctuates = 'item_id = x', punctuation_of = >>'Bid')",
        "the time of C is date and that of Bid is timestamp, which cannot be compared in every zone",
    ),
    (
        "CREATE STREAM C (x INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', punctuates = >>'item_id', punctuation_of = 'Bid')",
        "punctuates: stream C has no column item_id",
    ),
    (
        "CREATE STREAM C (x INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', punctuates = >>'x', punctuation_of = 'Bid')",
        "punctuates: stream Bid has no column x",
    ),
    (
        "CREATE STREAM C (x STRING, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', punctuates = >>'item_id = x', punctuation_of = 'Bid')",
        "x is string, which does not become bigint without loss",
    ),
    (
        "CREATE STREAM C (x INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', punctuates = 'item_id = x', punctuation_of = 'Bid', punctuation = >>'note = 1')",
        "unknown column note",
    ),
    (
        "CREATE QUERY q AS SELECT * FROM Bid B, >>closed C WHERE B.item_id = C.auction WINDOW 1 s",
        "stream Closed carries the promises of Bid and has no rows to join: join Bid",
    ),
    ("DROP STREAM >>bid", "Closed carries the promises of Bid: drop that first"),
    (
        "CREATE STREAM C (x INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', >>punctuaton = 'x = 1')",
        "unknown option punctuaton: did you mean punctuation?",
    ),
    (
        "CREATE STREAM C (x INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', >>punctuate = 'x')",
        "unknown option punctuate: did you mean punctuates?",
    ),
    (
        "CREATE STREAM C (x INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', >>uniqe = 'x')",
        "unknown option uniqe: did you mean unique?",
    ),
    (
        "CREATE STREAM C (x INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', >>punctuationof = 'x')",
        "unknown option punctuationof: did you mean punctuation_of?",
    ),
    (
        "CREATE STREAM C (x INT, ts TIMESTAMP) WITH (format = 'rate', time = 'ts', >>promise = '5')",
        "unknown option promise: did you mean promises?",
    ),
]


@pytest.mark.parametrize(("statement", "message"), CARRIERS)
def test_what_needs_the_other_stream(statement, message):
    """A carrier is checked against the stream whose promises it carries, and nobody joins it."""
    check(parse_script, SCRIPT + statement, message)


def test_a_carrier_may_be_dropped_and_then_its_stream():
    """In that order nothing is left without what it is about."""
    assert set(parse_script(f"{SCRIPT}DROP STREAM Closed; DROP STREAM Bid").streams) == {"A"}


class TestDeclarations:
    """What is kept of a declaration."""

    def test_options_are_kept_in_lower_case_with_names_as_declared(self):
        """So two declarations that promise the same are equal."""
        closed = parse_script(SCRIPT).streams["Closed"]
        assert closed.options == (("punctuation_of", "Bid"), ("punctuates", "item_id = Auction"))
        assert settled_promises(closed, parse_script(SCRIPT).streams) == closed

    def test_the_stream_of_the_promises_must_be_declared(self):
        """A carrier alone cannot be checked."""
        streams = parse_script(SCRIPT).streams
        with pytest.raises(InputError, match="not declared before it"):
            settled_promises(streams["Closed"], {})

    def test_a_state_knows_them(self):
        """A stream goes through the journal and promises the same."""
        stream = settled_promises(
            bid(
                punctuation="kind = 'closed'", punctuates="item_id IN items, kind", unique="ts", promises="9"
            ),
            {},
        )
        again = from_json(to_json(without_stream_secrets(stream)), Stream)
        assert again == stream
        assert promises_of(again) == promises_of(stream)

    def test_other_promises_are_another_stream(self):
        """None of these options is free."""
        assert not any(map(is_free, PROMISE_OPTIONS))
        was, now = bid(unique="item_id"), bid(unique="kind")
        assert (
            stream_difference([was], [now])
            == "stream Bid is not declared as it was: its option unique was 'item_id'"
        )
        assert (
            stream_difference([BID], [now]) == "stream Bid is not declared as it was: it had no option unique"
        )


NUMBERS = ["tinyint", "smallint", "int", "bigint"]


class TestWidening:
    """Values that become others without loss, and in their order."""

    def test_whole_numbers(self):
        """Narrow to wide, and never back."""
        for narrow, wide in pairwise(NUMBERS):
            assert widens(parse_type(narrow), parse_type(wide))
            assert not widens(parse_type(wide), parse_type(narrow))

    @pytest.mark.parametrize(
        ("narrow", "wide"),
        [
            ("tinyint", "decimal(3,0)"), ("int", "decimal(12,2)"), ("bigint", "decimal(19,0)"), ("smallint", "float"),
            ("decimal(5,2)", "decimal(6,3)"), ("float", "double"), ("int", "double"), ("string", "string"),
            ("date", "date"), ("timestamp", "timestamp"), ("binary", "binary"), ("BIGINT", "long"),
        ],
    )  # fmt: skip
    def test_these_fit(self, narrow, wide):
        """All values are there in the wider type."""
        assert widens(parse_type(narrow), parse_type(wide))

    @pytest.mark.parametrize(
        ("narrow", "wide"),
        [
            ("tinyint", "decimal(2,0)"), ("int", "decimal(11,2)"), ("bigint", "decimal(18,0)"), ("int", "float"),
            ("decimal(5,2)", "decimal(6,1)"), ("decimal(5,2)", "decimal(5,3)"), ("double", "float"), ("bigint", "double"),
            ("decimal(5,0)", "bigint"), ("decimal(3,1)", "double"), ("string", "int"), ("int", "string"),
            ("date", "timestamp"), ("date", "timestamp_ntz"), ("timestamp_ntz", "timestamp"), ("boolean", "int"),
            ("string collate UTF8_LCASE", "string"), ("string", "string collate UTF8_LCASE"), ("binary", "string"),
        ],
    )  # fmt: skip
    def test_these_do_not(self, narrow, wide):
        """Some value would be lost, or its place in the order."""
        assert not widens(parse_type(narrow), parse_type(wide))

    def test_why_a_date_is_no_timestamp(self):
        """Samoa had no 30 December 2011: that day and the next begin at one instant."""
        zone = ZoneInfo("Pacific/Apia")
        last = datetime(2011, 12, 29, 23, 59, 59, tzinfo=zone).timestamp()
        assert datetime(2011, 12, 31, tzinfo=zone).timestamp() == last + 1
