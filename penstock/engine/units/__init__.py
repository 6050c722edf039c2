"""From the logs to pairs: which slices go next, what a unit is told, the probe, and the turn in which it is run."""
