"""Spark itself: the session, jobs that are planned once, schemas, and what its errors say in one sentence."""
