"""What a script means, once its text is forgotten: streams, queries and settings.

Every later room works on these values and never on SQL text.  They are frozen, and two
queries that mean the same are equal but for their name, sink and output columns.

The one idea of time here: a pair of rows has a *difference* ``d = T_right - T_left``, in
microseconds, and a window is a half-open range of it::

                   right row is older          right row is younger
    d   ---------------|------------------0------------------|------------->
                  -W_right + 1                             W_left
                       [=====================================)     Range(lo, hi)

``WINDOW w`` is ``Range(-w + 1, w)``: strict at the far end on both sides.  An interval predicate
of Spark or Flink is whatever range it states, also one that does not contain 0.

A *count window* measures the difference in rows of the older row's stream instead (`Query.rows`).  With ``N(t)`` the
number of that stream's rows up to time t::

    left row older, or of equal times    d = N_left(T_right) - N_left(T_left)           0, 1, 2 ...
    right row older                      d = N_right(T_right) - N_right(T_left) - 1     -1, -2 ...

so ``WINDOW n ROWS`` is ``Range(-n, n)``: the older row is among the last n rows of its stream when the younger comes.

In:  the text, through `penstock.sql.script` and `penstock.sql.bind.binder`.
Out: `penstock.plan` groups queries by `Query.signature` and shares what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.errors import InputError

SECOND = 1_000_000
DAY = 86_400 * SECOND
"""One second and one day in microseconds, the unit of time used everywhere inside."""

FOREVER = 1 << 60
"""A window of ``[UNBOUNDED]``: longer than any difference of two timestamps Spark can hold."""

NEVER = "FALSE"
"""The residual condition of a query whose conditions on time exclude each other."""

Side = str
"""Which stream of a result: expressions write ``l.Value`` and ``r.Value``; of more than two ``i0.Value`` and so on."""

SIDES: tuple[Side, Side] = ("l", "r")
"""Both streams of a pair, in the order in which cursors and watermarks are written."""

RESERVED = "penstock."
"""How the names of the engine's own columns begin; no column of the user may begin so."""


RESERVED_NAMES = f"names that begin with {RESERVED} are reserved, choose another"


def is_reserved(name: str) -> bool:
    """Say whether a name is one that only the engine may give."""
    return name.lower().startswith(RESERVED)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream: its name as declared and its Spark SQL type in lower case."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Results:
    """What is said of a stream whose rows are the results of the query of its name."""

    attribute: tuple[str, ...] = ()
    """Its columns that hold what the query itself is joined on."""
    untyped: tuple[str, ...] = ()
    """Columns of the results that are left out, because only Spark could tell their types."""
    refusal: str = ""
    """Why it cannot be read; empty if it can."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A source of rows with an event time.

    `time` is empty where only joins without a window read it: then rows are known by their position in the order of
    arrival.  `format` is empty for a stream given as a DataFrame from Python; `options` go to the Spark
    source untouched.  `lateness` is in microseconds.
    """

    name: str
    columns: tuple[Column, ...]
    time: str
    lateness: int = 0
    format: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may hold secrets
    results: Results | None = None
    """Set where its rows are the results of a query (`penstock.sql.bind.result_streams`), and no source is read."""

    def __post_init__(self) -> None:
        """Refuse a stream whose time column or lateness cannot be right."""
        if self.time and self.column(self.time) is None:
            raise InputError(f"time column {self.time} of stream {self.name} is not one of its columns")
        if self.lateness < 0:
            raise InputError(f"lateness of stream {self.name} is negative: it must be 0 or more")

    def column(self, name: str) -> Column | None:
        """Find a column by name, whatever its case."""
        wanted = name.lower()
        return next((each for each in self.columns if each.name.lower() == wanted), None)

    @property
    def punctuation_of(self) -> str:
        """Return the name of the stream whose promises this one carries; empty for nearly all streams."""
        options = {name.lower(): value for name, value in self.options}
        return options.get("punctuation_of", "").strip()

    @property
    def timeless(self) -> bool:
        """Say whether it has no event time: the time of a row is then its position in the order of arrival."""
        return not self.time

    @property
    def time_type(self) -> str:
        """Give the type of its event times; empty if it has none."""
        column = self.column(self.time)
        return column.type if column else ""


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The differences ``lo <= T_right - T_left < hi`` (microseconds) that a window admits."""

    lo: int
    hi: int

    def __post_init__(self) -> None:
        """Refuse a range that no pair can be in."""
        if self.lo >= self.hi:
            raise InputError(f"window [{self.lo}, {self.hi}) µs is empty: no pair of rows can be in it")

    def __contains__(self, difference: int) -> bool:
        """Say whether a pair with this difference is in the window."""
        return self.lo <= difference < self.hi

    def turned(self) -> Range:
        """Give the same window seen with the two streams exchanged.

        >>> Range(0, 10).turned()
        Range(lo=-9, hi=1)
        """
        return Range(-self.hi + 1, -self.lo + 1)

    @classmethod
    def window(cls, left: int, right: int) -> Range:
        """Build the papers' window: ``0 <= d < left`` or ``0 <= -d < right``.

        >>> Range.window(10, 10)
        Range(lo=-9, hi=10)
        """
        return cls(-right + 1, left)


@dataclass(frozen=True, slots=True)
class Remainder:
    """What is left of a column of whole numbers when it is divided by a positive constant.

    The divisor is a BIGINT if it is `wide`, else an INT.  A remainder has the sign of the number, as ``%`` gives it, or
    none if it is `floored`, as ``pmod`` does.
    """

    side: Side
    column: str
    divisor: int
    wide: bool = False
    floored: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the result.

    `expression` is Spark SQL over ``l.column`` and ``r.column``.  `column` is set when it is a plain
    column, so that no expression needs to be evaluated for it; `remainder` where it is what an aggregate takes and as
    simple as that.
    """

    name: str
    expression: str
    column: tuple[Side, str] | None = None
    remainder: Remainder | None = None


CHOSEN_BY = frozenset({"min_by", "max_by"})
"""Functions that return one value of a group, chosen by another."""

ENDS = CHOSEN_BY | {"min", "max"}
"""Functions that compare their last argument."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One aggregate of a query, over the pair outputs with the numbers `arguments`; ``COUNT(*)`` has none.

    `function` is ``count``, ``sum``, ``avg``, ``min``, ``max``, ``min_by``, ``max_by``, ``stddev_samp``,
    ``stddev_pop``, ``var_samp`` or ``var_pop``; every other way to write one of them is gone by now, and so is FILTER
    (it is part of the argument).  The arguments of ``min_by`` and ``max_by`` are the value and what it is chosen by.
    """

    function: str
    arguments: tuple[int, ...] = ()
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One column of an aggregate query's result: Spark SQL over ``g0 g1 …`` (group keys) and ``a0 a1 …`` (measures).

    `plain` is set when it is just one of those, so that no expression needs to be evaluated for it.
    """

    name: str
    expression: str
    plain: str = ""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A group key that is a bucket of one side's event time: the pair output that says when it ends.

    That output is a BIGINT: the first microsecond since 1970 that is no longer in the bucket.
    """

    side: Side
    end: int


Emit = Literal["sliding", "final", "changes"]
"""When an aggregate answers: at instants, once per group, or whenever a group has changed."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What a query makes of its pairs: one row for each group, not one for each pair.

    The query's own `outputs` are then what is needed of each pair: the group keys first, then what the measures take,
    then the end of the bucket.
    """

    emit: Emit
    groups: int
    """How many of the pair outputs are the group's key."""
    measures: tuple[Measure, ...]
    answers: tuple[Answer, ...]
    """The SELECT list; `window_end`, which comes first where answers are sliding, is not in it."""
    having: str = ""
    """Spark SQL over the same columns as the answers; empty: every group."""
    every: int = 0
    """Sliding: microseconds from one instant to the next."""
    reach: tuple[int, ...] = (0, 0)
    """Sliding: at instant E, rows of each input count that are younger than E minus so much."""
    bucket: Bucket | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """``least <= l.left - r.right <= most``; None where there is no bound.

    A value beyond `limit` (of its side) may overflow in Spark's own arithmetic, so such a pair passes.  `slack` is
    None for whole numbers, which are compared exactly; else it is the share of the values' size by which two ways of
    rounding may differ, and `size` is the size of the constants.
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
    """Where a query's result goes: ``parquet``, ``table``, ``console``, ``callback`` or ``noop``."""

    kind: str = "table"
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str = "") -> str:
        """Read one option by name."""
        return dict(self.options).get(name, default)


@dataclass(frozen=True, slots=True)
class Signature:
    """What two queries must have in common to share state: the two streams, the equalities, and what windows count.

    Without equalities that is the two streams alone, whatever other conditions the queries have.
    """

    left: str
    right: str
    keys: tuple[Key, ...]
    rows: tuple[bool, ...] = (False, False)
    """For each stream: whether its window counts rows rather than time."""
    streams: tuple[str, ...] = ()
    """All streams, where there are more than two."""
    edges: tuple[Edge, ...] = ()
    """The equalities, where there are more than two streams."""
    oblivious: bool = False
    """Whether there is no window: how long rows are kept follows from the order of the attribute they are joined on."""

    @property
    def counted(self) -> bool:
        """Say whether some window counts rows."""
        return any(self.rows)


@dataclass(frozen=True, slots=True)
class Query:
    """A window join in normal form.

    `left` and `right` are stream names in alphabetical order (ignoring case), whatever the order in
    the text.  Predicates are conjuncts in canonical Spark SQL, sorted, without repeats: `left_predicates`
    and `right_predicates` over the bare columns of one stream, `residual` over ``l.`` and ``r.`` columns.
    """

    name: str
    left: str
    right: str
    keys: tuple[Key, ...]
    window: Range
    outputs: tuple[Output, ...]
    left_predicates: tuple[str, ...] = ()
    right_predicates: tuple[str, ...] = ()
    residual: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    """What the residual says of differences of columns, to be tested before the residual itself is evaluated."""
    left_columns: frozenset[str] = frozenset()
    """Columns of the left stream that outputs and residual read (predicates and keys not counted)."""
    right_columns: frozenset[str] = frozenset()
    rows: tuple[bool, ...] = (False, False)
    """For each stream: whether `window` counts rows on that side, not microseconds."""
    sink: Sink = field(default_factory=Sink)
    options: tuple[tuple[str, str], ...] = ()
    """Options of the query itself, such as ``order``."""
    text: str = ""
    """The SELECT as the user wrote it, for showing only."""
    aggregation: Aggregation | None = None
    """Set where the query answers with aggregates: `outputs` are then what these need of each pair."""
    graph: JoinGraph | None = None
    """Set where the query joins more than two streams.  `left` and `right` are then its first two inputs, keys,
    predicates and columns are the graph's, and `window` is about the spread of a result: its newest time less its
    oldest."""
    oblivious: bool = False
    """Whether it has no window: all its streams are joined on one ordered attribute, which decides how long to
    remember."""

    @property
    def is_empty(self) -> bool:
        """Whether its conditions exclude every pair of rows."""
        return NEVER in self.residual

    @property
    def edges(self) -> tuple[Edge, ...]:
        """List the equalities, each between two inputs."""
        return tuple(Edge(0, 1, key) for key in self.keys) if self.graph is None else self.graph.edges

    @property
    def sides(self) -> tuple[Side, ...]:
        """Name the inputs as expressions do."""
        return sides_for(len(self.streams))

    @property
    def streams(self) -> tuple[str, ...]:
        """Name the streams of the inputs; one that is joined with itself twice."""
        if self.graph is None:
            return self.left, self.right
        return tuple(each.stream for each in self.graph.inputs)

    def predicates(self, side: Side) -> tuple[str, ...]:
        """List the predicates on one side."""
        if self.graph is not None:
            return self.graph.inputs[self.sides.index(side)].predicates
        return self.left_predicates if side == "l" else self.right_predicates

    def columns(self, side: Side) -> frozenset[str]:
        """List the columns of one side that outputs and residual read."""
        if self.graph is not None:
            return self.graph.inputs[self.sides.index(side)].columns
        return self.left_columns if side == "l" else self.right_columns

    def reach(self, side: Side) -> int:
        """Say how far beyond a row's own time its partners may lie: how long the row has to be kept.

        A left row at T is of use until the right watermark passes ``T + hi``; a right row until the left watermark
        passes ``T - lo + 1``.
        """
        if self.graph is not None:
            return self.graph.reach(self.sides.index(side))
        return self.window.hi if side == "l" else 1 - self.window.lo

    @property
    def signature(self) -> Signature:
        """Say what this query can share with others."""
        if self.graph is None:
            return Signature(self.left, self.right, self.keys, self.rows, oblivious=self.oblivious)
        return Signature(
            self.left, self.right, (), self.rows, self.streams, self.graph.edges, oblivious=self.oblivious
        )

    def with_keys(self, change: Callable[[Key, int, int], Key]) -> Query:
        """Give the same query with other keys; each is given with the numbers of the inputs it is between."""
        if self.graph is None:
            return replace(self, keys=tuple(sorted({change(each, 0, 1) for each in self.keys})))
        edges = {replace(each, key=change(each.key, each.first, each.second)) for each in self.graph.edges}
        return replace(self, graph=replace(self.graph, edges=tuple(sorted(edges))))

    @property
    def in_table(self) -> bool:
        """Say whether its results are read from its group's table; those in order have files of their own."""
        return self.sink.kind == "table" and not self.ordered and self.aggregation is None

    @property
    def ordered(self) -> bool:
        """Say whether this query wants its results in the order of their times; answers come instant by instant."""
        return self.order != "none" and self.aggregation is None

    @property
    def order(self) -> str:
        """Name its order policy."""
        return dict(self.options).get("order", "none")


LEAST_INPUTS, MOST_INPUTS = 3, 16
"""Streams that such a query joins at the least, and at the most."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """One equality of the join: an expression per side, and the type both are compared as.

    Expressions are Spark SQL over the bare columns of their stream, in canonical form.
    `type` is the common type to cast both sides to, or empty where they have the same type already.
    """

    left: str
    right: str
    type: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """An equality between two inputs, by their numbers: `key.left` is of the first, which has the smaller number."""

    first: int
    second: int
    key: Key

    def __post_init__(self) -> None:
        """Refuse an equality of an input with itself, or the wrong way round."""
        if self.first >= self.second:
            raise InputError(
                f"an equality between inputs {self.first} and {self.second} is the wrong way round"
            )


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One stream of a join of many: what expressions call it, the predicates on its rows, and the columns read of it.

    Predicates and columns are as those of one side of a join of two.
    """

    side: str
    stream: str
    predicates: tuple[str, ...] = ()
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """The inputs, equalities and limits of a join of more than two streams.

    `edges` are sorted and without repeats.  ``limits[i][j]`` is in microseconds, `FOREVER` where nothing is said; where
    the window of input i counts rows it is in rows of its stream: fewer than so many came after row i until row j.
    """

    inputs: tuple[JoinInput, ...]
    edges: tuple[Edge, ...]
    limits: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a graph whose limits are not those of its inputs."""
        size = len(self.inputs)
        if not LEAST_INPUTS <= size <= MOST_INPUTS:
            raise InputError(f"a join of {size} streams is not one of {LEAST_INPUTS} to {MOST_INPUTS}")
        if len(self.limits) != size or any(len(each) != size for each in self.limits):
            raise InputError(f"the limits of a join of {size} streams must be {size} by {size}")

    @property
    def spread(self) -> int:
        """Give the limit on the time from the oldest row of a result to its newest."""
        return max(self.reach(number) for number in range(len(self.inputs)))

    def reach(self, number: int) -> int:
        """Say how far beyond a row of one input its partners may lie: how long the row has to be kept."""
        return max(limit for other, limit in enumerate(self.limits[number]) if other != number)

    @property
    def even(self) -> bool:
        """Say whether all limits are one: then the spread of a result says whether it is in the window."""
        pairs = {limit for i, row in enumerate(self.limits) for j, limit in enumerate(row) if i != j}
        return len(pairs) == 1


def sides_for(count: int) -> tuple[str, ...]:
    """Name the inputs of a join of so many streams, as expressions do.

    >>> sides_for(2), sides_for(3)
    (('l', 'r'), ('i0', 'i1', 'i2'))
    """
    return ("l", "r") if count < LEAST_INPUTS else tuple(f"i{number}" for number in range(count))


_SIDES = frozenset((*sides_for(2), *sides_for(MOST_INPUTS)))


def is_side(name: str) -> bool:
    """Say whether a name is what expressions call an input."""
    return name in _SIDES


def side_number(side: str) -> int:
    """Give the number of an input by what expressions call it.

    >>> side_number("r"), side_number("i12")
    (1, 12)
    """
    return "lr".index(side) if side in {"l", "r"} else int(side[1:])


def closed(limits: Sequence[Sequence[int]], forever: int) -> tuple[tuple[int, ...], ...]:
    """Shorten limits to what the way round over other inputs leaves.

    Differences are whole microseconds: from ``T_j - T_i < a`` and ``T_k - T_j < b`` follows ``T_k - T_i < a + b - 1``.

    >>> closed([[1, 10, 99], [1, 1, 10], [1, 1, 1]], forever=1 << 60)
    ((1, 10, 19), (1, 1, 10), (1, 1, 1))
    """
    table = [list(row) for row in limits]
    size = range(len(table))
    for middle in size:
        for i in size:
            for j in size:
                way_round = table[i][middle] + table[middle][j] - 1
                if max(table[i][middle], table[middle][j]) < forever:
                    table[i][j] = min(table[i][j], way_round)
    return tuple(tuple(row) for row in table)
