"""Requests to a running engine through its state directory: a request is a file, and so is its answer.

    requests/<id>.json   put by the client, read and removed by the engine
    answers/<id>.json    put by the engine, read and removed by the client

This works wherever the state is and needs no port.  A request is for the engine that runs when it is put.  A request
from before its start is refused and never executed.  The engine removes a request when it has read it, since it may
contain secrets, and removes unread answers when it starts.  A request that it cannot read is answered with the reason.
An error of the listener itself is logged, and the listener starts again.

In:  ``{"do": "add", "script": text}`` or ``{"do": "drop", "query": name}``.
Out: ``{"ok": true, "say": sentence}``, or ``{"ok": false, "say": reason, "input": whether the client can fix it}``.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.errors import InputError, PenstockError, RunError
from penstock.reporting import Logger, Tolerant, reason
from penstock.state.files import open_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.state.files import Files

    Request = dict[str, Any]

_log = Logger(__name__)

_HOW = "Ask with penstock add or penstock drop"


class Listener(threading.Thread):
    """Answers requests while an engine runs."""

    def __init__(self, files: Files, handle: Callable[[Request], str]) -> None:
        """Prepare the thread; `handle` executes a request and returns the answer."""
        super().__init__(name="penstock-listener", daemon=True)
        self._files, self._handle = files, handle
        self._stopping = threading.Event()
        self._passed_over: set[str] = set()
        """Requests that were answered: one that cannot be removed is answered once."""

    def run(self) -> None:
        """Listen until `finish` is called; after an error, start again."""
        before = ""
        while not self._stopping.is_set():
            try:
                self._listen()
            except BaseException as error:  # noqa: BLE001 - requests must still be answered
                said = reason(error)
                if said != before:
                    _log.warning("cannot listen for requests (penstock add, drop), and tries again: %s", said)
                before = said

    def _listen(self) -> None:
        """Look for requests, and answer them."""
        while not self._stopping.wait(limits.CONTROL_POLL_SECONDS):
            names = set(self._files.list("requests"))
            self._passed_over &= names
            for name in sorted(names - self._passed_over):
                self._answer(name)

    def finish(self) -> None:
        """Stop after the request at hand."""
        self._stopping.set()
        if self.is_alive():
            self.join()

    def _answer(self, name: str) -> None:
        """Execute one request and answer it; an error is the answer."""
        self._passed_over.add(name)  # it may be impossible to remove
        try:
            request = self._taken(name)
            if request is None:
                return
            answer = {"ok": True, "say": self._handle(request)}
        except PenstockError as error:
            answer = {"ok": False, "say": str(error), "input": isinstance(error, InputError)}
        except BaseException as error:  # noqa: BLE001 - the next request must still be answered
            answer = {"ok": False, "say": f"the engine could not do it: {error!r}", "input": False}
        _reply(self._files, name, answer)

    def _taken(self, name: str) -> Request | None:
        """Read a request and remove it; None if the client has withdrawn it."""
        try:
            asked = self._files.read(f"requests/{name}")
        except OSError as error:
            if name not in self._files.list("requests"):
                return None
            mend = f"Ask as the user that the engine runs as (uid {os.geteuid()})"
            raise InputError(
                f"request {self._files.path(f'requests/{name}')} cannot be read: {error.strerror or error}. "
                f"{mend if isinstance(error, PermissionError) else _HOW}"
            ) from error
        finally:
            _remove(self._files, f"requests/{name}")
        try:
            request = json.loads(asked)
        except ValueError as error:
            raise InputError(f"request {name} is not JSON: {error}. {_HOW}") from error
        if not isinstance(request, dict):
            raise InputError(f"request {name} is not a JSON object. {_HOW}")
        return request


def refuse_waiting(files: Files) -> None:
    """Refuse requests from before this start, and remove unread answers."""
    for name in files.list("answers"):
        _remove(files, f"answers/{name}")
    for name in files.list("requests"):
        said = "it was asked before this engine ran, and was not carried out: ask again"
        _reply(files, name, {"ok": False, "say": said, "input": False})
        _remove(files, f"requests/{name}")


def _reply(files: Files, name: str, answer: Request) -> None:
    """Write the answer to a request; log it if that fails."""
    with Tolerant(_log, f"answering request {name}"):
        files.put(f"answers/{name}", json.dumps(answer).encode())


def _remove(files: Files, name: str) -> None:
    """Remove a request or an answer, if it is a file."""
    with suppress(OSError):
        files.delete(name)


def ask(url: str, request: Request, *, patience: float = 120.0) -> str:
    """Send a request to the engine that runs on a state, and return its answer; raise an error if it refuses."""
    files = open_files(url, private=True)
    name = f"{uuid.uuid4().hex}.json"
    try:
        files.put_if_absent(f"requests/{name}", json.dumps(request).encode())
        answer = _awaited(files, name, patience)
    except OSError as error:
        raise InputError(
            f"the engine on {files.root} cannot be asked: {error.strerror or error}. Ask as the user that it runs as"
        ) from error
    if answer["ok"]:
        return str(answer["say"])
    raise (InputError if answer["input"] else RunError)(answer["say"])


def _awaited(files: Files, name: str, patience: float) -> Request:
    """Wait for the answer to a request, and remove it."""
    until = time.monotonic() + patience
    while not files.exists(f"answers/{name}"):
        if time.monotonic() > until:
            raise RunError(_no_answer(files, name, patience))
        time.sleep(limits.CONTROL_POLL_SECONDS)
    answer: Request = json.loads(files.read(f"answers/{name}"))
    files.delete(f"answers/{name}")
    return answer


def _no_answer(files: Files, name: str, patience: float) -> str:
    """Withdraw a request without an answer, and return the reason to show."""
    if not files.exists(f"requests/{name}"):
        return (
            f"the engine on {files.root} has taken the request and not answered in {patience:.0f} s: it may still "
            "carry it out; `penstock status` shows when it has"
        )
    files.delete(f"requests/{name}")
    return f"the engine on {files.root} did not answer in {patience:.0f} s: is it running?"
