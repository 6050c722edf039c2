"""Read a script file and check it, as far as possible without Spark and without its data.

In:  the path of a script.
Out: a `Loaded`: its text, the shared plan, and a notice for each query without results and each setting without effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import InputError, did_you_mean
from penstock.plan.build import build_plan
from penstock.schedulers import SCHEDULERS
from penstock.sql.options import scheduler_of, strategy_of
from penstock.sql.script import AlterQuery, CreateQuery, DropQuery, Explain, parse_script
from penstock.sql.source_options import without_secrets
from penstock.sql.streams import FILE_FORMATS
from penstock.state.locations import source_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plan.build import Plan
    from penstock.sql.query import Query
    from penstock.sql.script import Script


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checked script."""

    text: str
    script: Script
    plan: Plan

    @property
    def notices(self) -> tuple[str, ...]:
        """Return a line for each query that can have no results, and each setting that has no effect."""
        return tuple(_notices(self.script, self.plan))


def default_state(script: Path) -> Path:
    """Return the default state directory of a script, below the current directory.

    >>> default_state(Path("jobs/monitor.sql")).as_posix()
    '.penstock/monitor'
    """
    return Path(".penstock") / script.stem


def load(path: Path) -> Loaded:
    """Read and check a script."""
    text = read_script(path)
    try:
        script = parse_script(text)
        _check_queries(script)
        plan = build_plan(script.inputs, script.queries, strategy=strategy_of(script.settings))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return Loaded(text, script, plan)


def read_script(path: Path) -> str:
    """Read the text of a script."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"script {path} does not exist: correct the path") from None
    except IsADirectoryError:
        raise InputError(f"script {path} is a directory: give the file") from None
    except UnicodeDecodeError:
        raise InputError(f"script {path} is not text: a script is SQL in UTF-8") from None
    except OSError as error:
        raise InputError(f"script {path} cannot be read: {error.strerror}") from None


def _check_queries(script: Script) -> None:
    """Refuse a script without queries, or one that drops, alters or explains a query it has not created."""
    if not any(isinstance(statement, CreateQuery) for statement in script.statements):
        raise InputError("the script has no query: add one with CREATE QUERY name AS SELECT ...")
    created: dict[str, str] = {}
    for statement in script.statements:
        if isinstance(statement, CreateQuery):
            created[statement.query.name.lower()] = statement.query.name
        elif isinstance(statement, DropQuery | AlterQuery | Explain) and statement.name is not None:
            if statement.name.lower() not in created:
                hint = did_you_mean(statement.name, created.values())
                raise InputError(f"query {statement.name} does not exist: {hint}")
            if isinstance(statement, DropQuery):
                del created[statement.name.lower()]


def check_sources(plan: Plan) -> None:
    """Refuse a source directory that does not exist."""
    for stream in plan.streams:
        if stream.format.lower() in FILE_FORMATS:
            source_pattern(dict(stream.options)["path"], stream.name)


_UNUSED_SETTING = "has no effect: this version does not use it"


def _notices(script: Script, plan: Plan) -> Iterator[str]:
    """List the notices of settings and queries."""
    for name, value in without_secrets(script.settings.items()):
        oblivious = any(query.oblivious for query in plan.queries)
        if name == "memory" and script.settings.get("strategy") != "auto" and not oblivious:
            yield f"memory = {value} has no effect: it is for strategy = 'auto' and for queries without a window"
        elif name == "buffers" and not oblivious:
            yield f"buffers = {value} has no effect: it is for queries without a window, and every query has one"
        elif name.startswith("penstock."):
            yield f"{name} {_UNUSED_SETTING}"
    together = SCHEDULERS[scheduler_of(script.settings)].advances_together
    for query in plan.queries:
        yield from _query_notices(query, together=together)


def _query_notices(query: Query, *, together: bool) -> Iterator[str]:
    """List the notices of one query; if all slices advance `together`, no query can lag."""
    if query.is_empty:
        yield f"query {query.name} has no results: its conditions exclude every pair of rows"
    for name, value in query.options:
        why = ""
        if name == "max_lag" and together:
            why = "with scheduler = 'lwo' no query lags behind another"
        elif name == "alpha" and query.order != "adaptive":
            why = f"it is for order = 'adaptive', and the order is {query.order}"
        elif name == "idle_after" and not query.ordered and query.aggregation is None:
            why = "without an order its results wait for no stream"
        if why:
            yield f"{name} = {value} of {query.name} has no effect: {why}"
