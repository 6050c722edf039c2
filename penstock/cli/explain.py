"""`penstock explain` and `penstock calibrate`: the plan with its costs, and the prices they are made of.

In:  a script, and the state it runs on if there is one.  Out: text, JSON or Mermaid.  Explaining starts nothing.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from rich.table import Table

from penstock.cli.show import console
from penstock.cli.spark_talk import quiet_spark
from penstock.engine.change.recut_policy import plan_over
from penstock.engine.report.buffer_costs import buffer_cost_lines, buffer_costs
from penstock.engine.report.costs import cost_lines, costs
from penstock.engine.sinks.sinks import settled
from penstock.engine.store import Store, peek
from penstock.engine.views.memory import MemoryPolicy
from penstock.engine.views.plans import standing_plan
from penstock.plan.plan_export import plan_json
from penstock.plan.plan_text import plan_text
from penstock.plan.prices import Prices
from penstock.sql.options import budget_of
from penstock.state.commits import Priced
from penstock.state.files import open_files
from penstock.state.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cli.load import Loaded
    from penstock.engine.report.buffer_costs import BufferCosts
    from penstock.engine.report.costs import Costs
    from penstock.plan.build import Plan
    from penstock.sql.query import Edge, Query


def explained(loaded: Loaded, state: str, *, form: str, compare: bool) -> str:
    """Print the plan a script would run as, and what it costs by what a state has measured of its streams."""
    plan, priced, buffers = _plan_and_costs(loaded, state)
    if form == "json":
        prices = {
            "costs": [each.to_json() for each in priced],
            "buffers": [each.to_json() for each in buffers],
        }
        return json.dumps(json.loads(plan_json(plan)) | prices, indent=2)
    return plan_text(plan) + "\n".join([*cost_lines(priced, compare=compare), *buffer_cost_lines(buffers)])


def _plan_and_costs(loaded: Loaded, state: str) -> tuple[Plan, list[Costs], list[BufferCosts]]:
    """Plan a script over a state, if there is one, and price it."""
    ledger = peek(state) if open_files(state).list("journal") else Ledger()
    plan = planned(loaded, ledger)
    before = standing_plan(ledger)
    runs = before is not None and before.cuts.keys() >= plan.cuts.keys()
    settings = loaded.script.settings
    return (
        plan,
        costs(plan, ledger, budget_of(settings), runs=runs),
        buffer_costs(plan, ledger, MemoryPolicy.of(settings), runs=runs),
    )


def planned(loaded: Loaded, ledger: Ledger) -> Plan:
    """Plan a script over what a state stores and knows."""
    script = loaded.script
    before = standing_plan(ledger)
    registered = {query.name.lower(): query for query in before.queries} if before else {}
    queries = [
        with_registered_types(replace(query, sink=settled(query.sink)), registered.get(query.name.lower()))
        for query in script.queries
    ]
    return plan_over(script.inputs, queries, ledger, script.settings)


def with_registered_types(query: Query, registered: Query | None) -> Query:
    """Give keys whose type only Spark could tell the type that it gave when the query was registered."""
    if query.graph is not None:
        edges = _with_types(
            query.graph.edges, registered.graph.edges if registered and registered.graph else ()
        )
        return replace(query, graph=replace(query.graph, edges=edges))
    types = {(key.left, key.right): key.type for key in registered.keys} if registered else {}
    keys = (replace(key, type=key.type or types.get((key.left, key.right), "")) for key in query.keys)
    return replace(query, keys=tuple(sorted(keys)))


def _with_types(edges: Iterable[Edge], registered: Iterable[Edge]) -> tuple[Edge, ...]:
    """Do the same for the equalities of a join of many streams."""
    types = {(each.first, each.second, each.key.left, each.key.right): each.key.type for each in registered}
    return tuple(
        sorted(
            replace(
                each,
                key=replace(
                    each.key,
                    type=each.key.type
                    or types.get((each.first, each.second, each.key.left, each.key.right), ""),
                ),
            )
            for each in edges
        )
    )


def calibrate(state: str | None, *, debug: bool) -> None:
    """Measure the prices of the engine's work, print them, and keep them with a state."""
    from penstock.engine.report.calibrate import Bench  # noqa: PLC0415 - imports pyspark
    from penstock.engine.spark.session import embedded_session  # noqa: PLC0415
    from penstock.engine.spark_backend import SparkBackend  # noqa: PLC0415 - see above

    out = console()
    store = Store(state) if state else None
    try:
        with quiet_spark(debug=debug), tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            out.print("Measuring what a unit, a row and a pair cost here; about half a minute.")
            spark = embedded_session()
            files = store.files if store else open_files(folder, sync=False)
            prices = Bench(
                spark, SparkBackend(spark, files), files, lambda line: out.print(f"  {line}", style="dim")
            ).prices()
        if store is not None:
            store.commit(Priced(prices))
    finally:
        if store is not None:
            store.close()
    out.print(_price_table(prices))
    kept = f"kept in {state}: cpu-opt and auto choose by them from the next start on"
    out.print(kept if state else "nothing was kept: give --state DIR to keep them with a state")


def _price_table(prices: Prices) -> Table:
    """Show each price beside the one assumed before."""
    table = Table("price of a", "measured", "assumed", title="seconds of work")
    assumed = Prices()
    for each in fields(prices):
        table.add_row(each.name, f"{getattr(prices, each.name):.3g}", f"{getattr(assumed, each.name):.3g}")
    return table
