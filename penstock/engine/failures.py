"""Explain what stopped a run, in the user's words.

In:  an exception of the joiner or of an ingest.  Out: the error to raise, with the stream, query or file it is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.spark.spark_errors import named_file, short_message
from penstock.errors import DamagedError, MissingError, PenstockError, RunError
from penstock.sql.source_options import scrubbed
from penstock.state.hold import hold_folder
from penstock.state.row_times import roll_folder

if TYPE_CHECKING:
    from penstock.plan.build import Plan
    from penstock.sql.query import Stream


def join_failure(error: BaseException, plan: Plan | None, no_workers: Exception | None) -> PenstockError:
    """Explain an error of the joiner; `no_workers` is the reason why no Python worker could be started, if any."""
    if isinstance(error, DamagedError | MissingError):
        return RunError(with_owner(str(error), plan))
    if isinstance(error, PenstockError):
        return error
    explained = RunError(with_owner(f"the join failed: {short_message(no_workers or error)}", plan))
    explained.__cause__ = error
    return explained


def ingest_failure(
    error: BaseException, cause: BaseException | None, stream: Stream, no_workers: Exception | None
) -> PenstockError:
    """Explain an error of a streaming query; `cause` is the error of the batch, if there was one."""
    cause = cause or error
    if isinstance(cause, PenstockError):
        return cause
    cause = no_workers or cause
    if file := named_file(cause) or named_file(error):
        return RunError(
            f"source file {file} of stream {stream.name} cannot be read: {short_message(cause).rstrip('.')}. "
            "Mend or remove the file and run again: committed results are kept, and the run goes on from there"
        )
    return RunError(f"stream {stream.name}: {scrubbed(short_message(cause), stream.options)}")


def with_owner(message: str, plan: Plan | None) -> str:
    """Add which stream or query a file belongs to, if the message names a file of the state."""
    if plan is None:
        return message
    owners = {f"/log/{log.id}/": f"rows of stream {log.stream}" for log in plan.logs}
    owners |= {f"/log/{roll_folder(name)}/": f"event times of stream {name}" for name in plan.counted}
    owners |= {
        f"/{hold_folder(query.name)}/": f"held results of query {query.name}" for query in plan.queries
    }
    owner = next((owner for folder, owner in owners.items() if folder in message), "")
    return f"{message} (it holds {owner})" if owner else message
