"""Test a script without a JVM: the plan, journal and tasks of the engine, with DuckDB in place of Spark SQL.

    from penstock import testing

    run = testing.run(script, {"Temperature": rows, "Humidity": rows}, batch="10 seconds", restart_after=[2])
    assert run["damp"] == [{"Room": 1, "Value": 81.5}]
    testing.expect(run)                 # every query's results are those of DuckDB

`run` sends rows in batches, in rounds, and gives each query's results and the state held.  `Session` does the same step
by step.  What needs Spark (an expression only it knows, a type it alone can store) says so: `NeedsSparkError`.
"""

from penstock.testing.expect import expect
from penstock.testing.expression.translate import NeedsSparkError
from penstock.testing.session import Run, Session, run

__all__ = ["NeedsSparkError", "Run", "Session", "expect", "run"]
