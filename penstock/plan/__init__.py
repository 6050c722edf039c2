"""Queries in, the shared plan out: groups, chains of slices, costs.

Queries that join the same streams on the same condition form a group.  The windows of a group cut the ages of its pairs
into slices, and a strategy chooses the cuts.  One plan object is executed, printed and drawn.  This package reads no
rows and no files, and imports no Spark.
"""
