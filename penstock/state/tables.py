"""Results that the state keeps: their files, how queries read them, and which files to merge.

There are two kinds.  Pairs of a group are stored once, for all queries whose results follow from the pair.  How a query
reads them, by its bit and its columns, changes with the plan; so there is a *table* for each way of reading.  Other
queries with the ``table`` sink have files of their own: those in order, and those with expressions that are not
deterministic.

Merges bound the number of files and tables, whatever the number of units and of changes of plan::

    files of a table     1 1 1 1 1 1 1 1  ──▶  8  ...  8 8 8 8 8 8 8 8  ──▶  64        up to MAX_MERGED_FILE_BYTES
    tables of a group    v3 v5 v6 v9      ──▶  m  ...  m m m m          ──▶  mm        TABLE_MERGE_FAN_IN at a time

A table that others are merged into has a bit for each definition of a query that is still read.

In:  the ledger's tables and files.  Out: values, and the next merges (`penstock.engine.tasks.merge` runs them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock import limits
from penstock.sql.query import is_side
from penstock.sql.spark_types import parse_type


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of pairs or results: name, size, number of merges, and a digest of its schema (`output_file.shape_of`)."""

    name: str
    bytes: int
    generation: int = 0
    shape: str = ""
    checksum: int | None = None
    """Of the file's bytes (`penstock.state.checksum`)."""


@dataclass(frozen=True, slots=True)
class Fed:
    """Results of one unit that other queries read as a stream: their files, and the arrival of the unit's rows."""

    files: tuple[StoredFile, ...]
    arrived: float = 0.0


@dataclass(frozen=True, slots=True)
class Definition:
    """One way in which a query reads the pairs of a table.

    Its pairs are those with bit `number`, or, in a table without bits, those of the slices `levels`; `residual` are the
    conditions to evaluate on them.  `version` is that of the plan with this definition.
    """

    number: int
    levels: tuple[int, int]
    outputs: tuple[tuple[str, str], ...]
    version: int
    residual: tuple[str, ...] = ()

    @property
    def reading(self) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """Return the columns and conditions of the query; definitions with the same ones share one bit."""
        return self.outputs, self.residual


@dataclass(frozen=True, slots=True)
class StoredTable:
    """Stored pairs of a group, and the definitions of the queries that read them.

    `id` is unique in the group.  `into` is the table that it is being merged into, file by file.
    """

    id: str
    version: int
    schema: str
    selective: bool
    members: Mapping[str, tuple[Definition, ...]]
    files: tuple[StoredFile, ...] = ()
    generation: int = 0
    into: str = ""

    def same_reading(self, other: StoredTable) -> bool:
        """Return whether another table is read in the same way, whatever its version."""

        def plain(table: StoredTable) -> StoredTable:
            members = {
                name: tuple(replace(definition, version=0) for definition in definitions)
                for name, definitions in table.members.items()
            }
            return StoredTable("", 0, table.schema, table.selective, members)

        return plain(self) == plain(other)


def readable(table: StoredTable, born: Mapping[str, int]) -> StoredTable:
    """Remove the definitions of queries that were dropped, or replaced by another one of that name."""
    members = {
        name: kept
        for name, definitions in table.members.items()
        if name in born
        and (kept := tuple(definition for definition in definitions if definition.version >= born[name]))
    }
    return replace(table, members=members)


def without_ends(tables: Iterable[StoredTable]) -> tuple[StoredTable, ...]:
    """Remove tables that were merged into others, and merge targets without files."""
    remaining = tuple(table for table in tables if table.files != () or not table.into)
    targets = {table.into for table in remaining}
    kept = tuple(
        table for table in remaining if table.files != () or not table.generation or table.id in targets
    )
    ids = {table.id for table in kept}
    return tuple(table if table.into in ids else replace(table, into="") for table in kept)


@dataclass(frozen=True, slots=True)
class BitSource:
    """The source of a bit in a merged table: a bit of the old table, or its slices."""

    target: int
    source: int = -1
    levels: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class FileMerge:
    """A merge of files, in order, into one; without `bits` the rows are unchanged."""

    inputs: tuple[StoredFile, ...]
    prefix: str
    """The prefix of the new file's name; each attempt of a task adds its own suffix."""
    generation: int
    bits: Mapping[str, tuple[BitSource, ...]] = field(default_factory=dict)
    """By file name: the sources of the target's bits."""
    words: int = 0
    """The number of words of the target's bits."""


def runs_to_merge(
    files: Sequence[StoredFile], fan: int = limits.MERGE_FAN_IN, *, pressing: bool = False
) -> list[tuple[StoredFile, ...]]:
    """Choose neighbouring files to merge: enough of one generation and shape, together not too large.

    Fewer files that make a full one are merged too, unless only `pressing` merges are chosen.

    >>> files = [StoredFile(str(n), 10) for n in range(9)]
    >>> [len(run) for run in runs_to_merge(files)]
    [9]
    >>> runs_to_merge([*files[:4], StoredFile("large", limits.MAX_MERGED_FILE_BYTES), *files[4:]])
    []
    """
    runs: list[list[StoredFile]] = [[]]
    for file in files:
        if runs[-1] and not _fits(runs[-1], file):
            runs.append([])
        runs[-1].append(file)
    return [
        tuple(run) for run in runs if len(run) >= fan or (not pressing and len(run) > 1 and _is_full(run))
    ]


def _fits(run: Sequence[StoredFile], file: StoredFile) -> bool:
    """Return whether a file may be merged with those before it."""
    alike = (file.generation, file.shape) == (run[0].generation, run[0].shape)
    return alike and sum(other.bytes for other in run) + file.bytes <= limits.MAX_MERGED_FILE_BYTES


def _is_full(run: Sequence[StoredFile]) -> bool:
    """Return whether these files make a full one."""
    return 2 * sum(other.bytes for other in run) >= limits.MAX_MERGED_FILE_BYTES and all(
        2 * other.bytes < limits.MAX_MERGED_FILE_BYTES for other in run
    )


def merged_table(tables: Sequence[StoredTable], name: str) -> StoredTable:
    """Return the table that some others are merged into: a bit for each definition, and all columns they read."""
    readings: dict[str, dict[object, Definition]] = {}
    for table in tables:
        for query, definitions in table.members.items():
            for definition in definitions:
                present = readings.setdefault(query, {}).setdefault(definition.reading, definition)
                if definition.version > present.version:
                    readings[query][definition.reading] = definition
    number = iter(range(sum(map(len, readings.values()))))
    members = {
        query: tuple(
            replace(definition, number=next(number), levels=(0, 0)) for definition in definitions.values()
        )
        for query, definitions in readings.items()
    }
    return StoredTable(
        name,
        max(table.version for table in tables),
        _joined_schema([table.schema for table in tables], words_of(members)),
        selective=True,
        members=members,
        generation=tables[0].generation + 1,
    )


def words_of(members: Mapping[str, Iterable[Definition]]) -> int:
    """Return the number of words of a table's bits."""
    return (
        1
        + max(
            (definition.number for definitions in members.values() for definition in definitions), default=0
        )
        // 64
    )


def bits_between(source: StoredTable, target: StoredTable) -> tuple[BitSource, ...]:
    """Return the sources of the bits of a merged table in one of its parts."""
    return tuple(
        BitSource(there.number, here.number if source.selective else -1, here.levels)
        for query, definitions in source.members.items()
        for here in definitions
        for there in target.members.get(query, ())
        if there.reading == here.reading
    )


def _joined_schema(schemas: Iterable[str], words: int) -> str:
    """Return a schema of pairs with the columns of several.

    >>> _joined_schema(["l struct<`a`: int>, r struct<nothing: tinyint>, level smallint", "l struct<`b`: int>"], 1)
    'l struct<`a`: int, `b`: int>, r struct<nothing: tinyint>, s0 bigint'
    """
    sides: dict[str, dict[str, str]] = {}
    for schema in schemas:
        pairs = parse_type(f"struct<{schema}>")
        for name, part in zip(pairs.names, pairs.parts, strict=True):
            if is_side(name):
                columns = dict(zip(part.names, map(str, part.parts), strict=True))
                sides[name] = sides.get(name, {}) | columns
    structs = [f"{side} struct<{_fields(columns)}>" for side, columns in sides.items()]
    return ", ".join([*structs, *(f"s{word} bigint" for word in range(words))])


def _fields(columns: Mapping[str, str]) -> str:
    """Return the columns of one side with quoted names; ``nothing`` if there is no other."""
    kept = {name: kind for name, kind in columns.items() if name != "nothing"} or {"nothing": "tinyint"}
    return ", ".join(f"{name}: {kind}" for name, kind in kept.items())
