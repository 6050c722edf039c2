"""The error that a user sees if the session has no Python workers."""

from __future__ import annotations

from penstock.engine.failures import join_failure


def test_a_join_that_found_no_workers_says_why_there_are_none():
    error = Exception("java.lang.NullPointerException")
    no_workers = Exception("No module named 'penstock'")
    assert "workers cannot import penstock" in str(join_failure(error, None, no_workers))
