"""The class archive: found by what it depends on, made once, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from penstock.engine import archive_maker
from penstock.engine.spark import class_archive
from penstock.engine.spark.class_archive import (
    SWITCH,
    Archive,
    find_archive,
    make_archive_later,
    with_archive,
)

RELEASE = 'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{}"\n'


@pytest.fixture(name="machine")
def a_machine(tmp_path, monkeypatch):
    """Give a machine with a Java, a Spark and a cache of its own; returns a function that changes the Java."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "core.jar").write_bytes(b"classes")
    (tmp_path / "java").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(SWITCH, raising=False)

    def use_java(version):
        (tmp_path / "java" / "release").write_text(RELEASE.format(version))

    use_java("17.0.15")
    return use_java


def made(content=b"archive"):
    archive = find_archive()
    archive.file.parent.mkdir(parents=True, exist_ok=True)
    archive.file.write_bytes(content)
    return archive


def test_an_archive_is_for_one_java_and_one_set_of_jars(machine, tmp_path):
    first = find_archive()
    assert first == find_archive()
    assert first.file.parent == tmp_path / "cache" / "penstock"
    machine("17.0.16")
    other_java = find_archive()
    (tmp_path / "spark" / "jars" / "core.jar").write_bytes(b"other classes")
    other_jars = find_archive()
    assert len({first.file, other_java.file, other_jars.file}) == 3


@pytest.mark.parametrize(
    ("version", "flag"),
    [("17.0.15", "SharedArchiveFile"), ("21.0.8", "SharedArchiveFile"), ("25.0.2", "AOTCache")],
)
def test_a_jvm_is_told_of_an_archive_in_the_way_it_knows(machine, version, flag):
    machine(version)
    assert with_archive("-Xmx1g") == "-Xmx1g"
    archive = made()
    assert with_archive("-Xmx1g").startswith(f"-Xmx1g -XX:{flag}={archive.file} ")


@pytest.mark.usefixtures("machine")
def test_an_archive_that_the_user_names_stays():
    made()
    assert with_archive("-XX:SharedArchiveFile=mine.jsa") == "-XX:SharedArchiveFile=mine.jsa"


@pytest.mark.parametrize("version", ["11.0.2", "a word"])
def test_a_java_that_can_have_none_gets_none(machine, version):
    machine(version)
    assert find_archive() is None
    assert with_archive("-Xmx1g") == "-Xmx1g"


@pytest.mark.usefixtures("machine")
def test_without_a_java_that_says_which_it_is_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert find_archive() is None


@pytest.mark.usefixtures("machine")
def test_it_can_be_switched_off(monkeypatch):
    made()
    monkeypatch.setenv(SWITCH, "off")
    assert find_archive() is None
    assert with_archive("-Xmx1g") == "-Xmx1g"


@pytest.mark.usefixtures("machine")
def test_a_cache_whose_name_would_fall_apart_among_options_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    assert find_archive() is None


@pytest.mark.usefixtures("machine")
def test_it_is_wanted_until_somebody_makes_it_or_has_failed_to():
    archive = find_archive()
    assert archive.is_wanted
    archive.file.parent.mkdir(parents=True)
    archive.lock.touch()
    assert not archive.is_wanted
    long_ago = time.time() - 2 * class_archive.LONGEST_MAKING
    os.utime(archive.lock, (long_ago, long_ago))
    assert archive.is_wanted
    archive.failure.write_text("no room")
    assert not archive.is_wanted
    os.utime(archive.failure, (long_ago - class_archive.NEXT_TRY,) * 2)
    assert archive.is_wanted


@pytest.mark.usefixtures("machine")
def test_after_a_run_without_an_archive_one_process_is_started_and_after_others_none(monkeypatch):
    registered, started = [], []
    monkeypatch.setattr(class_archive.atexit, "register", registered.append)
    monkeypatch.setattr(
        class_archive.subprocess, "Popen", lambda command, **_: started.append(command) or Archive
    )
    make_archive_later()
    (at_exit,) = registered
    at_exit()
    assert started == [[sys.executable, "-m", "penstock.engine.archive_maker"]]
    made()
    at_exit()
    make_archive_later()
    assert len(started) == len(registered) == 1


def rehearsal(monkeypatch, run):
    """Let `run` be what becomes of the rehearsal; it gets the file that the JVM is to write."""

    def start(command, **_):
        written = next(each for each in command[-1].split() if each.startswith("-XX:ArchiveClassesAtExit="))
        return run(archive_maker.Path(written.partition("=")[2]))

    monkeypatch.setattr(archive_maker.subprocess, "run", start)


def done(file):
    file.write_bytes(b"archive")
    return subprocess.CompletedProcess([], 0, b"")


@pytest.mark.usefixtures("machine")
def test_an_archive_gets_its_name_when_it_is_whole(monkeypatch):
    archive, seen = find_archive(), []

    def run(file):
        seen.append((archive.exists, archive.is_being_made, file != archive.file))
        return done(file)

    rehearsal(monkeypatch, run)
    archive_maker.make_archive(archive)
    assert seen == [(False, True, True)]
    assert archive.file.read_bytes() == b"archive"
    assert [each.name for each in archive.file.parent.iterdir()] == [archive.file.name]


@pytest.mark.usefixtures("machine")
def test_of_two_that_make_it_at_once_one_leaves_it_to_the_other(monkeypatch):
    archive, begun = find_archive(), []

    def run(file):
        begun.append(file)
        archive_maker.make_archive(archive)  # a second one, while the first is at it
        return done(file)

    rehearsal(monkeypatch, run)
    archive_maker.make_archive(archive)
    assert len(begun) == 1
    assert archive.exists


@pytest.mark.usefixtures("machine")
def test_a_rehearsal_that_fails_leaves_a_note_and_nothing_else(monkeypatch):
    def run(file):
        file.write_bytes(b"half")
        file.with_name(f"{file.name}.config").write_bytes(b"on the way")
        return subprocess.CompletedProcess([], 1, b"hello\nNo space left on device")

    rehearsal(monkeypatch, run)
    archive = find_archive()
    archive_maker.make_archive(archive)
    assert not archive.exists
    assert archive.failure.read_text().endswith("No space left on device")
    assert [each.name for each in archive.file.parent.iterdir()] == [archive.failure.name]


@pytest.mark.usefixtures("machine")
def test_where_there_is_no_room_nothing_is_begun(monkeypatch):
    monkeypatch.setattr(archive_maker, "ROOM_BYTES", 1 << 60)
    rehearsal(monkeypatch, lambda _: pytest.fail("begun"))
    archive = find_archive()
    archive_maker.make_archive(archive)
    assert "free" in archive.failure.read_text()


@pytest.mark.usefixtures("machine")
def test_a_cache_that_cannot_be_written_is_no_trouble(monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file where the directory should be")
    monkeypatch.setattr(sys, "argv", ["archive_maker"])
    monkeypatch.setattr(os, "nice", lambda _: None)
    archive_maker.main()
    assert with_archive("-Xmx1g") == "-Xmx1g"


def test_archives_of_other_javas_do_not_pile_up(machine, monkeypatch):
    rehearsal(monkeypatch, done)
    for number in range(archive_maker.ARCHIVES_KEPT + 3):
        machine(f"17.0.{number}")
        archive = find_archive()
        archive_maker.make_archive(archive)
        os.utime(archive.file, (number, number))
    left = sorted(archive.file.parent.iterdir(), key=lambda each: each.stat().st_mtime)
    assert len(left) == archive_maker.ARCHIVES_KEPT
    assert left[-1] == archive.file


@pytest.mark.spark
def test_a_jvm_that_cannot_use_the_file_goes_on_without_a_word(tmp_path):
    file = tmp_path / "archive.jsa"
    file.write_bytes(b"no archive at all" * 1000)
    archive = find_archive() or pytest.skip("this Java can have no archive")
    java = str(class_archive.java_home() / "bin" / "java")
    for content in (file, tmp_path / "missing.jsa"):
        options = Archive(content, archive.java).options
        told = subprocess.run(
            [java, *options.split(), "-version"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout == ""
        assert "version" in told.stderr.splitlines()[0]


@pytest.mark.usefixtures("machine")
def test_an_archive_that_is_used_is_among_those_used_last():
    archive = made()
    os.utime(archive.file, (1, 1))
    with_archive("-Xmx1g")
    assert archive.file.stat().st_mtime > time.time() - 60
