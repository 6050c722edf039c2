"""Read a state from another process, also while an engine runs on it: status and committed results.

Nothing is locked or written.  Status and the results of a `parquet` sink need no Spark.  Tables and late rows are read
by a Spark session.

In:  the url of a state directory.
Out: a `Status`, a count, or rows as an Arrow table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from fsspec.core import url_to_fs

from penstock.cli.spark_talk import quiet_spark
from penstock.engine.report.status import look_at
from penstock.engine.sinks.parquet import ParquetSink
from penstock.engine.sinks.sink_kind import sink_of
from penstock.engine.store import peek
from penstock.engine.views.plans import current_plan
from penstock.errors import DamagedError, InputError, StateBusyError
from penstock.state.files import open_files

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from penstock.engine.report.status import Status
    from penstock.plan.build import Plan
    from penstock.sql.query import Query
    from penstock.state.ledger import Ledger


class Found(NamedTuple):
    """Rows that were read, and the number of all rows."""

    rows: pa.Table
    total: int


@dataclass(frozen=True, slots=True)
class State:
    """A state directory that a run has been started on."""

    url: str
    plan: Plan

    @classmethod
    def open(cls, url: str) -> State:
        """Read the plan of a state; refuse a directory that is no state."""
        if not open_files(url).list("journal"):
            raise InputError(
                f"{url} is not a state directory: give the directory of a run (penstock run SCRIPT --state DIR)"
            )
        ledger = peek(url)
        if not ledger.plan:
            raise InputError(f"state {url} has no query yet: its run is still starting, or failed to start")
        return cls(url, current_plan(ledger))

    def check_running(self) -> None:
        """Refuse a request if no engine runs on the state."""
        try:
            open_files(self.url).lock("lock").release()
        except StateBusyError:
            return
        if "://" not in self.url:  # remote stores have no lock
            raise InputError(
                f"no engine runs on {self.url}: start one with `penstock run SCRIPT --state {self.url}`"
            )

    def ledger(self) -> Ledger:
        """Read the present ledger."""
        return peek(self.url)

    def status(self) -> Status:
        """Return the progress of every stream, slice and query."""
        return look_at(self.ledger())

    def query(self, name: str) -> Query:
        """Find a query, whatever the case of its name."""
        return self.plan.query(name)

    def count(self, name: str, *, debug: bool = False) -> int:
        """Count the rows that `results` reads; Spark counts the latest rows of a query with ``emit = 'changes'``."""
        query = self.query(name)
        if has_latest(query):
            return self.results(name, 0, debug=debug).total
        return self.ledger().query(query.name).results

    def count_late(self, stream: str) -> int:
        """Count the rows of a stream that were set aside."""
        state = self.ledger().stream(self.plan.stream(stream).name)
        return state.late + state.no_time + state.broken

    def results(self, name: str, limit: int | None, *, debug: bool = False) -> Found:
        """Read at most `limit` of a query's committed results, in order if the query has one."""
        query = self.query(name)
        sink = sink_of(query)
        if isinstance(sink, ParquetSink) and not has_latest(query):
            return Found(_read_files(sink.directory, limit), self.count(name))
        if not sink.keeps_results:
            raise InputError(
                f"query {query.name} has a {query.sink.kind} sink, which keeps no results to read; "
                "--count says how many there were"
            )
        from penstock.engine.outputs.results import read_results, to_show  # noqa: PLC0415 - imports pyspark
        from penstock.engine.spark.session import quick_session  # noqa: PLC0415

        with quiet_spark(debug=debug):
            spark = quick_session(self.plan.spark_settings)
            view = read_results(spark, open_files(self.url), self.plan, self.ledger, query.name)
            rows = to_show(view, limit).toArrow()
            if not has_latest(query):
                return Found(rows, self.count(name))
            return Found(rows, view.count() if rows.num_rows == limit else rows.num_rows)

    def late(self, stream: str, limit: int | None, *, debug: bool = False) -> Found:
        """Read at most `limit` rows of a stream that were set aside, each with the reason."""
        from penstock.engine.outputs.results import read_late, to_show  # noqa: PLC0415 - imports pyspark
        from penstock.engine.spark.session import quick_session  # noqa: PLC0415

        declared = self.plan.stream(stream)
        with quiet_spark(debug=debug):
            spark = quick_session(self.plan.spark_settings)
            batches = self.ledger().stream(declared.name).batches
            late = read_late(spark, open_files(self.url), declared, batches)
            return Found(to_show(late, limit).toArrow(), self.count_late(stream))


def has_latest(query: Query) -> bool:
    """Check whether the results of a query are the latest state of its groups, and not all delivered rows."""
    changes = query.aggregation is not None and query.aggregation.emit == "changes"
    return changes and sink_of(query).keeps_results


def _read_files(path: str, limit: int | None) -> pa.Table:
    """Read a directory of Parquet files, and verify their pages; files that are not committed are not visible there."""
    files = open_files(path)
    names = [name for name in files.list("") if name.endswith(".parquet")]
    if not names:
        raise InputError(
            f"{path} has no results: the directory was moved or emptied after the run wrote there"
        )
    system, root = url_to_fs(path)
    places = [f"{root}/{name}" for name in names]
    try:
        results = ds.dataset(places, format=_VERIFIED, filesystem=system)
        return results.to_table() if limit is None else results.head(limit)
    except _DAMAGES as error:
        damaged = next((place for place in places if _is_damaged(place, system)), None)
        if damaged is None:
            raise
        raise DamagedError(
            f"{damaged} is damaged: its bytes are not those that were written. "
            "Restore it from a copy, or remove it and read the other results"
        ) from error


_VERIFIED = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
_DAMAGES = (pa.ArrowException, OSError)
"""The errors of Arrow for a damaged file, and of a file system for a file that cannot be opened."""


def _is_damaged(place: str, system: AbstractFileSystem) -> bool:
    """Check whether a file can be opened but has a damaged page."""
    try:
        for _ in ds.dataset([place], format=_VERIFIED, filesystem=system).to_batches():
            pass
    except _DAMAGES as error:
        return not getattr(error, "errno", None)
    return False
