"""Whether a directory has a file that Spark has not read, held against Spark's own rule, over random histories."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine.ingest import source_folder
from penstock.engine.ingest.source_folder import SourceFolder
from penstock.log.checkpoint import Checkpoint
from penstock.log.files import open_files
from penstock.sql.query import Column, Stream

DAY = 24 * 3600 * 1000
NOW = 1_700_000_000_000
NAMES = (
    "a.parquet",
    "b c.parquet",
    "d%20.parquet",
    "_hidden",
    ".hidden",
    "é",
    "_metadata",
    "x=1",
    "_x=1",
    "y._COPYING_",
)


def put(folder, name: str, changed: int) -> None:
    """Put a file of a date, in milliseconds, or give the one that is there that date."""
    (folder / name).write_bytes(b"x")
    os.utime(folder / name, ns=(changed * 1_000_000, changed * 1_000_000))


class Spark:
    """Spark's source of files, as far as which files are new (`FileStreamSource`, `SeenFilesMap`), and its log."""

    def __init__(self, folder, root) -> None:
        self.folder, self.seen, self.newest, self.purged, self.entry = folder, {}, 0, 0, -1
        self.checkpoint = Checkpoint(open_files(str(root)), "checkpoint/s")

    def new(self) -> dict[str, int]:
        """Find what is new, by url."""
        listed = {
            each.as_uri(): each.stat().st_mtime_ns // 1_000_000
            for each in self.folder.iterdir()
            if shown(each.name)
        }
        return {url: at for url, at in listed.items() if at >= self.purged and url not in self.seen}

    def read(self, most: int) -> dict | None:
        """Take some of the new files, the oldest first; give the origin of the batch."""
        taken = sorted(self.new().items(), key=lambda each: (each[1], each[0]))[:most]
        if not taken:
            return None
        self.seen |= taken
        self.newest = max(self.newest, *(at for _, at in taken))
        self.purged = self.newest - 7 * DAY
        self.seen = {url: at for url, at in self.seen.items() if at >= self.purged}
        before, self.entry = self.entry, self.entry + 1
        self.checkpoint.source("0").write_entry(str(self.entry), taken)
        entries = {"0": {str(self.entry): taken}}
        offsets = [f'{{"logOffset":{self.entry}}}']
        return {"version": "v1", "offsets": offsets, "after": {"0": before}, "entries": entries, "begun": {}}


def shown(name: str) -> bool:
    """Say whether Spark's listing has a file: `HadoopFSUtils.shouldFilterOutPathName`."""
    out = (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
    return not out or name.startswith(("_common_metadata", "_metadata"))


steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.sampled_from([0, 1, 7 * DAY, 8 * DAY, 16 * DAY])),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("read"), st.integers(1, 3)),
    st.tuples(st.just("forget")),
    st.tuples(st.just("too many to name")),
)


@given(st.lists(steps, max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_there_is_news_exactly_when_spark_would_find_a_new_file(tmp_path_factory, history):
    """Dates lie up to 30 days apart, so that names are forgotten and used again; some come from the log."""
    root = tmp_path_factory.mktemp("source")
    directory = root / "in"
    directory.mkdir()
    spark, folder, origin, named = Spark(directory, root), SourceFolder(str(directory)), None, True
    for step in history:
        match step:
            case "put", name, changed:
                put(directory, name, NOW + changed)
            case "remove", name:
                (directory / name).unlink(missing_ok=True)
            case "read", most:
                origin = spark.read(most) or origin
                if not named and origin:
                    origin["entries"]["0"] = None
            case ("forget",):
                folder = SourceFolder(str(directory))
            case _:
                named = False
        assert folder.learn(origin, spark.checkpoint)
        near = [at for at in dates(directory) if 0 < spark.purged - at <= source_folder._SLACK]
        assert folder.has_news(now=True) == bool(spark.new()) or near
        assert not folder.unclear


def test_a_name_that_spark_has_forgotten_is_news_again_and_a_file_as_old_is_not(directory, tmp_path):
    """The files read::

    day   0     1        8.x
          a     old      b          7 days back from b: a and old do not count any more
          a' (at 9): the same name, and a new file
    """
    spark, folder = Spark(directory, tmp_path), SourceFolder(str(directory))
    for name, day in (("a", 0), ("b", 8.5)):
        put(directory, name, NOW + round(day * DAY))
        assert folder.has_news(now=True)
        assert folder.learn(spark.read(1), spark.checkpoint)
    assert not folder.has_news(now=True)
    put(directory, "old", NOW + DAY)
    assert not folder.has_news(now=True)
    assert not spark.new()
    put(directory, "a", NOW + 9 * DAY)
    assert folder.has_news(now=True)
    assert spark.new()


def dates(directory) -> list[int]:
    return [each.stat().st_mtime_ns // 1_000_000 for each in directory.iterdir()]


@pytest.fixture
def directory(tmp_path):
    """Make a directory that has been left alone for a while."""
    made = tmp_path / "in"
    made.mkdir()
    return made


def test_names_are_listed_when_the_date_of_the_directory_changes(directory, monkeypatch):
    folder, lists = SourceFolder(str(directory)), []
    look = folder._has_unknown
    monkeypatch.setattr(folder, "_has_unknown", lambda: lists.append(1) or look())
    monkeypatch.setattr(source_folder, "SHORTEST_GAP", 100.0)
    monkeypatch.setattr(source_folder, "LONGEST_GAP", 100.0)
    assert [folder.has_news() for _ in range(20)] == [False] * 20
    assert len(lists) == 1
    put(directory, ".hidden", NOW)
    assert [folder.has_news() for _ in range(20)] == [False] * 20
    assert len(lists) == 2
    put(directory, "a", NOW)
    assert folder.has_news()


def test_a_file_that_came_within_the_same_tick_of_the_clock_is_found_a_little_later(directory):
    """The directory's date is set back to what it was, as if its clock had not moved on."""
    folder, before = SourceFolder(str(directory)), directory.stat()
    assert not folder.has_news()
    put(directory, "a", NOW)
    os.utime(directory, ns=(before.st_atime_ns, before.st_mtime_ns))
    until = time.monotonic() + 60
    while not folder.has_news():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_what_names_do_not_tell_is_unclear_and_news(directory):
    folder = SourceFolder(str(directory))
    (directory / "_temporary").mkdir()
    (directory / "_spark_metadata").mkdir()
    assert not folder.has_news(now=True)
    assert not folder.unclear
    put(directory, "a", NOW)
    assert folder.has_news(now=True)
    assert folder.unclear, "Spark's sink may still have to note the file"
    (directory / "_spark_metadata").rmdir()
    assert folder.has_news(now=True)
    assert not folder.unclear
    (directory / "k=1").mkdir()
    assert folder.has_news(now=True)
    assert folder.unclear
    for gone in (SourceFolder(str(directory / "gone")), SourceFolder(str(directory / "a"))):
        assert gone.has_news()
        assert gone.unclear


def test_a_file_of_the_same_name_in_another_directory_is_not_known(directory, tmp_path):
    spark = Spark(tmp_path / "other", tmp_path)
    spark.folder.mkdir()
    put(spark.folder, "a", NOW)
    folder = SourceFolder(str(directory))
    assert folder.learn(spark.read(1), spark.checkpoint)
    put(directory, "a", NOW)
    assert folder.has_news()


def test_files_are_not_known_if_the_log_has_lost_them_or_the_source_is_another(directory, tmp_path):
    spark = Spark(directory, tmp_path)
    for name in "abc":
        put(directory, name, NOW)
    assert SourceFolder(str(directory)).learn(spark.read(1), spark.checkpoint)
    spark.read(1)
    origin = spark.read(1)
    spark.checkpoint.source("0").remove("1")
    assert not SourceFolder(str(directory)).learn(origin, spark.checkpoint)
    topic = {"version": "v1", "offsets": ['{"t":{"0":1}}'], "after": {}, "entries": {}, "begun": {"0": {}}}
    assert not SourceFolder(str(directory)).learn(topic, spark.checkpoint)


@pytest.mark.parametrize(
    ("kind", "path", "options", "has_folder"),
    [
        ("parquet", "", {}, True),
        ("JSON", "", {"maxFilesPerTrigger": "1", "multiLine": "true"}, True),
        ("parquet", "", {"maxFileAge": "1d"}, False),
        ("parquet", "", {"LatestFirst": "true"}, False),
        ("parquet", "", {"cleanSource": "delete"}, False),
        ("parquet", "", {"pathGlobFilter": "*.json"}, False),
        ("parquet", "/i?", {}, False),
        ("rate", "", {}, False),
        ("", "", {}, False),
    ],
)
def test_a_source_has_a_folder_if_it_reads_one_directory_here_by_the_usual_rule(
    directory, kind, path, options, has_folder
):
    where = (("path", f"{directory.parent}{path or '/in'}"), *options.items())
    stream = Stream("s", (Column("k", "bigint"),), "k", format=kind, options=where)
    assert (SourceFolder.of(stream) is not None) == has_folder
