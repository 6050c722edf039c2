"""Repair on request: the damage of a state, the commit to go back to, and the reset of Spark's checkpoints."""
