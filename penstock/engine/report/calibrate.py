"""Measure the costs of the engine's work on this Spark, these cores and this disk (paper 1, 5.2, assumes C_sys).

The tasks of a run are executed on generated rows.  Measurements differ in the amount of each kind of work::

    unit      hardly anything to join                         unit + little                           a Spark job
    row       many rows, no two of which join                 unit + row · rows                       a Spark job
    pair      the same rows, each with many partners          unit + row · rows + pair · pairs        a Spark job
    store     rows into a log                                 unit + store · rows                     a Spark job
    plain     the pairs of one task                           base                                    a task's work
    route     the same pairs, told apart by many bounds       base + route · pairs · bounds           a task's work
    filter    the same pairs, asked for their queries         base + filter · pairs                   a task's work
    apart     no pairs, two bounds; slice: many bounds        base + slice · rows · slices            a task's work
    rewrite   segments merged into one                        rewrite · rows                          a task's work

Work that takes little time compared with a Spark job is timed inside one task.  In a job, all cores share this work.

Each measurement is repeated several times, in turns, and the fastest counts: disturbances only ever add time.

In:  a Spark session and a directory.  Out: `Prices`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.runners.runner import Job
from penstock.engine.sinks.pair_batch import Delivery, Target
from penstock.engine.tasks.ingest import BatchSpec, LogSpec
from penstock.engine.tasks.join import JoinTask, SegmentRange, UnitInput, UnitSpec
from penstock.engine.tasks.rewrite import RewriteTask
from penstock.kernels.key_hash import mix
from penstock.kernels.probe import Wanted, probe
from penstock.kernels.sets import to_words
from penstock.plan.prices import Prices
from penstock.plan.stored import KeyPart, LogPlan
from penstock.sql.query import SECOND, Column, Stream
from penstock.state.claims import WindowClaim
from penstock.state.segment import SegmentColumns, read_segment, write_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.backend import Backend
    from penstock.engine.runners.runner import Task
    from penstock.kernels.key_hash import Ints
    from penstock.state.files import Files
    from penstock.state.segment import Segment

ROWS = 200_000
"""Rows of a batch: as many as a busy source sends at a time."""

PARTNERS = 10
"""Partners of each row in measurements of pairs."""

BOUNDS = 33
"""Bounds in measurements of slices: 32 slices."""

ROUNDS = 4
"""How often each measurement is made; the first only warms up."""

REPEATS = 6
"""Repetitions in each round, for short measurements."""

_STREAM = Stream(
    "calibration", (Column("k", "bigint"), Column("v", "double"), Column("ts", "timestamp")), "ts"
)
_LOG = LogPlan("calibration", "calibration", (KeyPart("k", "bigint", column="k"),), (), ("k", "v"))
_SPAN = 100 * SECOND


@dataclass(frozen=True, slots=True)
class Bench:
    """A Spark session, its backend for a directory of made-up segments, and a function that shows progress."""

    spark: SparkSession
    backend: Backend[DataFrame]
    files: Files
    tell: Callable[[str], None]

    def prices(self) -> Prices:
        """Measure everything, in turns, and compute the prices."""
        measures = self._measures()
        best: dict[str, float] = {}
        for turn in range(ROUNDS):
            for name, measure in measures.items():
                took = measure()
                if turn:
                    best[name] = min(took, best.get(name, took))
            self.tell(f"round {turn + 1} of {ROUNDS} done")
        self.files.delete_tree("log/calibration")
        return _worked_out(best, self.backend.runner.parallelism)

    def _measures(self) -> dict[str, Callable[[], float]]:
        """Write the rows, and return the measurements: each gives seconds."""
        made = [
            _SegmentTask("few-l", 100, 0),
            _SegmentTask("few-r", 100, 1),
            _SegmentTask("none-l", ROWS, 0),
            _SegmentTask("none-r", ROWS, 1),
            _SegmentTask("many-l", ROWS, 0, PARTNERS),
            _SegmentTask("many-r", ROWS, 0, PARTNERS),
            *(_SegmentTask(f"piece-{number}", ROWS // 8, 0) for number in range(8)),
        ]
        segments = self.backend.runner.map(made, _JOB)
        few, none, many = (_Sides(*segments[number : number + 2]) for number in (0, 2, 4))
        return {
            "unit": lambda: self._unit(few),
            "row": lambda: self._unit(none),
            "pair": lambda: self._unit(many),
            "store": self._store,
            "plain": lambda: self._timed(_ProbeTask(many)),
            "route": lambda: self._timed(_ProbeTask(many, BOUNDS)),
            "filter": lambda: self._timed(_ProbeTask(many, selective=True)),
            "apart": lambda: self._timed(_ProbeTask(none)),
            "slice": lambda: self._timed(_ProbeTask(none, BOUNDS)),
            "rewrite": lambda: self._timed(_MergeTask(tuple(segments[6:]))),
        }

    def _timed(self, task: Task[float]) -> float:
        """Return the seconds that a task has measured."""
        (seconds,) = self.backend.runner.map([task], _JOB)
        return seconds

    def _unit(self, sides: _Sides) -> float:
        """Time a unit in which the left segment is new and the right one was there."""
        unit = sides.unit(self.backend.runner.parallelism)
        delivery = Delivery("calibration", 1, (Target(0, "calibration", (0, len(unit.cuts) - 1)),))
        tasks = [JoinTask(unit, delivery, part) for part in range(unit.parts)]
        return _seconds(lambda: self.backend.runner.map(tasks, _JOB))

    def _store(self) -> float:
        """Time the ingest of a batch."""
        rows = self.spark.range(0, ROWS).selectExpr(
            "id % 50000 AS k", "CAST(id AS DOUBLE) AS v", "timestamp_micros(id * 100) AS ts"
        )
        task = BatchSpec(0, (LogSpec(_LOG, (0,)),), "ts", None, None)
        return _seconds(lambda: self.backend.ingest(rows, _STREAM, task))


_JOB = Job("calibrate", "measure what work costs here")


def _seconds(work: Callable[[], object]) -> float:
    """Return the seconds that some work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class _SegmentTask:
    """Writes a segment of rows spread over time; keys of another parity meet none of it."""

    name: str
    rows: int
    parity: int
    per_key: int = 1

    def run(self, files: Files) -> Segment:
        """Write the segment."""
        numbers = np.arange(self.rows, dtype=np.int64)
        keys = numbers // self.per_key * 2 + self.parity
        t = np.random.default_rng(1).integers(0, _SPAN, self.rows)
        columns = {"k": pa.array(keys), "v": pa.array(numbers.astype(np.float64))}
        content = SegmentColumns(mix(keys), t, None, to_words([0], 0), columns, {})
        return write_segment(files, f"log/calibration/{self.name}.arrow", content, first=0, last=0)


@dataclass(frozen=True, slots=True)
class _ProbeTask:
    """Times how long one task takes to find the pairs of two segments."""

    sides: _Sides
    bounds: int = 2
    selective: bool = False

    def run(self, files: Files) -> float:
        """Find the pairs several times and return the seconds of the fastest."""
        left, right = (read_segment(files, side).rows for side in (self.sides.left, self.sides.right))
        cuts, one = _cuts(self.bounds), to_words([1], 1)
        wanted = Wanted(to_words([1] * (self.bounds - 1), 1), one, one) if self.selective else None

        def find() -> int:
            return sum(len(pairs) for pairs in probe(left, right, cuts, batch_is_left=True, wanted=wanted))

        return min(_seconds(find) for _ in range(REPEATS))


@dataclass(frozen=True, slots=True)
class _MergeTask:
    """Times how long one task takes to merge segments."""

    pieces: tuple[Segment, ...]

    def run(self, files: Files) -> float:
        """Merge the segments several times and return the seconds of the fastest."""

        def merge() -> object:
            return RewriteTask("calibration", tuple(self.pieces), (_ALL,)).run(files)

        return min(_seconds(merge) for _ in range(REPEATS))


@dataclass(frozen=True, slots=True)
class _Sides:
    """Two segments to join."""

    left: Segment
    right: Segment

    def unit(self, parts: int) -> UnitSpec:
        """Describe a unit in which the left segment is new, and the right one was there."""
        return UnitSpec(
            inputs=(replace(_INPUT, new=(_range(self.left),)), replace(_INPUT, old=(_range(self.right),))),
            cuts=tuple(_cuts(2).tolist()),
            level_sets=(1,),
            selective=False,
            parts=parts,
            queries=1,
        )


_ALL = WindowClaim((0,), (_SPAN,), None)
_COLUMNS = (("k", pa.int64()), ("v", pa.float64()))
_INPUT = UnitInput(old=(), new=(), columns=_COLUMNS, masks={0: (0,)}, excluded_masks={0: ()})


def _cuts(bounds: int) -> Ints:
    """Divide all differences evenly."""
    return np.linspace(-_SPAN, _SPAN, bounds).astype(np.int64)


def _range(segment: Segment) -> SegmentRange:
    """Describe a segment to a unit."""
    return SegmentRange(segment.name, segment.min_t, segment.max_t, rows=segment.rows)


def _worked_out(best: Mapping[str, float], cores: int) -> Prices:
    """Return the prices as differences of measurements; a negative difference counts as 0."""
    pairs = ROWS * PARTNERS
    apart = {
        "unit": best["unit"],
        "row": (best["row"] - best["unit"]) / ROWS,
        "pair": (best["pair"] - best["row"]) / pairs,
        "store": (best["store"] - best["unit"]) / ROWS,
        "route": (best["route"] - best["plain"]) / pairs / (BOUNDS - 2) / cores,
        "filter": (best["filter"] - best["plain"]) / pairs / cores,
        "slice": (best["slice"] - best["apart"]) / ROWS / (BOUNDS - 2) / cores,
        "rewrite": best["rewrite"] / ROWS / cores,
    }
    return Prices(**{name: max(0.0, value) for name, value in apart.items()})
