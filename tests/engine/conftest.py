"""Statistics that know the time of every row: what the tests hold against them is exact."""

from __future__ import annotations

import pytest

from penstock import limits


@pytest.fixture(autouse=True, scope="module")
def all_times_known():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_ROWS_WITH_ALL_TIMES", 1 << 20)
        yield
