"""A damaged state is mended so that every sink ends up exactly right, or it is said that it cannot be.

a run ──▶ damage one thing ──▶ the run stops ──▶ penstock repair ──▶ run ──▶ what an undisturbed run gives
"""

from __future__ import annotations

import re
import shutil
from random import Random
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.cli.repair import repair_state
from penstock.engine.repair import state as repair_module
from penstock.engine.store import fold_json
from penstock.errors import PenstockError, RunError
from penstock.state.codec import decode_ledger, encode_ledger
from penstock.state.envelope import TornError, as_commit, commit_name, numbers, snapshot_name, unwrap
from penstock.state.files import open_files
from penstock.state.journal import Journal
from penstock.state.ledger import Ledger
from tests.oracle import Feed, Spec, Window, answer, same_bag
from tests.spark.runner import Run
from tests.spark.world import COLUMNS, GRID, LATENESS, random_rows
from tests.state.test_checksum import damage

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

CHOSEN = (("a.id", "i"), ("b.id", "j"))


class Case:
    """A state after a few batches, with results in every kind of sink, some held; and a copy to begin again from."""

    def __init__(self, spark, root: Path, *, seed: int = 2) -> None:
        random = Random(seed)
        one = {"maxFilesPerTrigger": "1"}
        self.feeds = [Feed(name, root / name, COLUMNS, LATENESS, options=one) for name in ("Alpha", "beta")]
        both = Window("both", 8 * GRID)

        def spec(name, **options):
            return Spec(name, *self.feeds, ("a.k = b.k",), both, (), CHOSEN, **options)

        self.checked = [
            spec("plain", sink="parquet"),
            spec("viewed"),
            spec("steady", sink="parquet", order="filter-order"),
            spec("ordered", order="filter-order"),
        ]
        self.run = Run(spark, root, [*self.checked, spec("called", sink="callback")])
        self.root, self.pristine = root, root / "pristine"
        rows = [random_rows(random, 100) for _ in self.feeds]
        with self.run.engine() as engine:
            engine.start()
            for turn in range(4):
                for feed, mine in zip(self.feeds, rows, strict=True):
                    feed.append(mine[20 * turn : 20 * turn + 20])
                engine.process_available()
        for folder in ("state", "out"):
            shutil.copytree(root / folder, self.pristine / folder)
        for feed, mine in zip(self.feeds, rows, strict=True):
            feed.append(mine[80:])
        self.right = {each.name: answer(each) for each in self.checked}

    def begin_again(self) -> None:
        for folder in ("state", "out"):
            shutil.rmtree(self.root / folder)
            shutil.copytree(self.pristine / folder, self.root / folder)

    def content(self) -> dict[str, bytes]:
        found = (each for folder in (self.run.state, self.run.out) for each in folder.rglob("*"))
        return {str(each): each.read_bytes() for each in found if each.is_file() and each.name != "lock"}

    def repaired(self) -> list[str]:
        """Mend the state; what it said it would do beforehand is what it does."""
        before = self.content()
        would = list(repair_state(str(self.run.state), yes=False))
        assert self.content() == before
        done = list(repair_state(str(self.run.state), yes=True))
        steps = [each.removeprefix("would ") for each in would if each.startswith("would ")]
        assert steps == [each.removeprefix("done: ") for each in done if each.startswith("done: ")]
        assert "nothing is wrong" in next(repair_state(str(self.run.state), yes=False)), would
        return done

    def check(self, note: str) -> None:
        """Run to the end of the input, and hold every sink against the judge."""
        self.run.once()
        with self.run.engine() as engine:
            for spec in self.checked:
                same_bag(
                    self.run.result(engine, spec), self.right[spec.name], f"{note}: {spec.name} ({spec.sink})"
                )


def attempt(case: Case) -> str:
    """Repair a state, or say why it cannot be."""
    try:
        return " ".join(case.repaired())
    except RunError as refused:
        return str(refused)


def hurt(random: Random, path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])
    else:
        path.write_bytes(damage(random, path.read_bytes()))


BETWEEN, AFTER = 9, 6
"""Commits from the older of two snapshots to the newer one, and after that."""

HOWS = ("missing", "cut", "flip")


def lay_snapshots(state: Path) -> dict[str, str]:
    """Let the last commits of a journal lie around two snapshots, and say what damage to each of its files leads to.

    How many commits a run makes is a matter of timing, so it makes no snapshot; then the journal is written again::

        1 ..... n-15 | n-14 ..... n-6 | n-5 ..... n-1   n
        removed      S    harmless    S     again       back
    """
    files = open_files(str(state), private=True)
    present = numbers(files)
    bodies = [as_commit(unwrap(files.read(commit_name(each)), each).body) for each in present.commits]
    first = len(bodies) - BETWEEN - AFTER
    assert first > 0, f"only {len(bodies)} commits"
    assert present == ([*range(1, len(bodies) + 1)], [])
    shutil.rmtree(state / "journal")
    for every, part in ((first, bodies[:first]), (BETWEEN, bodies[first:])):
        journal = Journal(
            files, fold_json, Ledger(), dump=encode_ledger, load=decode_ledger, snapshot_every=every
        )
        journal.recover()
        for body in part:
            journal.commit(body)
    snapshots = [snapshot_name(first), snapshot_name(first + BETWEEN)]
    commits = [commit_name(first + place) for place in range(1, BETWEEN + AFTER + 1)]
    ways = [*["harmless"] * (2 + BETWEEN), *["again"] * (AFTER - 1), "back"]
    return dict(zip([*snapshots, *commits], ways, strict=True))


def spoil(random: Random, path: Path, how: str) -> None:
    """Damage a file of the journal so that it cannot be read; without the newline at its end, say, it still can be."""
    whole = path.read_bytes()
    hurt(random, path, how)
    while path.exists() and is_readable(path):
        path.write_bytes(whole)
        hurt(random, path, how)


def is_readable(path: Path) -> bool:
    try:
        unwrap(path.read_bytes(), int(path.stem.removeprefix("snapshot-")))
    except TornError:
        return False
    return True


@pytest.mark.timeout(900)
def test_each_file_of_the_journal_in_turn_is_damaged_and_the_state_repaired(spark, tmp_path, monkeypatch):
    monkeypatch.setitem(Journal.__init__.__kwdefaults__, "snapshot_every", 1000)
    case, random = Case(spark, tmp_path), Random(3)
    ways = lay_snapshots(case.pristine / "state")
    monkeypatch.setitem(Journal.__init__.__kwdefaults__, "snapshot_every", BETWEEN)
    assert {f"journal/{each.name}" for each in (case.pristine / "state" / "journal").iterdir()} == set(ways)
    assert len(ways) > 15
    *others, last = ways
    cases = [*((name, HOWS[place % 3]) for place, name in enumerate(others)), *((last, how) for how in HOWS)]
    for name, how in cases:
        case.begin_again()
        spoil(random, case.run.state / name, how)
        said = case.repaired()
        text = " ".join(said)
        way = "again" if "again: the next" in text else "back" if "go back" in text else "harmless"
        # nothing follows the last commit, so nothing in the journal says that it is missing
        right = "harmless" if (name, how) == (last, "missing") else ways[name]
        assert way == right, f"{name} {how}, {said}"
        case.check(f"{name} {how}, {said}")


KINDS = ("journal", "log", "log", "hold", "checkpoint", "checkpoint", "pairs", "results")


@pytest.mark.timeout(900)
def test_whichever_file_is_damaged_results_are_right_or_it_is_named_and_repaired_or_not(spark, tmp_path):
    """Never a wrong result, never a dead process; and a refusal to repair leaves everything as it is."""
    case, random = Case(spark, tmp_path), Random(4)
    state, outcomes = case.run.state, []
    for place in range(2 * len(KINDS)):
        case.begin_again()
        kind = KINDS[place % len(KINDS)]
        path = random.choice(sorted(each for each in (state / kind).rglob("*") if each.is_file()))
        hurt(random, path, random.choice(("flip", "flip", "cut", "missing")))
        hurt_state = tmp_path / "hurt"
        shutil.rmtree(hurt_state, ignore_errors=True)
        shutil.copytree(state, hurt_state)
        note = f"{path.relative_to(state)}"
        said = outcome(case, note)
        if not said:
            outcomes.append("right")
            continue
        folder = str(state / "checkpoint" / path.relative_to(state).parts[1])
        assert path.name in said or (kind == "checkpoint" and folder in said), f"{note}: {said}"
        case.begin_again()
        shutil.rmtree(state)
        shutil.copytree(hurt_state, state)
        before = case.content()
        said = attempt(case)
        outcomes.append("refused" if "cannot be repaired, and was not changed" in said else "repaired")
        if outcomes[-1] == "refused":
            assert case.content() == before, note
        else:
            case.check(f"{note}, {said}")
    assert {"right", "repaired"} <= set(outcomes), outcomes


def outcome(case: Case, note: str) -> str:
    """Run on, and give what is complained of; if nothing is, all results are right."""
    try:
        case.check(note)
    except (PenstockError, PySparkException, Py4JJavaError) as error:
        return str(error)
    return ""


def test_a_journal_that_has_lost_its_end_is_found_out_and_repaired(spark, tmp_path):
    """Nothing in the journal says so: the results of its last units do, and Spark's checkpoints."""
    case = Case(spark, tmp_path)
    files = open_files(str(case.run.state))
    last = max(int(each.partition(".")[0]) for each in files.list("journal") if each[0].isdigit())
    outcomes = []
    for gone in range(1, 8):
        case.begin_again()
        for number in range(last, last - gone, -1):
            files.delete(commit_name(number))
        said = attempt(case)
        outcomes.append("cannot" if "cannot be repaired" in said else said)
        if "cannot" not in outcomes[-1]:
            case.check(f"{gone} gone, {outcomes[-1]}")
    assert any("go on" in each or "set" in each for each in outcomes), outcomes
    assert outcomes[0] != "cannot", "one lost commit can always be repaired"


def test_a_repair_that_is_cut_short_keeps_everybody_out_and_is_finished_by_the_next(
    spark, tmp_path, monkeypatch
):
    case = Case(spark, tmp_path)
    state = str(case.run.state)
    names = sorted(each for each in open_files(state).list("journal") if each[0].isdigit())
    batches = [at for at, name in enumerate(names) if _is_batch(case.run.state / "journal" / name)]
    cuts = {
        "removing results": "_remove_late_rows",
        "setting checkpoints": "set_back",
        "the journal": "_move_aside",
    }
    for what, function in cuts.items():
        case.begin_again()
        for name in names[batches[-1] :]:  # from the last batch on, so that there is one to be read again
            (case.run.state / "journal" / name).write_bytes(b"torn")
        with monkeypatch.context() as patch:
            patch.setattr(repair_module, function, _fail)
            with pytest.raises(KeyboardInterrupt):
                list(repair_state(state, yes=True))
        with pytest.raises(RunError, match="is not finished"):
            case.run.once()
        list(repair_state(state, yes=True))
        assert "nothing is wrong" in next(repair_state(state, yes=False))
        case.check(what)


def _is_batch(commit):
    return re.search(rb'"kind": ?"batch"', commit.read_bytes()) is not None


def _fail(*_args, **_options):
    raise KeyboardInterrupt


def test_a_whole_state_has_nothing_wrong(spark, tmp_path):
    case = Case(spark, tmp_path)
    before = case.content()
    (said,) = repair_state(str(case.run.state), yes=True)
    assert said.startswith(f"nothing is wrong with {case.run.state}")
    assert case.content() == before
