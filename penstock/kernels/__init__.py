"""Compiled loops over columns: probes, folds, windows and measurements of streams.

Only this package uses Numba.  Each kernel has a typed Python function and an untyped compiled body.
`penstock.kernels.reference` defines the join's results in nested loops.
"""
