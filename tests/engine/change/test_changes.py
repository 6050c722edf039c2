"""Queries come and go while streams flow: whoever stays sees no difference, whoever comes gets what is held.

batches   A0  B0  A1  |  B1  A2  |  B2 ...
plan         {q0}     | {q0,q1}  | {q1}        changed between two batches, wherever the units are
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.options import STRATEGIES
from penstock.sql.query import Range
from tests.engine.stages.test_simulation import PREDICATES, folders, in_folder, run, workloads
from tests.engine.world import DIGEST, Row, World, query
from tests.kernels.drawn import examples


def changed(queries, spare, source):
    """Drop a query, bring one in, or define one anew."""
    names = [each.name for each in queries]
    chosen = source.choice(spare)
    if chosen.name not in names:
        return [*queries, chosen]
    if len(queries) > 1 and source.random() < 0.5:
        return [each for each in queries if each.name != chosen.name]
    low = source.randrange(-15, 15)
    window = Range(low, low + source.randrange(1, 20))
    predicates = tuple(each for each in PREDICATES if source.random() < 0.3)
    return [
        replace(each, window=window, left_predicates=predicates) if each.name == chosen.name else each
        for each in queries
    ]


@examples(35)
@given(
    spare=workloads(),
    lateness=st.sampled_from((0, 3, 12, 100)),
    key_bits=st.sampled_from((1, 64)),
    happening=st.tuples(st.integers(0, 10**9), st.sampled_from((5, 10, 20, 40))),
)
def test_every_query_is_exact_over_its_life(spare, lateness, key_bits, happening):
    with folders() as folder:
        spare = in_folder(spare, folder)
        world = World(folder / "state", spare[:1], lateness=lateness, key_bits=key_bits)
        queries = list(spare[:1])

        def change(source):
            for _ in range(source.choice((1, 1, 2, 3))):  # also several before the joiner's next turn
                if source.random() < 0.4:
                    world.share(source.choice(STRATEGIES), source)
                    continue
                queries[:] = changed(queries, spare, source)
                world.change(queries)

        run(world, *happening, change)


def row(number, time, *holds):
    return Row(number, 1, time, frozenset(holds))


def test_a_query_that_comes_later_starts_with_the_past_that_is_held(tmp_path):
    """
    time      0    10    20    30
    A         a0   a1    a2
    B              b0    b1   | wide comes: it gets (a1, b0), (a2, b1), and (a1, b1), which nobody had asked for
    """
    narrow = query("narrow", Range.window(5, 5))
    wide = query("wide", Range.window(15, 15))
    world = World(tmp_path, [narrow], lateness=100)
    world.ingest("A", [row(0, 0), row(1, 10), row(2, 20)])
    world.ingest("B", [row(10, 10), row(11, 20)])
    world.turn()
    world.change([narrow, wide])
    world.turn()
    assert sorted(world.results(wide)) == [(0, 10), (1, 10), (1, 11), (2, 10), (2, 11)]
    assert world.ledger.query("wide").complete_from is not None
    assert world.ledger.query("wide").complete_from <= 0


def test_a_query_says_from_when_it_is_complete(tmp_path):
    """Rows below the narrow query's reach are gone when the wide one comes."""
    narrow = query("narrow", Range.window(5, 5))
    wide = query("wide", Range.window(1000, 1000))
    world = World(tmp_path, [narrow])
    for number, time in enumerate(range(0, 100, 10)):
        world.ingest("A", [row(number, time)])
        world.ingest("B", [row(100 + number, time)])
        world.turn()
    world.change([narrow, wide])
    assert world.ledger.query("wide").complete_from == 90 - 5 + 1
    assert not world.ledger.query("wide").lacking, "the rows held are its past"
    assert world.ledger.query("narrow").complete_from is None


def test_a_predicate_nobody_evaluated_before_has_no_past(tmp_path):
    plain = query("plain", Range.window(50, 50))
    choosy = query("choosy", Range.window(50, 50), left=["p0"])
    world = World(tmp_path, [plain])
    world.ingest("A", [row(0, 0, "p0")])
    world.ingest("B", [row(10, 0)])
    world.turn()
    world.change([plain, choosy])
    world.ingest("B", [row(11, 1)])
    world.turn()
    assert not world.results(choosy)
    assert world.ledger.query("choosy").complete_from == 1
    assert world.ledger.query("choosy").lacking == "p0 was not evaluated before on rows of A"
    world.ingest("A", [row(1, 2, "p0")])
    world.turn()
    assert sorted(world.results(choosy)) == [(1, 10), (1, 11)]


def fed(tmp_path, *queries, lateness=0):
    """A world with ten rows of each stream, ten apart, joined."""
    world = World(tmp_path, queries, lateness=lateness)
    for number, time in enumerate(range(0, 100, 10)):
        world.ingest("A", [row(number, time)])
        world.ingest("B", [row(100 + number, time)])
    world.turn()
    return world


def test_a_query_registered_in_another_order_keeps_its_own_results(tmp_path):
    """The numbers by which a table's pairs are marked are those of the commit, not of the registration."""
    one = query("one", Range.window(5, 5), left=["p0"])
    two = query("two", Range.window(5, 5), left=["p1"])
    world = World(tmp_path, [one, two])
    world.change([two, one])
    world.ingest("A", [row(0, 0, "p0"), row(1, 0, "p1")])
    world.ingest("B", [row(10, 0)])
    world.turn()
    assert (sorted(world.results(one)), sorted(world.results(two))) == ([(0, 10)], [(1, 10)])


def test_nothing_is_let_go_between_a_new_query_and_its_past(tmp_path):
    narrow, wide, middle = (query(str(width), Range.window(width, width)) for width in (5, 1000, 500))
    world = fed(tmp_path, narrow, wide)
    world.change([narrow, wide, middle])
    world.change([narrow, middle])
    world.turn()
    assert len(world.results(middle)) == 100


def test_a_query_that_comes_back_is_another_one(tmp_path):
    stays, leaves = query("stays", Range.window(1000, 1000)), query("leaves", Range.window(15, 15))
    world = fed(tmp_path, stays, leaves)
    assert len(world.results(leaves)) == 28
    world.change([stays])
    world.turn()
    world.change([stays, leaves])
    world.turn()
    assert world.results(leaves).total() == 28, "the past once, not twice"


def test_a_stream_that_retains_promises_no_more_than_its_log_has_seen(tmp_path):
    """A log begins when the first query asks for its key; what the stream sent before is not in it."""
    named = query("named", Range.window(50, 50), keys=DIGEST)
    first, second = query("first", Range.window(50, 50)), query("second", Range.window(50, 50), left=["p0"])
    world = World(tmp_path, [named], retain="1 hour")
    world.ingest("A", [row(0, 0, "p0")])
    world.ingest("B", [row(10, 0)])
    world.turn()
    world.change([named, first])
    world.change([named, first, second])
    assert [world.ledger.query(each.name).complete_from for each in (first, second)] == [1, 1]


def test_an_altered_query_is_complete_from_the_rows_to_come(tmp_path):
    wide, grows = query("wide", Range.window(1000, 1000)), query("grows", Range.window(5, 5))
    world = fed(tmp_path, wide, grows)
    world.change([wide, replace(grows, window=Range.window(50, 50))])
    assert world.ledger.query("grows").complete_from == 91


def test_a_query_altered_before_it_got_its_past_still_gets_it(tmp_path):
    wide, late = query("wide", Range.window(1000, 1000)), query("late", Range.window(5, 5))
    world = fed(tmp_path, wide)
    world.change([wide, late])
    world.change([wide, replace(late, window=Range.window(15, 15))])
    world.turn()
    assert len(world.results(late)) == 28


def test_what_a_dropped_query_kept_is_let_go(tmp_path):
    narrow, wide = query("narrow", Range.window(5, 5)), query("wide", Range.window(1000, 1000))
    world = World(tmp_path, [narrow, wide])
    for number, time in enumerate(range(0, 100, 10)):
        world.ingest("A", [row(number, time)])
        world.ingest("B", [row(100 + number, time)])
    world.turn()
    (log, _) = world.plan.logs
    assert len(world.ledger.segments(log.id)) > 1
    world.change([narrow])
    world.turn()
    world.turn()
    assert sum(each.rows for each in world.ledger.segments(log.id)) == 1
