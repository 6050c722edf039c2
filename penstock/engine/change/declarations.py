"""Whether a stream is declared as it was when a state was made, in the user's words.

In:  declarations of streams, before and now.  Out: the first difference that changes what a row means, or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sql.query import SECOND, Stream
from penstock.sql.source_options import row_meaning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def stream_difference(before_all: Iterable[Stream], now_all: Iterable[Stream]) -> str | None:
    """Say how a stream is not the one a state was made with, in the user's words; None if all are.

    Options that do not change what a row means may differ (`penstock.sql.source_options`).
    """
    before = {each.name.lower(): each for each in before_all}
    for now in now_all:
        was = before.get(now.name.lower())
        changed = next(_differences(was, now), None) if was else None
        if changed is not None:
            return f"stream {now.name} is not declared as it was: {changed}"
    return None


def _differences(was: Stream, now: Stream) -> Iterator[str]:
    """Say what is another in the second of two declarations."""
    if (was.results is None) != (now.results is None):
        yield (
            "it was the results of a query" if was.results else "it was no query's results, but had a source"
        )
    if was.name != now.name:
        yield f"it was called {was.name}"
    columns, others = ({each.name: each.type for each in stream.columns} for stream in (was, now))
    if list(columns.items()) != list(others.items()):
        yield "its columns were " + ", ".join(f"{name} {kind}" for name, kind in columns.items())
    if was.time != now.time:
        yield f"its time was {was.time}"
    if was.lateness != now.lateness:
        yield f"its lateness was {was.lateness / SECOND:g} seconds"
    if was.format.lower() != now.format.lower():
        yield f"its format was {was.format or 'that of a DataFrame'}"
    before, after = row_meaning(was.options), row_meaning(now.options)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"its option {name} was {before[name]!r}" if name in before else f"it had no option {name}"
