"""The meaning of a script: streams and queries as frozen values, without SQL text.

Two queries with the same meaning are equal except for their names, sinks and output columns.

A pair of rows has a *difference* ``d = T_right - T_left``, in microseconds, and a window is a half-open range of it::

                   right row is older          right row is younger
    d   ---------------|------------------0------------------|------------->
                  -W_right + 1                             W_left
                       [=====================================)     Range(lo, hi)

``WINDOW w`` is ``Range(-w + 1, w)``: both far ends are excluded.  An interval predicate of Spark or Flink states any
range, also one without 0.

A *count window* measures the difference in rows of the older row's stream (`Query.rows`).  With ``N(t)`` the number of
that stream's rows up to time t::

    left row older, or of equal times    d = N_left(T_right) - N_left(T_left)           0, 1, 2 ...
    right row older                      d = N_right(T_right) - N_right(T_left) - 1     -1, -2 ...

so ``WINDOW n ROWS`` is ``Range(-n, n)``: the older row is among the last n rows of its stream when the younger arrives.

In:  the text, through `penstock.sql.script` and `penstock.sql.bind.binder`.
Out: values for `penstock.plan`, which groups queries by `Query.signature`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.errors import InputError

SECOND = 1_000_000
DAY = 86_400 * SECOND
"""One second and one day in microseconds, the unit of all times."""

FOREVER = 1 << 60
"""The length of ``[UNBOUNDED]``: longer than any difference of two timestamps in Spark."""

NEVER = "FALSE"
"""The residual condition of a query whose conditions on time contradict each other."""

Side = str
"""An input of a query as expressions name it: ``l`` and ``r`` of ``l.Value``, ``i0`` and so on for more than two."""

SIDES: tuple[Side, Side] = ("l", "r")
"""Both sides of a pair, in the order of cursors and watermarks."""

RESERVED = "penstock."
"""The prefix of the engine's own columns; no column of the user may have it."""


RESERVED_NAMES = f"names that begin with {RESERVED} are reserved, choose another"


def is_reserved(name: str) -> bool:
    """Check whether a name has the prefix of the engine's own columns."""
    return name.lower().startswith(RESERVED)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream: its name as declared and its Spark SQL type in lower case."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Results:
    """Properties of a stream whose rows are the results of the query with its name."""

    attribute: tuple[str, ...] = ()
    """Its columns that hold the join attribute of the query."""
    untyped: tuple[str, ...] = ()
    """Columns of the results that are left out because their types are unknown without Spark."""
    refusal: str = ""
    """Why the results cannot be read; empty if they can."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A source of rows with an event time.

    `time` is empty where only joins without a window read it.  `format` is empty for a DataFrame from Python.
    `options` go to the Spark source unchanged.  `lateness` is in microseconds.
    """

    name: str
    columns: tuple[Column, ...]
    time: str
    lateness: int = 0
    format: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may hold secrets
    results: Results | None = None
    """Set if its rows are the results of a query (`penstock.sql.bind.result_streams`) and not of a source."""

    def __post_init__(self) -> None:
        if self.time and self.column(self.time) is None:
            raise InputError(
                f"time column {self.time} of stream {self.name} is not one of its columns: name a declared column"
            )
        if self.lateness < 0:
            raise InputError(f"lateness of stream {self.name} is negative: it must be 0 or more")

    def column(self, name: str) -> Column | None:
        """Find a column by name, ignoring case."""
        wanted = name.lower()
        return next((column for column in self.columns if column.name.lower() == wanted), None)

    def type_of(self, name: str) -> str:
        """Return the type of a column; empty if there is no such column."""
        column = self.column(name)
        return column.type if column else ""

    @property
    def punctuation_of(self) -> str:
        """The name of the stream whose promises this one carries; empty for most streams."""
        options = {name.lower(): value for name, value in self.options}
        return options.get("punctuation_of", "").strip()

    @property
    def timeless(self) -> bool:
        """Whether it has no event time: then rows are ordered by their position of arrival."""
        return not self.time

    @property
    def time_type(self) -> str:
        """The type of its event times; empty if it has none."""
        return self.type_of(self.time)


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The differences ``lo <= T_right - T_left < hi`` (microseconds) that a window admits."""

    lo: int
    hi: int

    def __post_init__(self) -> None:
        if self.lo >= self.hi:
            raise InputError(f"window [{self.lo}, {self.hi}) µs is empty: no pair of rows can be in it")

    def __contains__(self, difference: int) -> bool:
        return self.lo <= difference < self.hi

    def turned(self) -> Range:
        """Return the same window with the two streams exchanged.

        >>> Range(0, 10).turned()
        Range(lo=-9, hi=1)
        """
        return Range(-self.hi + 1, -self.lo + 1)

    @classmethod
    def window(cls, left: int, right: int) -> Range:
        """Build the window of two lengths: ``0 <= d < left`` or ``0 <= -d < right``.

        >>> Range.window(10, 10)
        Range(lo=-9, hi=10)
        """
        return cls(-right + 1, left)


@dataclass(frozen=True, slots=True)
class Remainder:
    """The remainder of a column of whole numbers and a positive constant.

    The divisor is a BIGINT if it is `wide`, else an INT.  The remainder has the sign of the number, as with ``%``, or
    no sign if it is `floored`, as with ``pmod``.
    """

    side: Side
    column: str
    divisor: int
    wide: bool = False
    floored: bool = False


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of the result.

    `expression` is Spark SQL over ``l.column`` and ``r.column``.  `column` is set if it is a plain column, and
    `remainder` if it is the argument of an aggregate and a plain remainder; Spark need not evaluate such an expression.
    """

    name: str
    expression: str
    column: tuple[Side, str] | None = None
    remainder: Remainder | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate of a query, over the pair outputs with the numbers `arguments`; ``COUNT(*)`` has none.

    `function` is ``count``, ``sum``, ``avg``, ``min``, ``max``, ``min_by``, ``max_by``, ``stddev_samp``,
    ``stddev_pop``, ``var_samp`` or ``var_pop``.  FILTER is part of the arguments.  The arguments of ``min_by`` and
    ``max_by`` are the value and the key that chooses it.
    """

    function: str
    arguments: tuple[int, ...] = ()
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One column of an aggregate query's result: Spark SQL over ``g0 g1 …`` (group keys) and ``a0 a1 …`` (measures).

    `plain` is set if it is one of those columns; Spark need not evaluate such an expression.
    """

    name: str
    expression: str
    plain: str = ""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A group key that is a bucket of one side's event time; `end` is the number of the pair output with its end.

    That output is a BIGINT: the first microsecond since 1970 after the bucket.
    """

    side: Side
    end: int


Emit = Literal["sliding", "final", "changes"]
"""When an aggregate answers: at instants, once per group, or at each change of a group."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The groups and aggregates of a query.

    The query's `outputs` are then computed for each pair: the group keys, the arguments of the measures, and the end of
    the bucket.
    """

    emit: Emit
    groups: int
    """The number of group keys among the pair outputs."""
    measures: tuple[Measure, ...]
    answers: tuple[Answer, ...]
    """The SELECT list, without the `window_end` that sliding answers begin with."""
    having: str = ""
    """Spark SQL over the same columns as the answers; empty: all groups."""
    every: int = 0
    """Sliding: microseconds between two instants."""
    reach: tuple[int, ...] = (0, 0)
    """Sliding: at instant E, the rows of each input younger than E minus this length count."""
    bucket: Bucket | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """``least <= l.left - r.right <= most``; None where there is no bound.

    A value beyond the limit of its side may overflow in Spark's arithmetic, so its pairs pass.  `slack` is None for
    whole numbers, which are compared exactly.  For others it is the share of the values' size by which roundings may
    differ, and `size` is the size of the constants.
    """

    left: str
    right: str
    least: int | float | None
    most: int | float | None
    limits: tuple[int | None, int | None]
    slack: float | None = None
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Sink:
    """The sink of a query: ``parquet``, ``table``, ``console``, ``callback`` or ``noop``."""

    kind: str = "table"
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)


@dataclass(frozen=True, slots=True)
class Signature:
    """The properties that two queries must have in common to share state: streams, equalities, and units of windows."""

    left: str
    right: str
    keys: tuple[Key, ...]
    rows: tuple[bool, ...] = (False, False)
    """For each stream: whether its window counts rows."""
    streams: tuple[str, ...] = ()
    """All streams, where there are more than two."""
    edges: tuple[Edge, ...] = ()
    """The equalities, where there are more than two streams."""
    oblivious: bool = False
    """Whether there is no window: the order of the join attribute limits how long rows are kept."""

    @property
    def counted(self) -> bool:
        return any(self.rows)


@dataclass(frozen=True, slots=True)
class Query:
    """A window join in normal form.

    `left` and `right` are stream names in alphabetical order, ignoring case.  Predicates are conjuncts in canonical
    Spark SQL, sorted and without repeats: `left_predicates` and `right_predicates` over the bare columns of one stream,
    `residual` over ``l.`` and ``r.`` columns.
    """

    name: str
    left: str
    right: str
    keys: tuple[Key, ...]
    window: Range
    outputs: tuple[OutputColumn, ...]
    left_predicates: tuple[str, ...] = ()
    right_predicates: tuple[str, ...] = ()
    residual: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    """Bounds that follow from the residual, tested before Spark evaluates it."""
    left_columns: frozenset[str] = frozenset()
    """Columns of the left stream that outputs and residual read, without those of predicates and keys."""
    right_columns: frozenset[str] = frozenset()
    rows: tuple[bool, ...] = (False, False)
    """For each stream: whether `window` counts rows on that side."""
    sink: Sink = field(default_factory=Sink)
    options: tuple[tuple[str, str], ...] = ()
    """Options of the query itself, such as ``order``."""
    text: str = ""
    """The SELECT as written, for display."""
    aggregation: Aggregation | None = None
    """Set if the query aggregates; `outputs` are then computed for each pair."""
    graph: JoinGraph | None = None
    """Set if the query joins more than two streams.  `left` and `right` are then its first two inputs; keys, predicates
    and columns are in the graph; `window` bounds the spread of a result, its newest time less its oldest."""
    oblivious: bool = False
    """Whether it has no window: the order of its join attribute limits how long rows are kept."""

    @property
    def is_empty(self) -> bool:
        """Whether its conditions exclude every pair of rows."""
        return NEVER in self.residual

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The equalities, each between two inputs."""
        return tuple(Edge(0, 1, key) for key in self.keys) if self.graph is None else self.graph.edges

    @property
    def sides(self) -> tuple[Side, ...]:
        return sides_for(len(self.streams))

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of the inputs; a self-join has its stream twice."""
        if self.graph is None:
            return self.left, self.right
        return tuple(input_.stream for input_ in self.graph.inputs)

    def predicates(self, side: Side) -> tuple[str, ...]:
        if self.graph is not None:
            return self.graph.inputs[self.sides.index(side)].predicates
        return self.left_predicates if side == "l" else self.right_predicates

    def columns(self, side: Side) -> frozenset[str]:
        """Return the columns of one side that outputs and residual read."""
        if self.graph is not None:
            return self.graph.inputs[self.sides.index(side)].columns
        return self.left_columns if side == "l" else self.right_columns

    def reach(self, side: Side) -> int:
        """Return how far beyond a row's own time its partners may lie, that is how long the row is kept.

        A left row at T is kept until the right watermark passes ``T + hi``, a right row until the left watermark passes
        ``T - lo + 1``.
        """
        if self.graph is not None:
            return self.graph.reach(self.sides.index(side))
        return self.window.hi if side == "l" else 1 - self.window.lo

    @property
    def signature(self) -> Signature:
        if self.graph is None:
            return Signature(self.left, self.right, self.keys, self.rows, oblivious=self.oblivious)
        return Signature(
            self.left, self.right, (), self.rows, self.streams, self.graph.edges, oblivious=self.oblivious
        )

    def with_keys(self, change: Callable[[Key, int, int], Key]) -> Query:
        """Return the same query with changed keys; `change` gets a key and the numbers of its two inputs."""
        if self.graph is None:
            return replace(self, keys=tuple(sorted({change(key, 0, 1) for key in self.keys})))
        edges = {replace(edge, key=change(edge.key, edge.first, edge.second)) for edge in self.graph.edges}
        return replace(self, graph=replace(self.graph, edges=tuple(sorted(edges))))

    @property
    def in_table(self) -> bool:
        """Whether its results are read from its group's table; ordered results have their own files."""
        return self.sink.kind == "table" and not self.ordered and self.aggregation is None

    @property
    def ordered(self) -> bool:
        """Whether its results are delivered in the order of their times."""
        return self.order != "none" and self.aggregation is None

    @property
    def order(self) -> str:
        return dict(self.options).get("order", "none")


LEAST_INPUTS, MOST_INPUTS = 3, 16
"""The minimum and the maximum of streams in a `JoinGraph`."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One equality of the join: an expression for each side, in canonical Spark SQL over its bare columns.

    `type` is the common type to cast both sides to; empty if they have the same type.
    """

    left: str
    right: str
    type: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """An equality between two inputs; `key.left` is of the first, which has the smaller number."""

    first: int
    second: int
    key: Key

    def __post_init__(self) -> None:
        if self.first >= self.second:
            raise InputError(
                f"an equality between inputs {self.first} and {self.second} is the wrong way round"
            )


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One input of a join: its name in expressions, the predicates on its rows, and the columns that are read."""

    side: str
    stream: str
    predicates: tuple[str, ...] = ()
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """The inputs, equalities and limits of a join of more than two streams.

    `edges` are sorted and without repeats.  A row of input j comes less than ``limits[i][j]`` microseconds after the
    row of input i (`FOREVER`: no limit); if the window of input i counts rows, less than so many rows of its stream.
    """

    inputs: tuple[JoinInput, ...]
    edges: tuple[Edge, ...]
    limits: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        size = len(self.inputs)
        if not LEAST_INPUTS <= size <= MOST_INPUTS:
            raise InputError(f"a join of {size} streams is not one of {LEAST_INPUTS} to {MOST_INPUTS}")
        if len(self.limits) != size or any(len(row) != size for row in self.limits):
            raise InputError(f"the limits of a join of {size} streams must be {size} by {size}")

    @property
    def spread(self) -> int:
        """The maximum time from the oldest row of a result to its newest."""
        return max(self.reach(number) for number in range(len(self.inputs)))

    def reach(self, number: int) -> int:
        """Return how far beyond a row of one input its partners may lie, that is how long the row is kept."""
        return max(limit for other, limit in enumerate(self.limits[number]) if other != number)

    @property
    def even(self) -> bool:
        """Whether all limits are equal: then the spread alone tells if a result is in the window."""
        pairs = {limit for i, row in enumerate(self.limits) for j, limit in enumerate(row) if i != j}
        return len(pairs) == 1


def sides_for(count: int) -> tuple[str, ...]:
    """Return the names of the inputs in expressions.

    >>> sides_for(2), sides_for(3)
    (('l', 'r'), ('i0', 'i1', 'i2'))
    """
    return ("l", "r") if count < LEAST_INPUTS else tuple(f"i{number}" for number in range(count))


_SIDES = frozenset((*sides_for(2), *sides_for(MOST_INPUTS)))


def is_side(name: str) -> bool:
    """Check whether a name is that of an input in expressions."""
    return name in _SIDES


def side_number(side: str) -> int:
    """Return the number of an input by its name in expressions.

    >>> side_number("r"), side_number("i12")
    (1, 12)
    """
    return "lr".index(side) if side in {"l", "r"} else int(side[1:])


def closed(limits: Sequence[Sequence[int]], forever: int) -> tuple[tuple[int, ...], ...]:
    """Shorten limits by the paths over other inputs.

    Differences are whole microseconds: from ``T_j - T_i < a`` and ``T_k - T_j < b`` follows ``T_k - T_i < a + b - 1``.

    >>> closed([[1, 10, 99], [1, 1, 10], [1, 1, 1]], forever=1 << 60)
    ((1, 10, 19), (1, 1, 10), (1, 1, 1))
    """
    table = [list(row) for row in limits]
    size = range(len(table))
    for middle in size:
        for i in size:
            for j in size:
                path = table[i][middle] + table[middle][j] - 1
                if max(table[i][middle], table[middle][j]) < forever:
                    table[i][j] = min(table[i][j], path)
    return tuple(tuple(row) for row in table)
