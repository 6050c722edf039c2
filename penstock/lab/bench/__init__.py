"""``penstock bench``: Penstock side by side with other engines, and with itself.

A benchmark is a module with one command; `penstock.lab.cli` lists them.  Every time that is shown belongs to an
answer that DuckDB has found right.
"""
