"""The class archive: found by what it depends on, used only if nobody else can have written it."""

from __future__ import annotations

import os
import subprocess

import pytest

from penstock.cli.doctor import check_archive, java_command
from penstock.engine.spark import class_archive
from penstock.engine.spark.class_archive import SWITCH, Archive, archive_options, find_archive

RELEASE = 'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{}"\n'
NAME = "spark.driver.defaultJavaOptions"


@pytest.fixture(name="machine")
def a_machine(tmp_path, monkeypatch):
    """Set up a machine with its own Java, Spark and cache; return a function that changes the Java."""
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


def made():
    archive = find_archive()
    archive.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    archive.file.write_bytes(b"archive")
    archive.file.chmod(0o444)
    return archive


def test_an_archive_is_for_one_java_and_one_set_of_jars(machine, tmp_path):
    first = find_archive()
    assert first == find_archive()
    assert first.file.parent == tmp_path / "cache" / "penstock-classes"
    machine("17.0.16")
    other_java = find_archive()
    (tmp_path / "spark" / "jars" / "core.jar").write_bytes(b"other classes")
    other_jars = find_archive()
    assert len({first.file, other_java.file, other_jars.file}) == 3


@pytest.mark.usefixtures("machine")
def test_looking_for_an_archive_writes_nothing(tmp_path):
    find_archive()
    assert archive_options() == {}
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("machine")
def test_a_jvm_gets_the_option():
    archive = made()
    assert archive_options()[NAME].startswith(f"-XX:SharedArchiveFile={archive.file} ")


@pytest.mark.usefixtures("machine")
def test_without_a_java_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert find_archive() is None
    assert archive_options() == {}


@pytest.mark.usefixtures("machine")
def test_it_can_be_switched_off(monkeypatch):
    made()
    monkeypatch.setenv(SWITCH, "off")
    assert archive_options() == {}


@pytest.mark.usefixtures("machine")
def test_a_cache_whose_name_would_fall_apart_among_options_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    assert find_archive() is None


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("rights", [0o777, 0o770, 0o702])
@pytest.mark.parametrize("on", ["file", "directory"])
def test_an_archive_that_others_could_have_written_is_not_used_and_the_warning_names_the_fix(
    rights, on, caplog
):
    archive = made()
    assert archive.is_usable
    assert archive_options()
    assert caplog.text == ""
    (archive.file if on == "file" else archive.file.parent).chmod(rights)
    assert archive_options() == {}
    assert f"{archive.file} is not used" in caplog.text
    assert f"Remove {archive.file.parent}, then run `penstock doctor --class-archive make`" in caplog.text


@pytest.mark.usefixtures("machine")
def test_an_archive_of_another_user_is_not_used(monkeypatch, caplog):
    archive, user = made(), os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert archive_options() == {}
    assert f"{archive.file} is not used: another user owns it" in caplog.text
    assert check_archive().found == "not used"
    assert "Remove" in check_archive().advice


@pytest.mark.usefixtures("machine")
def test_a_link_to_an_archive_is_not_used(tmp_path):
    archive = made()
    archive.file.rename(tmp_path / "elsewhere.jsa")
    archive.file.symlink_to(tmp_path / "elsewhere.jsa")
    assert archive_options() == {}


@pytest.mark.spark
def test_a_jvm_that_cannot_use_the_file_goes_on_without_a_word(monkeypatch, tmp_path):
    file = tmp_path / "archive.jsa"
    file.write_bytes(b"no archive at all" * 1000)
    for content in (file, tmp_path / "missing.jsa"):
        monkeypatch.setattr(class_archive, "find_archive", lambda content=content: Archive(content))
        monkeypatch.setattr(Archive, "is_usable", True)
        options = archive_options()[NAME]
        told = subprocess.run(
            [java_command(), *options.split(), "-version"], capture_output=True, text=True, check=True
        )
        assert told.stdout == ""
        assert "version" in told.stderr.splitlines()[0]
