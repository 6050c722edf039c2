"""Spark's dialect as sqlglot knows it, made to give back what it was given.

sqlglot translates between dialects, so it knows hundreds of functions and rewrites them.  Penstock hands
every expression back to Spark, and wants the same function with the same arguments: here a function call is
just a name and arguments, except the few with a syntax of their own, such as ``CAST(x AS t)``.

Two more differences: ``'it''s'`` is one string, as since Spark 4; and ``SHOW`` and ``EXPLAIN`` are words like
any other, not commands that swallow the rest of the line.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

_OWN_SYNTAX = {"CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "OVERLAY", "SUBSTRING", "SUBSTR"}


class PlainSpark(Spark):
    """Spark SQL in, the same Spark SQL out."""

    class Tokenizer(Spark.Tokenizer):
        """Reads a doubled quote as a quote, and no word as a command."""

        COMMANDS: ClassVar[set[Any]] = set()
        STRING_ESCAPES: ClassVar = ["\\", "'", '"']

    class Parser(SparkParser):
        """Knows no function but those with a syntax of their own."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name in _OWN_SYNTAX
        }
