"""`penstock explain` and `penstock calibrate`: the plan with its costs, and the prices behind them.

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
from penstock.engine.sinks.sink_kind import settled
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
    from penstock.cli.load import Loaded
    from penstock.engine.report.buffer_costs import BufferCosts
    from penstock.engine.report.costs import Costs
    from penstock.plan.build import Plan
    from penstock.sql.query import Query


def explained(loaded: Loaded, state: str, *, form: str, compare: bool) -> str:
    """Write the plan of a script and its cost, from the measurements of a state."""
    plan, priced, buffers = _plan_and_costs(loaded, state)
    if form == "json":
        prices = {
            "costs": [cost.to_json() for cost in priced],
            "buffers": [cost.to_json() for cost in buffers],
        }
        return json.dumps(json.loads(plan_json(plan)) | prices, indent=2)
    return plan_text(plan) + "\n".join([*cost_lines(priced, compare=compare), *buffer_cost_lines(buffers)])


def _plan_and_costs(loaded: Loaded, state: str) -> tuple[Plan, list[Costs], list[BufferCosts]]:
    """Plan a script over its state, if there is one, and price it."""
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
    """Plan a script over the logs and measurements of a state."""
    script = loaded.script
    before = standing_plan(ledger)
    registered = {query.name.lower(): query for query in before.queries} if before else {}
    queries = [
        with_registered_types(replace(query, sink=settled(query.sink)), registered.get(query.name.lower()))
        for query in script.queries
    ]
    return plan_over(script.inputs, queries, ledger, script.settings)


def with_registered_types(query: Query, registered: Query | None) -> Query:
    """Add the types of keys that only Spark could find, as they were found when the query was registered."""
    if query.graph is not None:
        before = registered.graph.edges if registered and registered.graph else ()
        known = {replace(edge, key=replace(edge.key, type="")): edge.key.type for edge in before}
        edges = (
            edge if edge.key.type else replace(edge, key=replace(edge.key, type=known.get(edge, "")))
            for edge in query.graph.edges
        )
        return replace(query, graph=replace(query.graph, edges=tuple(sorted(edges))))
    types = {(key.left, key.right): key.type for key in registered.keys} if registered else {}
    keys = (replace(key, type=key.type or types.get((key.left, key.right), "")) for key in query.keys)
    return replace(query, keys=tuple(sorted(keys)))


def calibrate(state: str | None, *, debug: bool) -> None:
    """Measure the prices of the engine's work, print them, and store them in a state."""
    from penstock.engine.report.calibrate import Bench  # noqa: PLC0415 - imports pyspark
    from penstock.engine.spark.session import embedded_session  # noqa: PLC0415
    from penstock.engine.spark_backend import SparkBackend  # noqa: PLC0415 - see above

    out = console()
    store = Store(state) if state else None
    try:
        with quiet_spark(debug=debug), tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            out.print("Measuring the cost of a unit, a row and a pair; about half a minute.")
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
    kept = f"stored in {state}: cpu-opt and auto use them from the next start on"
    out.print(kept if state else "not stored: give --state DIR to store them in a state")


def _price_table(prices: Prices) -> Table:
    """Show each price beside its default."""
    table = Table("price of a", "measured", "assumed", title="seconds of work")
    assumed = Prices()
    for price in fields(prices):
        table.add_row(price.name, f"{getattr(prices, price.name):.3g}", f"{getattr(assumed, price.name):.3g}")
    return table
