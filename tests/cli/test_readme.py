"""The README's examples, run as they are written, print what it says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.consoles import FENCE, commands, plain, shows

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_code_that_the_readme_shows_is_in_the_examples():
    shown = {fence[1]: fence[3] for fence in FENCE.finditer(PAGE)}
    assert shown["sql"].strip() in (ROOT / "examples" / "monitor.sql").read_text(encoding="utf-8")
    assert shown["python"].strip() in (ROOT / "examples" / "humid.py").read_text(encoding="utf-8")


@pytest.mark.spark
def test_the_examples_of_the_readme_print_what_the_readme_says(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    here, binaries = tmp_path, Path(sys.executable).parent
    for fence in FENCE.finditer(PAGE):
        for _, command, shown in commands(fence[3]) if fence[1] == "console" else ():
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
            assert done.stderr == "" or not command.startswith("penstock"), done.stderr
            assert shows(plain(shown), plain(done.stdout.splitlines())), done.stdout
