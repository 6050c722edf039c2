"""What runs: the rooms that a row passes on its way from a source to the results, on Spark.

    spark/     the session, jobs, schemas, errors              readings/  what the plan and the ledger say
    ingest/    a source ──▶ batches ──▶ segments                units/     segments ──▶ pairs, unit by unit
    out/       pairs ──▶ routes ──▶ sinks, results read back    change/    from one plan to the next
    costs/     status, prices, comparisons

`engine.py` holds them together.  Who runs the work is behind one protocol (`penstock.engine.jobs`): Spark here, plain
loops in `penstock.testing`.  Together with `penstock.lab` the only room that imports pyspark.
"""
