"""`penstock explain` and `penstock calibrate`: the plan with its costs, and the prices they are made of.

In:  a script, and the state it runs on if there is one.  Out: text, JSON or Mermaid.  Explaining starts nothing.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.table import Table

from penstock.app.show import console
from penstock.app.spark_talk import quiet_spark
from penstock.engine.change import standing_plan
from penstock.engine.choose import plan_over
from penstock.engine.explain import cost_lines, costs
from penstock.engine.sinks import settled
from penstock.engine.status import undisturbed
from penstock.engine.store import Store, peek
from penstock.log.files import open_files
from penstock.log.ledger import Ledger
from penstock.plan.prices import Prices
from penstock.plan.show import plan_json, plan_text
from penstock.sql.options import budget_of

if TYPE_CHECKING:
    from penstock.app.load import Loaded
    from penstock.engine.explain import Costs
    from penstock.plan.build import Plan
    from penstock.sql.query import Query


def explained(loaded: Loaded, state: str, *, form: str, compare: bool) -> str:
    """Print the plan a script would run as, and what it costs by what a state knows of its streams."""
    plan, found = undisturbed(lambda: _plan_and_costs(loaded, state))
    if form == "json":
        whole = json.loads(plan_json(plan)) | {"costs": [each.to_json() for each in found]}
        return json.dumps(whole, indent=2)
    return plan_text(plan) + "\n".join(cost_lines(found, compare=compare))


def _plan_and_costs(loaded: Loaded, state: str) -> tuple[Plan, list[Costs]]:
    """Plan a script over a state, if there is one, and price it."""
    files = open_files(state)
    ledger = peek(state) if files.list("journal") else Ledger()
    plan = planned(loaded, ledger)
    before = standing_plan(ledger)
    runs = before is not None and before.cuts.keys() >= plan.cuts.keys()
    return plan, costs(plan, ledger, files if runs else None, budget_of(loaded.script.settings))


def planned(loaded: Loaded, ledger: Ledger) -> Plan:
    """Plan a script over what a state stores and knows."""
    script = loaded.script
    before = standing_plan(ledger)
    known = {query.name.lower(): query for query in before.queries} if before else {}
    queries = [
        with_known_types(replace(query, sink=settled(query.sink)), known.get(query.name.lower()))
        for query in script.queries
    ]
    return plan_over(script.streams, queries, ledger, script.settings)


def with_known_types(query: Query, known: Query | None) -> Query:
    """Type the keys of which only Spark could tell the type, as Spark did when the query was registered."""
    types = {(key.left, key.right): key.type for key in known.keys} if known else {}
    keys = (replace(key, type=key.type or types.get((key.left, key.right), "")) for key in query.keys)
    return replace(query, keys=tuple(sorted(keys)))


def calibrate(state: str | None, *, debug: bool) -> None:
    """Measure the prices of the engine's work, print them, and keep them with a state."""
    from penstock.engine.calibrate import Bench  # noqa: PLC0415 - imports pyspark
    from penstock.engine.session import embedded_session  # noqa: PLC0415

    out = console()
    store = Store(state) if state else None
    try:
        with quiet_spark(debug=debug), tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            out.print("Measuring what a unit, a row and a pair cost here; about half a minute.")
            spark = embedded_session()
            files = store.files if store else open_files(folder, sync=False)
            prices = Bench(spark, files, lambda line: out.print(f"  {line}", style="dim")).prices()
        if store is not None:
            store.commit(
                {
                    "kind": "prices",
                    "prices": prices.to_json(),
                    "at": datetime.now(UTC).isoformat(timespec="seconds"),
                }
            )
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
