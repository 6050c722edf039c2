"""The state: segments of rows in arrival order, and the journal that says which of them are true.

Segments are immutable sorted files that a probe maps into memory; the journal is an append-only
sequence of commits, and all that an engine knows is a fold over it.  Files only; no Spark.
"""
