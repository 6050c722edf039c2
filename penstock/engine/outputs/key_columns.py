"""The columns of a query's join key in its propagated punctuations.

In:  a plan and a query.  Out: names and types of columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.sql.query import SIDES
from penstock.sql.text.tree import always_quoted

if TYPE_CHECKING:
    from penstock.engine.backend import Backend
    from penstock.plan.build import Plan
    from penstock.plan.stored import KeyPart
    from penstock.sql.query import Query, Stream


def _key_parts(plan: Plan, query: Query) -> list[tuple[str, Stream, KeyPart]]:
    """Return each part of a query's join key; it is called after a plain column of either side, if there is one."""
    group = plan.find(query.name)[0]
    parts: list[tuple[str, Stream, KeyPart]] = []
    for number in range(len(query.keys)):
        sides = [(plan.stream(group.log(side).stream), group.log(side).key[number]) for side in SIDES]
        plain = [(stream, part) for stream, part in sides if part.column] or sides[:1]
        stream, part = next(((stream, part) for stream, part in plain if not part.cast), plain[0])
        taken = {name.lower() for name, _, _ in parts}
        name = part.column or f"key{number}"
        parts.append((f"{name}_{number}" if name.lower() in taken else name, stream, part))
    return parts


def key_columns(
    plan: Plan, query: Query, backend: Backend[Any]
) -> tuple[tuple[str, pa.DataType | None], ...]:
    """Return the names and Arrow types of the parts of a query's join key; None where values keep their type."""
    return tuple(
        (
            name,
            _ARROW.get(part.type)
            if part.cast or not part.column
            else backend.arrow_types(stream)[part.column],
        )
        for name, stream, part in _key_parts(plan, query)
    )


_ARROW = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
"""The types whose values are stored as 64-bit numbers."""


def key_ddl(plan: Plan, query: Query) -> str:
    """Return the parts of a query's join key as Spark DDL."""
    return ", ".join(f"{always_quoted(name)} {part.type}" for name, _, part in _key_parts(plan, query))
