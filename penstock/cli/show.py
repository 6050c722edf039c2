"""A `Status` for people: streams, slices, queries, and what sharing saves.

A status looks the same everywhere: live during a run, at its end, and in ``penstock status``.

In:  a plan and a `Status`.  Out: Rich renderables, or one line of plain text.
"""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from penstock.plan.buffers import PLAIN
from penstock.plan.plan_text import show_age, show_window
from penstock.sql.units import show_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TextIO

    from rich.console import RenderableType

    from penstock.engine.report.status import GroupStatus, QueryStatus, SliceStatus, Status
    from penstock.plan.build import Plan

MOST_READER_NAMES = 2
"""Readers of a slice that are named; more are only counted."""

MOST_COLUMNS_BESIDE = 4
"""Columns up to which the table of queries stands beside that of slices."""

PLAIN_WIDTH = 110
"""The width of output that goes to no terminal, in characters."""


def console(file: TextIO | None = None, *, stderr: bool = False) -> Console:
    """Make a console as wide as the terminal; without a terminal, as wide as `PLAIN_WIDTH`."""
    made = Console(file=file, stderr=stderr, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PLAIN_WIDTH
    return made


def status_view(plan: Plan, status: Status, rates: Mapping[str, float] | None = None) -> RenderableType:
    """Show everything: streams above, slices beside queries, and below what sharing saves."""
    oblivious = {group.id for group in plan.groups if group.oblivious}
    slices = Group(*(slice_table(group) for group in status.groups if group.id not in oblivious))
    queries = query_table(plan, status)
    both: RenderableType = Group(slices, queries)
    if len(queries.columns) <= MOST_COLUMNS_BESIDE:
        both = Table.grid(padding=(0, 3))
        both.add_row(slices, queries)
    buffers = buffer_table(status)
    lines = [
        *savings(status),
        *memory_lines(status),
        *_changes(status),
        *_missed(status),
        *(f"warning: {stream.warning}" for stream in status.streams if stream.warning),
        *(
            f"{query.name} is complete from {_show_since(query)}, because {query.lacking}"
            for query in status.queries
            if query.lacking
        ),
        *dict.fromkeys(line for query in status.queries for line in query.disorder),
        *(f"query {query.name} failed: {query.failed}" for query in status.queries if query.failed),
    ]
    return Group(stream_table(status, rates), both, *([buffers] if buffers else []), *map(Text, lines))


def buffer_table(status: Status) -> Table | None:
    """Show the disorder of streams that are joined without a window, and the rows of each that are kept."""
    shown = [(query.name, buffer) for query in status.queries for buffer in query.buffers]
    if not shown:
        return None
    table = new_table("no window")
    table.add_column("stream")
    for title in ("rows kept", "model asks for", "scrambling", "multiplicity", "rows/s", "ahead by"):
        table.add_column(title, justify="right")
    names = ("rows", "needed", "scrambling", "multiplicity", "rate", "lag")
    for query, buffer in shown:
        counts = (round(getattr(buffer, name)) for name in names)
        table.add_row(query, buffer.stream, *(f"{count:,}" for count in counts))
    return table


def _missed(status: Status) -> Iterator[str]:
    """Write the share of its results that a query has found, if it missed some, and the last reason."""
    for query in status.queries:
        if query.accuracy is None or (query.accuracy >= 1 and not query.misses):
            continue
        last = "".join(
            f", last {miss.results:,.0f} at {miss.at}: {miss.reason}" for miss in query.misses[-1:]
        )
        yield (
            f"query {query.name} has found {show_accuracy(query.accuracy)} of its results "
            f"and missed about {query.missed:,.0f}{last}"
        )


def _changes(status: Status) -> Iterator[str]:
    """Write the strategy if it is not the default, and the last change of the plan and of the order policy."""
    if status.strategy != "mem-opt":
        yield f"strategy {status.strategy}"
    if len(status.changes) > 1:
        last = status.changes[-1]
        yield f"changes of the plan: {len(status.changes) - 1}, last: {last.reason} ({last.at})"
    if status.switches:
        switch = status.switches[-1]
        yield f"order changed to {switch.mode}: {switch.reason} ({switch.at})"


def stream_table(status: Status, rates: Mapping[str, float] | None = None) -> Table:
    """Show the progress of each stream; a count of rows set aside is shown if it is not 0, and late rows always."""
    table = new_table("stream", "rows in", *(["rows/s"] if rates is not None else []), "late")
    aside = {
        "broken": "broken",
        "overtaken": "overtaken",
        "no_time": "no time",
        "no_key": "no key",
        "unwanted": "in no query",
    }
    aside = {
        name: title
        for name, title in aside.items()
        if any(getattr(stream, name) for stream in status.streams)
    }
    for title in (*aside.values(), "watermark"):
        table.add_column(title, justify="right")
    for stream in status.streams:
        cells = [f"{stream.rows:,}"]
        if rates is not None:
            cells.append(f"{rates.get(stream.name, 0):,.0f}")
        cells.append(f"{stream.late:,}")
        cells += [f"{getattr(stream, name):,}" for name in aside]
        newest = f"row {stream.watermark:,}" if stream.timeless and stream.watermark is not None else ""
        table.add_row(stream.name, *cells, newest or show_time(stream.watermark))
    return table


def slice_table(group: GroupStatus) -> Table:
    """Show the rows that each slice holds: a line for each range of ages, a column for each stream's state."""
    sides = {piece.side: piece.stream for piece in group.slices}
    table = new_table("age of the older row")
    for side, stream in sides.items():
        table.add_column(stream if len(set(sides.values())) > 1 else f"{stream} ({side})", justify="right")
    table.add_column("read by")
    for ages, pieces in _by_ages(group).items():
        counts = (f"{pieces[side].state_rows:,}" if side in pieces else "" for side in sides)
        readers = next(iter(pieces.values())).readers
        named = ", ".join(readers) if len(readers) <= MOST_READER_NAMES else f"{len(readers)} queries"
        table.add_row(ages, *counts, named or "no query")
    return table


def _by_ages(group: GroupStatus) -> dict[str, dict[str, SliceStatus]]:
    """Group the slices of either side that have the same ages and readers."""
    by_range: dict[tuple[bool, int, int, tuple[str, ...]], dict[str, SliceStatus]] = {}
    for piece in group.slices:
        # The right side's first slice begins one microsecond later: equal times belong to the left.
        start = 0 if piece.youngest == 1 and not piece.counted else piece.youngest
        by_range.setdefault((piece.counted, start, piece.oldest, piece.readers), {})[piece.side] = piece
    return {
        f"{show_age(start, rows=counted)} to {show_age(end, rows=counted)}": pieces
        for (counted, start, end, _), pieces in sorted(by_range.items(), key=lambda item: item[0][:3])
    }


def query_table(plan: Plan, status: Status) -> Table:
    """Show the results of each query, the results that wait, and the time from which on it is complete."""
    ordered = any(query.ordered for query in plan.queries)
    late = any(query.complete_from is not None for query in status.queries)
    astray = any(query.disordered for query in status.queries)
    estimated = any(query.accuracy is not None for query in status.queries)
    table = new_table("query")
    table.add_column("window")
    waits = ("output", "held", "order") if ordered else ()
    more = [*(["accuracy"] if estimated else []), *(["out of order"] if astray else [])]
    for title in ("results", *more, *waits, "rows behind"):
        table.add_column(title, justify="left" if title == "order" else "right")
    if late:
        table.add_column("complete from")
    planned = {query.name for query in plan.queries}  # a plan may be replaced between the two looks
    for query in status.queries:
        window = "stopped" if query.failed is not None else ""
        if query.failed is None and query.name in planned:
            group, _, _ = plan.find(query.name)
            window = show_window(group, query.name).removeprefix("WINDOW ")
        counts = [f"{query.results:,}", *([show_accuracy(query.accuracy)] if estimated else [])]
        counts += [f"{query.disordered:,}"] if astray else []
        counts += [f"{query.output:,}", f"{query.held:,}", query.order] if ordered else []
        counts.append(f"{query.lag_rows:,}")
        since = [_show_since(query)] if late else []
        table.add_row(query.name, window, *counts, *since)
    return table


def _show_since(query: QueryStatus) -> str:
    """Write from when on a query is complete: an event time, or a row if it has no window."""
    if query.complete_from is None or (query.accuracy is None and not query.complete_from):
        return "the beginning"
    return show_time(query.complete_from) if query.accuracy is None else f"row {query.complete_from:,}"


def show_accuracy(accuracy: float | None) -> str:
    """Write a share of results; less than all is never written as 100 %.

    >>> show_accuracy(1.0), show_accuracy(0.99999), show_accuracy(None)
    ('100 %', '99.99 %', '')
    """
    if accuracy is None:
        return ""
    return "100 %" if accuracy >= 1 else f"{math.floor(10_000 * accuracy) / 100:.2f} %"


def savings(status: Status) -> Iterator[str]:
    """Write the rows held and the pairs joined, beside those of separate queries and those without promises."""
    held, alone = held_rows(status)
    pairs = sum(group.pairs for group in status.groups)
    results = sum(query.results for query in status.queries)
    yield f"state  {held:,} rows held; separate queries would hold {alone:,}{times(alone, held)}"
    if any(stream.promises for stream in status.streams):
        by_windows = status.window_rows
        yield f"       without promises they would be {by_windows:,}{times(by_windows, held)}"
    yield f"pairs  {pairs:,} joined; delivered as {results:,} results"
    for group in status.groups:
        yield from order_lines(group)


def memory_lines(status: Status) -> Iterator[str]:
    """Write the memory strategy of joins without a window, if they have a budget or a strategy, and its cost."""
    of_group = {query.group: query.memory for query in status.queries if query.memory is not None}
    for group, memory in of_group.items():
        if memory.budget is None and memory.strategy == PLAIN:
            continue
        names = ", ".join(query.name for query in status.queries if query.group == group)
        budget = "" if memory.budget is None else f" of {show_size(memory.budget)}"
        yield (
            f"memory {names}: {memory.strategy}, {show_size(memory.mapped)}{budget} mapped, "
            f"at most {show_size(memory.most_mapped)} so far"
        )
        if not memory.fits:
            yield f"       the budget is too small: set memory to {show_size(memory.needed)}"
        if memory.waiting_rows:
            yield f"       {memory.waiting_rows:,} rows wait on disk, the oldest for {memory.waiting_seconds:.1f} s"
        if memory.dropped:
            yield f"       {memory.dropped:,} rows were dropped because the budget was too small"


def order_lines(group: GroupStatus) -> Iterator[str]:
    """Write the order in which new rows are joined, if more than two streams are."""
    for number, order in enumerate(group.orders):
        steps = (
            f"{step.stream} by {step.key or 'time alone'}"
            + ("" if step.fanout is None else f" ({step.fanout:.2g} each)")
            for step in order.steps
        )
        yield f"{'order' if not number else '':<7}a new row of {order.stream} meets {', then '.join(steps)}"


def held_rows(status: Status) -> tuple[int, int]:
    """Count the rows held, and the rows that separate queries would hold."""
    groups = status.groups
    return sum(group.state_rows for group in groups), sum(group.unshared_rows for group in groups)


def times(more: int, less: int) -> str:
    """Write a ratio of two counts; nothing if the second is 0.

    >>> times(60, 20), times(5, 0)
    (' (3.0 times as many)', '')
    """
    return f" ({more / less:.1f} times as many)" if less else ""


def progress_line(status: Status, rates: Mapping[str, float]) -> str:
    """Write the progress of a run in one line; results that are fed into other queries do not count as input."""
    queries = {query.name for query in status.queries}
    rows = sum(stream.rows for stream in status.streams if stream.name not in queries)
    rate = sum(rate for name, rate in rates.items() if name not in queries)
    behind: dict[str, int] = {}
    for query in status.queries:
        behind[query.group] = max(query.lag_rows, behind.get(query.group, 0))
    held, alone = held_rows(status)
    parts = [
        f"rows in {rows:,} ({rate:,.0f}/s)",
        f"results {sum(query.results for query in status.queries):,}",
        f"state {held:,} rows (unshared {alone:,})",
        f"rows behind {sum(behind.values()):,}",
    ]
    waiting = {name: sum(getattr(query, name) for query in status.queries) for name in ("held", "output")}
    parts += [f"{name} {count:,}" for name, count in waiting.items() if count]
    slowest = max((query.response.p99 for query in status.queries if query.response), default=None)
    parts += [] if slowest is None else [f"response {show_seconds(slowest)}"]
    worst = min((query.accuracy for query in status.queries if query.accuracy is not None), default=None)
    parts += [] if worst is None else [f"accuracy {show_accuracy(worst)}"]
    return "  ".join(parts)


def detail_tables(status: Status) -> Iterator[Table]:
    """Show promises, aggregates and response times, each only if there are any."""
    tables = (promise_table(status), answer_table(status), response_table(status))
    yield from (table for table in tables if table is not None)


def response_table(status: Status) -> Table | None:
    """Show the time of each query's results from arrival to release; None if there are none yet."""
    responses = [(query.name, query.response) for query in status.queries if query.response]
    if not responses:
        return None
    table = new_table("response time", "average", "half within", "99 % within", "longest")
    for name, response in responses:
        seconds = (response.average, response.p50, response.p99, response.longest)
        table.add_row(name, *map(show_seconds, seconds))
    return table


def answer_table(status: Status) -> Table | None:
    """Show how each aggregate query is answered, and its groups and answers that wait; None if there is none."""
    aggregates = [query for query in status.queries if query.emit]
    if not aggregates:
        return None
    table = new_table("aggregate")
    table.add_column("answers")
    for title in ("groups held", "waiting"):
        table.add_column(title, justify="right")
    for query in aggregates:
        table.add_row(query.name, query.emit, f"{query.groups_held:,}", f"{query.answers_waiting:,}")
    return table


def promise_table(status: Status) -> Table | None:
    """Show the promises of streams, and the rows that were not kept because of them; None without promises."""
    names = ("punctuations", "promises", "purged", "discarded", "dropped")
    shown = [stream for stream in status.streams if any(getattr(stream, name) for name in names)]
    if not shown:
        return None
    table = new_table(
        "promises", "punctuations", "remembered", "rows purged", "joined, not kept", "never stored"
    )
    for stream in shown:
        table.add_row(stream.name, *(f"{getattr(stream, name):,}" for name in names))
    return table


def show_seconds(seconds: float) -> str:
    """Write a short time.

    >>> show_seconds(0.0423), show_seconds(1.26), show_seconds(600)
    ('42 ms', '1.3 s', '600 s')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < _LONG_SECONDS else f"{seconds:,.0f} s"


_LONG_SECONDS = 100


def show_time(micros: int | None) -> str:
    """Write an event time.

    >>> show_time(1_700_000_000_250_000), show_time(None)
    ('2023-11-14 22:13:20.25', '-')
    """
    if micros is None:
        return "-"
    try:
        seconds, rest = divmod(micros, 1_000_000)
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
    except (OverflowError, ValueError, OSError):  # beyond the range of Python's calendar
        return f"{micros} µs"
    return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{rest:06d}".rstrip("0") if rest else "")


def new_table(first: str, *numbers: str) -> Table:
    """Begin a table: one column of names, then columns of numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column(first)
    for title in numbers:
        table.add_column(title, justify="right")
    return table
