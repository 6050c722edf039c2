"""A `Status` for people: how far each stream is, what each slice holds, what each query got, what sharing saves.

One value, shown the same everywhere: live during a run, at its end, and by ``penstock status``.

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
"""Readers of a slice that are named; of more, only the number is given."""

MOST_COLUMNS_BESIDE = 4
"""Columns of the table of queries up to which it stands beside that of slices."""

PLAIN_WIDTH = 110
"""Columns to fill where there is no terminal to ask."""


def console(file: TextIO | None = None, *, stderr: bool = False) -> Console:
    """Make a console that is as wide as the terminal, and wide enough where there is none."""
    made = Console(file=file, stderr=stderr, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PLAIN_WIDTH
    return made


def status_view(plan: Plan, status: Status, rates: Mapping[str, float] | None = None) -> RenderableType:
    """Show everything: streams above, slices beside queries, and below what sharing saves."""
    oblivious = {each.id for each in plan.groups if each.oblivious}
    slices = Group(*(slice_table(each) for each in status.groups if each.id not in oblivious))
    queries = query_table(plan, status)
    both: RenderableType = Group(slices, queries)
    if len(queries.columns) <= MOST_COLUMNS_BESIDE:
        both = Table.grid(padding=(0, 3))
        both.add_row(slices, queries)
    buffers = buffer_table(status)
    more = [buffers] if buffers else []
    return Group(
        stream_table(status, rates),
        both,
        *more,
        *savings(status),
        *map(Text, memory_lines(status)),
        *_changes(status),
        *_missed(status),
        *(Text(f"warning: {each.warning}") for each in status.streams if each.warning),
        *_lacking(status),
        *(Text(each) for each in dict.fromkeys(said for query in status.queries for said in query.disorder)),
        *_failures(status),
    )


def buffer_table(status: Status) -> Table | None:
    """Show what streams are like that are joined without a window, and how many rows of each are kept."""
    shown = [(query.name, each) for query in status.queries for each in query.buffers]
    if not shown:
        return None
    table = new_table("no window")
    table.add_column("stream")
    for title in ("rows kept", "model asks for", "scrambling", "multiplicity", "rows/s", "ahead by"):
        table.add_column(title, justify="right")
    for name, each in shown:
        counts = (each.rows, each.needed, each.scrambling, each.multiplicity, round(each.rate), each.lag)
        table.add_row(name, each.stream, *(f"{count:,}" for count in counts))
    return table


def _lacking(status: Status) -> list[Text]:
    """Say of which queries rows were held that they are not complete for, and why."""
    return [
        Text(f"{query.name} is complete from {_show_since(query)}, because {query.lacking}")
        for query in status.queries
        if query.lacking
    ]


def _missed(status: Status) -> list[Text]:
    """Show the share of its results that a query has found, if it missed some; and when, and why."""
    lines = []
    for query in status.queries:
        if query.accuracy is None or (query.accuracy >= 1 and not query.misses):
            continue
        line = (
            f"query {query.name} has found {show_accuracy(query.accuracy)} of its results "
            f"and missed about {query.missed:,.0f}"
        )
        for miss in query.misses[-1:]:
            line += f", last {miss.results:,.0f} at {miss.at}: {miss.reason}"
        lines.append(Text(line))
    return lines


def _failures(status: Status) -> list[Text]:
    """Say which queries were stopped, and why."""
    return [Text(f"query {each.name} failed: {each.failed}") for each in status.queries if each.failed]


def _changes(status: Status) -> list[Text]:
    """Say how queries share, if it is not the usual way, and why the plan was last changed, if it ever was."""
    lines = [Text(f"strategy {status.strategy}")] if status.strategy != "mem-opt" else []
    if len(status.changes) > 1:
        last = status.changes[-1]
        lines.append(Text(f"changes of the plan: {len(status.changes) - 1}, last: {last.reason} ({last.at})"))
    if status.switches:
        switch = status.switches[-1]
        lines.append(Text(f"order changed to {switch.mode}: {switch.reason} ({switch.at})"))
    return lines


def stream_table(status: Status, rates: Mapping[str, float] | None = None) -> Table:
    """Show how far each stream is; what was set aside is shown only where there is any, but for late rows."""
    table = new_table("stream", "rows in", *(["rows/s"] if rates is not None else []), "late")
    aside = {
        "broken": "broken",
        "overtaken": "overtaken",
        "no_time": "no time",
        "no_key": "no key",
        "unwanted": "in no query",
    }
    aside = {name: title for name, title in aside.items() if any(getattr(s, name) for s in status.streams)}
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
    """Show what each slice holds: one line for each range of ages, one column for each stream's state."""
    sides = {each.side: each.stream for each in group.slices}
    table = new_table("age of the older row")
    for side, stream in sides.items():
        table.add_column(stream if len(set(sides.values())) > 1 else f"{stream} ({side})", justify="right")
    table.add_column("read by")
    for ages, pieces in _by_ages(group).items():
        counts = (f"{pieces[side].state_rows:,}" if side in pieces else "" for side in sides)
        readers = next(iter(pieces.values())).readers
        named = ", ".join(readers) if len(readers) <= MOST_READER_NAMES else f"{len(readers)} queries"
        table.add_row(ages, *counts, named or "nobody")
    return table


def _by_ages(group: GroupStatus) -> dict[str, dict[str, SliceStatus]]:
    """Bring together the slices of either side that are of the same ages, and have the same readers."""
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
    """Show what each query got, what waits on the way to it, and from when on it is complete."""
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
    """Write from when on a query is complete: an event time, or a row, where it has no window."""
    if query.complete_from is None or (query.accuracy is None and not query.complete_from):
        return "the beginning"
    return show_time(query.complete_from) if query.accuracy is None else f"row {query.complete_from:,}"


def show_accuracy(accuracy: float | None) -> str:
    """Write a share of results; one that is not all of them is never written as all.

    >>> show_accuracy(1.0), show_accuracy(0.99999), show_accuracy(None)
    ('100 %', '99.99 %', '')
    """
    if accuracy is None:
        return ""
    return "100 %" if accuracy >= 1 else f"{math.floor(10_000 * accuracy) / 100:.2f} %"


def savings(status: Status) -> list[Text]:
    """Say what is held and joined once, against what it serves, and against what promises have let go."""
    held, alone = held_rows(status)
    results, pairs = sum(each.results for each in status.queries), sum(each.pairs for each in status.groups)
    by_windows = status.window_rows
    promised = [Text(f"       the windows alone would hold {by_windows:,}{times(by_windows, held)}")]
    return [
        Text(f"state  {held:,} rows held; the queries one by one would hold {alone:,}{times(alone, held)}"),
        *(promised if any(each.promises for each in status.streams) else []),
        Text(f"pairs  {pairs:,} joined; delivered as {results:,} results"),
        *(Text(line) for group in status.groups for line in order_lines(group)),
    ]


def memory_lines(status: Status) -> Iterator[str]:
    """Say what joins without a window do about memory, where they do something, and what that costs."""
    of_group = {each.group: each.memory for each in status.queries if each.memory is not None}
    for group, memory in of_group.items():
        if memory.budget is None and memory.strategy == PLAIN:
            continue
        names = ", ".join(each.name for each in status.queries if each.group == group)
        budget = "" if memory.budget is None else f" of {show_size(memory.budget)}"
        yield (
            f"memory {names}: {memory.strategy}, {show_size(memory.mapped)}{budget} mapped, "
            f"{show_size(memory.most_mapped)} at the most"
        )
        if not memory.fits:
            yield f"       too little: it should have {show_size(memory.needed)}"
        if memory.waiting_rows:
            yield f"       {memory.waiting_rows:,} rows wait on disk, the oldest for {memory.waiting_seconds:.1f} s"
        if memory.dropped:
            yield f"       {memory.dropped:,} rows were let go because there was no room for them"


def order_lines(group: GroupStatus) -> Iterator[str]:
    """Say in which order new rows look for partners, where more than two streams are joined."""
    for number, order in enumerate(group.orders):
        steps = (
            f"{each.stream} by {each.key or 'time alone'}"
            + ("" if each.fanout is None else f" ({each.fanout:.2g} each)")
            for each in order.steps
        )
        yield f"{'order' if not number else '':<7}a new row of {order.stream} meets {', then '.join(steps)}"


def held_rows(status: Status) -> tuple[int, int]:
    """Count the rows held, and those that the queries would hold if each ran alone."""
    return sum(each.state_rows for each in status.groups), sum(each.unshared_rows for each in status.groups)


def times(more: int, less: int) -> str:
    """Compare two counts, where there is something to compare.

    >>> times(60, 20), times(5, 0)
    (' (3.0 times as many)', '')
    """
    return f" ({more / less:.1f} times as many)" if less else ""


def progress_line(status: Status, rates: Mapping[str, float]) -> str:
    """Say how far everything is, in one line; results that are fed into other queries did not come in."""
    queries = {each.name for each in status.queries}
    rows = sum(each.rows for each in status.streams if each.name not in queries)
    rate = sum(each for name, each in rates.items() if name not in queries)
    groups = {each.group for each in status.queries}
    behind = sum(max(each.lag_rows for each in status.queries if each.group == group) for group in groups)
    results = sum(each.results for each in status.queries)
    held, alone = held_rows(status)
    slowest = max((each.response.p99 for each in status.queries if each.response), default=None)
    response = "" if slowest is None else f"  response {show_seconds(slowest)}"
    worst = min((each.accuracy for each in status.queries if each.accuracy is not None), default=None)
    response += "" if worst is None else f"  accuracy {show_accuracy(worst)}"
    return (
        f"rows in {rows:,} ({rate:,.0f}/s)  results {results:,}  "
        f"state {held:,} rows (unshared {alone:,})  rows behind {behind:,}{_waiting(status)}{response}"
    )


def _waiting(status: Status) -> str:
    """Say how many results wait for their turn or for their sink, where some do."""
    held, output = (sum(getattr(each, name) for each in status.queries) for name in ("held", "output"))
    return (f"  held {held:,}" if held else "") + (f"  output {output:,}" if output else "")


def response_table(status: Status) -> Table | None:
    """Show how long each query's results took from arrival to release; None if there are none yet."""
    responses = [(each.name, each.response) for each in status.queries if each.response]
    if not responses:
        return None
    table = new_table("response time")
    for title in ("average", "half within", "99 % within", "longest"):
        table.add_column(title, justify="right")
    for name, each in responses:
        moments = (each.average, each.p50, each.p99, each.longest)
        table.add_row(name, *(show_seconds(moment) for moment in moments))
    return table


def answer_table(status: Status) -> Table | None:
    """Show how each aggregate query is answered, and what is kept for that; None if there is none."""
    asked = [each for each in status.queries if each.emit]
    if not asked:
        return None
    table = new_table("aggregate")
    table.add_column("answers")
    for title in ("groups held", "waiting"):
        table.add_column(title, justify="right")
    for each in asked:
        table.add_row(each.name, each.emit, f"{each.groups_held:,}", f"{each.answers_waiting:,}")
    return table


def promise_table(status: Status) -> Table | None:
    """Show what streams have promised, and what that spared; None where nothing was."""
    shown = [
        each
        for each in status.streams
        if each.promises or each.punctuations or each.purged or each.discarded or each.dropped
    ]
    if not shown:
        return None
    table = new_table(
        "promises", "punctuations", "remembered", "rows purged", "joined, not kept", "never stored"
    )
    for each in shown:
        counts = (each.punctuations, each.promises, each.purged, each.discarded, each.dropped)
        table.add_row(each.name, *(f"{count:,}" for count in counts))
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
    except (OverflowError, ValueError, OSError):  # beyond what Python's calendar can hold
        return f"{micros} µs"
    text = f"{moment:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
    return text if rest else f"{moment:%Y-%m-%d %H:%M:%S}"


def new_table(first: str, *numbers: str) -> Table:
    """Begin a table: one column of names, then columns of numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column(first)
    for title in numbers:
        table.add_column(title, justify="right")
    return table
