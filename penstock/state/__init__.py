"""The state: immutable files of sorted rows, and the journal of commits that names the valid ones.

The ledger is the fold of all commits.  This package knows files, but not Spark.
"""
