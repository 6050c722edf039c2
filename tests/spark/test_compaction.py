"""Results are those of one batch join, whatever became of the plan, the files and the process on the way."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from penstock import limits
from penstock.engine.api import Engine
from penstock.engine.outputs.results import read_results
from tests.oracle import answer, bag, same_bag
from tests.spark.test_online import SECOND, Streams

pytestmark = pytest.mark.spark

PLAIN = (("a.id", "a"), ("b.id", "b"))
SELECTED = (
    PLAIN,
    (*PLAIN, ("a.v", "v")),
    (*PLAIN, ("a.v + b.v", "v")),
    (*PLAIN, ("CASE WHEN a.v > b.v THEN a.v ELSE b.v END", "v")),
)


@pytest.fixture
def eager(monkeypatch):
    """Merge far more often than one would, and let nothing lie about."""
    for name in ("MERGE_FAN_IN", "TABLE_MERGE_FAN_IN"):
        monkeypatch.setattr(limits, name, 2)
    monkeypatch.setattr(limits, "WAITING_FILES_PER_TASK", 0)
    monkeypatch.setattr(limits, "REPLACED_FILE_SECONDS", 0.0)


class Life:
    """What a query is to have by now: of each definition, the pairs that came while it was the one."""

    def __init__(self, spec):
        self.spec, self.before, self.right = spec, Counter(), Counter()

    def alter(self, spec):
        """Go on by another definition."""
        self.right = self.now()
        self.spec, self.before = spec, answer(spec)

    def now(self):
        """Give all that is due."""
        fresh = answer(self.spec) - self.before
        return self.right + Counter({_padded(row): count for row, count in fresh.items()})


def _padded(row):
    """Give a row all columns there ever are."""
    return row if len(row) > len(PLAIN) else (*row, None)


def changed(source, spec):
    """Define a query anew: its window, a condition, what it selects."""
    where = ("a.v > b.v",) if source.random() < 0.3 else ("a.v > 30",) if source.random() < 0.5 else ()
    window = replace(spec.window, a=int(source.choice((2, 5, 9)) * SECOND))
    return replace(spec, window=window, where=where, select=source.choice(SELECTED))


class Workload:
    """Queries that come, go and change at random, and what each is to have."""

    def __init__(self, folder):
        self.streams, self.source = Streams(folder, retain="1 hour"), random.Random(3)
        self.lives = {"q0": Life(self.streams.spec("q0", 5, select=PLAIN))}

    def register(self, engine):
        """Register what there is, as a script that is run again does."""
        engine.script(" ".join(each.declare() for each in (self.streams.a, self.streams.b)))
        for name, life in self.lives.items():
            engine.query(name, life.spec.penstock(), order=life.spec.order)

    def step(self, engine):
        """Let the streams grow, and change something."""
        self.streams.grow()
        engine.process_available()
        name = f"q{self.source.randrange(4)}"
        if name not in self.lives:
            order = self.source.choice(("none", "none", "filter-order"))
            spec = replace(self.streams.spec(name, 5, select=self.source.choice(SELECTED)), order=order)
            engine.query(name, spec.penstock(), order=order)
            self.lives[name] = Life(spec)  # retention gives it all of the past
        elif len(self.lives) > 1 and self.source.random() < 0.25:
            engine.drop(name)
            del self.lives[name]
        else:
            spec = changed(self.source, self.lives[name].spec)
            engine.alter(name, spec.penstock())
            self.lives[name].alter(spec)
        engine.process_available()

    def check(self, engine, *, all_released):
        """Hold what every query has against what it is to have; what is held until its turn is not there yet."""
        counts = {each.name: each.results for each in engine.status().queries}
        for name, life in self.lives.items():
            rows = engine.results(name).toArrow()
            found = bag(rows.select([each for each in ("a", "b", "v") if each in rows.column_names]))
            got = Counter({_padded(row): count for row, count in found.items()})
            assert got.total() == counts[name]
            if all_released or life.spec.order == "none":
                same_bag(got, life.now(), name)
            else:
                assert got <= life.now()


@pytest.mark.timeout(900)  # a hundred small jobs, on a machine that may be busy
@pytest.mark.usefixtures("eager")
def test_results_are_exact_after_many_changes_restarts_and_merges(spark, tmp_path):
    """Queries are altered, dropped, added again and put in order at random; who reads, reads what is due."""
    workload = Workload(tmp_path)
    for run in range(3):
        with Engine(tmp_path / "state", spark) as engine:
            workload.register(engine)
            engine.start()
            for _ in range(7):
                workload.step(engine)
            workload.check(engine, all_released=False)
            ledger = engine._store.ledger
            assert ledger.version > 4 * run
            assert len({each.name for each in ledger.result_files()}) < 30
    with Engine(tmp_path / "state", spark) as engine:
        workload.register(engine)
        engine.start(once=True)
        engine.wait()
        workload.check(engine, all_released=True)


def test_a_reader_that_comes_too_late_looks_again(spark, tmp_path, monkeypatch):
    """Between its look at the ledger and its read, the files it was told of have been merged into another."""
    streams = Streams(tmp_path)
    spec = streams.spec("q", 5, select=PLAIN)
    with Engine(tmp_path / "state", spark) as engine:
        engine.script(streams.script(spec))
        engine.start()
        streams.grow()
        engine.process_available()
        old = engine._store.ledger
        for name, value in (("MERGE_FAN_IN", 2), ("WAITING_FILES_PER_TASK", 0)):
            monkeypatch.setattr(limits, name, value)
        monkeypatch.setattr(limits, "REPLACED_FILE_SECONDS", 0.0)
        while {each.name for each in old.result_files()} & {
            each.name for each in engine._store.ledger.result_files()
        }:
            streams.grow()
            engine.process_available()
        streams.grow()
        engine.process_available()  # files that a commit does without go with the next
        looks = iter([old, old])
        rows = read_results(
            spark, engine._store.files, engine.plan, lambda: next(looks, engine._store.ledger), "q"
        )
        same_bag(bag(rows.toArrow()), answer(spec), "q")
        assert next(looks, None) is None, "both old ledgers were tried"
