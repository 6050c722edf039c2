"""What runs: ingest, units, the scheduler and the sinks, on Spark.

Rows come in through Structured Streaming and become segments of a log; the scheduler picks a unit, a
Spark job joins it, and one commit makes its output true and its cursor advance.  Together with
`penstock.lab` the only room that imports pyspark.
"""
