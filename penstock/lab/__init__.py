"""Experiments: seeded workloads, the papers' figures with the claims they check, and peers to compare with.

Workloads are shared with the tests; every result carries the reference's verdict on the answer, so a
fast wrong number is never a number.
"""
