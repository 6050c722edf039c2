"""The documents point to what is there, and what they show runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.app.cli import app
from penstock.app.load import load
from penstock.sql.script import parse_script

ROOT = Path(__file__).resolve().parents[2]
PATH = re.compile(r"`((?:penstock|tests|docs|examples|scripts)/[\w./-]*)`")


def test_every_path_that_the_architecture_names_exists():
    named = PATH.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_test_that_the_guarantees_name_exists():
    named = re.findall(
        r"`(tests/[\w./]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    )
    assert len(named) > 40
    for path, test in named:
        assert f"def {test}" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"


def test_every_room_has_its_place_in_the_architecture():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = [path.parent.name for path in (ROOT / "penstock").glob("*/__init__.py")]
    assert [room for room in rooms if f"`penstock/{room}/" not in text] == []


def test_the_documents_name_no_command_that_does_not_exist():
    known = {command.callback.__name__ for command in app.registered_commands}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        named = re.findall(r"(?:`|\$ )penstock ([a-z]+)", page.read_text(encoding="utf-8"))
        assert set(named) <= known, page.name


def blocks(page, language):
    """List the blocks of a document in one language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_script_of_the_guide_is_a_script(tmp_path):
    script = tmp_path / "guide.sql"
    text, retaining = blocks("docs/guide.md", "sql")
    script.write_text(text)
    assert [query.name for query in load(script).plan.queries] == ["climate"]
    assert parse_script(retaining).streams["Temperature"].options[-1] == ("retain", "24 hours")


@pytest.mark.spark
def test_the_python_of_the_guide_runs(tmp_path, monkeypatch, capfd):
    from penstock.engine.session import QUICK_START, embedded_session

    embedded_session(
        QUICK_START
    )  # so that the session the guide asks for runs its workers in this environment
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, ROOT / "examples" / "make_readings.py"], check=True)
    code = blocks("docs/guide.md", "python")[0]
    for folder in ("data/", "out/"):  # Spark takes relative paths to begin where its JVM was started
        code = code.replace(f'"{folder}', f'"{tmp_path}/{folder}')
    exec(compile(code, "guide.md", "exec"), {})  # noqa: S102 - our own document
    out = capfd.readouterr().out
    assert "only showing top 20 rows" in out
    assert "2 queries, 1 chain" in out
    assert list((tmp_path / "out" / "ice").glob("part-*.parquet"))
