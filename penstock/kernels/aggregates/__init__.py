"""Aggregate functions: how each is written, folded, put together and finished; one class in a module of its own."""
