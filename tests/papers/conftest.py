"""Figures that several tests look at are reproduced once."""

from __future__ import annotations

from functools import cache

import pytest


@pytest.fixture(scope="session")
def reproduced():
    """Give a figure's outcome on a sweep; those of the analysis have none."""
    return cache(lambda figure, sweep=None: figure(sweep))
