"""`penstock results` never prints rows of a damaged file."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli import look
from penstock.cli.main import main
from penstock.errors import DamagedError
from penstock.plan.build import build_plan
from penstock.sql.script import parse_script
from penstock.state.output_file import OutputFile

SCRIPT = """
CREATE STREAM A (k INT, ts TIMESTAMP) WITH (format = 'parquet', path = 'a', time = 'ts');
CREATE STREAM B (k INT, ts TIMESTAMP) WITH (format = 'parquet', path = 'b', time = 'ts');
CREATE QUERY q WITH (sink = 'parquet', path = '{}') AS SELECT A.k FROM A, B WHERE A.k = B.k WINDOW 5 s;
"""


@pytest.fixture(name="state")
def a_state(tmp_path, monkeypatch):
    """Make a state with one query, whose sink has three files of 1,000 rows."""
    for number in range(3):
        out = OutputFile(str(tmp_path), f"part-{number}.parquet")
        out.write(pa.RecordBatch.from_pydict({"k": [number * 1000 + row * row % 997 for row in range(1000)]}))
        out.close()
        (tmp_path / out.staged).rename(tmp_path / f"part-{number}.parquet")
    script = parse_script(SCRIPT.format(tmp_path))
    state = look.State("state", build_plan(script.inputs, script.queries))
    monkeypatch.setattr(look.State, "open", lambda _: state)
    monkeypatch.setattr(look.State, "count", lambda *_: 3000)
    return state


def flip(file, draw):
    """Flip one bit of the only page of a Parquet file; its header, which has no checksum, has fewer bytes than this."""
    data, header = bytearray(file.read_bytes()), 64
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[draw.randrange(4 + header, end)] ^= 1 << draw.randrange(8)
    file.write_bytes(data)


def test_one_flipped_bit_is_an_error_that_names_the_file_and_the_fix(state, tmp_path, capfd):
    assert main(["results", "q", "--state", "state", "--format", "csv"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 3001
    file = tmp_path / "part-1.parquet"
    data = bytearray(file.read_bytes())
    data[pq.read_metadata(file).row_group(0).column(0).data_page_offset + 900] ^= 1
    file.write_bytes(data)
    for form in ("csv", "json", "table"):
        assert main(["results", "q", "--state", "state", "--format", form, "--limit", "2500"]) == 1
        out, err = capfd.readouterr()
        assert out == ""
        assert f"{file} is damaged" in err
        assert "Restore it from a copy, or remove it" in err
    file.unlink()
    assert state.results("q", None).rows.num_rows == 2000


def test_results_are_right_or_an_error_whichever_bit_of_a_page_is_flipped(state, tmp_path):
    seed = Random().randrange(1 << 32)
    print("seed", seed)  # noqa: T201 - to repeat a failure
    draw, file, found = Random(seed), tmp_path / "part-2.parquet", set()
    whole, data = state.results("q", None), file.read_bytes()
    for _ in range(20):
        flip(file, draw)
        try:
            assert state.results("q", None) == whole
        except DamagedError as error:
            found.add(str(error).partition(":")[0])
        file.write_bytes(data)
    assert found == {f"{file} is damaged"}


def test_a_file_that_cannot_be_opened_is_not_called_damaged(state, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "part-1.parquet")

    monkeypatch.setattr(look.ds, "dataset", refuse)
    with pytest.raises(PermissionError, match="part-1"):
        state.results("q", None)
