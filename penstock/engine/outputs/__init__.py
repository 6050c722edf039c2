"""The columns of results: what Spark SQL computes for a query, their types, and results read back."""
