"""Kernels are compiled before a task needs them."""

from __future__ import annotations

import numpy as np

from penstock.join import order_watch
from penstock.join.order_watch import Order
from penstock.join.warm import warm_orders


def test_watching_an_order_compiles_nothing_after_it_was_warmed_up():
    warm_orders()
    kernels = (order_watch._thin_front, order_watch._thin_tail)
    before = [each.signatures for each in kernels]
    values = np.array([5, 3, 9, 9, 1])
    values.flags.writeable = False
    Order.of(values[1:], np.array([1, 2, 4, 5]), rows=7).merged(Order().then(np.arange(4)))
    assert all(before)
    assert [each.signatures for each in kernels] == before
