"""Work on rows: the tasks that run on executors, and what they share."""
