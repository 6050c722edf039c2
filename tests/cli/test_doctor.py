import io
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.console import Console

from penstock.cli import doctor
from penstock.cli.doctor import GIB, Finding

ROOT = Path(__file__).resolve().parents[2]


def a_java(folder, says, status=0):
    """Put a java into `folder`/bin that says `says` when asked for its version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    java.chmod(0o755)
    return folder


def printed(found):
    out = io.StringIO()
    doctor.print_checks(found, Console(file=out, width=160))
    return out.getvalue()


def test_every_check_has_a_name_of_its_own_and_says_what_it_found():
    found = doctor.checks()
    assert len({check.name for check in found}) == len(found)
    assert all(check.found for check in found)


def test_a_failed_check_always_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setattr(doctor, "MEMORY_NEEDED_BYTES", 1 << 60)
    monkeypatch.setattr(doctor, "DISK_NEEDED_BYTES", 1 << 60)
    failed = [check for check in doctor.checks(tmp_path) if not check.ok]
    assert {"Java", "memory", "disk"} <= {check.name for check in failed}
    assert all(check.advice for check in failed)


def test_java_home_is_asked_before_the_path(monkeypatch, tmp_path):
    home = a_java(tmp_path / "home", 'openjdk version "21.0.8" 2025-07-15 LTS')
    path = a_java(tmp_path / "path", 'java version "1.8.0_292"')
    monkeypatch.setenv("PATH", f"{path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert doctor.check_java() == Finding("Java", ok=True, found=f"21.0.8 ({home}/bin/java)")
    monkeypatch.delenv("JAVA_HOME")
    assert doctor.check_java().found == f"8.0 ({path}/bin/java)"
    assert not doctor.check_java().ok


@pytest.mark.parametrize(
    ("says", "ok"),
    [
        ('openjdk version "11.0.2" 2019-01-15', False),
        ('openjdk version "16.0.2"', False),
        ('openjdk version "17" 2021-09-14', True),
        ('openjdk version "25.0.3" 2026-04-21 LTS', True),
        ("no Java runtime present, requesting install", False),
    ],
)
def test_java_is_good_from_version_17(monkeypatch, tmp_path, says, ok):
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path, says)))
    assert doctor.check_java().ok is ok


def test_a_java_that_fails_to_run_is_no_java(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path, 'openjdk version "17"', status=1)))
    assert not doctor.check_java().ok


def test_no_java_anywhere(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = doctor.check_java()
    assert (check.ok, check.found) == (False, "none")
    assert "JAVA_HOME" in check.advice


@pytest.mark.parametrize(
    ("installed", "ok"),
    [("2.1.4", False), ("2.2", True), ("2.3.3", True), ("3.0.0", False), ("3.0.0rc1", False)],
)
def test_pandas_must_be_2_2_or_newer_and_not_3(monkeypatch, installed, ok):
    monkeypatch.setattr(metadata, "version", lambda _: installed)
    check = doctor.check_package("pandas")
    assert (check.ok, check.found) == (ok, installed)
    assert check.advice == ("" if ok else "pip install 'pandas>=2.2,<3'")


def test_a_package_that_is_missing_is_named_with_its_range(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert doctor.check_package("pyspark") == Finding(
        "pyspark", ok=False, found="not installed", advice="pip install 'pyspark>=4.1,<4.4'"
    )


def test_the_ranges_are_those_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {each.name: each.specifier for each in map(Requirement, project["dependencies"])}
    for name, (oldest, beyond) in doctor.PACKAGE_RANGES.items():
        text = f">={doctor._dotted(oldest)}" + (f",<{doctor._dotted(beyond)}" if beyond else "")
        assert declared[name] == SpecifierSet(text), name
    oldest, beyond = doctor.PYTHON_RANGE
    assert SpecifierSet(project["requires-python"]) == SpecifierSet(
        f">={doctor._dotted(oldest)},<{doctor._dotted(beyond)}"
    )


def test_memory_is_what_the_system_has_free_or_less_if_the_container_says_so(tmp_path):
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n")
    assert doctor.available_memory(meminfo, limit) == 8 * GIB
    limit.write_text("max\n")
    assert doctor.available_memory(meminfo, limit) == 8 * GIB
    limit.write_text(f"{GIB}\n")
    assert doctor.available_memory(meminfo, limit) == GIB


def test_memory_without_a_meminfo_is_what_the_machine_has(tmp_path):
    assert doctor.available_memory(tmp_path / "none", tmp_path / "none") > 0


def test_disk_is_measured_where_the_state_will_be(tmp_path):
    check = doctor.check_disk(tmp_path / "not" / "yet")
    assert check.found.endswith(f"free in {tmp_path}")


def test_a_temporary_directory_that_is_not_there_is_not_writable(tmp_path):
    assert doctor.check_writable(tmp_path).ok
    check = doctor.check_writable(tmp_path / "gone")
    assert not check.ok
    assert "TMPDIR" in check.advice


def test_the_table_shows_every_check_and_takes_brackets_as_they_are():
    text = printed(
        [Finding("Java", ok=False, found="[none]", advice="get one"), Finding("cores", ok=True, found="2")]
    )
    assert re.search(r"no +Java +\[none\] +get one", text)
    assert re.search(r"ok +cores +2", text)


def test_the_class_archive_is_told_with_its_option_and_how_to_make_remove_and_switch_it_off(
    monkeypatch, tmp_path
):
    java = a_java(tmp_path / "java", 'openjdk version "17.0.15"')
    (java / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PENSTOCK_CLASS_ARCHIVE", raising=False)
    assert doctor.check_archive().found == "none"
    assert "penstock doctor --class-archive make" in doctor.check_archive().advice
    archive = doctor.find_archive()
    archive.file.parent.mkdir(mode=0o700, parents=True)
    archive.file.write_bytes(b"x" * (3 << 20))
    archive.file.chmod(0o600)
    assert doctor.check_archive().found == f"3 MiB, JVM option -XX:SharedArchiveFile={archive.file}"
    assert "PENSTOCK_CLASS_ARCHIVE=off" in doctor.check_archive().advice
    assert "penstock doctor --class-archive remove" in doctor.check_archive().advice
    monkeypatch.setenv("PENSTOCK_CLASS_ARCHIVE", "off")
    assert doctor.check_archive().found == "not used"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert doctor.check_archive().found == "none, and none can be made"
