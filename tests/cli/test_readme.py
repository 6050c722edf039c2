"""The README's example, run as it is written, prints what it says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def steps():
    """Read the commands of the README's console blocks, each with the output shown below it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = []
    for line in (line for block in BLOCK.findall(text) for line in block.splitlines()):
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return [(command, plain(lines)) for command, lines in found]


def plain(lines):
    """Leave out what differs from run to run: progress, seconds, blank lines, and the order of rows."""
    kept = [
        line.rstrip() for line in lines if line.strip() and not re.match(r"\d\d:\d\d:\d\d  rows in", line)
    ]
    return sorted(re.sub(r"after [\d.]+ seconds", "after N seconds", line) for line in kept)


def test_the_queries_that_the_readme_shows_are_in_the_examples():
    shown = re.findall(r"```sql\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    scripts = [ROOT / "examples" / name for name in ("monitor.sql", "aggregates.sql", "swings.sql")]
    for block, script in zip(shown, scripts, strict=True):
        assert block.strip() in script.read_text(encoding="utf-8")


@pytest.mark.spark
def test_the_example_of_the_readme_prints_what_the_readme_says(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    here, binaries = tmp_path, Path(sys.executable).parent
    for command, shown in steps():
        if command.startswith("cd "):
            here = here / command[3:]
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=here,
            env={**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert plain(done.stdout.splitlines()) == shown
