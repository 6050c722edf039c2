"""Text to `Query`: the only package that knows SQL syntax.

    text ──tokens──▶ statements ──script──▶ streams, settings
                         │
                         └──bind──▶ names ──canonical──▶ conditions, outputs ─────────────┬─▶ Query
                                                     └─▶ groups, aggregates, when to emit ─┘

Binding a query takes a millisecond and no Spark, so tests need no JVM.

In:  a script (`parse_script`) or one SELECT (`bind_query`).
Out: the frozen values of `penstock.sql.query`, or a `penstock.errors.SqlError` with the position of the error.
"""

from penstock.sql.bind.binder import bind_query
from penstock.sql.script import Script, parse_script
from penstock.sql.units import parse_duration, show_duration

__all__ = ["Script", "bind_query", "parse_duration", "parse_script", "show_duration"]
