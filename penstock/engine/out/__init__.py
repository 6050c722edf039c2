"""From pairs to results: routes, files and sinks, results in order, results read back, files merged."""
