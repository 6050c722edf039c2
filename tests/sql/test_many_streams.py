"""Joins of three streams and more: what is joined, on which equalities, and how far apart rows may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SqlError
from penstock.sql.bind.binder import bind_query, with_window
from penstock.sql.bind.canonical import MIRROR
from penstock.sql.query import FOREVER, Edge, Key, Range, closed
from penstock.sql.text.tokens import Source
from penstock.sql.text.windows import read_spec
from tests.sql.streams import stream
from tests.sql.test_errors import check

S = 1_000_000
STREAMS = {
    "Orders": stream("Orders", "id bigint, k bigint, Value double, ts timestamp"),
    "Payments": stream(
        "Payments", "id bigint, order_id int, k bigint, amount double, paid timestamp", time="paid"
    ),
    "Shipments": stream("Shipments", "id bigint, payment_id bigint, k bigint, Value double, ts timestamp"),
}
FULFILLED = """SELECT O.id, P.amount, S.Value FROM Orders O, Payments P, Shipments S
    WHERE O.id = P.order_id AND P.id = S.payment_id"""


def bind(text):
    """Bind a SELECT over orders, payments and shipments as q3."""
    return bind_query("q3", text, STREAMS)


def even(window, count=3):
    """Give the limits of one window for all."""
    return tuple(tuple(1 if i == j else window for j in range(count)) for i in range(count))


def limits(text):
    """Give the limits of a join of all three streams on k."""
    condition, _, window = text.partition("|")
    joined = "SELECT O.id FROM Orders O, Payments P, Shipments S WHERE O.k = P.k AND P.k = S.k"
    return bind(f"{joined} {condition} {window}").graph.limits


def test_a_query_of_three_streams_is_a_graph():
    query = bind(f"{FULFILLED} AND O.Value > 30 AND S.Value > O.Value WINDOW 30 s")
    assert query.streams == ("Orders", "Payments", "Shipments")
    assert (query.left, query.right, query.keys) == ("Orders", "Payments", ())
    assert query.graph.edges == (
        Edge(0, 1, Key("id", "order_id", "bigint")),
        Edge(1, 2, Key("id", "payment_id")),
    )
    assert query.graph.limits == even(30 * S)
    assert query.window == Range(0, 30 * S)
    assert query.predicates("i0") == ("Value > 30",)
    assert query.residual == ("i0.Value < i2.Value",)
    assert [each.expression for each in query.outputs] == ["i0.id", "i1.amount", "i2.Value"]
    assert [query.columns(side) for side in query.sides] == [{"id", "Value"}, {"amount"}, {"Value"}]
    assert query.comparisons == ()


@pytest.mark.parametrize(
    "text",
    [
        "FROM Shipments S, Orders O, Payments P WHERE S.payment_id = P.id AND P.order_id = O.id WINDOW 30 s",
        "FROM Orders O JOIN Payments P ON O.id = P.order_id JOIN Shipments S ON P.id = S.payment_id WINDOW 30 s",
        "FROM Orders O, Payments P JOIN Shipments S ON P.id = payment_id WHERE O.id = order_id WINDOW 30 s",
        (
            "FROM Shipments S [RANGE 30 s] CROSS JOIN payments p INNER JOIN Orders O [RANGE 30 s]"
            " ON o.ID = order_id WHERE p.Id = payment_id AND order_id = O.id WINDOW 30 s"
        ),
    ],
)
def test_the_order_of_the_text_does_not_matter(text):
    written, other = bind(f"{FULFILLED} WINDOW 30 s"), bind(f"SELECT O.id, P.amount, S.Value {text}")
    assert (other.graph, other.outputs, other.signature) == (
        written.graph,
        written.outputs,
        written.signature,
    )


TABLES = ("Orders O [RANGE 5 s]", "Payments P [ROWS 7]", "Shipments S [RANGE 1 h]")
TIMED = ("Orders O [RANGE 5 s]", "Payments P [NOW]", "Shipments S [UNBOUNDED]")
CONDITIONS = (
    ("O.id", "=", "P.order_id"),
    ("P.id", "=", "S.payment_id"),
    ("O.k", "=", "S.k"),
    ("O.ts", "<", "S.ts"),
    ("P.paid", ">=", "S.ts"),
    ("O.Value", "<=", "S.Value"),
    ("P.amount", ">", "30"),
)


@given(
    st.sampled_from((TABLES, TIMED)).flatmap(st.permutations),
    st.permutations(CONDITIONS),
    st.lists(st.booleans(), min_size=len(CONDITIONS), max_size=len(CONDITIONS)),
)
def test_any_order_of_streams_conditions_and_their_sides_is_the_same_query(tables, conditions, turned):
    texts = [
        f"{right} {MIRROR[sign]} {left}" if turn else f"{left} {sign} {right}"
        for (left, sign, right), turn in zip(conditions, turned, strict=True)
    ]
    other = bind(f"SELECT S.id FROM {', '.join(tables)} WHERE {' AND '.join(texts)}")
    straight = " AND ".join(map(" ".join, CONDITIONS))
    query = bind(f"SELECT S.id FROM {', '.join(sorted(tables))} WHERE {straight}")
    assert (other.graph, other.residual, other.rows) == (query.graph, query.residual, query.rows)
    assert other.outputs == query.outputs


table = st.integers(3, 5).flatmap(
    lambda n: st.lists(st.lists(st.integers(-4, 9), min_size=n, max_size=n), min_size=n, max_size=n)
)


@given(table, st.data())
def test_closed_limits_admit_the_same_times_and_each_is_reached(table, data):
    """Times within the limits are within the closed ones; and for each closed limit some times come right up to it."""
    count = len(table)
    limits = tuple(tuple(1 if i == j else table[i][j] for j in range(count)) for i in range(count))
    whole = closed(limits, FOREVER)
    times = data.draw(st.lists(st.integers(0, 10), min_size=count, max_size=count))
    assert within(times, limits) == within(times, whole)
    if all(whole[i][j] + whole[j][i] > 1 for i in range(count) for j in range(count)):
        i = data.draw(st.integers(0, count - 1))
        latest = [whole[i][j] - 1 for j in range(count)]  # each as much later than i as it may be
        assert within(latest, limits)


def within(times, limits):
    """Say whether times are within limits."""
    return all(
        second - first < limits[i][j]
        for i, first in enumerate(times)
        for j, second in enumerate(times)
        if i != j
    )


def test_a_stream_may_come_more_than_once_and_keeps_its_order():
    query = bind(
        "SELECT y.id FROM Shipments x, Orders o, Shipments y WHERE x.k = o.k AND y.id = x.id WINDOW 1 s"
    )
    assert query.streams == ("Orders", "Shipments", "Shipments")
    assert query.graph.edges == (Edge(0, 1, Key("k", "k")), Edge(1, 2, Key("id", "id")))
    assert query.outputs[0].column == ("i2", "id")


def test_windows_with_the_same_equalities_share_and_with_others_do_not():
    short, long = bind(f"{FULFILLED} WINDOW 30 s"), bind(f"{FULFILLED} WINDOW 1 h")
    more = bind(f"{FULFILLED} AND O.k = S.k WINDOW 30 s")
    assert short.signature == long.signature != more.signature


# --- windows ----------------------------------------------------------------------------------------------------------


def test_the_window_of_a_stream_limits_what_is_younger_than_its_row():
    query = bind(
        "SELECT O.id FROM Shipments S [NOW], Orders O [RANGE 10 s], Payments P [UNBOUNDED] "
        "WHERE O.k = P.k AND P.k = S.k"
    )
    assert query.graph.limits == ((1, 10 * S, 10 * S), (FOREVER, 1, FOREVER), (1, 1, 1))


def test_a_bound_between_two_event_times_reaches_the_third_over_them():
    table = limits(
        "AND P.paid BETWEEN O.ts AND O.ts + INTERVAL 5 SECONDS AND S.ts <= P.paid + INTERVAL 2 SECONDS"
    )
    assert table == (
        (1, 5 * S + 1, 7 * S + 1),
        (1, 1, 2 * S + 1),
        (FOREVER, FOREVER, 1),
    )


def test_a_bound_is_intersected_with_the_window():
    assert limits("AND O.ts <= P.paid | WINDOW 10 s") == (
        (1, 10 * S, 10 * S),
        (1, 1, 10 * S),
        (10 * S, 10 * S, 1),
    )


def test_a_bound_may_leave_out_equal_times():
    """T_P >= T_O + 3 s: an order is at least that much older than its payment."""
    table = limits("AND P.paid >= O.ts + INTERVAL 3 SECONDS | WINDOW 10 s")
    assert table[1][0] == 1 - 3 * S
    assert (
        table[2][0] == 7 * S
    )  # a shipment is less than 10 s older than the payment, hence 7 s than the order


def test_bounds_that_go_by_the_clock_are_wide_and_asked_of_each_result():
    text = "SELECT O.id FROM Orders O, Payments P, Shipments S WHERE O.k = P.k AND P.k = S.k"
    condition = "AND P.paid <= O.ts + INTERVAL 1 DAY WINDOW 10 days"
    query = bind_query("q", f"{text} {condition}", STREAMS, zone="Europe/Oslo")
    assert query.graph.limits[0][1] > 86_400 * S + 1
    assert len(query.residual) == 1


def test_windows_may_count_rows_of_some_streams_and_then_conditions_on_time_are_asked_of_each_result():
    query = bind(
        "SELECT O.id FROM Orders O [ROWS 5], Payments P [RANGE 1 s], Shipments S [ROWS 2] "
        "WHERE O.k = P.k AND P.k = S.k AND P.paid > O.ts"
    )
    assert query.rows == query.signature.rows == (True, False, True)
    assert query.graph.limits == ((1, 5, 5), (S, 1, S), (2, 2, 1))
    assert query.residual == ("i0.ts < i1.paid",)


def test_equal_event_times_are_a_key_only_where_nothing_else_joins_the_two():
    apart = bind(
        "SELECT O.id FROM Orders O, Payments P, Shipments S WHERE O.ts = P.paid AND P.k = S.k WINDOW 1 s"
    )
    assert apart.graph.edges == (Edge(0, 1, Key("ts", "paid")), Edge(1, 2, Key("k", "k")))
    tables = "Orders O, Payments P, Shipments S"
    over = f"SELECT O.id FROM {tables} WHERE O.ts = P.paid AND P.k = S.k AND O.k = S.k WINDOW 1 s"
    assert bind(over).graph.edges == (Edge(0, 2, Key("k", "k")), Edge(1, 2, Key("k", "k")))
    assert bind(over).graph.limits[0][1] == bind(over).graph.limits[1][0] == 1


def test_alter_sets_all_windows_and_leaves_conditions():
    before = bind(
        "SELECT O.id FROM Orders O [NOW], Payments P [UNBOUNDED], Shipments S [RANGE 1 h] "
        "WHERE O.k = P.k AND P.k = S.k AND O.ts <= P.paid"
    )
    window = read_spec(Source("WINDOW 10 s"), Source("WINDOW 10 s").tokens, "q3")
    assert with_window(before, window, STREAMS).graph.limits == (
        (1, 10 * S, 10 * S),
        (1, 1, 10 * S),
        (10 * S, 10 * S, 1),
    )


# --- conditions and columns -------------------------------------------------------------------------------------------


def test_an_equality_of_more_than_one_stream_on_a_side_is_asked_of_each_result():
    query = bind(
        "SELECT O.id FROM Orders O, Payments P, Shipments S WHERE O.k + P.k = S.k AND O.k = P.k WINDOW 1 s"
    )
    assert query.graph.edges == (Edge(0, 1, Key("k", "k")),)
    assert query.residual == ("i0.k + i1.k = i2.k",)


def test_predicates_that_may_fail_stand_behind_what_guards_them():
    query = bind(f"{FULFILLED} AND S.Value > 0 AND 10 DIV S.id > 1 WINDOW 1 s")
    assert query.predicates("i2") == ("Value > 0", "(Value > 0) AND (10 DIV id > 1)")


def test_cross_join_says_that_every_row_meets_every_row():
    query = bind("SELECT O.id FROM Orders O CROSS JOIN Payments P JOIN Shipments S ON P.k = S.k WINDOW 1 s")
    assert query.graph.edges == (Edge(1, 2, Key("k", "k")),)


def names(text):
    """Name the output columns of a SELECT."""
    return [each.name for each in bind(text).outputs]


def test_using_joins_with_the_column_before_it_and_star_lists_it_once():
    text = "SELECT * FROM Orders O JOIN Payments P USING (k) JOIN Shipments S USING (K) WINDOW 1 s"
    query = bind(text)
    assert query.graph.edges == (Edge(0, 1, Key("k", "k")), Edge(0, 2, Key("k", "k")))
    assert [each.expression for each in query.outputs].count("i0.k") == 1
    assert names(text) == [
        *("k", "id", "Value", "ts", "P_id", "order_id", "amount", "paid"),
        *("S_id", "payment_id", "S_Value", "S_ts"),
    ]


def test_the_columns_of_the_last_using_come_first():
    text = "SELECT * FROM Orders O JOIN Payments P USING (k) JOIN Shipments S USING (Value) WINDOW 1 s"
    assert names(text)[:3] == ["Value", "k", "id"]
    assert names(text)[-4:] == ["S_id", "payment_id", "S_k", "S_ts"]


def test_an_unqualified_column_of_using_is_the_first():
    query = bind(
        "SELECT k FROM Orders O JOIN Payments P USING (k) JOIN Shipments S USING (k) WHERE k > 1 WINDOW 1 s"
    )
    assert query.outputs[0].column == ("i0", "k")
    assert query.predicates("i0") == ("k > 1",)


def test_an_on_sees_the_streams_before_it_only():
    """`Value` is a column of Shipments too, which comes later."""
    query = bind(
        "SELECT O.id FROM Orders O JOIN Payments P ON Value = amount JOIN Shipments S ON S.id = P.id WINDOW 1 s"
    )
    assert query.graph.edges[0] == Edge(0, 1, Key("Value", "amount"))


# --- aggregates -------------------------------------------------------------------------------------------------------


def aggregate(tail, options=None, select="COUNT(*) AS n"):
    """Bind an aggregate over all three streams."""
    text = f"SELECT {select} FROM Shipments S, Orders O, Payments P WHERE O.k = P.k AND P.k = S.k {tail}"
    return bind_query("q3", text, STREAMS, options=options)


def test_sliding_answers_look_back_by_the_window_of_each_stream():
    tables = "Shipments S [NOW], Orders O [RANGE 60 s], Payments P"
    query = bind(f"SELECT COUNT(*) AS n FROM {tables} WHERE O.k = P.k AND P.k = S.k WINDOW 30 s")
    assert (query.aggregation.reach, query.aggregation.every) == ((60 * S, 30 * S, 1), S)
    assert aggregate("WINDOW 10 s EVERY 2 s").aggregation.every == 2 * S


def test_a_bucket_of_final_answers_names_its_stream():
    query = aggregate(
        "GROUP BY date_trunc('hour', S.ts) WINDOW 30 s",
        {"emit": "final"},
        "date_trunc('hour', S.ts) AS h, COUNT(*) AS n",
    )
    assert query.aggregation.bucket.side == "i2"
    assert query.aggregation.reach == (0, 0, 0)
    assert query.outputs[query.aggregation.bucket.end].expression.startswith(
        "UNIX_MICROS(DATE_TRUNC('hour', i2.ts))"
    )


def test_changes_of_many_streams():
    query = aggregate("GROUP BY O.k WINDOW 1 h", {"emit": "changes"}, "O.k, MAX(P.amount) AS m")
    assert query.aggregation.emit == "changes"
    assert [each.expression for each in query.outputs] == ["i0.k", "i1.amount"]


# --- what is refused --------------------------------------------------------------------------------------------------

SEVENTEEN = ", ".join(f"Orders o{number}" for number in range(16))

WRONG = [
    (
        f"SELECT o1.id FROM {SEVENTEEN}, >>Orders o16 WINDOW 1 s",
        "q3 joins 17 streams: 16 are the maximum. Join some of them in a query of their own",
    ),
    (
        "SELECT O.id FROM Orders O, Payments P, >>Shipments S WHERE O.k = P.k AND S.id > 5 WINDOW 1 s",
        "no condition connects S with O: write one, such as O.id = S.id, or CROSS JOIN S if each of its rows",
    ),
    (
        "SELECT O.id FROM Orders O CROSS JOIN Payments P, >>Shipments S WINDOW 1 s",
        "no condition connects S with O",
    ),
    (
        "SELECT O.id FROM Orders O, Payments P, >>Shipments o WHERE O.k = P.k WINDOW 1 s",
        "two streams are called o: give each an alias, FROM Orders x, Shipments y",
    ),
    (
        "SELECT >>k FROM Orders O, Payments P, Shipments S WHERE O.k = P.k AND P.k = S.k WINDOW 1 s",
        "column k is in O, P and S: write O.k, P.k or S.k",
    ),
    (
        "SELECT >>k FROM Orders O JOIN Payments P USING (k), Shipments S WHERE P.k = S.k WINDOW 1 s",
        "column k is in O and S: write O.k or S.k",
    ),
    (
        "SELECT O.id FROM Orders O, Payments P JOIN Shipments S USING (>>k) WINDOW 1 s",
        "k may be O.k or P.k, and USING takes one: write ON O.k = S.k",
    ),
    (
        "SELECT O.id FROM Orders O JOIN Payments P ON O.k = >>S.k JOIN Shipments S ON S.k = P.k WINDOW 1 s",
        "S is joined only after this ON: put the condition into the ON of S, or into WHERE",
    ),
    (
        "SELECT O.id FROM Orders O, Payments P >>[NOW], Shipments S [NOW] WHERE O.k = P.k AND P.k = S.k",
        "P has a window and O has none: write one after O too",
    ),
    (
        f"SELECT O.id FROM {FULFILLED.partition('FROM')[2]} AND P.paid > O.ts AND >>S.ts <> P.paid",
        "q3 needs a window for S, and this condition is not recognised as a bound of time. Write it as S.ts BETWEEN P.",
    ),
    (">>SELECT O.id FROM Orders O, Payments P, Shipments S WHERE O.k = P.k AND P.id = S.k", "q3 has no window, and "),
    (
        "SELECT O.id FROM Orders O, Payments P, Shipments S WHERE O.k = P.k AND >>P.paid = S.k WINDOW 1 s",
        "cannot join on these: P.paid is timestamp and S.k is bigint. CAST one of them",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "message"), WRONG)
def test_a_wrong_join_of_many_is_refused_where_it_is_wrong(marked, message):
    check(bind, marked, message)


@pytest.mark.parametrize("window", ["WINDOW 1 s", "WINDOW 5 ROWS", ""])
def test_a_join_whose_conditions_exclude_each_other_is_empty(window):
    join = "SELECT O.id FROM Orders O, Payments P, Shipments S WHERE O.k = P.k AND P.k = S.k"
    conditions = "AND P.paid > O.ts AND S.ts > P.paid"
    assert bind(f"{join} {conditions} AND O.ts > S.ts {window}").is_empty
    assert not bind(f"{join} {conditions} {window}").is_empty


def test_sixteen_streams_are_joined():
    conditions = " AND ".join(f"o{number}.k = o{number + 1}.k" for number in range(15))
    query = bind(f"SELECT o1.id FROM {SEVENTEEN} WHERE {conditions} WINDOW 1 s")
    assert len(query.graph.edges) == 15
    assert query.sides[15] == "i15"


def test_wall_clocks_of_any_two_streams_are_refused_outside_utc():
    streams = STREAMS | {"Notes": stream("Notes", "k bigint, ts timestamp_ntz")}
    text = "SELECT O.id FROM Orders O, Payments P, Notes N WHERE O.k = P.k AND P.k = N.k WINDOW 1 s"
    assert bind_query("q", text, streams).graph
    with pytest.raises(SqlError, match="the time of Orders is timestamp and that of Notes is timestamp_ntz"):
        bind_query("q", text, streams, zone="Europe/Oslo")
