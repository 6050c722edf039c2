"""Which work is done by the joiner itself, and which is told to Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from penstock.engine.units.little_work import (
    AT_WORST,
    MOST_BYTES,
    MOST_PAIRS,
    MOST_ROWS,
    LittleUnits,
    is_little_merge,
    is_little_rewrite,
)
from penstock.engine.units.unit_task import InputTask, SegmentRange, UnitTask


def unit(*sides: tuple[int, int]) -> UnitTask:
    """Give a unit with so many old and new rows on each side."""

    def segments(rows):
        return (SegmentRange("s", 0, 0, rows=rows),) if rows else ()

    inputs = tuple(InputTask(segments(old), segments(new), (), {}, {}) for old, new in sides)
    return UnitTask(None, inputs, (0, 1), (1,), selective=False, parts=2, queries=1)


def found(pairs: int):
    return [SimpleNamespace(pairs=pairs)]


def test_of_a_first_unit_all_pairs_that_could_be_count():
    side = int((MOST_PAIRS * AT_WORST) ** 0.5)
    assert LittleUnits().is_little(unit((0, side), (0, side)))
    assert not LittleUnits().is_little(unit((0, side), (0, 2 * side)))


def test_after_it_a_unit_is_judged_by_the_pairs_that_rows_found():
    units = LittleUnits()
    units.note(unit((0, 10), (0, 10)), found(20))
    assert units.is_little(unit((1 << 40, MOST_ROWS // 2), (1 << 40, MOST_ROWS // 2)))
    units.note(unit((0, 10), (0, 10)), found(20 * MOST_PAIRS))
    assert not units.is_little(unit((0, 10), (0, 10)))


def test_many_new_rows_are_never_little():
    units = LittleUnits()
    units.note(unit((0, 10), (0, 10)), found(0))
    assert not units.is_little(unit((0, MOST_ROWS), (0, 1)))


def test_rows_that_found_many_are_not_forgotten_at_once_and_not_remembered_for_ever():
    units, few = LittleUnits(), unit((0, 4), (0, 4))
    units.note(few, found(2 * MOST_PAIRS))
    units.note(few, found(0))
    assert not units.is_little(few)
    for _ in range(100):
        units.note(few, found(0))
    assert units.is_little(few)


@pytest.mark.parametrize(("rows", "little"), [(MOST_ROWS, True), (MOST_ROWS + 1, False)])
def test_a_rewrite_is_judged_by_its_rows(rows, little):
    assert is_little_rewrite([[SimpleNamespace(rows=rows - 1)], [SimpleNamespace(rows=1)]]) is little


@pytest.mark.parametrize(("size", "little"), [(MOST_BYTES, True), (MOST_BYTES + 1, False)])
def test_a_merge_is_judged_by_its_bytes(size, little):
    files = (SimpleNamespace(bytes=size - 1), SimpleNamespace(bytes=1))
    assert is_little_merge([SimpleNamespace(inputs=files)]) is little
