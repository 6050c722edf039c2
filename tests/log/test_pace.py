"""When the joiner waits for a batch about to be committed, and what a worker keeps out of the collector's sight."""

from __future__ import annotations

import gc

from penstock.engine.work import _Settling
from tests.log.test_simulation import WORKLOAD, folders, in_folder
from tests.log.world import Row, World


def row(number, time):
    return Row(number, 1, time, frozenset())


def test_the_joiner_waits_for_a_partner_that_is_on_its_way_and_for_nothing_else():
    with folders() as folder:
        world = World(folder / "state", in_folder(WORKLOAD, folder))
        joiner = world.joiner
        joiner.on_their_way = lambda: {"A", "B", "C"}
        assert not joiner._partner_comes(), "nothing waits to be joined"
        world.ingest("A", [row(1, 10)])
        assert joiner._partner_comes(), "A has a batch, and B's is coming: one unit will do for both"
        joiner.on_their_way = lambda: {"A"}
        assert not joiner._partner_comes(), "A's own next batch is not worth waiting for"
        joiner.on_their_way = set
        assert not joiner._partner_comes(), "nothing is coming"
        joiner.on_their_way = lambda: {"B"}
        world.turn()
        assert not joiner._partner_comes(), "all is joined"


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
