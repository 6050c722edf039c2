"""Promises that are kept change nothing but what is held, and when final groups are answered.

A world runs twice, with the promises of its streams and without; there, what would be a promise is a row that no query
wants.  Rows, cuts, watermarks, queries that come and go: all is the same, and so must be every result after every turn.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from random import Random
from unittest.mock import patch

from hypothesis import event, given
from hypothesis import strategies as st

from penstock import limits, testing
from penstock.engine.sources.batch_ingest import BatchIngest
from penstock.schedulers import SCHEDULERS
from penstock.sql.options import STRATEGIES
from tests.answers import SECOND, applied, bag, same
from tests.testing.answer_world import at_time
from tests.testing.promise_world import KINDS, SHAPES, covers, random_stream, sent
from tests.testing.test_aggregates import few, seeds

WINDOWS = (
    ("", "", "WINDOW 3 seconds"),
    ("", "", "WINDOW 8 seconds"),
    ("", "", "WINDOW 30 seconds"),
    (" [RANGE 8 seconds]", " [NOW]", ""),
    (" [RANGE 2 seconds]", " [RANGE 9 seconds]", ""),
    (" [UNBOUNDED]", " [RANGE 3 seconds]", ""),
    (" [UNBOUNDED]", " [UNBOUNDED]", ""),
    ("", "", "AND B.ts BETWEEN A.ts - INTERVAL 1 SECOND AND A.ts + INTERVAL 5 SECONDS"),
    ("", "", "AND B.ts > A.ts + INTERVAL 1 SECOND AND B.ts < A.ts + INTERVAL 6 SECONDS"),
)
ORDERS = ("none", "none", "none", "sync-filter", "filter-order", "adaptive")
SETTINGS = (
    "",
    *(f"SET strategy = '{each}';" for each in STRATEGIES),
    *(f"SET scheduler = '{each}';" for each in SCHEDULERS),
)
KIND = ("A.kind = 'r'", "B.kind = 'r'")


class World:
    """Two streams, the queries over them, and one session with promises beside one without."""

    def __init__(self, seed, count=26, *, kinds=None, rows_counted=False):
        self.random = random = Random(seed)
        self.shape = random.choice(SHAPES)
        kinds = kinds or (random.choice(KINDS), random.choice(("", *KINDS)))
        kinds = random.sample(kinds, 2)
        self.streams = {
            name: random_stream(random, name, self.shape, count, kind)
            for name, kind in zip("AB", kinds, strict=True)
        }
        self.rows_counted = rows_counted
        self.filtered = not rows_counted and random.random() < 0.5
        self.queries: dict[str, str] = {}
        self.known: dict[str, list] = {"A": [], "B": []}
        self.cuts = self._cuts()

    def _cuts(self):
        """Cut the rows of all streams anywhere: lists of batches, by stream."""
        random, cuts = self.random, {}
        for name, stream in self.streams.items():
            for source, rows in ((name, stream.rows), (f"P{name}", stream.carrier)):
                if source == name or stream.carried:
                    ends = sorted(random.randint(0, len(rows)) for _ in range(random.randint(1, 5)))
                    cuts[source] = [rows[a:b] for a, b in zip([0, *ends], [*ends, len(rows)], strict=True)]
        return cuts

    def declared(self, *, promising, more=""):
        return "".join(each.declared(promising=promising, more=more) for each in self.streams.values())

    def query(self, name, *, window=None, order=None):
        """Draw a query; give it as the two sessions ask for it."""
        random = self.random
        a, b, far = window or random.choice(WINDOWS)
        order = order or random.choice(ORDERS)
        conditions = [self.shape.condition]
        conditions += random.sample(("A.v > 1", "B.v < 4", "A.v <= B.v"), random.choice((0, 0, 1, 2)))
        where, and_far = " AND ".join(conditions), far if far.startswith("AND") else ""
        options = f" WITH (order = '{order}')" if order != "none" else ""
        text = (
            f"CREATE QUERY {name}{options} AS SELECT A.id AS a, B.id AS b, A.ts AS s, B.ts AS t FROM A{a}, B{b} "
            f"WHERE {where} {{wanted}} {and_far} {'' if and_far else far};\n"
        )
        self.queries[name] = order
        return text

    def aggregate(self, name, emit):
        random = self.random
        a, b, far = random.choice(WINDOWS[:5] if emit == "sliding" else WINDOWS[:7])
        key = ", ".join(f"{random.choice('AB')}.{each}" for each in self.shape.columns)
        if emit != "final" and random.random() < 0.4:
            key = "A.v"
        options = f" WITH (emit = '{emit}')" if emit != "sliding" else ""
        every = " EVERY 1 second" if emit == "sliding" else ""
        self.queries[name] = emit
        return (
            f"CREATE QUERY {name}{options} AS SELECT {key}, COUNT(*) AS n, SUM(B.v) AS x, COUNT(DISTINCT A.id) AS d "
            f"FROM A{a}, B{b} WHERE {self.shape.condition} {{wanted}} GROUP BY {key} {far}{every};\n"
        )

    def in_both(self, text):
        """Write a text for the session with promises, and for that without."""
        wanted = "AND " + " AND ".join(KIND)
        mine, other = wanted if self.filtered else "", "" if self.rows_counted else wanted
        return text.replace("{wanted}", mine), text.replace("{wanted}", other)

    def send(self, promised, plain, turn):
        """Send the batches of one round to both sessions, in any order."""
        for source in self.random.sample(sorted(self.cuts), len(self.cuts)):
            batches, name = self.cuts[source], source[-1]
            if turn >= len(batches):
                continue
            rows, stream = batches[turn], self.streams[name]
            promised.send(source, sent(rows, stream))
            self.known[name] += [each for each in rows if each["kind"] == "p" or stream.kind == "unique"]
            if source == name:
                left = [each for each in rows if each["kind"] == "r"] if self.rows_counted else rows
                plain.send(name, [{n: v for n, v in each.items() if n not in {"_t", "ks"}} for each in left])

    @property
    def rounds(self):
        return max(map(len, self.cuts.values()))


def small_bounds(random):
    """Make every bound small, so that files are merged and promises are forgotten."""
    stack = ExitStack()
    stack.enter_context(patch.object(limits, "MERGE_FAN_IN", random.choice((2, 3))))
    stack.enter_context(patch.object(limits, "MAX_PROMISE_RANGES", random.choice((3, 1024))))
    key_bits = random.choice((64, 64, 2))
    follow = BatchIngest.follow

    def with_collisions(self, plan):
        self.key_bits = key_bits
        follow(self, plan)

    stack.enter_context(patch.object(BatchIngest, "follow", with_collisions))
    return stack


def state_rows(session):
    return session.status().state_rows


def compare(world, promised, plain, *, ended=False):
    """Hold what every query has got with promises against what it has got without."""
    found = 0
    for name, order in world.queries.items():
        got, right = promised.results(name), plain.results(name)
        if order == "final":
            check_final(world, promised, name, got, right, ended=ended)
        elif order == "changes":
            keys = len(world.shape.columns)
            assert applied(got, _keys(got, keys)) == applied(right, _keys(right, keys)), name
        else:
            same(bag(got), bag(right), name)
        if order in ORDERS[3:]:
            times = [max(row["s"], row["t"]) for row in got]
            assert times == [max(row["s"], row["t"]) for row in right], f"{name} is in another order"
        found += len(right)
    return found


def _keys(rows, most):
    """Count the columns of a group's key."""
    return min(most, len(rows[0]) - 5) if rows else most


def check_final(world, session, name, got, right, *, ended):
    """A group is given once; as soon as its value is finished, and not before; at the end all are given."""
    keys = [tuple(row.values())[:-3] for row in got]
    assert len(set(keys)) == len(keys), f"{name}: a group was given twice"
    if ended:
        same(bag(got), bag(right), name)
        return
    assert not right, "without promises a group without a bucket waits for the end"
    pairs = nested_loops(world, session, name)
    done = Counter()
    for key, rows in pairs.items():
        if is_finished(world, session, name, key):
            done[key] = len(rows)
    assert Counter({key: row["n"] for key, row in zip(keys, got, strict=True)}) == done, name


def nested_loops(world, session, name):
    """Find the pairs of a query among the rows so far, by the values of the join's key."""
    window = session.plan.query(name).window
    rows = {
        each: [row for batch in session.sent.get(each, ()) for row in batch.to_pylist() if row["kind"] == "r"]
        for each in "AB"
    }
    found: dict[tuple, list] = {}
    for a in rows["A"]:
        for b in rows["B"]:
            keys = [(a[each], b[each]) for each in world.shape.columns]
            apart = micros(b["ts"]) - micros(a["ts"])
            if all(x is not None and x == y for x, y in keys) and window.lo <= apart < window.hi:
                found.setdefault(tuple(x for x, _ in keys), []).append((a["id"], b["id"]))
    return found


def micros(time):
    return (time - at_time(0)).total_seconds() * SECOND // 1


def is_finished(world, session, name, key):
    """Both streams have promised and their watermarks have passed it; or one, and its last row has left its window."""
    query, far = session.plan.query(name), 1 << 61
    row = dict(zip(world.shape.columns, key, strict=True))
    ends, marks = {}, {}
    for side, stream in world.streams.items():
        marks[side] = session._store.ledger.stream(side).watermark
        times = (
            [each["_t"] for each in world.known[side] if ends_value(stream, each, row)] if stream.kind else []
        )
        ends[side] = min(times, default=far)
    if None in marks.values():
        return False
    reaches = {"A": query.window.hi, "B": 1 - query.window.lo}
    said = {side: ends[side] < marks[side] for side in "AB"}
    left = {
        side: said[side] and reaches[side] < far and ends[side] + reaches[side] <= marks["AB"[side == "A"]]
        for side in "AB"
    }
    return all(said.values()) or any(left.values())


def ends_value(stream, promise, row):
    """Say whether a promise is about all rows that have a value of the join's key."""
    if stream.kind == "unique" and (promise["k"] is None or (stream.both and promise["j"] is None)):
        return False
    if "j" not in row and stream.both and (stream.kind == "unique" or promise["j"] is not None):
        return False
    return covers(stream, promise, {"k": row["k"], "j": row.get("j", promise["j"])})


@few(5)
@given(seeds, st.integers(1, 3), st.sampled_from(SETTINGS), st.booleans())
def test_promises_that_are_kept_change_no_result(seed, tasks, setting, is_small):
    world = World(seed)
    random = world.random
    texts = [world.query(f"q{n}") for n in range(random.randint(1, 3))]
    texts += [
        world.aggregate(emit, emit) for emit in ("sliding", "final", "changes") if random.random() < 0.4
    ]
    mine, other = world.in_both("".join(texts))
    more = random.choice(("", "", ", promises = '3'")) if "final" not in world.queries else ""
    with ExitStack() as stack:
        if is_small and "final" not in world.queries:
            stack.enter_context(small_bounds(random))
        promised = stack.enter_context(
            testing.Session(setting + world.declared(promising=True, more=more) + mine, tasks=tasks)
        )
        plain = stack.enter_context(testing.Session(setting + world.declared(promising=False) + other))
        for turn in range(world.rounds):
            world.send(promised, plain, turn)
            promised.turn()
            plain.turn()
            compare(world, promised, plain)
            assert state_rows(promised) <= state_rows(plain)
            if random.random() < 0.3:
                promised.restart()
        promised.end()
        plain.end()
        event("results" if compare(world, promised, plain, ended=True) else "no results")
        streams = promised.status().streams
        event(
            "purged"
            if any(each.purged or each.discarded or each.dropped for each in streams)
            else "nothing gone"
        )
        assert not any(each.broken for each in streams)


# --- queries that come, change and go, and rows that are counted -----------------------------------------------------


@few(3)
@given(seeds, st.integers(1, 3), st.sampled_from(SETTINGS))
def test_a_query_that_comes_has_all_pairs_since_it_is_complete(seed, tasks, setting):
    """Rows that promises have let go are before that; other queries do not notice who comes and goes."""
    world = World(seed, 30)
    world.filtered = True
    random, running = world.random, {"q0"}
    mine, other = world.in_both(world.query("q0", order="none"))
    with ExitStack() as stack:
        promised = stack.enter_context(
            testing.Session(setting + world.declared(promising=True) + mine, tasks=tasks)
        )
        plain = stack.enter_context(testing.Session(setting + world.declared(promising=False) + other))
        for turn in range(world.rounds):
            world.send(promised, plain, turn)
            if random.random() < 0.7:
                promised.turn()
            name = f"q{turn + 1}"
            change = random.random()
            if change < 0.5:
                running.add(name)
                promised.script(world.in_both(world.query(name, order="none"))[0])
            elif change < 0.6 and len(running) > 1:
                gone = random.choice(sorted(running - {"q0"}))
                running.remove(gone)
                promised.script(f"DROP QUERY {gone};")
            elif change < 0.85:
                promised.restart()
            promised.turn()
            plain.turn()
            same(bag(promised.results("q0")), bag(plain.results("q0")), "q0")
        promised.end()
        plain.end()
        same(bag(promised.results("q0")), bag(plain.results("q0")), "q0")
        testing.expect(promised)  # from when on each is complete, it has all of DuckDB's pairs


@few(2)
@given(seeds, st.integers(1, 2))
def test_windows_that_count_rows_count_no_promises(seed, tasks):
    world = World(seed, rows_counted=True)
    random = world.random
    windows = (
        ("", "", "WINDOW 5 ROWS"),
        (" [ROWS 3]", " [ROWS 9]", ""),
        (" [ROWS 4]", " [RANGE 3 seconds]", ""),
    )
    texts = [world.query(f"q{n}", window=random.choice(windows), order="none") for n in range(2)]
    mine, other = world.in_both("".join(texts))
    with ExitStack() as stack:
        promised = stack.enter_context(testing.Session(world.declared(promising=True) + mine, tasks=tasks))
        plain = stack.enter_context(testing.Session(world.declared(promising=False) + other))
        for turn in range(world.rounds):
            world.send(promised, plain, turn)
            promised.turn()
            plain.turn()
        promised.end()
        plain.end()
        compare(world, promised, plain, ended=True)
