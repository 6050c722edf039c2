"""Commits and snapshots of earlier formats, as the present one has them: a step from each format to the next.

    1   version 0.1, without a number; fields written and read one by one, some of which came later than others
    2   all of them values of classes
    3   a cursor has the batches of its inputs in a tuple, whatever their number
    4   pane files may leave columns out (`penstock.log.pane_columns`); commits and snapshots are as before

What is missing gets the meaning it had then.  Only what differs is changed here; `penstock.log.codec` reads the rest.

In:  JSON of an earlier format.  Out: JSON of the present one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.plan.spark_settings import SparkSettings
from penstock.sql.source_options import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Json = dict[str, Any]

_CURSORS_OF_INPUTS = 3
"""The format since which cursors have the batches of all inputs."""


def upgraded_commit(data: Mapping[str, Any], number: int) -> Json:
    """Write a commit of an earlier format as one of the present format."""
    if number == 1:
        change = _COMMITS.get(str(data["kind"]))
        data = {**data, **(change(data) if change else {})}
    change = _WITH_CURSORS.get(str(data["kind"])) if number < _CURSORS_OF_INPUTS else None
    return {**data, **(change(data) if change else {})}


def upgraded_snapshot(data: Mapping[str, Any], number: int) -> Json:
    """Write a snapshot of an earlier format as one of the present format."""
    if number >= _CURSORS_OF_INPUTS:
        return dict(data)
    return _with_cursors(_snapshot_of_1(data) if number == 1 else data)


# --- from format 2 to 3 -------------------------------------------------------------------------------------------


def _with_cursors(data: Mapping[str, Any]) -> Json:
    """Write the cursors of all groups and queries, in a snapshot or in the commit of a plan."""
    return {
        **data,
        "groups": {name: _group_of_inputs(each) for name, each in data.get("groups", {}).items()},
        "queries": {name: _query_of_inputs(each) for name, each in data.get("queries", {}).items()},
    }


def _unit_of_inputs(data: Mapping[str, Any]) -> Json:
    return {"cursors": _cursors(data), "stations": _stations(data)}


def _group_of_inputs(data: Mapping[str, Any]) -> Json:
    kept = {name: value for name, value in data.items() if name != "mixed"}
    return {**kept, **_unit_of_inputs(data), "mixed_layouts": data.get("mixed", False)}


def _query_of_inputs(data: Mapping[str, Any]) -> Json:
    return {**data, "backfill": _cursor(data["backfill"]) if data.get("backfill") else None}


def _cursors(data: Mapping[str, Any]) -> list[Any]:
    return [_cursor(each) for each in data["cursors"]]


def _stations(data: Mapping[str, Any]) -> list[Any]:
    return [[_cursor(cursor), watermarks] for cursor, watermarks in data.get("stations", ())]


def _cursor(data: Sequence[int]) -> list[Any]:
    """Write a cursor, which was the two batches and, if it had one, the time."""
    left, right, *below = data
    return [[left, right], *below]


_WITH_CURSORS: dict[str, Callable[[Mapping[str, Any]], Json]] = {
    "unit": _unit_of_inputs,
    "plan": _with_cursors,
}


# --- from format 1 to 2 -------------------------------------------------------------------------------------------


def _snapshot_of_1(data: Mapping[str, Any]) -> Json:
    plan = _plan(data["plan"]) if data["plan"] else None
    streams = plan["streams"] if plan else ()
    return {
        **data,
        "plan": plan,
        "layouts": {log: _numbered(each) for log, each in data["layouts"].items()},
        "tables": _tables(data["tables"]),
        "writes": data.get("writes"),
        "groups": {name: _group(each) for name, each in data["groups"].items()},
        "pending": [_publication(each) for each in data["pending"]],
        "prices": data.get("prices") or None,
        "declared": {name: _stream(each) for name, each in data.get("declared", {}).items()}
        or {each["name"]: each for each in streams},
    }


# --- commits ----------------------------------------------------------------------------------------------------


def _plan_commit(data: Mapping[str, Any]) -> Json:
    return {
        "plan": _plan(data["plan"]),
        "layouts": {log: _layout(*each) for log, each in data["layouts"].items()},
        "upgrades": {
            log: {"removed": removed, "added": added} for log, (removed, added) in data["upgrades"].items()
        },
        "groups": {name: _group(each) for name, each in data["groups"].items()},
        "tables": _tables(data["tables"]),
        "writes": data.get("writes"),
        "release": _release(data["release"]) if "release" in data else None,
    }


def _declared(data: Mapping[str, Any]) -> Json:
    return {"streams": [_stream(each) for each in data["streams"]]}


def _seal(data: Mapping[str, Any]) -> Json:
    rolls = {stream: {"horizon": until, "pieces": added} for stream, (until, added) in data["rolls"].items()}
    return {"rolls": rolls}


def _unit(data: Mapping[str, Any]) -> Json:
    return {"spans": _spans(data), "output": _output(data)}


def _backfill(data: Mapping[str, Any]) -> Json:
    return {"output": _output(data)}


def _release(data: Mapping[str, Any]) -> Json:
    # before disorder was counted, `until` was not the end of a sequence
    until = data["until"] if "disordered" in data else {}
    return {
        "gone": data["gone"],
        "until": until,
        "disordered": data.get("disordered", {}),
        "output": _output(data),
    }


def _rewrite(data: Mapping[str, Any]) -> Json:
    layouts = data.get("layouts", ())
    return {"layouts": [{"number": number, "layout": _layout(*rest)} for number, *rest in layouts]}


def _compact(data: Mapping[str, Any]) -> Json:
    kept = {
        query: [{"remove": gone, "add": added} for gone, added in changes]
        for query, changes in data["kept"].items()
    }
    tables = {group: {**each, "table": _table(each["table"])} for group, each in data["tables"].items()}
    return {"tables": tables, "kept": kept}


_COMMITS: dict[str, Callable[[Mapping[str, Any]], Json]] = {
    "plan": _plan_commit,
    "declared": _declared,
    "seal": _seal,
    "unit": _unit,
    "backfill": _backfill,
    "release": _release,
    "rewrite": _rewrite,
    "compact": _compact,
}


# --- what they are made of --------------------------------------------------------------------------------------


def _plan(data: Mapping[str, Any]) -> Json:
    settings = data.get("spark_settings")
    return {
        **data,
        "streams": [_stream(each) for each in data.get("streams", ())],
        "spark_settings": None if settings is None else _settings(settings),
    }


def _settings(options: Mapping[str, str]) -> Json:
    settings = SparkSettings.of(options)
    return {"zone": settings.zone, "ansi": settings.ansi}


def _stream(data: Mapping[str, Any]) -> Json:
    """Take out the secrets that version 0.1 wrote with a stream."""
    return {**data, "options": without_secrets((name, value) for name, value in data["options"])}


def _output(data: Mapping[str, Any]) -> Json:
    return {
        **{name: data[name] for name in ("stored", "kept", "held", "delays") if name in data},
        "results": data["results"],
        "publish": [_publication(each) for each in data["publish"]],
    }


def _publication(data: Mapping[str, Any]) -> Json:
    moves = [dict(zip(("root", "staged", "final"), move, strict=True)) for move in data["moves"]]
    return {**data, "moves": moves}


def _layout(columns: Iterable[str], predicates: Iterable[str]) -> Json:
    return {"columns": list(columns), "predicates": list(predicates)}


def _numbered(layouts: Any) -> Json:
    """Give the layouts of a log by their numbers: version 0.1 kept all of them, in a list."""
    return (
        layouts if isinstance(layouts, dict) else {str(number): each for number, each in enumerate(layouts)}
    )


def _group(data: Mapping[str, Any]) -> Json:
    return {**data, "spans": _spans(data)}


def _spans(data: Mapping[str, Any]) -> list[Json]:
    """Read what windows that count rows reach, which was a list of pairs for each side."""
    return [{str(rows): span for rows, span in side} for side in data.get("spans", ((), ()))]


def _tables(tables: Mapping[str, Any]) -> Json:
    return {group: [_table(each) for each in listed] for group, listed in tables.items()}


def _table(data: Mapping[str, Any]) -> Json:
    """Read a table; in version 0.1 it had a directory, and one definition for each query, without its version."""
    return {
        **{
            name: data[name]
            for name in ("version", "schema", "selective", "generation", "into")
            if name in data
        },
        "id": data["id"] if "id" in data else data["directory"],
        "members": {name: _definitions(each, data["version"]) for name, each in data["members"].items()},
        "files": data.get("files"),
    }


def _definitions(data: Any, version: int) -> list[Json]:
    listed = [data] if isinstance(data, dict) else data
    return [{**each, "version": each.get("version", version)} for each in listed]
