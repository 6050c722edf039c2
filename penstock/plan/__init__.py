"""Queries in, the shared plan out: groups, chains of slices, costs.

Queries that join the same streams on the same condition form a group; a group's windows cut the ages
of its pairs into slices, and a strategy chooses where to cut.  One plan object is executed, printed
and drawn.  Nothing here touches a row: no Spark, no NumPy, no files.
"""
