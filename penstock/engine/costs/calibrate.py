"""Measure what the engine's work costs here, on this Spark, these cores, this disk (paper 1, 5.2, guesses C_sys).

The very work that a run does is done on made-up rows, each kind of it more in one measurement than in another::

    unit      next to nothing to join                         unit + little                           a Spark job
    row       many rows, no two of which join                 unit + row · rows                       a Spark job
    pair      the same rows, each with many partners          unit + row · rows + pair · pairs        a Spark job
    store     rows into a log                                 unit + store · rows                     a Spark job
    plain     the pairs of one task                           base                                    a task's work
    route     the same pairs, told apart by many bounds       base + route · pairs · bounds           a task's work
    filter    the same pairs, asked for their queries         base + filter · pairs                   a task's work
    apart     no pairs, two bounds; slice: many bounds        base + slice · rows · slices            a task's work
    rewrite   segments merged into one                        rewrite · rows                          a task's work

What is small beside a Spark job is measured without one, in this process; in a job all cores share it.

Each is run several times, in turns, and the fastest of each counts: what disturbs a measurement only ever adds to it.

In:  a Spark session and a directory.  Out: `Prices`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.engine.ingest.batch_task import BatchTask, LogTask
from penstock.engine.out.deliver import Delivery, Target
from penstock.engine.units.unit_task import InputTask, SegmentRange, UnitTask
from penstock.join.key_hash import mix
from penstock.join.probe import Wanted, probe
from penstock.join.sets import to_words
from penstock.log.claims import WindowClaim
from penstock.log.rewrite import rewrite_segments
from penstock.log.segment import SegmentColumns, read_segment, write_segment
from penstock.plan.prices import Prices
from penstock.plan.stored import KeyPart, LogPlan
from penstock.sql.query import SECOND, Column, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.jobs import Jobs
    from penstock.join.key_hash import Ints
    from penstock.log.files import Files
    from penstock.log.segment import Segment

ROWS = 200_000
"""Rows of a batch: as many as a busy source sends at a time."""

PARTNERS = 10
"""Partners of each row where pairs are wanted."""

BOUNDS = 33
"""Bounds where many are wanted: 32 slices."""

ROUNDS = 4
"""How often each measurement is made; the first only warms up."""

REPEATS = 6
"""How often in each round, for what takes but a moment."""

_SPARK_JOBS = frozenset({"unit", "row", "pair", "store"})
_STREAM = Stream(
    "calibration", (Column("k", "bigint"), Column("v", "double"), Column("ts", "timestamp")), "ts"
)
_LOG = LogPlan("calibration", "calibration", (KeyPart("k", "bigint", column="k"),), (), ("k", "v"))
_SPAN = 100 * SECOND


@dataclass(frozen=True, slots=True)
class Bench:
    """A Spark session, a directory for made-up segments, and someone to tell how far it is."""

    spark: SparkSession
    jobs: Jobs[DataFrame]
    files: Files
    tell: Callable[[str], None]

    def prices(self) -> Prices:
        """Measure everything, in turns, and work the prices out of it."""
        jobs = self._jobs()
        best: dict[str, float] = {}
        for turn in range(ROUNDS):
            for name, job in jobs.items():
                took = min(_timed(job) for _ in range(1 if name in _SPARK_JOBS else REPEATS))
                if turn:
                    best[name] = min(took, best.get(name, took))
            self.tell(f"round {turn + 1} of {ROUNDS} done")
        self.files.delete_tree("log/calibration")
        return _worked_out(best, self._cores)

    def _jobs(self) -> dict[str, Callable[[], object]]:
        """Make the rows, and the jobs to measure."""
        few = _Sides(self._segment("few-l", 100, 0), self._segment("few-r", 100, 1))
        none = _Sides(self._segment("none-l", ROWS, 0), self._segment("none-r", ROWS, 1))
        many = _Sides(self._segment("many-l", ROWS, 0, PARTNERS), self._segment("many-r", ROWS, 0, PARTNERS))
        pieces = [self._segment(f"piece-{number}", ROWS // 8, 0) for number in range(8)]
        return {
            "unit": lambda: self._unit(few),
            "row": lambda: self._unit(none),
            "pair": lambda: self._unit(many),
            "store": self._store,
            "plain": lambda: self._probe(many),
            "route": lambda: self._probe(many, bounds=BOUNDS),
            "filter": lambda: self._probe(many, selective=True),
            "apart": lambda: self._probe(none),
            "slice": lambda: self._probe(none, bounds=BOUNDS),
            "rewrite": lambda: rewrite_segments(self.files, "calibration", pieces, [_ALL]),
        }

    def _segment(self, name: str, rows: int, parity: int, per_key: int = 1) -> Segment:
        """Write a segment of rows spread over time; keys of another parity meet none of it."""
        numbers = np.arange(rows, dtype=np.int64)
        keys = numbers // per_key * 2 + parity
        t = np.random.default_rng(1).integers(0, _SPAN, rows)
        columns = {"k": pa.array(keys), "v": pa.array(numbers.astype(np.float64))}
        content = SegmentColumns(mix(keys), t, None, to_words([0], 0), columns, {})
        return write_segment(self.files, f"log/calibration/{name}.arrow", content, first=0, last=0)

    def _unit(self, sides: _Sides) -> object:
        """Run a unit in which the left segment is new and the right one was there."""
        task = sides.task(self.files, self._cores)
        delivery = Delivery("calibration", 1, (Target(0, "calibration", (0, len(task.cuts) - 1)),))
        return self.jobs.join(task, delivery)

    def _probe(self, sides: _Sides, *, bounds: int = 2, selective: bool = False) -> int:
        """Find the pairs of such a unit in this process; what is done with them afterwards is the same for all."""
        left, right = (read_segment(self.files, each).rows for each in (sides.left, sides.right))
        cuts, one = _cuts(bounds), to_words([1], 1)
        wanted = Wanted(to_words([1] * (bounds - 1), 1), one, one) if selective else None
        return sum(len(pairs) for pairs in probe(left, right, cuts, batch_is_left=True, wanted=wanted))

    @property
    def _cores(self) -> int:
        """Count the tasks that run at once."""
        return self.jobs.parallelism

    def _store(self) -> object:
        """Ingest a batch."""
        rows = self.spark.range(0, ROWS).selectExpr(
            "id % 50000 AS k", "CAST(id AS DOUBLE) AS v", "timestamp_micros(id * 100) AS ts"
        )
        logs = (LogTask(_LOG, (0,)),)
        task = BatchTask(self.files, 0, logs, "ts", None, None)
        return self.jobs.ingest(rows, _STREAM, task)


def _timed(job: Callable[[], object]) -> float:
    """Give the seconds that a job takes."""
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class _Sides:
    """Two segments to join."""

    left: Segment
    right: Segment

    def task(self, files: Files, parts: int) -> UnitTask:
        """Describe a unit in which the left segment is new, and the right one was there."""
        return UnitTask(
            files=files,
            inputs=(replace(_INPUT, new=(_range(self.left),)), replace(_INPUT, old=(_range(self.right),))),
            cuts=tuple(_cuts(2).tolist()),
            level_sets=(1,),
            selective=False,
            parts=parts,
            queries=1,
        )


_ALL = WindowClaim((0,), (_SPAN,), None)
_COLUMNS = (("k", pa.int64()), ("v", pa.float64()))
_INPUT = InputTask(old=(), new=(), columns=_COLUMNS, masks={0: (0,)}, excluded_masks={0: ()})


def _cuts(bounds: int) -> Ints:
    """Divide all differences evenly."""
    return np.linspace(-_SPAN, _SPAN, bounds).astype(np.int64)


def _range(segment: Segment) -> SegmentRange:
    """Describe a segment to a unit."""
    return SegmentRange(segment.name, segment.min_t, segment.max_t, rows=segment.rows)


def _worked_out(best: Mapping[str, float], cores: int) -> Prices:
    """Take the differences of what was measured; what comes out below nothing is nothing."""
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
