"""The tutorial works: its files and commands, run in order, print what it shows.

With ``PENSTOCK_GOLDEN=rewrite`` the whole output of each command is written into the page, to be shortened by hand.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.consoles import FENCE, commands, plain, shows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
SAVED = re.compile(r"Save this as `([\w.]+)`:\s*\Z")
PATIENCE_SECONDS = 120
"""How long a command is repeated while the second terminal works on what it is to show."""


class Terminals:
    """Runs the commands of the page in a directory, on two terminals."""

    def __init__(self, directory):
        self.directory, self.second, self.log = directory, None, directory / "second.log"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "COLUMNS": "110"}

    def run(self, prompt, command, shown):
        """Run a command until it prints what is shown, if another one works on that; return its lines."""
        if prompt == "2$":
            return self.stop() if command == "^C" else self.start(command)
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.directory,
                env=self.env,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            lines = done.stdout.splitlines()
            looks = self.second and command.startswith(("penstock results", "penstock status"))
            if not looks or shows(plain(shown), plain(lines)) or time.monotonic() > until:
                return lines
            time.sleep(2)

    def start(self, command):
        with self.log.open("w") as log:
            self.second = subprocess.Popen(
                command.split(), cwd=self.directory, env=self.env, stdout=log, stderr=subprocess.STDOUT
            )
        while not (lines := self.log.read_text().splitlines()):
            assert self.second.poll() is None
            time.sleep(0.2)
        return lines[:1]

    def stop(self):
        self.second.send_signal(signal.SIGINT)
        assert self.second.wait(PATIENCE_SECONDS) == 0
        self.second = None
        return self.log.read_text().splitlines()[-1:]


def tutorial(page, terminals):
    """Save the page's files and run its commands; yield each block, and each command with both outputs."""
    for fence in FENCE.finditer(page):
        language, _, text = fence.groups()
        if saved := SAVED.search(page[: fence.start()]):
            (terminals.directory / saved[1]).write_text(text)
        elif language == "sql":
            with (terminals.directory / "rooms.sql").open("a") as script:
                script.write(text)
        elif language == "console":
            yield text, [(*asked, terminals.run(*asked)) for asked in commands(text)]


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_tutorial_prints_what_it_shows(tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    terminals = Terminals(tmp_path)
    written = {}
    try:
        for block, steps in tutorial(page, terminals):
            lines = [
                line.rstrip()
                for prompt, command, _, printed in steps
                for line in (f"{prompt} {command}", *printed)
            ]
            written[block] = "\n".join(lines) + "\n"
            for _, command, shown, printed in steps:
                if os.environ.get("PENSTOCK_GOLDEN") != "rewrite":
                    assert shows(plain(shown), plain(printed)), f"{command}\n{written[block]}"
    finally:
        if terminals.second:
            terminals.second.kill()
    if os.environ.get("PENSTOCK_GOLDEN") == "rewrite":
        for before, after in written.items():
            page = page.replace(before, after)
        PAGE.write_text(page, encoding="utf-8")
