"""One directory is one value, however its path is written; and a pattern is told from a name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.state import locations
from penstock.state.files import open_files
from penstock.state.locations import (
    absolute,
    directory_of,
    files_below,
    irregular,
    literal,
    local_files,
    matches,
    source_pattern,
)


@pytest.mark.parametrize(
    "form", ["{}", "{}/", "file:{}", "file://{}", "FILE:{}", "file://localhost{}", "{}/x/..", "{}//"]
)
def test_every_way_to_write_a_directory_is_the_same_path(tmp_path, form):
    assert absolute(form.format(tmp_path)) == str(tmp_path)


def test_a_relative_path_and_a_home_are_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert absolute("out/q") == str(tmp_path / "out" / "q")
    assert absolute("~/q") == str(tmp_path / "home" / "q")
    assert absolute("out:1/q") == str(tmp_path / "out:1" / "q")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("a\0b", "is empty"),
        ("file:out", "is relative"),
        ("file://other/out", "'other'"),
        ("s3:/bucket", "s3://"),
        ("hdfs:/x", "hdfs://"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_with_the_way_out(path, said):
    with pytest.raises(InputError, match=said.replace("(", "\\(")):
        absolute(path)


def test_a_file_url_with_one_slash_is_not_a_directory_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_files(f"file:{tmp_path}/out").put("x", b"1")
    assert (tmp_path / "out" / "x").read_bytes() == b"1"
    assert not (tmp_path / "file:").exists()


def test_links_lead_to_the_same_directory_also_before_it_exists(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert directory_of(f"{tmp_path}/link/q") == directory_of(f"{tmp_path}/real/q")
    assert directory_of(f"{tmp_path}/link") == directory_of(f"{tmp_path}/real")
    assert directory_of(f"{tmp_path}/link/q") != directory_of(f"{tmp_path}/real/Q")


def test_case_does_not_matter_where_the_filesystem_ignores_it(tmp_path, monkeypatch):
    (tmp_path / "Out").mkdir()
    real, seen = os.stat, str(tmp_path).lower()

    def ignoring(path, *args, **kwargs):
        text = str(path)
        if text.lower().startswith(seen + "/"):
            text = str(tmp_path) + text[len(seen) :].lower().replace("/out", "/Out")
        return real(text, *args, **kwargs)

    monkeypatch.setattr(locations.os, "stat", ignoring)
    assert directory_of(f"{tmp_path}/out/q") == directory_of(f"{tmp_path}/OUT/Q")
    assert directory_of(f"{tmp_path}/out/q") != directory_of(f"{tmp_path}/OUT/R")


def test_stores_that_two_drivers_reach_are_one(tmp_path):
    assert directory_of(absolute("s3a://b/x/y/")) == directory_of(absolute("s3://b/x//y"))
    assert directory_of(absolute("s3://b/x")) != directory_of(absolute("s3://c/x"))
    assert directory_of(absolute("s3://b/x")) != directory_of(str(tmp_path))


NAMES = st.text(st.sampled_from("ab*?[]{},^!-\\ é"), min_size=1, max_size=6).filter(lambda name: name.strip())


@given(st.sets(NAMES, min_size=1, max_size=6), st.data())
def test_a_literal_matches_its_own_directory_and_no_other(tmp_path_factory, names, data):
    root = tmp_path_factory.mktemp("names")
    for name in names:
        (root / name).mkdir(exist_ok=True)
    chosen = data.draw(st.sampled_from(sorted(names)))
    assert matches(literal(f"{root}/{chosen}")) == [f"{root}/{chosen}"]


@pytest.mark.parametrize(
    ("pattern", "dirs"),
    [
        ("d*", ["d1", "d2"]),
        ("{d1,e}", ["d1", "e"]),
        ("{d{1,2},e}", ["d1", "d2", "e"]),
        ("d[^1]", ["d2"]),
        ("d?", ["d1", "d2"]),
        ("*", ["d1", "d2", "e"]),
    ],
)
def test_a_pattern_matches_what_hadoop_says(tmp_path, pattern, dirs):
    for name in ("d1", "d2", "e"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.parquet").touch()
        (tmp_path / name / "_hidden").touch()
    assert [Path(each).name for each in matches(f"{tmp_path}/{pattern}")] == dirs
    assert files_below(f"{tmp_path}/{pattern}") == {f"{tmp_path}/{name}/x.parquet" for name in dirs}
    assert source_pattern(f"{tmp_path}/{pattern}", "S") == f"{tmp_path}/{pattern}"


def test_a_directory_named_like_a_pattern_is_meant_by_its_name(tmp_path):
    for name in ("run[1]", "q?", "x{y"):
        (tmp_path / name).mkdir()
        assert source_pattern(f"{tmp_path}/{name}", "S") == literal(f"{tmp_path}/{name}")


def test_a_name_that_is_also_a_pattern_for_others_is_refused(tmp_path):
    for name in ("st*r", "star"):
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=r"also matches .*star.*Write"):
        source_pattern(f"{tmp_path}/st*r", "S")
    assert source_pattern(f"{tmp_path}/st\\*r", "S") == f"{tmp_path}/st\\*r"


@pytest.mark.parametrize("path", ["gone", "gone*", "gone[1]", "{gone,away}"])
def test_a_source_that_is_not_there_is_refused(tmp_path, path):
    with pytest.raises(InputError, match="of stream S does not exist"):
        source_pattern(f"{tmp_path}/{path}", "S")


def test_a_brace_that_is_never_closed_is_refused(tmp_path):
    with pytest.raises(InputError, match="never closed"):
        source_pattern(f"{tmp_path}/x{{y", "S")


@pytest.mark.parametrize("name", ["pipe", "part=1/pipe", "link"])
def test_what_is_no_regular_file_is_found_among_those_that_a_source_reads(tmp_path, name):
    folder = tmp_path / "in"
    (folder / "part=1").mkdir(parents=True)
    (folder / "_hidden").mkdir()
    for each in ("a.parquet", "part=1/b.parquet"):
        (folder / each).touch()
    for hidden in (".pipe", "_hidden/pipe"):
        os.mkfifo(folder / hidden)
    (folder / "gone").symlink_to(folder / "nowhere")
    (folder / "folder").symlink_to(folder / "_hidden")
    assert irregular(local_files(str(folder))) == ""
    if name == "link":
        (folder / name).symlink_to(folder / ".pipe")
    else:
        os.mkfifo(folder / name)
    for pattern in (str(folder), f"{folder.parent}/*", str(folder / name)):
        assert irregular(local_files(pattern)) == str(folder / name)
    assert not list(local_files("s3://bucket/in"))
