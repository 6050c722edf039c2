"""Repair on request: what is wrong with a state, the point to go back to, and Spark's checkpoints set back to it."""
