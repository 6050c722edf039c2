"""The documents point to what is there, and what they show runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import app
from penstock.errors import SqlError
from penstock.schedulers import SCHEDULERS
from penstock.sql.bind.binder import bind_query
from penstock.sql.script import parse_script
from penstock.sql.sinks import SINKS, sink_class
from tests.sql.streams import STREAMS
from tests.sql.test_errors import QUERIES, SCRIPTS

ROOT = Path(__file__).resolve().parents[2]
PATH = re.compile(r"`((?:penstock|tests|docs|examples|scripts)/[\w./-]*)`")


def test_every_path_that_the_architecture_names_exists():
    named = PATH.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_file_that_the_drawings_of_the_architecture_name_exists():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = [line for line in text.splitlines() if line.startswith("    ")]
    named = re.findall(r"(?:sql|plan|kernels|state|engine|cli)/[\w/]+\.py", "\n".join(drawn))
    assert len(named) > 30
    assert [path for path in named if not (ROOT / "penstock" / path).exists()] == []


def is_there(name):
    """Say whether a dotted name leads to a package, to a module, or to something that a module defines."""
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        home = ROOT.joinpath(*parts[:length])
        file = home / "__init__.py" if home.is_dir() else home.with_suffix(".py")
        if file.exists():
            text = file.read_text(encoding="utf-8")
            forms = [
                rf"(?m)^\s*(?:def |class )?{each}\b.*[:=(]|import .*\b{each}\b" for each in parts[length:]
            ]
            return all(re.search(form, text) for form in forms)
    return False


def test_every_module_that_a_docstring_or_a_document_names_exists():
    files = [
        *(ROOT / "penstock").rglob("*.py"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "tests").rglob("*.py"),
    ]
    named = {
        (path.name, name)
        for path in files
        for name in re.findall(r"`(penstock(?:\.\w+){2,})`", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 100
    assert sorted(each for each in named if not is_there(each[1])) == []


def test_every_test_that_the_guarantees_name_exists():
    named = re.findall(
        r"`(tests/[\w./]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    )
    assert len(named) > 40
    for path, test in named:
        assert f"def {test}" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"


def test_the_page_on_the_journal_is_what_the_classes_say():
    subprocess.run([sys.executable, ROOT / "scripts" / "journal-docs", "--check"], check=True)


def test_the_page_on_the_status_is_what_the_classes_say():
    subprocess.run([sys.executable, ROOT / "scripts" / "status-docs", "--check"], check=True)


def test_the_page_on_errors_is_what_the_source_says():
    subprocess.run([sys.executable, ROOT / "scripts" / "error-docs", "--check"], check=True)


def said(marked, message):
    """Give the whole of what is said about a wrong script or query."""
    text, parse = marked.replace(">>", ""), parse_script if (marked, message) in SCRIPTS else bind_query
    with pytest.raises(SqlError) as caught:
        parse(text, STREAMS) if parse is parse_script else parse("q3", text, STREAMS)
    return caught.value.message


def test_every_message_about_wrong_sql_is_on_the_page_on_errors():
    """What is filled in may be anything; the words around it must be there."""
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- (`{1,2}) ?(?:… )?(.*?) ?\1(?: \*run\*)?$", page, re.MULTILINE)
    assert len(entries) > 250
    patterns = [".*".join(map(re.escape, re.split(r"<[^>]*>", text))) for _, text in entries]
    whole = re.compile("|".join(patterns))
    assert [message for case in QUERIES + SCRIPTS if not whole.search(message := said(*case))] == []


def test_every_room_has_its_place_in_the_architecture():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    inits = [
        *(ROOT / "penstock").glob("*/__init__.py"),
        *(ROOT / "penstock" / "engine").glob("*/__init__.py"),
    ]
    rooms = [path.parent.relative_to(ROOT).as_posix() for path in inits]
    assert len(rooms) > 14
    assert [room for room in rooms if f"`{room}/`" not in text] == []


def test_the_page_on_threads_names_every_lock_and_every_thread_of_the_engine():
    """A lock or thread that is added has to be given its place in the order."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = [ROOT / "penstock" / room for room in ("engine", "state")]
    source = "\n".join(path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py"))
    locks = re.findall(r"self\.(\w+) = threading\.(?:R?Lock|Condition)\(\)", source)
    threads = re.findall(r"name=\"(penstock-[a-z]+)\"", source)
    assert len(locks) > 4
    assert [name for name in locks if f".{name}`" not in text] == []
    assert [name for name in threads if f"`{name}`" not in text] == []


def test_the_documents_name_no_command_that_does_not_exist():
    known = {command.callback.__name__ for command in app.registered_commands}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        named = re.findall(r"(?:`|\$ )penstock ([a-z]+)", page.read_text(encoding="utf-8"))
        assert set(named) <= known, page.name


def test_the_guide_and_the_reference_name_every_scheduler():
    guide, reference = ((ROOT / "docs" / page).read_text() for page in ("guide.md", "sql.md"))
    rows = re.findall(
        r"^\| `(\w+)`.*\|", guide.partition("| scheduler |")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert rows == list(SCHEDULERS)
    (line,) = (line for line in reference.splitlines() if line.startswith("SET scheduler"))
    assert all(name in line for name in SCHEDULERS)


def test_the_guide_has_the_guarantee_of_every_sink():
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `?(\w+)`?[^|]* \|[^|]*\| ([^|]*) \|$", guide, re.MULTILINE))
    shown = {name: entry for name, entry in SINKS.items() if isinstance(entry, str)}
    assert len(shown) > 4
    assert {name: sink_class(name).after_crash for name in shown} == {name: rows[name] for name in shown}
