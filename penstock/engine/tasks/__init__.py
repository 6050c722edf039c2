"""The tasks that run on executors: all work on rows."""
