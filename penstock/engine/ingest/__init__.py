"""From a source to the logs: the stream as Spark reads it, a batch's columns, its segments and its commit."""
