"""The `table` sink: the state keeps the results, and a reader sees what is committed.

Pairs are stored once for all queries of a group whose results follow from the pair alone.  Such a query is a view over
them.  Results that are computed once, at their commit (`penstock.sql.bind.safety`), and results in order have files of
their own in the state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from penstock.engine.sinks.destination import Destination
from penstock.engine.sinks.sink_kind import SinkKind
from penstock.sql.bind.safety import Constancy, constancy_of
from penstock.sql.query import Sink
from penstock.state.files import safe_name

if TYPE_CHECKING:
    from penstock.sql.query import Query, Stream
    from penstock.state.files import Files


class TableSink(SinkKind):
    """A result is a row that the state keeps, read by the files that the ledger names."""

    after_crash = "exactly once"
    keeps_results: ClassVar[bool] = True
    in_state: ClassVar[bool] = True

    def destination(self, state: Files) -> Destination:
        """Return the query's own directory of the state."""
        return Destination(state.root, folder=results_folder(self.query.name))

    def dropped(self, results: int) -> str:
        """Write that the results are deleted with the query."""
        return f"its {results:,} results were in the state's table and cannot be read any more"


def table() -> Sink:
    """Keep results in the state (the default): pairs stored once, and the query a view over them."""
    return Sink("table")


def is_view(query: Query, streams: tuple[Stream, ...]) -> bool:
    """Return whether a query is read from its group's pairs: every read of a pair gives the same result.

    Its conditions may differ from read to read, since they are evaluated once, when the pair is found.
    """
    return query.in_table and constancy_of(replace(query, residual=()), streams) == Constancy.ALWAYS


def results_folder(query: str) -> str:
    """Return the directory of the state for the results of a query that has files of its own there."""
    return f"results/{safe_name(query)}"


def pairs_folder(group: str) -> str:
    """Return the directory of the state for the pairs of a group."""
    return f"pairs/{group}"
