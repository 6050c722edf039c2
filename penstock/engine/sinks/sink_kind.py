"""A kind of sink: all that Penstock must know of it, as one class.

    a query starts       options, needs      what a script may say (`penstock.sql.sinks`)
                         directory           a directory outside the state that only this query may write to
                         prepare             what must be there before the first result
    in tasks             destination         where the files with its results go; none: results are counted
    after a commit       (published)         files are moved into the directory, or
                         hand_over           one DataFrame of new results for each commit
    on request           read                all committed results, where the sink keeps them
    the query is dropped dropped             what happens to its results

Files reach a sink only after the journal has the commit that names them.  `penstock.engine.sinks.publication` moves
them, and repeats that after a crash.  So a sink that keeps files has each result exactly once.  A sink that is handed
DataFrames may get the last one again, with the same unit, and must recognize the unit.

A new kind is a subclass in a module of its own, and a line in `penstock.sql.sinks.SINKS`.

In:  a query.  Out: its destination, its results, and texts for users.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from penstock.engine.sinks.destination import Destination
from penstock.errors import InputError
from penstock.sql.query import Sink
from penstock.sql.sinks import SinkOptions, sink_class
from penstock.state.files import safe_name
from penstock.state.locations import absolute

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, DataFrameReader

    from penstock.sql.query import Query
    from penstock.state.files import Files

    Handler = Callable[[DataFrame, str], object]
    """A user's function that gets the results of a unit and the unit's id."""


class SinkKind(SinkOptions, ABC):
    """The sink of one query."""

    after_crash: ClassVar[str]
    """The guarantee: how often a result is delivered if the engine crashes and starts again."""
    stores_rows: ClassVar[bool] = True
    """Whether results are written at all, and not only counted."""
    hands_over: ClassVar[bool] = False
    """Whether results are handed over as DataFrames, from files that are then deleted."""
    keeps_results: ClassVar[bool] = False
    """Whether committed results can be read back."""
    in_state: ClassVar[bool] = False
    """Whether the state keeps the results, so that they go with the query."""

    def __init__(self, query: Query) -> None:
        """Describe the sink of a query."""
        self.query, self.sink = query, query.sink

    @property
    def directory(self) -> str:
        """Return the directory outside the state that only this query may write to; empty if there is none."""
        return ""

    @abstractmethod
    def destination(self, state: Files) -> Destination | None:
        """Return where tasks write files with results; None if results are only counted."""

    def prepare(self, empty: DataFrame) -> None:
        """Create what must be there before the first result, from a DataFrame with the columns and no row."""

    def hand_over(self, rows: DataFrame, unit: str, handler: Handler | None) -> None:
        """Deliver the new results of a unit, where `hands_over`; a callback's handler is its function."""
        raise NotImplementedError(f"a {self.sink.kind} sink takes no DataFrames")

    def read(self, _reader: DataFrameReader) -> DataFrame:
        """Read all committed results."""
        raise InputError(
            f"query {self.query.name} has a {self.sink.kind} sink, which keeps no results to read"
        )

    def dropped(self, results: int) -> str:
        """Write what happens to the results when the query is dropped."""
        return f"its {results:,} results were handed over, and none is kept"


class HandOverSink(SinkKind):
    """A sink that gets a DataFrame after each commit: a topic, a database, another table format.

    The results wait in files of the state.  If the engine stops before a unit is handed over to the end, the same unit
    comes again, with the same rows.
    """

    hands_over: ClassVar[bool] = True

    def destination(self, state: Files) -> Destination:
        """Return the directory of the state where results wait."""
        return Destination(state.path(f"spool/{safe_name(self.query.name)}"), handed_over=True)

    @abstractmethod
    def hand_over(self, rows: DataFrame, unit: str, handler: Handler | None) -> None:
        """Deliver the new results of a unit."""


def sink_of(query: Query) -> SinkKind:
    """Return the sink of a query."""
    kind = sink_class(query.sink.kind)
    assert issubclass(kind, SinkKind)  # noqa: S101 - the registry holds classes of the engine
    return kind(query)


def settled(sink: Sink) -> Sink:
    """Make a sink's path absolute, so that it means the same wherever the state is opened from."""
    path = sink.option("path")
    if not path:
        return sink
    return Sink(sink.kind, tuple({**dict(sink.options), "path": absolute(path)}.items()))
