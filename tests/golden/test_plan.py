"""EXPLAIN of whole scripts: SQL, a line of dashes, what the plan prints.  ``make golden`` writes them anew."""

import os
from pathlib import Path

import pytest

from penstock.plan.build import build_plan
from penstock.plan.plan_text import plan_text
from penstock.sql.script import parse_script

FILES = sorted((Path(__file__).parent / "plan").glob("*.txt"))
RULE = "\n----\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_plan_prints_as_it_is_written_here(path):
    sql, rule, expected = path.read_text(encoding="utf-8").partition(RULE)
    assert rule or os.environ.get("PENSTOCK_GOLDEN") == "rewrite", (
        f"{path.name} has no line of dashes: make golden"
    )
    script = parse_script(sql)
    printed = plan_text(build_plan(script.inputs, script.queries))
    if os.environ.get("PENSTOCK_GOLDEN") == "rewrite":
        path.write_text(sql.rstrip("\n") + RULE + printed, encoding="utf-8")
    else:
        assert printed == expected
