"""Sinks: kinds of sinks, routes to them, and publication of committed files.

    sink_kind, parquet, table, console, callback, noop   one class for each kind of sink
    destination, routes, pair_batch, shared_files        from pairs to files, in tasks
    publication, sink_paths                              after a commit, and before a start

In:  pairs of a unit.  Out: results in sinks.
"""
