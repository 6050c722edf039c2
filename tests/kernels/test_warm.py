"""Kernels are compiled before a task needs them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.kernels import fold, key_hash, order_watch, ordered_values, slide_kernels
from penstock.kernels.aggregates.folded import as_one_column, fold_values
from penstock.kernels.fold import number_groups
from penstock.kernels.key_hash import mix, unmixed
from penstock.kernels.order_watch import Order
from penstock.kernels.slide import Sliding
from penstock.kernels.slide_measures import EntryRun, laid_in
from penstock.kernels.slide_pass import slide_parts
from penstock.kernels.warm import warm_folds


def test_watching_an_order_compiles_nothing_after_it_was_warmed_up():
    warm_folds()
    kernels = (order_watch._thin_front, order_watch._thin_tail)
    before = [each.signatures for each in kernels]
    values = np.array([5, 3, 9, 9, 1])
    values.flags.writeable = False
    Order.of(values[1:], np.array([1, 2, 4, 5]), rows=7).merged(Order().then(np.arange(4)))
    assert all(before)
    assert [each.signatures for each in kernels] == before


def test_folding_and_answering_from_mapped_files_compiles_nothing_after_it_was_warmed_up():
    warm_folds()
    kernels = (
        fold._number_by_table,
        fold._number,
        ordered_values._ordered_bits,
        fold._lower,
        key_hash._unmixed,
        slide_kernels.slide,
    )
    before = [each.signatures for each in kernels]
    codes, hashes = np.array([7, 8, 7]), mix(np.array([7, 8, 7]))
    for each in (codes, hashes):
        each.flags.writeable = False
    number_groups([codes])
    number_groups([hashes.view(np.int64)])
    unmixed(hashes)
    fold_values("max", pa.array([0.5, 2.0]), np.array([0, 0]), 1).stored()
    for function in ("min_by", "max_by"):
        pairs = as_one_column([pa.array([0.5, 2.0]), pa.array(codes[:2])])
        fold_values(function, pairs, np.array([0, 0]), 1).stored()
    sliding = Sliding(np.array([0, 1]), np.array([2]), np.zeros((1, 1), np.int64), groups=2, cuts=1)
    ones = np.ones(2, np.int64)
    measures = [
        fold_values(function, pa.array(values), np.arange(2), 2)
        for function, values in (
            ("count", [1, None]),
            ("sum", [1, 2]),
            ("sum", [0.5, 2.0]),
            ("max", [0.5, None]),
        )
    ]
    parts, _ = laid_in([EntryRun(measures, np.arange(2), ones)], often=2)
    for sides in (1, 2):
        for keep in (False, True):
            slide_parts([[sliding]] * sides, [parts] * sides, keep=keep, with_counts=keep)
    assert all(before)
    assert [each.signatures for each in kernels] == before
