"""Spark SQL expressions evaluated without Spark, exactly or not at all: `evaluate` and `type_of`."""
