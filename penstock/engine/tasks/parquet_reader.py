"""Read plain Parquet files by Arrow inside ingest tasks, instead of through the JVM.

Spark's source lists the files, divides them into batches and remembers them.  The driver reads one footer per file and
chooses the reader of the batch before a task starts.  A task then reads its row groups::

    Spark     batch 7: files ─▶ job: Parquet ─▶ JVM rows ─▶ Spark SQL ─▶ Arrow ─▶ Python ─▶ segments
    Arrow     batch 7: files ─▶ job: Parquet ─▶ Arrow expressions ────────────────────────▶ segments

`penstock.engine.tasks.ingest_columns` defines the columns as Spark SQL.  Arrow builds the simple ones, with the same
values::

    event time      a timestamp or a date in microseconds; null if it is too far from 1970
    key             one whole number, boolean, date or timestamp as 64 bits; 0 for joins without an equality
    predicate bits  columns of numbers compared with numbers, IS NULL, AND, OR, NOT
    stored columns  cast to the type that Spark gives them in Arrow

Whole numbers are compared with whole numbers, and a DOUBLE with a number that both engines round alike.  Spark orders
NaN above all numbers, Arrow does not order it: ``v > 80`` becomes "v > 80, or v is NaN".

Spark reads a batch if one of these does not hold: the stream has no other options than those of `is_plain_parquet`; all
columns can be built; each file is local, can be opened, and has each column once with exactly the declared type; no
directory is named ``column=value``; times are of the current calendar and not INT96; Spark knows the codec.

In:  a stream, the task description of its batches, and the origin of a batch.  Out: a `PlainBatch`, or None for Spark.
An error while a task reads is raised.  No batch is read again another way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import acero

from penstock import limits
from penstock.engine.tasks.ingest import run_ingest
from penstock.engine.tasks.ingest_columns import FARTHEST, ROW_TIME, bit_names, key_names
from penstock.errors import RunError
from penstock.kernels.width import gathered
from penstock.sql.bind.canonical import MIRROR
from penstock.sql.query import DAY
from penstock.sql.streams import KEPT_OPTIONS
from penstock.sql.text.parser import parse_text
from penstock.sql.text.tree import Constant, Form, Name, run, unwrapped
from penstock.state.locations import local_path
from penstock.state.spark_schema import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from penstock.engine.tasks.ingest import BatchPart, BatchSpec
    from penstock.plan.stored import LogPlan
    from penstock.sql.query import Stream
    from penstock.sql.text.tree import Tree
    from penstock.state.files import Files

FILE_TYPES = {**PLAIN, "timestamp": pa.timestamp("us", "UTC")}
"""Declared types that Arrow reads as Spark does, and their types in a file."""

_SOURCE_OPTIONS = """
    path maxfilespertrigger maxbytespertrigger latestfirst filenameonly maxfileage maxcachedfiles
    discardcachedinputratio pathglobfilter
"""
_OPTIONS = frozenset({*_SOURCE_OPTIONS.split(), *KEPT_OPTIONS})
"""Options of a source that choose files and batches, and do not change how a file is read."""

_TIME_UNITS = {"timestamp": 1, "timestamp_ntz": 1, "date": DAY}
"""Microseconds of one step of an event time."""

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_KEYS = frozenset({*_WHOLE, "boolean", "date", "timestamp"})
"""Types of keys that are 64-bit numbers."""

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_EXACT_NUMBER = re.compile(r"-?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})")
_COMPARISONS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_SAME = {"==": "=", "!=": "<>"}
_CONNECTORS = {"AND": pc.and_kleene, "OR": pc.or_kleene}

_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "LZ4", "LZ4_RAW", "ZSTD"})
"""Codecs that Spark has too: it writes the dead letters, so it must be able to read the file."""

_UNREADABLE = (OSError, ValueError, NotImplementedError)
"""Exceptions of Arrow for a file that it cannot open or decode."""

_SPARK_VERSION, _LEGACY = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"


# --- which columns Arrow can build --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArrowColumns:
    """The columns that an ingest task reads, as Arrow expressions over the columns of a file."""

    expressions: Mapping[str, pc.Expression]
    types: Mapping[str, pa.DataType]
    """The columns of a file that are read, and the types that they must have there."""

    def of(self, rows: pa.Table) -> pa.Table:
        """Evaluate the expressions on rows of a file."""
        options = acero.ProjectNodeOptions([*self.expressions.values()], [*self.expressions])
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
        return acero.Declaration("project", options, [source]).to_table(use_threads=False)


def is_plain_parquet(stream: Stream) -> bool:
    """Check that a stream is of Parquet files, and that no option changes how they are read."""
    return stream.format.lower() == "parquet" and all(name.lower() in _OPTIONS for name, _ in stream.options)


def arrow_columns(
    stream: Stream, spec: BatchSpec, spark_types: Callable[[], Mapping[str, pa.DataType]]
) -> ArrowColumns | None:
    """Build the columns that a task reads; None if some of them need Spark, as promises and arrival order do."""
    if spec.promises or spec.arrival:
        return None
    builder = _ColumnBuilder(stream)
    try:
        expressions = builder.computed([log_spec.log for log_spec in spec.logs])
        stored = {name: builder.field(name) for name in spec.columns() if name not in expressions}
    except _NeedsSparkError:
        return None
    types = spark_types()
    expressions |= {name: field.cast(types[name]) for name, field in stored.items()}
    return ArrowColumns({name: expressions[name] for name in spec.columns()}, builder.types)


class _NeedsSparkError(Exception):
    """Arrow cannot build a column with the values that Spark gives it."""


class _ColumnBuilder:
    """Builds the columns of ingest for one stream, and notes the columns of a file that they read."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.types: dict[str, pa.DataType] = {}

    def field(self, name: str) -> pc.Expression:
        """Read a column of the file; to pyarrow, a dot in a name is a path."""
        kind = self._declared(name)
        if kind not in FILE_TYPES or "." in name:
            raise _NeedsSparkError
        self.types[name] = FILE_TYPES[kind]
        return pc.field(name)

    def _declared(self, name: str) -> str:
        return next((column.type for column in self.stream.columns if column.name == name), "")

    def _number(self, name: str) -> pc.Expression:
        """Cast a column to 64 bits: a whole number, 0 or 1, days, or microseconds."""
        column = self.field(name)
        return (column.cast(pa.int32()) if self._declared(name) == "date" else column).cast(pa.int64())

    def computed(self, logs: Sequence[LogPlan]) -> dict[str, pc.Expression]:
        """Build event time, keys and predicate bits."""
        built = {ROW_TIME: self._event_time()}
        for number, log in enumerate(logs):
            built[key_names(number, log)[0]] = self._key(log)
            for word, name in enumerate(bit_names(number, log)):
                built[name] = self._bits(log.predicates[64 * word : 64 * word + 64])
        return built

    def _event_time(self) -> pc.Expression:
        """Build the microseconds since the epoch; null if they are too many."""
        if self.stream.time_type not in _TIME_UNITS:
            raise _NeedsSparkError
        unit = _TIME_UNITS[self.stream.time_type]
        steps, farthest = self._number(self.stream.time), FARTHEST // unit
        near = pc.and_kleene(pc.less_equal(steps, farthest), pc.greater_equal(steps, -farthest))
        known = pc.if_else(near, steps, pa.scalar(None, pa.int64()))
        return pc.multiply(known, pa.scalar(unit, pa.int64()))

    def _key(self, log: LogPlan) -> pc.Expression:
        """Build a log's key, if it is neither an expression nor a hash: Spark hashes text and several columns."""
        if log.wanted or not log.whole_key:
            raise _NeedsSparkError
        if not log.key:
            return pc.scalar(pa.scalar(0, pa.int64()))
        (part,) = log.key
        kind = self._declared(part.column)
        widened = part.type in _WHOLE and kind in _WHOLE[: _WHOLE.index(part.type)]
        if not widened and (kind != part.type or kind not in _KEYS):
            raise _NeedsSparkError
        return self._number(part.column)

    def _bits(self, predicates: Sequence[str]) -> pc.Expression:
        """Pack the answers to up to 64 predicates into a word; null counts as false."""
        bits = [pc.coalesce(self.predicate(predicate), False).cast(pa.int64()) for predicate in predicates]
        two = pa.scalar(2, pa.int64())
        return reduce(lambda word, bit: pc.add(pc.multiply(word, two), bit), reversed(bits))

    def predicate(self, text: str) -> pc.Expression:
        """Build a predicate with the three values of SQL."""
        tree = parse_text(text) if len(text) <= limits.MAX_ARROW_PREDICATE_CHARACTERS else None
        if tree is None:
            raise _NeedsSparkError
        return run(self._condition(tree))

    def _condition(self, tree: Tree) -> Generator[Any, Any, pc.Expression]:
        tree = unwrapped(tree)
        if not isinstance(tree, Form):
            raise _NeedsSparkError
        if tree.head in {"IS NULL", "IS NOT NULL"}:
            column = self.field(self._name(tree.trees[0]))
            return pc.is_null(column) if tree.head == "IS NULL" else pc.is_valid(column)
        if tree.head not in {"AND", "OR", "NOT"}:
            return self._comparison(tree)
        operands = []
        for operand in tree.trees:
            operands.append((yield self._condition(operand)))  # noqa: PERF401 - a comprehension cannot yield
        return pc.invert(*operands) if tree.head == "NOT" else reduce(_CONNECTORS[tree.head], operands)

    def _comparison(self, tree: Form) -> pc.Expression:
        """Build the comparison of a column with a number, in whichever order they are written."""
        operator = _SAME.get(tree.head, tree.head)
        if operator not in _COMPARISONS:
            raise _NeedsSparkError
        left, right = map(unwrapped, tree.trees)
        if isinstance(left, Constant):
            left, right, operator = right, left, MIRROR.get(operator, operator)
        name = self._name(left)
        number = _literal(right, self._declared(name))
        column = self.field(name)
        if not pa.types.is_floating(number.type):
            return _COMPARISONS[operator](column.cast(number.type), number)
        compared = _COMPARISONS[operator](column, number)
        return pc.or_kleene(compared, pc.is_nan(column)) if operator in {">", ">="} else compared

    def _name(self, tree: Tree) -> str:
        """Return the name of the column that a tree is."""
        tree = unwrapped(tree)
        column = (
            self.stream.column(tree.parts[0]) if isinstance(tree, Name) and len(tree.parts) == 1 else None
        )
        if column is None:
            raise _NeedsSparkError
        return column.name


def _literal(tree: Tree, kind: str) -> pa.Scalar:
    """Read a number to compare with a column of a type, if Spark does not cast the column, and does not round."""
    if not isinstance(tree, Constant) or tree.kind != "number":
        raise _NeedsSparkError
    if kind in _WHOLE and _WHOLE_NUMBER.fullmatch(tree.text):
        return pa.scalar(int(tree.text), pa.int64())
    if kind == "double" and _EXACT_NUMBER.fullmatch(tree.text):
        return pa.scalar(float(tree.text), pa.float64())
    raise _NeedsSparkError


# --- batches ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A part of a file that can be read by itself."""

    path: str
    number: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PlainBatch:
    """A batch, or a task's share of it, that Arrow reads."""

    columns: ArrowColumns
    groups: tuple[RowGroup, ...]

    def shares(self, most: int) -> list[PlainBatch]:
        """Divide it among tasks, at most so many, so that each has about as many rows in neighbouring row groups."""
        whole = sum(group.rows for group in self.groups) or 1
        size = sum(group.bytes for group in self.groups)
        tasks = min(most, 1 + max(whole // limits.MIN_ROWS_PER_INGEST_TASK, size // limits.ARROW_PIECE_BYTES))
        shares: list[tuple[RowGroup, ...]] = [()] * tasks
        before = 0
        for group in self.groups:
            shares[min(tasks - 1, (before + group.rows // 2) * tasks // whole)] += (group,)
            before += group.rows
        return [PlainBatch(self.columns, share) for share in shares if share]

    @property
    def has_checksums(self) -> bool:
        """Check whether Hadoop has written a checksum beside one of the files."""
        files = {Path(group.path) for group in self.groups}
        return any(file.with_name(f".{file.name}.crc").exists() for file in files)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the columns of a task, in pieces of bounded bytes."""
        for path, groups in groupby(self.groups, lambda group: group.path):
            for piece in gathered(_rows(path, list(groups), self.columns), limits.ARROW_PIECE_BYTES):
                yield from self.columns.of(pa.Table.from_batches(piece).combine_chunks()).to_batches()


@dataclass(frozen=True, slots=True)
class ParquetTask:
    """Reads a share of a batch and writes its segments."""

    share: PlainBatch
    batch: BatchSpec

    def run(self, files: Files) -> list[BatchPart]:
        """Write the segments and report on each stretch of rows."""
        return list(run_ingest(files, self.batch, self.share.read()))


def _rows(path: str, groups: list[RowGroup], columns: ArrowColumns) -> Iterator[pa.RecordBatch]:
    """Read row groups of a file, if they are still what its footer said when the batch was divided."""
    try:
        with pq.ParquetFile(path) as file:
            if not _is_plain(file.metadata, columns) or not {*groups} <= {*_row_groups(path, file.metadata)}:
                raise RunError(
                    f"source file {path} was changed while its batch was read: a file must not change once it is in "
                    "its directory. Restore the file and run again; write files elsewhere and move them there"
                )
            numbers, names = [group.number for group in groups], list(columns.types)
            yield from file.iter_batches(
                limits.ARROW_READ_ROWS, row_groups=numbers, columns=names, use_threads=False
            )
    except _UNREADABLE as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise RunError(f"cannot read source file {path}: {reason}. Restore the file and run again") from error


def plain_batch(columns: ArrowColumns, origin: dict[str, Any]) -> PlainBatch | None:
    """Read the footers of a batch's files; None if Spark has to read one of them, or to report what is wrong."""
    groups: list[RowGroup] = []
    for path in map(_plain_path, _urls(origin) or ("",)):
        try:
            footer = pq.read_metadata(path) if path else None
            plain = footer is not None and _is_plain(footer, columns)
        except _UNREADABLE:
            return None
        if not plain:
            return None
        groups += _row_groups(path, footer)
    return PlainBatch(columns, tuple(groups))


def _urls(origin: dict[str, Any]) -> list[str] | None:
    """List the files of a batch, if it is of one source of files and names them all."""
    if len(origin["entries"]) != 1 or origin["begun"]:
        return None
    (entries,) = origin["entries"].values()
    return None if entries is None else [url for files in entries.values() for url, _ in files]


def _plain_path(url: str) -> str:
    """Return the path of a file on this machine; empty if it is elsewhere, or its directories are columns.

    >>> _plain_path("file:///data/in/a%20b.parquet"), _plain_path("s3a://bucket/x"), _plain_path("file:/d/k=3/x")
    ('/data/in/a b.parquet', '', '')
    """
    path = local_path(url)
    return path if "=" not in path.rpartition("/")[0] else ""


def _row_groups(path: str, footer: pq.FileMetaData) -> list[RowGroup]:
    """List the row groups of a file."""
    parts = (footer.row_group(number) for number in range(footer.num_row_groups))
    return [RowGroup(path, number, part.num_rows, part.total_byte_size) for number, part in enumerate(parts)]


def _is_plain(footer: pq.FileMetaData, columns: ArrowColumns) -> bool:
    """Check that a file has every column once, with exactly its type, a known codec and the current calendar.

    INT96 is nanoseconds in Arrow, and so no type of `FILE_TYPES`.  Spark wrote another calendar before version 3.
    """
    schema, metadata = footer.schema.to_arrow_schema(), footer.metadata or {}
    lower = [name.lower() for name in schema.names]
    has_columns = all(
        name in schema.names and lower.count(name.lower()) == 1 and _is(schema.field(name).type, kind)
        for name, kind in columns.types.items()
    )
    first = [footer.row_group(0)] if footer.num_row_groups else []  # row groups of a file are alike
    codecs = {part.column(number).compression for part in first for number in range(part.num_columns)}
    current = _LEGACY not in metadata and metadata.get(_SPARK_VERSION, b"3.0.0") >= b"3.0.0"
    return has_columns and current and codecs <= _CODECS


def _is(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Compare the types of two columns; an instant is the same in every time zone."""
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return found.unit == wanted.unit and (found.tz is None) == (wanted.tz is None)
    return bool(found == wanted)
