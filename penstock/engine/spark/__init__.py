"""Spark itself: the start of its session, its types, its error messages."""
