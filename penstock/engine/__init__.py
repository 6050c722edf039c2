"""What runs: the rooms that a row passes on its way from a source to the results, on Spark.

    spark/     the session, schemas, errors                    views/     what the plan and the ledger say
    ingest/    a source ──▶ batches ──▶ segments                units/     segments ──▶ pairs, unit by unit
    out/       pairs ──▶ routes ──▶ sinks, results read back    change/    from one plan to the next
    costs/     status, prices, comparisons                      runners/   tasks as Spark jobs; inline for tests
    repair/    a state and its checkpoints set back on request

`engine.py` holds them together.  `tasks.py` lists the tasks, the only code that touches rows.  No other part of the
package imports pyspark.
"""
