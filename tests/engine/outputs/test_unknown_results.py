"""Which files of results a journal does not know, by their names."""

from types import SimpleNamespace

import pytest

from penstock.engine.outputs.unknown_results import is_unknown

GROUP = "a1b2c3d4"


def ledger(units):
    """Give what is asked of a ledger that has come to so many units of one group."""
    return SimpleNamespace(version=3, groups={f"group-{GROUP}": SimpleNamespace(units=units)}, queries={})


@pytest.mark.parametrize("common", ["", "-07"])
def test_a_unit_that_the_journal_has_not_come_to_is_unknown_also_in_files_of_several_queries(common):
    name = f"part-{GROUP}-000003-00000005-0001{common}.parquet"
    assert is_unknown(name, ledger(5))
    assert not is_unknown(name, ledger(6))
