"""Results that the state keeps: which files there are, how they are read, and which become one.

There are two kinds.  Pairs of a group are stored once for all queries whose results follow from the pair; how a query
reads them, its number and its columns, changes with the plan, so they are kept in *tables*, one for each way of
reading.  Other queries with the ``table`` sink, those that are in order and those whose results are settled when they
are found, have files of their own.

Neither the number of files nor that of tables grows with the number of units or of changes of plan::

    files of a table     1 1 1 1 1 1 1 1  ──▶  8  ...  8 8 8 8 8 8 8 8  ──▶  64        up to MAX_MERGED_FILE_BYTES
    tables of a group    v3 v5 v6 v9      ──▶  m  ...  m m m m          ──▶  mm        TABLE_MERGE_FAN_IN at a time

A table that others are merged into has a bit for each definition of a query that can still be read; what nobody reads
any more is left out.

In:  the ledger's tables and files.  Out: values, and what to merge next (`penstock.engine.tasks.merge` does it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock import limits
from penstock.sql.query import is_side
from penstock.sql.spark_types import parse_type


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of pairs or results: its name in the state, its size, how often it was merged, and a digest of its schema.

    Files of one shape have the same columns of the same types.
    """

    name: str
    bytes: int
    generation: int = 0
    shape: str = ""
    checksum: int | None = None
    """Of the file's bytes (`penstock.state.checksum`); None for one of an earlier version."""


@dataclass(frozen=True, slots=True)
class Fed:
    """Results of one unit on their way to the queries that read them: their files, and when the unit's rows arrived."""

    files: tuple[StoredFile, ...]
    arrived: float = 0.0


@dataclass(frozen=True, slots=True)
class Definition:
    """One way in which a query reads the pairs of a table.

    Its pairs are those with bit `number`, or where the table has no bits those of the slices `levels`; `residual` is
    what is left to be decided then.  `version` is that of the plan by which they were found.
    """

    number: int
    levels: tuple[int, int]
    outputs: tuple[tuple[str, str], ...]
    version: int
    residual: tuple[str, ...] = ()

    @property
    def reading(self) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """Give what the query reads of each of its pairs: definitions that read the same share one bit."""
        return self.outputs, self.residual


@dataclass(frozen=True, slots=True)
class StoredTable:
    """Pairs of a group, the queries that read them, and how.

    `id` is unique in the group.  `into` names the table that it is being merged into, file by file.
    """

    id: str
    version: int
    schema: str
    selective: bool
    members: Mapping[str, tuple[Definition, ...]]
    files: tuple[StoredFile, ...] = ()
    generation: int = 0
    into: str = ""

    @property
    def is_of_the_past(self) -> bool:
        """Say whether it holds the pairs that new queries got by a backfill: no more are added to it."""
        return self.id.endswith("-past")

    def same_reading(self, other: StoredTable) -> bool:
        """Say whether another table is read in the same way, whatever its version."""

        def plain(table: StoredTable) -> StoredTable:
            members = {
                name: tuple(replace(each, version=0) for each in definitions)
                for name, definitions in table.members.items()
            }
            return StoredTable("", 0, table.schema, table.selective, members)

        return plain(self) == plain(other)


def readable(table: StoredTable, born: Mapping[str, int]) -> StoredTable:
    """Leave out the definitions that nobody can read any more: the query has gone, or is another one by that name."""
    members = {
        name: kept
        for name, definitions in table.members.items()
        if name in born and (kept := tuple(each for each in definitions if each.version >= born[name]))
    }
    return replace(table, members=members)


def without_ends(tables: Iterable[StoredTable]) -> tuple[StoredTable, ...]:
    """Drop tables that were merged away, and targets of merges that got no file."""
    remaining = tuple(each for each in tables if each.files != () or not each.into)
    targets = {each.into for each in remaining}
    kept = tuple(each for each in remaining if each.files != () or not each.generation or each.id in targets)
    ids = {each.id for each in kept}
    return tuple(each if each.into in ids else replace(each, into="") for each in kept)


@dataclass(frozen=True, slots=True)
class Bit:
    """How a pair of one table gets its bit in another: by a bit that it has, or by its slices."""

    target: int
    source: int = -1
    levels: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Merge:
    """What one task merges: files, in order, into one; for tables, how their bits become the target's.

    Without `bits` the rows stay as they are.
    """

    inputs: tuple[StoredFile, ...]
    prefix: str
    """How the name of the new file begins; each attempt of a task ends it in its own way."""
    generation: int
    bits: Mapping[str, tuple[Bit, ...]] = field(default_factory=dict)
    """By the name of the file."""
    words: int = 0
    """Words of the target's bits."""


def runs_to_merge(
    files: Sequence[StoredFile], fan: int = limits.MERGE_FAN_IN, *, pressing: bool = False
) -> list[tuple[StoredFile, ...]]:
    """Choose neighbours that become one file: enough of one generation and shape, together not too large.

    Fewer that make a full file are merged too, unless there is time only for what is `pressing`.

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
    """Say whether a file may be merged with those before it."""
    alike = (file.generation, file.shape) == (run[0].generation, run[0].shape)
    return alike and sum(each.bytes for each in run) + file.bytes <= limits.MAX_MERGED_FILE_BYTES


def _is_full(run: Sequence[StoredFile]) -> bool:
    """Say whether some files make a full one, however few they are."""
    return 2 * sum(each.bytes for each in run) >= limits.MAX_MERGED_FILE_BYTES and all(
        2 * each.bytes < limits.MAX_MERGED_FILE_BYTES for each in run
    )


def merged_table(tables: Sequence[StoredTable], name: str) -> StoredTable:
    """Make the table that some others become: a bit for each definition, and all columns that they read."""
    readings: dict[str, dict[object, Definition]] = {}
    for table in tables:
        for query, definitions in table.members.items():
            for each in definitions:
                present = readings.setdefault(query, {}).setdefault(each.reading, each)
                if each.version > present.version:
                    readings[query][each.reading] = each
    number = iter(range(sum(map(len, readings.values()))))
    members = {
        query: tuple(replace(each, number=next(number), levels=(0, 0)) for each in definitions.values())
        for query, definitions in readings.items()
    }
    return StoredTable(
        name,
        max(each.version for each in tables),
        _joined_schema([each.schema for each in tables], words_of(members)),
        selective=True,
        members=members,
        generation=tables[0].generation + 1,
    )


def words_of(members: Mapping[str, Iterable[Definition]]) -> int:
    """Count the words that the bits of a table have."""
    return 1 + max((each.number for definitions in members.values() for each in definitions), default=0) // 64


def bits_between(source: StoredTable, target: StoredTable) -> tuple[Bit, ...]:
    """Say how the pairs of a table get their bits in the one that it is merged into."""
    return tuple(
        Bit(there.number, here.number if source.selective else -1, here.levels)
        for query, definitions in source.members.items()
        for here in definitions
        for there in target.members.get(query, ())
        if there.reading == here.reading
    )


def _joined_schema(schemas: Iterable[str], words: int) -> str:
    """Write a schema of pairs with the columns of several.

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
    """Write the columns of one side, names as they are quoted; ``nothing`` only if there is no other."""
    kept = {name: kind for name, kind in columns.items() if name != "nothing"} or {"nothing": "tinyint"}
    return ", ".join(f"{name}: {kind}" for name, kind in kept.items())
