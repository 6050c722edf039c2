"""A file of the state that is not as it was written is named, before Arrow sees a byte of it."""

from __future__ import annotations

import tempfile
import zlib
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import limits
from penstock.errors import DamagedError, MissingError
from penstock.kernels.sets import to_words
from penstock.state import checksum
from penstock.state.files import Files, open_files
from penstock.state.hold import TIMES, read_hold, write_hold
from penstock.state.row_times import read_times, write_times
from penstock.state.segment import SegmentColumns, read_segment, write_segment


def segment(files: Files, rows: int = 50):
    random = np.random.default_rng(9)
    content = SegmentColumns(
        random.integers(0, 9, rows).astype(np.uint64),
        random.integers(0, 99, rows),
        None,
        to_words([0], 0),
        {"v": pa.array(random.integers(0, 99, rows)), "s": pa.array([f"text {n}" for n in range(rows)])},
        {},
    )
    return write_segment(files, "log/a/s.arrow", content, first=0, last=0)


def times(files: Files):
    return write_times(files, "log/roll-a/t.arrow", np.arange(100), first=0, last=99)


def held(files: Files):
    columns = {name: pa.array(range(40)) for name in (*TIMES, "out")}
    return write_hold(files, "hold/q", [pa.table(columns).slice(0, 20), pa.table(columns).slice(20)])


KINDS = {
    "segment": (segment, lambda files, kept: read_segment(files, kept).batch),
    "times": (times, read_times),
    "hold": (held, lambda files, kept: pa.Table.from_batches(read_hold(files, kept, 0, 1 << 60))),
}


def damage(random: Random, data: bytes) -> bytes:
    """Change some bytes, or cut some off, or add some, or put zeros in place of a page."""
    how = random.choice(("flip", "flip", "cut", "grow", "zero"))
    if how == "flip":
        changed = bytearray(data)
        for _ in range(random.choice((1, 1, 3, 50))):
            changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(changed)
    if how == "cut":
        return data[: random.randrange(len(data))]
    if how == "grow":
        return data + random.randbytes(random.randint(1, 9))
    start = random.randrange(len(data))
    return data[:start] + bytes(min(512, len(data) - start)) + data[start + 512 :]


@settings(deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 1 << 32))
def test_whatever_is_done_to_a_file_it_is_named_and_not_read(kind: str, seed: int) -> None:
    make, read = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        files = open_files(folder, sync=False)
        kept = make(files)
        right = read(files, kept)
        path = Path(folder) / kept.name
        whole = path.read_bytes()
        hurt = damage(Random(seed), whole)
        path.unlink()
        path.write_bytes(hurt)
        if hurt == whole:
            return
        with pytest.raises(DamagedError) as error:
            read(files, kept)
        assert str(error.value).startswith(f"file://{path} is damaged")
        assert f"penstock repair --state file://{folder}" in str(error.value)
        path.unlink()
        path.write_bytes(whole)
        again = read(files, kept)
        assert again.equals(right) if kind != "times" else (again == right).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_gone_is_named_too(kind: str, tmp_path: Path) -> None:
    make, read = KINDS[kind]
    files = open_files(str(tmp_path))
    kept = make(files)
    files.delete(kept.name)
    with pytest.raises(MissingError, match=rf"{kept.name} is missing; restore it from a copy, or run"):
        read(files, kept)
    with pytest.raises(FileNotFoundError):  # who looks on while files are merged tries again
        read(files, kept)


def test_a_checksum_is_that_of_the_bytes_on_disk_whichever_kind_of_root(tmp_path: Path) -> None:
    for root in (str(tmp_path), "memory://checksums"):
        files = open_files(root)
        for make, _ in KINDS.values():
            kept = make(files)
            assert kept.checksum == zlib.crc32(files.read(kept.name))


def test_a_process_sums_a_file_once_and_again_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = []
    monkeypatch.setattr(
        checksum.zlib, "crc32", lambda *given, crc32=zlib.crc32: sums.append(1) or crc32(*given)
    )
    files = open_files(str(tmp_path))
    kept = segment(files)
    sums.clear()
    for _ in range(3):
        read_segment(files, kept)
    assert len(sums) == 1
    path = tmp_path / kept.name
    path.write_bytes(damage(Random(1), path.read_bytes()))
    with pytest.raises(DamagedError):
        read_segment(files, kept)


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_REMEMBERED_CHECKSUMS", 2)
    monkeypatch.setattr(checksum, "_checked", {})
    files = open_files(str(tmp_path))
    for number in range(5):
        read_times(files, write_times(files, f"t{number}", np.arange(3), first=0, last=2))
        assert len(checksum._checked) <= 2


def test_files_of_an_earlier_version_have_no_checksum_and_are_read(tmp_path: Path) -> None:
    files = open_files(str(tmp_path))
    kept = replace(segment(files), checksum=None)
    assert read_segment(files, kept).rows.t.size == kept.rows
