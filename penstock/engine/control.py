"""Talk to a running engine through its state directory: a request is a file, and so is the answer.

    requests/<id>.json   put by whoever asks, read and removed by the engine
    answers/<id>.json    put by the engine, read and removed by whoever asked

It works wherever the state is and needs no port.  A request is for the engine that runs when it is put: one that was
there before is answered with a refusal and never carried out.  The engine removes a request when it has read it, since
it may hold secrets, and an answer that nobody came for when it starts.

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
            asked = self._files.read(f"requests/{name}")
        except FileNotFoundError:
            return  # whoever asked has given up
        self._files.delete(f"requests/{name}")
        try:
            answer = {"ok": True, "say": self._handle(json.loads(asked))}
        except PenstockError as error:
            answer = {"ok": False, "say": str(error), "input": isinstance(error, InputError)}
        except Exception as error:  # noqa: BLE001 - the next request must be heard
            answer = {"ok": False, "say": f"the engine could not do it: {error!r}", "input": False}
        _reply(self._files, name, answer)


def refuse_waiting(files: Files) -> None:
    """Refuse what was asked before this engine ran, and remove answers that nobody came for."""
    for name in files.list("answers"):
        files.delete(f"answers/{name}")
    for name in files.list("requests"):
        said = "it was asked before this engine ran, and was not carried out: ask again"
        _reply(files, name, {"ok": False, "say": said, "input": False})
        files.delete(f"requests/{name}")


def _reply(files: Files, name: str, answer: Request) -> None:
    """Answer a request."""
    files.put(f"answers/{name}", json.dumps(answer).encode())


def ask(url: str, request: Request, *, patience: float = 120.0) -> str:
    """Ask the engine that runs on a state, and give its answer; raise what it says is wrong."""
    files = open_files(url, private=True)
    name = f"{uuid.uuid4().hex}.json"
    files.put_if_absent(f"requests/{name}", json.dumps(request).encode())
    until = time.monotonic() + patience
    while not files.exists(f"answers/{name}"):
        if time.monotonic() > until:
            raise RunError(_no_answer(files, name, patience))
        time.sleep(_EVERY)
    answer = json.loads(files.read(f"answers/{name}"))
    files.delete(f"answers/{name}")
    if answer["ok"]:
        return str(answer["say"])
    raise (InputError if answer["input"] else RunError)(answer["say"])


def _no_answer(files: Files, name: str, patience: float) -> str:
    """Take a request back that was not answered in time, or say that it is too late for that."""
    if not files.exists(f"requests/{name}"):
        return (
            f"the engine on {files.root} has taken the request and not answered in {patience:.0f} s: it may still "
            "carry it out; `penstock status` shows when it has"
        )
    files.delete(f"requests/{name}")
    return f"the engine on {files.root} did not answer in {patience:.0f} s: is it running?"
