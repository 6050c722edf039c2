"""From a source to micro-batches: Structured Streaming, checkpoints, late rows, commits of batches."""
