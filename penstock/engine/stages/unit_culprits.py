"""Which queries cannot be evaluated in a unit: their outputs are tried by halves, and nothing is delivered.

In:  the delivery of a unit that failed, and how to run it.  Out: the queries to stop, each with the reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.engine.sinks.routes import CountRoute, TableRoute
from penstock.engine.spark.culprits import find_culprits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from penstock.engine.sinks.pair_batch import Delivery

    Attempt = Callable[[Collection[str]], object]


def blame_for_unit(delivery: Delivery, run: Callable[[Delivery], object]) -> dict[str, str]:
    """Find the queries whose outputs or conditions on pairs cannot be evaluated in a unit; nothing is delivered."""

    def attempt(names: Collection[str]) -> None:
        targets = (
            (each if isinstance(each.route, TableRoute) else replace(each, route=CountRoute()))
            for each in delivery.targets
            if each.query in names
        )
        run(replace(delivery, targets=tuple(targets), table=""))

    return find_culprits([each.query for each in delivery.targets if each.computed], attempt)
