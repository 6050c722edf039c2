"""The stages of a turn: each chooses work, has tasks run, and commits what they report."""
