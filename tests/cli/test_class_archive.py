"""Making the class archive: on request, whole or not at all, and where only the user can write."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.engine.spark import class_archive
from penstock.engine.spark.class_archive import (
    SWITCH,
    archive_folder,
    archive_options,
    find_archive,
    make_archive,
    remove_archives,
)
from penstock.errors import InputError, RunError


@pytest.fixture(autouse=True)
def a_machine(tmp_path, monkeypatch):
    """Set up a machine with its own Java, Spark and cache."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(SWITCH, raising=False)


def java_writes(monkeypatch, content, status=0):
    """Let the demo's JVM write `content`; return the environments that the demo was started with."""
    environments = []

    def run(_command, *, env, **_):
        environments.append(env)
        (setting,) = (word for word in shlex.split(env["PYSPARK_SUBMIT_ARGS"]) if "ArchiveClasses" in word)
        file = Path(setting.split()[0].rpartition("=")[2])
        assert file.parent.parent == archive_folder(), "a file is renamed within one file system"
        if content is not None:
            file.write_bytes(content)
        file.with_suffix(".config").write_bytes(b"on the way")
        return subprocess.CompletedProcess([], status, b"hello\nNo space left on device")

    monkeypatch.setattr(class_archive.subprocess, "run", run)
    return environments


def test_an_archive_is_made_whole_for_its_user_alone(monkeypatch):
    environments = java_writes(monkeypatch, b"archive")
    make_archive()
    archive = find_archive()
    assert environments[0][SWITCH] == "off", "the run that makes an archive uses none"
    assert archive.is_usable
    assert archive_options()
    assert [file.name for file in archive_folder().iterdir()] == [archive.file.name]
    assert archive_folder().stat().st_mode & 0o777 == 0o700


def test_what_was_made_is_told_with_size_and_time(monkeypatch):
    java_writes(monkeypatch, b"x" * (3 << 20))
    assert make_archive() == f"made {find_archive().file}: 3 MiB in 0 seconds"


@pytest.mark.parametrize(("content", "status"), [(None, 0), (b"half", 1)])
def test_a_jvm_that_writes_none_or_fails_leaves_nothing(monkeypatch, content, status):
    java_writes(monkeypatch, content, status)
    with pytest.raises(RunError, match="No space left on device"):
        make_archive()
    assert list(archive_folder().iterdir()) == []


def test_one_that_fails_leaves_the_archive_before_it(monkeypatch):
    java_writes(monkeypatch, b"first")
    make_archive()
    java_writes(monkeypatch, None)
    with pytest.raises(RunError):
        make_archive()
    assert find_archive().file.read_bytes() == b"first"


def test_a_directory_that_others_can_write_is_refused(monkeypatch):
    java_writes(monkeypatch, b"archive")
    archive_folder().mkdir(parents=True)
    archive_folder().chmod(0o777)
    with pytest.raises(InputError, match="chmod 700"):
        make_archive()
    assert list(archive_folder().iterdir()) == []


def test_without_a_java_none_is_made(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="no archive can be made"):
        make_archive()


def test_archives_are_removed_on_request(monkeypatch):
    java_writes(monkeypatch, b"archive")
    assert remove_archives() == "there is no class archive"
    make_archive()
    assert remove_archives() == f"removed {archive_folder()}"
    assert not archive_folder().exists()
    assert archive_options() == {}


def test_the_command_line_makes_and_removes(monkeypatch, capfd):
    java_writes(monkeypatch, b"archive")
    main(["doctor", "--class-archive", "make"])
    assert find_archive().is_usable
    assert f"made {archive_folder()}" in capfd.readouterr().out
    main(["doctor", "--class-archive", "remove"])
    assert f"removed {archive_folder()}" in capfd.readouterr().out
    assert main(["doctor", "--class-archive", "sell"]) == 2
