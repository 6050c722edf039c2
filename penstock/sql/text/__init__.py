"""Text to trees: tokens, expressions, the clauses of a SELECT."""
