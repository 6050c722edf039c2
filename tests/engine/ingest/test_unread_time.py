"""What a run that ends has still to read, by the files that were there when it began."""

from __future__ import annotations

import pytest

from penstock.engine.ingest.source_folder import SourceFolder
from penstock.engine.ingest.unread_time import UnreadTime
from tests.engine.ingest.test_source_folder import DAY, NOW, Spark, put

SECOND = 1_000_000


def begun(tmp_path, names, apart=1) -> tuple[Spark, UnreadTime]:
    """Put files into a directory, of dates so many milliseconds apart, and begin a run that reads them."""
    folder = tmp_path / "s"
    folder.mkdir()
    for number, name in enumerate(names):
        put(folder, name, NOW + number * apart)
    spark = Spark(folder, tmp_path / "state")
    return spark, begun_at(spark, None)


def begun_at(spark, origin) -> UnreadTime:
    """Begin a run after a batch."""
    unread = UnreadTime()
    unread.begin(SourceFolder(str(spark.folder)), origin, spark.checkpoint)
    return unread


def test_each_unread_file_is_taken_to_have_as_much_time_as_one_that_was_read(tmp_path):
    """Nothing is known after the first batch, which may begin anywhere; what comes later is not read, nor counted."""
    spark, unread = begun(tmp_path, "abcde")
    assert unread.micros is None
    told = []
    for batch, newest in enumerate((100, 110, 140, 160)):
        if batch == 1:
            put(spark.folder, "later", NOW + 100)
        unread.note_batch(spark.read(1), newest * SECOND)
        told.append(unread.micros)
    assert told == [None, 30 * SECOND, 40 * SECOND, 20 * SECOND]
    unread.note_batch(spark.read(1), 500 * SECOND)
    assert unread.micros == 0


def test_files_that_spark_has_forgotten_stay_read(tmp_path):
    """Dates more than seven days apart: Spark forgets the names of the older files."""
    spark, unread = begun(tmp_path, "abcdefghijklmnopqrst", apart=DAY)
    told = [unread.note_batch(spark.read(1), day * SECOND) or unread.micros for day in range(20)]
    assert told == [None, *(left * SECOND for left in range(18, -1, -1))]


def test_only_when_all_is_read_nothing_is_unread(tmp_path):
    """A first row that is newer than all others leaves no time to reckon with, but files are left."""
    spark, unread = begun(tmp_path, "abc")
    told = [unread.note_batch(spark.read(1), 7) or unread.micros for _ in "abc"]
    assert told == [None, 1, 0]


def test_one_batch_of_all_files_leaves_nothing(tmp_path):
    spark, unread = begun(tmp_path, "abc")
    unread.note_batch(spark.read(3), 5)
    assert unread.micros == 0


def test_a_run_that_goes_on_does_not_count_what_was_read_before(tmp_path):
    """The journal's last batch tells which files are done with."""
    spark, first = begun(tmp_path, "abcd")
    origin = spark.read(2)
    first.note_batch(origin, 0)
    again = begun_at(spark, origin)
    again.note_batch(spark.read(1), 10)
    assert again.micros is None
    origin = spark.read(1)
    again.note_batch(origin, 20)
    assert again.micros == 0
    assert begun_at(spark, origin).micros == 0, "there is nothing to read"


@pytest.mark.parametrize("path", ["s", "gone"])
def test_what_names_do_not_tell_is_not_known(tmp_path, path):
    """A directory in the directory, or none at all: Spark reads what it finds, and nobody says how much that is."""
    spark, _ = begun(tmp_path, "ab")
    (spark.folder / "k=1").mkdir()
    origins = [spark.read(1) for _ in "ab"]
    unknown = UnreadTime()
    unknown.begin(SourceFolder(str(tmp_path / path)), None, spark.checkpoint)
    for newest, origin in enumerate(origins):
        unknown.note_batch(origin, newest)
        assert unknown.micros is None


@pytest.mark.parametrize("missing", ["names", "origin", "time"])
def test_a_batch_that_says_too_little_ends_the_estimate(tmp_path, missing):
    """More files than an origin names, a source that is no directory, rows without event time."""
    spark, unread = begun(tmp_path, "abcd")
    for newest in (10, 20):
        unread.note_batch(spark.read(1), newest)
    assert unread.micros == 20
    origin = spark.read(1)
    if missing == "names":
        origin["entries"] = {"0": None}
    unread.note_batch(None if missing == "origin" else origin, None if missing == "time" else 30)
    assert unread.micros is None
    unread.note_batch(spark.read(1), 40)
    assert unread.micros is None
