"""Promises in files, held against nested loops: the least p that covers a row, however they are kept or merged."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.kernels.key_hash import mix
from penstock.state.claims import PromisedClaim, WindowClaim
from penstock.state.files import open_files
from penstock.state.promise_merges import choose_promise_merges
from penstock.state.promises import (
    NEVER,
    PromiseFiles,
    PromiseSet,
    in_order,
    open_promises,
    write_exact,
    write_patterns,
)
from penstock.state.segment import read_segment
from tests.kernels.drawn import examples

WHOLE, TEXT, SEVERAL = "whole", "text", "several"


def keys_of(values, kind):
    """Lay values out as the parts of a key; a whole one is in its hash."""
    if kind == WHOLE:
        return []
    texts = pa.array([f"n{value:03d}" for value, _ in values], pa.string())
    return [texts] if kind == TEXT else [texts, pa.array([other for _, other in values], pa.int64())]


def hashes(values, kind, bits):
    """Hash values; of few bits, so that many have the same."""
    numbers = np.array([value if kind != SEVERAL else 7 * value + other for value, other in values], np.int64)
    return mix(numbers) if kind == WHOLE else mix(numbers) << np.uint64(64 - bits)


def bounds_of(promises, kind):
    """Lay ranges out, part by part."""
    bound = (lambda each: each) if kind == WHOLE else (lambda each: None if each is None else f"n{each:03d}")
    kinds = pa.int64() if kind == WHOLE else pa.string()
    first = tuple(pa.array([bound(each[side]) for _, each, _ in promises], kinds) for side in (0, 1))
    if kind != SEVERAL:
        return [first]
    return [first, (pa.array([other for _, _, other in promises], pa.int64()),) * 2]


def least(row, exact, ranges, kind):
    """Find the least p by the definition."""
    ps = [p for p, value, other in exact if value == row[0] and (kind != SEVERAL or other == row[1])]
    for p, (low, high), other in ranges:
        inside = (low is None or low <= row[0]) and (high is None or row[0] <= high)
        ps += [p] if inside and (kind != SEVERAL or other is None or other == row[1]) else []
    return min(ps, default=NEVER)


def drawn(random, kind, *, most=12):
    exact = [
        (random.randrange(20), random.randrange(6), random.randrange(2))
        for _ in range(random.randrange(most))
    ]
    ranges = [
        (
            random.randrange(20),
            (random.choice((None, *range(6))), random.choice((None, *range(6)))),
            random.choice((None, 0, 1)) if kind == SEVERAL else None,
        )
        for _ in range(random.randrange(most))
    ]
    return exact, ranges


def written(files, random, promises, kind, bits):
    """Write promises to several files, as several tasks and batches do."""
    (exact, ranges), found = promises, PromiseFiles()
    for batch in range(3):
        mine = [each for each in exact if random.random() < 0.4 or batch == 2]
        values = [(value, other) for _, value, other in mine]
        p = np.array([p for p, _, _ in mine], np.int64)
        made = (
            write_exact(files, "i", in_order(hashes(values, kind, bits), p, keys_of(values, kind)), batch)
            if mine
            else None
        )
        some = [each for each in ranges if random.random() < 0.4 or batch == 2]
        ps = np.array([p for p, _, _ in some], np.int64)
        order = np.argsort(ps, kind="stable")
        some = [some[each] for each in order]
        wide = write_patterns(files, "i", ps[order], bounds_of(some, kind), batch) if some else None
        found = found.plus(PromiseFiles((made,) if made else (), (wide,) if wide else ()))
    return found


def earliest(files, found, value):
    return open_promises(files, found).earliest(mix(np.array([value])), ())[0]


def check(files, found, promises, kind, bits):
    """Ask for all values there are."""
    exact, ranges = promises
    rows = [(value, other) for value in range(-1, 7) for other in range(2)]
    known = open_promises(files, found)
    got = known.earliest(hashes(rows, kind, bits), keys_of(rows, kind)).tolist()
    right = [least(row, exact, ranges, kind) for row in rows]
    assert got == right
    values = [pa.array([value for value, _ in rows])] if kind == WHOLE else keys_of(rows, kind)
    assert known.earliest_of_values(values, whole=kind == WHOLE).tolist() == right


@examples(60)
@given(st.integers(0, 2**31), st.sampled_from([WHOLE, TEXT, SEVERAL]), st.sampled_from([64, 2, 1]))
def test_the_earliest_promise_is_that_of_nested_loops_before_and_after_merges(
    tmp_path_factory, seed, kind, bits
):
    random = Random(seed)
    files = open_files(str(tmp_path_factory.mktemp("promises")), sync=False)
    promises = drawn(random, kind)
    found = written(files, random, promises, kind, bits)
    check(files, found, promises, kind, bits)
    with patch.object(limits, "MERGE_FAN_IN", 2):
        for merge in choose_promise_merges("i", found, 1000):
            gone = [each.name for each in merge.files]
            result = merge.result(merge.bare().run(files))
            before = found
            found = found.without(gone).plus(result)
            assert found.rows + found.merged == before.rows + before.merged
            assert found.before(NEVER) == before.before(NEVER), "merging is no forgetting"
    assert not found.forgotten
    check(files, found, promises, kind, bits)


@examples(30)
@given(st.integers(0, 2**31), st.integers(1, 8))
def test_beyond_the_budget_the_oldest_are_forgotten_and_the_others_are_whole(tmp_path_factory, seed, budget):
    random = Random(seed)
    files = open_files(str(tmp_path_factory.mktemp("promises")), sync=False)
    exact, _ = drawn(random, WHOLE, most=30)
    found = written(files, random, (exact, []), WHOLE, 64)
    before = found.before(NEVER)
    merges = choose_promise_merges("i", found, budget)
    assert bool(merges) == (found.rows > budget * 1.25)
    for merge in merges:
        found = found.without([each.name for each in merge.files]).plus(merge.result(merge.run(files)))
        assert found.rows <= budget
        assert found.before(NEVER) == before
        for value in range(7):
            right, got = least((value, 0), exact, [], WHOLE), earliest(files, found, value)
            assert got >= right
            oldest = min(each.min_t for each in found.files())
            assert got == right or right <= oldest, "it was not too old"


def test_nothing_is_known_of_rows_that_no_promise_covers():
    known = PromiseSet()
    assert known.earliest(mix(np.array([1, 2])), ()).tolist() == [NEVER, NEVER]
    assert known.earliest_of_values([pa.array(["x"])], whole=False).tolist() == [NEVER]


@pytest.mark.parametrize("count", [1200, 2100])
def test_ranges_are_bounded_and_what_is_cut_off_is_counted(tmp_path, count):
    files = open_files(str(tmp_path), sync=False)
    found = PromiseFiles()
    for start in range(0, count, 150):
        p = np.arange(start, start + 150)
        low = pa.array(p * 10)
        made = write_patterns(files, "i", p, [(low, pa.array(p * 10 + 5))], start)
        found = found.plus(PromiseFiles((), (made,)))
        for merge in choose_promise_merges("i", found, 100):
            found = found.without([each.name for each in merge.files]).plus(merge.result(merge.run(files)))
        assert found.rows <= limits.MAX_PROMISE_RANGES * 1.25
        assert len(found.patterns) <= 2 * limits.MERGE_FAN_IN
    assert found.rows + found.forgotten == count


@pytest.mark.parametrize(("watermark", "is_over"), [(None, False), (5, False), (6, True)])
def test_rows_that_were_promised_an_end_go_when_the_watermark_at_the_cursor_has_passed_it(
    tmp_path, watermark, is_over
):
    files = open_files(str(tmp_path), sync=False)
    made = write_exact(files, "i", in_order(mix(np.array([1])), np.array([5]), ()), 0)
    window = WindowClaim((0,), (1000,), watermark)
    claim = PromisedClaim(window, "B", PromiseFiles((made,)), files)
    assert claim.has_ended(replace(made, ends=(("B", 5),))) == is_over
    assert not claim.has_ended(replace(made, ends=(("C", 5),))), "another partner's end"
    assert claim.live(read_segment(files, made)).tolist() == [not is_over]
