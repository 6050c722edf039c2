"""What a run that ends has still to read, by the files that were there when it began."""

from __future__ import annotations

from penstock.engine.ingest.input_left import InputLeft
from penstock.engine.ingest.source_folder import SourceFolder
from tests.engine.ingest.test_source_folder import NOW, Spark, put

SECOND = 1_000_000


def begun(tmp_path, names, origin=None) -> tuple[Spark, InputLeft]:
    """Put files into a directory, and begin a run that reads them."""
    folder = tmp_path / "s"
    folder.mkdir()
    for number, name in enumerate(names):
        put(folder, name, NOW + number)
    spark = Spark(folder, tmp_path / "state")
    left = InputLeft(SourceFolder(str(folder)), spark.checkpoint)
    left.begin(origin)
    return spark, left


def test_each_file_that_is_left_is_taken_to_have_as_much_time_as_one_that_was_read(tmp_path):
    """Nothing is known after the first batch, which may begin anywhere; what comes later is not read, nor counted."""
    spark, left = begun(tmp_path, "abcde")
    assert left.micros is None
    told = []
    for batch, newest in enumerate((100, 110, 140, 160)):
        if batch == 1:
            put(spark.folder, "later", NOW + 100)
        left.took(spark.read(1), newest * SECOND)
        told.append(left.micros)
    assert told == [None, 30 * SECOND, 40 * SECOND, 20 * SECOND]
    left.took(spark.read(1), 500 * SECOND)
    assert left.micros == 0


def test_one_batch_of_all_files_leaves_nothing(tmp_path):
    spark, left = begun(tmp_path, "abc")
    left.took(spark.read(3), 5)
    assert left.micros == 0


def test_a_run_that_goes_on_does_not_count_what_was_read_before(tmp_path):
    """The journal's last batch tells which files are done with."""
    spark, first = begun(tmp_path, "abcd")
    origin = spark.read(2)
    first.took(origin, 0)
    again = InputLeft(SourceFolder(str(spark.folder)), spark.checkpoint)
    again.begin(origin)
    again.took(spark.read(1), 10)
    assert again.micros is None
    again.took(spark.read(1), 20)
    assert again.micros == 0


def test_what_names_do_not_tell_is_not_known(tmp_path):
    """A directory in the directory, or none at all: Spark reads what it finds, and nobody says how much that is."""
    spark, _ = begun(tmp_path, "ab")
    (spark.folder / "k=1").mkdir()
    origins = [spark.read(1) for _ in "ab"]
    for path in (spark.folder, tmp_path / "gone"):
        unknown = InputLeft(SourceFolder(str(path)), spark.checkpoint)
        unknown.begin(None)
        for newest, origin in enumerate(origins):
            unknown.took(origin, newest)
            assert unknown.micros is None
