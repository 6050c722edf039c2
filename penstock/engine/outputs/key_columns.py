"""The columns of a query's join key, as propagated punctuations show them."""

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
    """Name each part of a query's join key, by a plain column of either side that is of the type compared."""
    group = plan.find(query.name)[0]
    parts: list[tuple[str, Stream, KeyPart]] = []
    for number in range(len(query.keys)):
        sides = [(plan.stream(group.log(side).stream), group.log(side).key[number]) for side in SIDES]
        plain = [each for each in sides if each[1].column] or sides[:1]
        stream, part = next((each for each in plain if not each[1].cast), plain[0])
        taken = {name.lower() for name, _, _ in parts}
        name = part.column or f"key{number}"
        parts.append((f"{name}_{number}" if name.lower() in taken else name, stream, part))
    return parts


def key_columns(
    plan: Plan, query: Query, backend: Backend[Any]
) -> tuple[tuple[str, pa.DataType | None], ...]:
    """Name the parts of a query's join key, and give their Arrow types; None where they are kept as they are."""
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
"""Types that values are kept in as 64-bit numbers."""


def key_ddl(plan: Plan, query: Query) -> str:
    """Write the same as Spark DDL."""
    return ", ".join(f"{always_quoted(name)} {part.type}" for name, _, part in _key_parts(plan, query))
