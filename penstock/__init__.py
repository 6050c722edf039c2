"""Penstock: many continuous window-join queries over the same streams, as one shared plan on Spark."""

__version__ = "0.1.0"
