"""What runs on Spark: from sources through tasks to sinks, by stages that commit what tasks report.

    sources/    a source ──▶ micro-batches ──▶ segments          tasks/      the only code that touches rows
    stages/     a turn: choose work, run tasks, commit           runners/    tasks as Spark jobs; inline for tests
    aggregate/  folds and answers, tasks and policy              sinks/      routes from pairs to files and calls
    outputs/    columns of results, results read back            views/      functions of the plan and the ledger
    change/     from one plan to the next                        report/     status and costs
    spark/      the session, schemas, errors                     repair/     a state set back on request

`api.py` is what users call, `supervisor.py` the thread that takes turns.  No other part of the package imports pyspark.
"""
