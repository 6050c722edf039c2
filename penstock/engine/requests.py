"""Talk to a running engine through its state directory: a request is a file, and so is the answer.

    requests/<id>.json   put by whoever asks, read and removed by the engine
    answers/<id>.json    put by the engine, read and removed by whoever asked

It works wherever the state is, needs no port, and a request that was put is either answered or still there.

In:  ``{"do": "add", "script": text}`` or ``{"do": "drop", "query": name}``.
Out: ``{"ok": true, "say": sentence}``, or ``{"ok": false, "say": what is wrong, "input": whether the asker can mend
it}``.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError, PenstockError, RunError
from penstock.log.files import open_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log.files import Files

    Request = dict[str, Any]

_EVERY = 0.3
"""Seconds between two looks for requests, or for an answer."""


class Listener(threading.Thread):
    """Answers requests while an engine runs."""

    def __init__(self, files: Files, handle: Callable[[Request], str]) -> None:
        """Get ready; `handle` does what a request asks and says what it did."""
        super().__init__(name="penstock-listener", daemon=True)
        self._files, self._handle = files, handle
        self._stopping = threading.Event()

    def run(self) -> None:
        """Look for requests until told to stop."""
        while not self._stopping.wait(_EVERY):
            for name in self._files.list("requests"):
                self._answer(name)

    def finish(self) -> None:
        """Stop after the request at hand."""
        self._stopping.set()
        if self.is_alive():
            self.join()

    def _answer(self, name: str) -> None:
        """Do what one request asks, and answer it; whatever goes wrong is the answer."""
        try:
            answer = {"ok": True, "say": self._handle(json.loads(self._files.read(f"requests/{name}")))}
        except FileNotFoundError:
            return  # whoever asked has given up
        except PenstockError as error:
            answer = {"ok": False, "say": str(error), "input": isinstance(error, InputError)}
        except Exception as error:  # noqa: BLE001 - the next request must be heard
            answer = {"ok": False, "say": f"the engine could not do it: {error!r}", "input": False}
        self._files.put(f"answers/{name}", json.dumps(answer).encode())
        self._files.delete(f"requests/{name}")


def ask(url: str, request: Request, *, patience: float = 120.0) -> str:
    """Ask the engine that runs on a state, and give its answer; raise what it says is wrong."""
    files = open_files(url)
    name = f"{uuid.uuid4().hex}.json"
    files.put_if_absent(f"requests/{name}", json.dumps(request).encode())
    until = time.monotonic() + patience
    while not files.exists(f"answers/{name}"):
        if time.monotonic() > until:
            files.delete(f"requests/{name}")
            raise RunError(f"the engine on {url} did not answer in {patience:.0f} s: is it running?")
        time.sleep(_EVERY)
    answer = json.loads(files.read(f"answers/{name}"))
    files.delete(f"answers/{name}")
    if answer["ok"]:
        return str(answer["say"])
    raise (InputError if answer["input"] else RunError)(answer["say"])
