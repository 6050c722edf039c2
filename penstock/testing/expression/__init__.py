"""Spark SQL expressions evaluated by DuckDB: translated exactly, or refused before any row is read."""
