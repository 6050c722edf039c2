"""Streams and queries as JSON, so that a state directory knows what it serves without its script.

Secrets of a stream's source are not written (`penstock.sql.source_options`); what stands in their place says so.

In:  frozen values of `penstock.sql.query`.  Out: JSON, and the same values again: reading gives back what was written.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.plan.build import Stopped
from penstock.sql.comparisons import Comparison
from penstock.sql.query import Column, Key, Output, Query, Range, Sink, Stream
from penstock.sql.source_options import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def workload_to_json(streams: Iterable[Stream], queries: Iterable[Query]) -> dict[str, Any]:
    """Write streams and queries as JSON."""
    return {
        "streams": [stream_to_json(stream) for stream in streams],
        "queries": [_query_to_json(query) for query in queries],
    }


def stopped_to_json(stopped: Iterable[Stopped]) -> list[dict[str, Any]]:
    """Write queries that were stopped."""
    return [{"query": _query_to_json(each.query), "reason": each.reason, "at": each.at} for each in stopped]


def stopped_from_json(data: Iterable[Mapping[str, Any]]) -> tuple[Stopped, ...]:
    """Read queries that were stopped."""
    return tuple(Stopped(_query(each["query"]), each["reason"], each["at"]) for each in data)


def workload_from_json(data: Mapping[str, Any]) -> tuple[dict[str, Stream], tuple[Query, ...]]:
    """Read streams (by name) and queries."""
    streams = [stream_from_json(each) for each in data["streams"]]
    return {each.name: each for each in streams}, tuple(_query(each) for each in data["queries"])


def stream_to_json(stream: Stream) -> dict[str, Any]:
    """Write one stream, without its secrets."""
    return redact_stream(asdict(stream))


def redact_stream(data: Mapping[str, Any]) -> dict[str, Any]:
    """Take the secrets out of a stream that an earlier version wrote."""
    return {**data, "options": [list(each) for each in without_secrets(data["options"])]}


def _query_to_json(query: Query) -> dict[str, Any]:
    """Write one query; sets are sorted, so that equal queries give equal text."""
    data = asdict(query)
    for name in ("left_columns", "right_columns"):
        data[name] = sorted(data[name])
    return data


def _options(data: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    """Read option pairs."""
    return tuple((name, value) for name, value in data)


def stream_from_json(data: Mapping[str, Any]) -> Stream:
    """Read one stream."""
    columns = tuple(Column(**each) for each in data["columns"])
    return Stream(**{**data, "columns": columns, "options": _options(data["options"])})


def _comparison(data: Mapping[str, Any]) -> Comparison:
    """Read one comparison of columns."""
    return Comparison(**{**data, "limits": tuple(data["limits"])})


def _query(data: Mapping[str, Any]) -> Query:
    """Read one query."""
    outputs = tuple(
        Output(each["name"], each["expression"], tuple(each["column"]) if each["column"] else None)
        for each in data["outputs"]
    )
    return Query(
        **{
            **data,
            "keys": tuple(Key(**each) for each in data["keys"]),
            "window": Range(**data["window"]),
            "outputs": outputs,
            "left_predicates": tuple(data["left_predicates"]),
            "right_predicates": tuple(data["right_predicates"]),
            "residual": tuple(data["residual"]),
            "comparisons": tuple(_comparison(each) for each in data.get("comparisons", ())),
            "left_columns": frozenset(data["left_columns"]),
            "right_columns": frozenset(data["right_columns"]),
            "rows": tuple(data.get("rows", (False, False))),
            "sink": Sink(data["sink"]["kind"], _options(data["sink"]["options"])),
            "options": _options(data["options"]),
        }
    )
