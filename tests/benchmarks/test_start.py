"""What `bench start` tells, and that the steps it watches are there.  Nothing is started here."""

from __future__ import annotations

import pytest

from benchmarks.peers.startup import EARLY_STEPS, LATER_STEPS, _found
from benchmarks.start import Start, ratios, read_steps, step_lines


@pytest.mark.parametrize("where", [*EARLY_STEPS.values(), *LATER_STEPS.values()])
def test_every_step_ends_with_a_function_that_exists(where):
    owner, name = _found(where)
    assert callable(getattr(owner, name))


def test_steps_are_read_from_among_other_lines():
    told = ["starting 1 query\n", '{"step": ["Spark started", 2.5]}\n', "done\n", '{"step": ["end", 6]}\n']
    assert read_steps(told) == [("Spark started", 2.5), ("end", 6.0)]


def test_a_step_takes_the_time_since_the_one_before_it():
    runs = [
        Start("penstock", 6.0, 9.0, (("Spark started", started), ("end", started + 3)))
        for started in (1, 2, 9)
    ]
    assert step_lines(runs) == [("Spark started", "2.00", "2.00"), ("end", "5.00", "3.00")]


def test_runs_are_compared_round_by_round():
    ours, bare = ([Start("", seconds, 0, ()) for seconds in times] for times in ((6, 8), (12, 10)))
    assert ratios(ours, bare) == [0.5, 0.8]
