"""How a stream rests: until there is news, or somebody needs Spark to go on; and it never keeps anybody waiting."""

from __future__ import annotations

import threading

import pytest

from penstock.engine.ingest import resting
from penstock.engine.ingest.resting import Rest
from penstock.engine.ingest.source_folder import SourceFolder

LONG = 60.0


class Sleeper:
    """A stream that rests in a thread of its own."""

    def __init__(self, folder) -> None:
        self.active, self.asked = True, threading.Event()
        self.rest = Rest(SourceFolder(str(folder)), self._is_active)
        self.thread = threading.Thread(target=self.rest.rest, daemon=True)
        self.thread.start()

    def _is_active(self) -> bool:
        self.asked.set()
        return self.active

    def is_up(self) -> bool:
        """Wait for it to go on."""
        self.thread.join(LONG)
        return not self.thread.is_alive() and not self.rest.at_rest


@pytest.fixture
def sleeper(tmp_path, monkeypatch):
    """Let a stream rest that has nothing new."""
    monkeypatch.setattr(resting, "ASK_SECONDS", 0.01)
    made = Sleeper(tmp_path)
    assert made.asked.wait(LONG)
    assert made.rest.at_rest
    yield made
    made.rest.end()


def test_it_goes_on_when_there_is_a_file(sleeper, tmp_path):
    (tmp_path / "a").write_bytes(b"")
    assert sleeper.is_up()


def test_whoever_looks_and_finds_news_wakes_it(sleeper, tmp_path, monkeypatch):
    assert not sleeper.rest.has_news()
    monkeypatch.setattr(resting, "LOOK_SECONDS", LONG)
    (tmp_path / "a").write_bytes(b"")
    assert sleeper.rest.has_news()
    assert sleeper.is_up()


def test_it_goes_on_when_it_is_ended_and_never_rests_again(sleeper):
    sleeper.rest.end()
    assert sleeper.is_up()
    sleeper.rest.rest()


def test_it_goes_on_while_it_is_kept_awake_and_may_rest_afterwards(sleeper):
    with sleeper.rest.kept_awake():
        assert sleeper.is_up()
        sleeper.rest.rest()
    sleeper.asked.clear()
    again = threading.Thread(target=sleeper.rest.rest, daemon=True)
    again.start()
    assert sleeper.asked.wait(LONG)
    assert sleeper.rest.at_rest


def test_it_goes_on_when_spark_no_longer_runs_the_query(sleeper):
    sleeper.active = False
    assert sleeper.is_up()
