"""Text to `Query`: the room where SQL is read, and the only one that knows its syntax.

    text ──tokens──▶ statements ──script──▶ streams, settings
                         │
                         └──bind──▶ names ──canonical──▶ conditions, outputs ─────────────┬─▶ Query
                                                     └─▶ groups, aggregates, when to emit ─┘

No Spark here: binding a query takes a millisecond and can be tested without a JVM.

In:  a script (`parse_script`) or one SELECT (`bind_query`).
Out: the frozen values of `penstock.sql.query`.  Whatever is wrong with the text is a
     `penstock.errors.SqlError` that says where.
"""

from penstock.sql.bind.binder import bind_query
from penstock.sql.script import Script, parse_script
from penstock.sql.units import parse_duration, show_duration

__all__ = ["Script", "bind_query", "parse_duration", "parse_script", "show_duration"]
