"""When the joiner waits for a batch about to be committed, and what a worker keeps out of the collector's sight."""

from __future__ import annotations

import gc

from penstock.engine.runners.spark import _Settling
from tests.engine.stages.test_simulation import WORKLOAD, folders, in_folder
from tests.engine.world import Row, World


def row(number, time):
    return Row(number, 1, time, frozenset())


def test_the_joiner_waits_for_a_partner_that_is_on_its_way_and_for_nothing_else():
    with folders() as folder:
        world = World(folder / "state", in_folder(WORKLOAD, folder))
        context = world.context
        assert not context.waits_for_partner({"A", "B", "C"}), "nothing waits to be joined"
        world.ingest("A", [row(1, 10)])
        both = context.waits_for_partner({"A", "B", "C"})
        assert both, "A has a batch, and B's is coming: one unit will do for both"
        assert not context.waits_for_partner({"A"}), "A's own next batch is not worth waiting for"
        assert not context.waits_for_partner(set()), "nothing is coming"
        world.turn()
        assert not context.waits_for_partner({"B"}), "all is joined"


def test_a_worker_freezes_what_its_first_tasks_have_loaded_and_no_more():
    settling = _Settling()
    before = gc.get_freeze_count()
    try:
        for _ in range(settling.EARLY):
            settling.after_task()
        frozen = gc.get_freeze_count()
        assert frozen > before
        kept = [[number] for number in range(1000)]
        settling.after_task()
        assert gc.get_freeze_count() <= frozen, "what later tasks make can be collected"
        assert len(kept) == 1000
    finally:
        gc.unfreeze()
