"""Columns in, pairs of row numbers out: the probes.

The only room where Numba lives.  Each kernel has a typed Python face and a bare compiled body, and
`penstock.kernels.reference` says in nested loops what all of them must give.
"""
