"""A batch is known by what is in it: whatever a checkpoint loses, each row counts once, or the run says why not.

Only what a power cut or a hand took has to be repaired; after a kill a run goes on by itself.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import limits
from penstock.engine.repair.checkpoint import obstacle, set_back
from penstock.engine.sources.checkpoints import check_checkpoint, checked_origin, checkpoint_of
from penstock.errors import RunError
from penstock.state.checkpoint import read_offsets
from penstock.state.commits import BatchIngested
from penstock.state.files import open_files
from penstock.state.ledger import Ledger
from penstock.state.ledger_fold import fold
from penstock.state.origin import disagreement, origin_of
from tests.state.fake_spark import FakeSpark, PowerCutError, StoppedError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.state.files import Files

STREAM = "a"


class World:
    """A state with one stream of files, and Spark reading it; the journal never loses anything."""

    def __init__(self, root: str, **options: Any) -> None:
        self.files = open_files(root, sync=False)
        self.store = SimpleNamespace(files=self.files, ledger=Ledger())
        self.options = options
        self.there: list[tuple[str, int]] = []
        self.read: list[str] = []
        self.spark = self.fresh()

    def fresh(self) -> FakeSpark:
        return FakeSpark(self.files, f"checkpoint/{STREAM}", **self.options)

    def arrive(self, count: int) -> None:
        for _ in range(count):
            number = len(self.there)
            self.there.append((f"file:///in/{number:03d}.parquet", 1_700_000_000_000 + number))

    def take(self, batch: int, paths: list[str]) -> None:
        """Do what the ingester does with a batch."""
        origin = checked_origin(self.store, STREAM, batch)  # type: ignore[arg-type]
        state = self.store.ledger.stream(STREAM)
        if batch <= state.source_batch:
            return
        after = replace(state, source_batch=batch, batches=state.batches + 1, rows=state.rows + len(paths))
        self.store.ledger = fold(self.store.ledger, BatchIngested(STREAM, after, {}, origin=origin))
        self.read += paths

    def run(self, *, steps: int = 1 << 30) -> None:
        """Start, as an ingester does, and read all that is there; the start writes nothing."""
        before = self.checkpoint()
        check_checkpoint(self.store, STREAM)  # type: ignore[arg-type]
        assert self.checkpoint() == before
        was_begun = checkpoint_of(self.files, STREAM).was_begun()
        self.spark = replace(self.fresh(), steps=steps, verify_empty=not was_begun)
        self.spark.run(self.there, self.take)

    def repair(self) -> str:
        """Set the checkpoint back to the journal's last batch, or return why it cannot be."""
        last, origin = self.store.ledger.stream(STREAM).source_batch, self.store.ledger.origins.get(STREAM)
        checkpoint = checkpoint_of(self.files, STREAM)
        why = obstacle(checkpoint, last, origin, origin)
        if not why:
            set_back(checkpoint, last, origin)
            assert not disagreement(checkpoint, last, origin)
        return why

    def run_repaired(self) -> None:
        """See a start refused, repair, and start again."""
        with pytest.raises(RunError, match=r"does not agree with the journal: .*`penstock repair --state"):
            self.run()
        assert not self.repair()
        self.run()

    def checkpoint(self) -> dict[str, bytes]:
        return {name: self.files.read(name) for name in self.files.find("checkpoint")}

    def is_exact(self) -> bool:
        return sorted(self.read) == sorted(path for path, _ in self.there)


files_per_batch = st.sampled_from([1, 2, 1000])


@settings(deadline=None, max_examples=300)
@given(files_per_batch, st.booleans(), st.integers(2, 5), st.integers(0, 1 << 32))
def test_whatever_a_power_cut_takes_each_file_counts_once_or_the_run_says_why(
    limit: int, tidy: bool, together: int, seed: int
) -> None:
    """Crashes between any two writes; then the last writes of the checkpoint are gone, or empty, in any combination."""
    random = Random(seed)
    with tempfile.TemporaryDirectory() as root:
        world = World(root, limit=limit, tidy=tidy, together=together, retain=random.choice((1, 2, 100)))
        stopped = troubled(random, world)
        assert len(set(world.read)) == len(world.read), "some file counted twice"
        assert stopped or world.is_exact()


def troubled(random: Random, world: World) -> str:
    """Run through some crashes and repairs; give what cannot be repaired.  It must be us who stop, not Spark."""
    for _ in range(random.randint(1, 6)):
        world.arrive(random.randint(0, 4))
        try:
            with suppress(PowerCutError):
                world.run(steps=random.randint(0, 12))
        except RunError:
            if why := world.repair():
                return why
        lose(random, world, random.randint(0, 4))
    try:
        world.run()
    except RunError:
        if why := world.repair():
            return why
        world.run()
    return ""


@settings(deadline=None, max_examples=300)
@given(files_per_batch, st.booleans(), st.integers(2, 5), st.integers(0, 1 << 32))
def test_a_process_that_is_killed_between_any_two_writes_goes_on_without_a_repair(
    limit: int, tidy: bool, together: int, seed: int
) -> None:
    """Spark renames whole files: a kill leaves what was written, and a temporary file of what was not."""
    random = Random(seed)
    with tempfile.TemporaryDirectory() as root:
        world = World(root, limit=limit, tidy=tidy, together=together, retain=random.choice((1, 2, 100)))
        for _ in range(random.randint(1, 8)):
            world.arrive(random.randint(0, 4))
            with suppress(PowerCutError):
                world.run(steps=random.randint(0, 12))
        world.run()
        assert world.is_exact()


def lose(random: Random, world: World, most: int) -> None:
    """Undo some of the last writes."""
    for name in world.spark.written[-most:] if most else ():
        how = random.choice(("keep", "gone", "empty"))
        if how == "gone":
            world.files.delete(f"checkpoint/{STREAM}/{name}")
        elif how == "empty" and world.files.exists(f"checkpoint/{STREAM}/{name}"):
            world.files.put(f"checkpoint/{STREAM}/{name}", b"")


LOSSES = {
    "the last offsets": ("offsets/{b}",),
    "the last end": ("commits/{b}",),
    "both": ("offsets/{b}", "commits/{b}"),
    "the last list of files": ("sources/0/{b}",),
    "all of the last batch": ("offsets/{b}", "commits/{b}", "sources/0/{b}"),
    "the one before, too": ("offsets/{b}", "commits/{b}", "sources/0/{b}", "offsets/{p}", "commits/{p}"),
}


@pytest.mark.parametrize("what", LOSSES)
@pytest.mark.parametrize("how", ["gone", "empty"])
@pytest.mark.parametrize("batches", [1, 2, 9, 10, 11, 20, 23])
def test_what_the_last_batch_left_is_written_again_as_spark_wrote_it(
    tmp_path: Path, what: str, how: str, batches: int
) -> None:
    """Around the tenth batch a source puts its lists of files together; new files come meanwhile."""
    world = World(str(tmp_path), limit=1)
    world.arrive(batches)
    world.run()
    before = world.checkpoint()
    for pattern in LOSSES[what]:
        name = f"checkpoint/{STREAM}/{pattern.format(b=batches - 1, p=batches - 2)}"
        name = name if world.files.exists(name) else f"{name}.compact"
        if world.files.exists(name):
            world.files.put(name, b"")
            if how == "gone":
                world.files.delete(name)
    world.arrive(3)

    if (what, how) == ("the last end", "gone"):  # as after a kill: Spark hands the batch over once more
        check_checkpoint(world.store, STREAM)  # type: ignore[arg-type]
    else:
        with pytest.raises(RunError, match="penstock repair"):
            check_checkpoint(world.store, STREAM)  # type: ignore[arg-type]
    assert not world.repair()

    after = world.checkpoint()
    lists = {name for name in before if "/sources/" in name}
    assert {name: after[name] for name in lists} == {name: before[name] for name in lists}
    offsets = f"checkpoint/{STREAM}/offsets/{batches - 1}"
    assert read_offsets(after[offsets].decode()).lines == read_offsets(before[offsets].decode()).lines
    world.run()
    assert world.is_exact()


@pytest.mark.parametrize("how", ["gone", "empty", "half"])
def test_lists_of_files_that_nobody_has_read_yet_are_found_anew_from_the_first_that_is_not_whole(
    tmp_path: Path, how: str
) -> None:
    """Two crashes after a list was written and before it was planned; then the older of the two lists is damaged."""
    world = World(str(tmp_path))
    for count, steps in ((2, 1 << 30), (1, 1), (1, 1)):
        world.arrive(count)
        with suppress(PowerCutError):
            world.run(steps=steps)
    name = f"checkpoint/{STREAM}/sources/0/1"
    whole = world.files.read(name)
    world.files.put(name, b"" if how == "empty" else whole[: len(whole) // 2])
    if how == "gone":
        world.files.delete(name)
    assert world.files.list(f"checkpoint/{STREAM}/sources/0")[-1] == "2"
    world.run_repaired()
    assert world.is_exact()


def test_a_checkpoint_that_is_gone_altogether_stops_a_stream_of_files(tmp_path: Path) -> None:
    """Which files were read before the last batch is known to the checkpoint alone."""
    world = World(str(tmp_path), limit=1)
    world.arrive(3)
    world.run()
    world.files.delete_tree(f"checkpoint/{STREAM}")
    with pytest.raises(RunError) as stopped:
        world.run()
    said = str(stopped.value)
    assert said.startswith(
        f"stream {STREAM}: Spark's checkpoint {world.files.root}/checkpoint/{STREAM} does not agree"
    )
    assert "it ends before batch 2, which the journal has" in said
    assert f"penstock repair --state {world.files.root}" in said
    assert world.repair() == "the list of files that its source 0 had read before batch 2 is not whole"
    assert not world.checkpoint(), "a repair that is refused writes nothing"
    assert len(world.read) == 3


def test_a_number_that_was_planned_anew_with_other_files_stops_the_run(tmp_path: Path) -> None:
    """As before, 16 rows became 9: the last offset is gone, and new files came in between."""
    world = World(str(tmp_path), limit=1000)
    world.arrive(2)
    world.run()
    for name in ("offsets/0", "commits/0", "sources/0/0"):
        world.files.delete(f"checkpoint/{STREAM}/{name}")
    world.arrive(2)
    with pytest.raises(RunError, match="Spark sends batch 0 with other rows"):
        replace(world.fresh()).run(world.there, world.take)  # without the look that a start takes
    with pytest.raises(RunError, match=r"its batch 0 is of other files: file:///in/002\.parquet"):
        world.run()
    assert len(world.read) == 2


def test_a_batch_that_is_planned_anew_with_the_same_files_is_the_same_batch(tmp_path: Path) -> None:
    world = World(str(tmp_path), limit=1)
    world.arrive(3)
    world.run()
    for name in ("offsets/2", "commits/2", "sources/0/2"):
        world.files.delete(f"checkpoint/{STREAM}/{name}")
    world.arrive(1)
    replace(world.fresh()).run(world.there, world.take)
    assert world.is_exact()


def test_batches_that_spark_has_done_and_the_journal_has_not_stop_the_run(tmp_path: Path) -> None:
    world = World(str(tmp_path), limit=1)
    world.arrive(3)
    world.run()
    earlier = world.store.ledger
    world.arrive(2)
    world.run()
    world.store.ledger = earlier
    with pytest.raises(
        RunError, match="it has batch 4, and the journal ends with batch 2: rows between would be lost"
    ):
        world.run()
    checkpoint = checkpoint_of(world.files, STREAM)
    set_back(checkpoint, 2, earlier.origins[STREAM])
    world.read = world.read[:3]
    world.run()
    assert world.is_exact()


def test_a_new_stream_wants_a_new_checkpoint(tmp_path: Path) -> None:
    world = World(str(tmp_path), limit=1)
    world.arrive(2)
    world.run()
    world.store.ledger = Ledger()
    with pytest.raises(RunError, match="it has batch 1, and the journal ends before the first"):
        world.run()


def test_a_state_of_an_earlier_version_goes_on_and_knows_from_the_next_batch_on(tmp_path: Path) -> None:
    world = World(str(tmp_path), limit=1)
    world.arrive(3)
    world.run()
    world.store.ledger = replace(world.store.ledger, origins={})
    world.run()  # handed its last batch, or nothing
    world.arrive(1)
    world.run()
    assert world.is_exact()
    assert world.store.ledger.origins[STREAM]["seen"] == {"0": 4}
    for name in ("offsets/3", "commits/3"):
        world.files.delete(f"checkpoint/{STREAM}/{name}")
    world.arrive(1)
    world.run_repaired()
    assert world.is_exact()


def test_more_files_than_an_origin_names_are_known_by_their_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_ORIGIN_FILES", 2)
    world = World(str(tmp_path))
    world.arrive(5)
    world.run()
    origin = world.store.ledger.origins[STREAM]
    assert origin["entries"] == {"0": None}
    world.files.delete(f"checkpoint/{STREAM}/commits/0")
    world.arrive(1)
    world.run()  # handed over again, and known
    assert world.is_exact()
    world.files.delete(f"checkpoint/{STREAM}/offsets/1")
    world.files.delete(f"checkpoint/{STREAM}/commits/1")
    world.run_repaired()
    for name in ("sources/0/1", "offsets/1"):
        world.files.delete(f"checkpoint/{STREAM}/{name}")
    world.run_repaired()
    assert world.is_exact()


def test_a_repair_removes_the_checksums_that_hadoop_keeps(tmp_path: Path) -> None:
    world = World(str(tmp_path), limit=1)
    world.arrive(2)
    world.run()
    folder = f"checkpoint/{STREAM}/offsets"
    for beside in (".1.crc", "1.crc"):
        world.files.put(f"{folder}/{beside}", b"of other bytes")
    world.files.put(f"{folder}/1", b"")
    assert not world.repair()
    assert world.files.list(folder) == ["0", "1"]


@pytest.mark.parametrize("stray", ["offsets/.2.crc", "commits/.2.crc", "sources/0/.9.compact.crc"])
def test_a_checksum_of_an_entry_that_is_still_to_be_written_stops_the_run(tmp_path: Path, stray: str) -> None:
    """Spark could not write it.  Those of older entries do no harm, nor do those of temporary files."""
    world = World(str(tmp_path), limit=1)
    world.arrive(2)
    world.run()
    for harmless in (
        "offsets/.0.crc",
        "offsets/.1.crc",
        "sources/0/..2.1f0c.tmp.crc",
        "commits/..2.1f0c.tmp.crc",
    ):
        world.files.put(f"checkpoint/{STREAM}/{harmless}", b"")
    check_checkpoint(world.store, STREAM)  # type: ignore[arg-type]
    world.files.put(f"checkpoint/{STREAM}/{stray}", b"")
    with pytest.raises(RunError, match=f"it has the checksum {stray} without the file"):
        check_checkpoint(world.store, STREAM)  # type: ignore[arg-type]
    assert not world.repair()
    assert not [name for name in world.checkpoint() if name.endswith(".crc")]


def test_a_temporary_file_of_the_first_batch_stops_no_start_and_goes_with_a_repair(tmp_path: Path) -> None:
    world = World(str(tmp_path), limit=1)
    world.arrive(1)
    with suppress(PowerCutError):
        world.run(steps=2)  # the metadata and the list of files; then offsets/0 is cut off
    folder = tmp_path / "checkpoint" / STREAM / "offsets"
    (unfinished,) = folder.iterdir()
    assert unfinished.name.endswith(".tmp")
    with pytest.raises(StoppedError, match="should be empty"):
        world.fresh().run(world.there, world.take)  # as Spark does by default
    world.run()
    assert world.is_exact()
    assert unfinished.exists(), "a start removes nothing"
    world.store.ledger = Ledger()
    assert not world.repair()
    assert not folder.exists()


@pytest.mark.parametrize("entries", [0, 1])
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_an_id_that_is_lost_stops_the_run_if_spark_would_not_write_another(
    tmp_path: Path, entries: int, how: str
) -> None:
    world = World(str(tmp_path))
    world.arrive(entries)
    world.run()
    name = f"checkpoint/{STREAM}/metadata"
    world.files.put(name, b"")
    if how == "gone":
        world.files.delete(name)
    world.arrive(1)
    world.run() if (entries, how) == (0, "gone") else world.run_repaired()
    assert world.is_exact()


# Sources whose offsets say everything


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = open_files(str(tmp_path))
    made.put("checkpoint/k/metadata", b'{"id":"x"}')
    return made


def kafka(files: Any, batch: int, offset: int, *, version: str = "v1") -> None:
    name = "0:" if version == "v2" else ""
    files.put(f"checkpoint/k/offsets/{batch}", f'{version}\n{{}}\n{name}{{"t":{{"0":{offset}}}}}'.encode())
    files.put("checkpoint/k/sources/0/0", b'\0v1\n{"t":{"0":0}}')


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_stream_whose_offsets_are_complete_is_repaired_from_nothing(files: Files, version: str) -> None:
    checkpoint = checkpoint_of(files, "k")
    for batch in range(3):
        kafka(files, batch, 10 * batch, version=version)
        files.put(f"checkpoint/k/commits/{batch}", b"v1\n{}")
    origin = origin_of(checkpoint, 2, None)
    before = {name: files.read(name) for name in files.find("checkpoint")}
    files.delete_tree("checkpoint/k")

    assert disagreement(checkpoint, 2, origin) == "it ends before batch 2, which the journal has"
    assert not obstacle(checkpoint, 2, origin, origin)
    set_back(checkpoint, 2, origin)

    assert not disagreement(checkpoint, 2, origin)
    assert files.read("checkpoint/k/sources/0/0") == before["checkpoint/k/sources/0/0"]
    assert checkpoint.offsets(2).lines == (before["checkpoint/k/offsets/2"].decode().split("\n")[2],)
    assert checkpoint.is_done(2)


def test_where_spark_keeps_state_of_its_own_nothing_is_written_again(files: Files) -> None:
    checkpoint = checkpoint_of(files, "k")
    kafka(files, 0, 7)
    origin = origin_of(checkpoint, 0, None)
    files.put("checkpoint/k/state/0/0/1.delta", b"")
    assert not disagreement(checkpoint, 0, origin)
    files.delete("checkpoint/k/offsets/0")
    assert disagreement(checkpoint, 0, origin)
    assert "state of its own" in obstacle(checkpoint, 0, origin, origin)


def test_offsets_are_compared_by_what_they_say(files: Files) -> None:
    checkpoint = checkpoint_of(files, "k")
    files.put("checkpoint/k/offsets/0", b'v1\n\n{"t":{"0":1,"1":2}}')
    origin = origin_of(checkpoint, 0, None)
    files.put("checkpoint/k/offsets/0", b'v1\n{}\n{"t": {"1": 2, "0": 1}}')
    assert not disagreement(checkpoint, 0, origin)
    files.put("checkpoint/k/offsets/0", b'v1\n{}\n{"t":{"0":1,"1":3}}')
    assert disagreement(checkpoint, 0, origin).startswith(
        'its batch 0 ends at {"t":{"0":1,"1":3}}, and the journal'
    )
