"""Copies of a store's files: fetched once, nobody else's, not believed, and let go when they are not used."""

from __future__ import annotations

import os
import time
import uuid
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from penstock import limits
from penstock.errors import DamagedError, MissingError
from penstock.state import cache
from penstock.state.checksum import map_whole
from penstock.state.files import Files, open_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FakeStore(MemoryFileSystem):
    """A store somewhere else: what is mapped has to be fetched."""

    protocol: ClassVar[str] = "fake"  # type: ignore[misc]
    fetched: ClassVar[list[str]] = []

    def get_file(self, rpath: str, lpath: Any, **options: Any) -> None:
        self.fetched.append(rpath)
        super().get_file(rpath, lpath, **options)


fsspec.register_implementation("fake", FakeStore, clobber=True)


@dataclass(frozen=True)
class Known:
    """A file and its checksum, as the journal has them."""

    name: str
    checksum: int | None


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the user a cache directory, and no memory of one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(cache._swept, "at", float("-inf"))
    FakeStore.fetched.clear()
    cache.cache_folder.cache_clear()
    yield tmp_path / "cache" / "penstock"
    cache.cache_folder.cache_clear()


@pytest.fixture
def store() -> Files:
    return open_files(f"fake://{uuid.uuid4().hex}/state")


def kept(store: Files, name: str, data: bytes = b"bytes") -> Known:
    store.put(name, data)
    return Known(name, zlib.crc32(data))


def copies(home: Path) -> list[Path]:
    return [each for each in home.rglob("*") if each.is_file()]


def test_a_file_is_fetched_once_and_belongs_to_its_user_alone(store: Files, home: Path) -> None:
    one = kept(store, "log/a/one")
    for _ in range(3):
        assert map_whole(store, one).read() == b"bytes"
    assert len(FakeStore.fetched) == 1
    assert home.stat().st_mode & 0o777 == 0o700
    assert len(copies(home)) == 1


def test_what_somebody_put_in_the_place_of_a_copy_is_not_believed(store: Files, home: Path) -> None:
    one = kept(store, "log/a/one")
    map_whole(store, one)
    (copy,) = copies(home)
    copy.unlink()
    copy.write_bytes(b"other")

    assert map_whole(store, one).read() == b"bytes"
    assert len(FakeStore.fetched) == 2


def test_a_file_that_is_damaged_in_the_store_itself_is_named(store: Files) -> None:
    one = kept(store, "log/a/one")
    store.put("log/a/one", b"other")
    with pytest.raises(DamagedError, match=r"fake://\w+/state/log/a/one is damaged"):
        map_whole(store, one)


def test_a_file_that_the_store_does_not_have_is_missing_and_leaves_nothing(store: Files, home: Path) -> None:
    with pytest.raises(MissingError):
        map_whole(store, Known("log/a/none", 0))
    assert copies(home) == []


def test_removing_a_file_removes_its_copy(store: Files, home: Path) -> None:
    for name in ("log/a/one", "log/a/two", "log/b/three"):
        map_whole(store, kept(store, name))
    store.delete("log/a/one")
    assert len(copies(home)) == 2
    store.delete_tree("log/a")
    assert [each.name for each in copies(home)] == ["three"]


# Whose directory


def test_a_link_in_the_place_of_the_directory_is_not_followed(
    store: Files, home: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    home.parent.mkdir()
    home.symlink_to(theirs)

    assert map_whole(store, kept(store, "one")).read() == b"bytes"

    assert list(theirs.iterdir()) == []
    assert cache.cache_folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("trouble", ["another's", "a file", "no home"])
def test_where_there_is_no_directory_of_ones_own_a_private_one_is_made(
    store: Files, home: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    if trouble == "another's":
        home.mkdir(parents=True)
        monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1)
    elif trouble == "a file":
        home.parent.mkdir()
        home.write_bytes(b"")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert map_whole(store, kept(store, "one")).read() == b"bytes"
    assert cache.cache_folder() != home
    assert cache.cache_folder().name.startswith("penstock-cache-")


def test_rights_that_others_have_are_taken_away(store: Files, home: Path) -> None:
    home.mkdir(parents=True, mode=0o755)
    map_whole(store, kept(store, "one"))
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_forked_process_does_not_remove_its_parent_s_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    folder = cache.cache_folder()
    cache._remove(folder, os.getpid() + 1)
    assert folder.exists()
    cache._remove(folder, os.getpid())
    assert not folder.exists()


# Letting go


def age(home: Path, seconds: float, *names: str) -> None:
    """Let some time pass over copies."""
    for copy in copies(home):
        if copy.name in names:
            used = time.time_ns() - int(seconds * 1e9)
            os.utime(copy, ns=(used, copy.stat().st_mtime_ns))


@pytest.mark.parametrize(
    ("free", "after"), [(0.5, limits.CACHE_IDLE_SECONDS), (0.05, limits.CACHE_IDLE_SECONDS_WHEN_FULL)]
)
def test_who_fetches_next_removes_what_nobody_has_used_for_a_while(
    store: Files, home: Path, monkeypatch: pytest.MonkeyPatch, free: float, after: float
) -> None:
    """One copy is used again by a process that mapped it long ago, another by nobody."""

    class Disk:
        total, free = 100, 0

    Disk.free = int(free * 100)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: Disk)
    files = {name: kept(store, name) for name in ("used", "unused", "young", "next", "last")}
    for name in ("used", "unused", "young"):
        map_whole(store, files[name])
    age(home, after + 9, "used", "unused")
    age(home, after - 9, "young")
    map_whole(store, files["used"])
    monkeypatch.setitem(cache._swept, "at", float("-inf"))

    map_whole(store, files["next"])

    assert {each.name for each in copies(home)} == {"used", "young", "next"}
    age(home, after + 9, "used")
    map_whole(store, files["last"])
    assert "used" in {each.name for each in copies(home)}, "and not at every fetch"


def test_using_a_copy_is_noted_without_its_being_taken_for_changed(
    store: Files, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was checked is known by when it was changed: that must stay."""
    one = kept(store, "one")
    map_whole(store, one)
    (copy,) = copies(home)
    age(home, limits.CACHE_TOUCH_SECONDS + 9, "one")
    before = copy.stat()
    monkeypatch.setattr(zlib, "crc32", lambda *_: pytest.fail("it was checked already"))
    map_whole(store, one)
    assert copy.stat().st_mtime_ns == before.st_mtime_ns
    assert copy.stat().st_atime > before.st_atime
