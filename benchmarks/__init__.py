"""Penstock side by side with other engines, and with itself: ``penstock bench`` in a checkout of the source.

A benchmark is a module with one command; `benchmarks.cli` lists them.  Every time that is shown belongs to an answer
that DuckDB has found right.
"""
