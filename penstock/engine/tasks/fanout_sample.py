"""Count how many partners rows find: for a sample of each unit's new rows, by every link and from both of its ends.

The search order of new rows is chosen by these counts (`penstock.plan.probe_order`).  Units only take some of the
steps; the sample covers all of them.

A key with very many rows on one side multiplies the results of every row on the other.  So the report of each step
includes the sampled row with the most partners, and its key.

In:  a unit of a join of many streams.  Out: by step, the number of sampled rows and of their partners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock import limits
from penstock.engine.tasks.join_many import ManySearch
from penstock.engine.tasks.partials import BoundRows, Partials
from penstock.kernels.extend import runs_in
from penstock.kernels.key_hash import unmixed
from penstock.plan.probe_order import LinkStep
from penstock.state.recent import Fanout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.tasks.join_many import ManySpec
    from penstock.state.files import Files


def sample_fanouts(files: Files, unit: ManySpec) -> dict[str, Fanout]:
    """Count, for every step, the partners of some new rows."""
    search = ManySearch(unit, files, (0, len(unit.cuts) - 1))
    return {str(step): counted for step, counted in _counted(unit, search)}


def _counted(unit: ManySpec, search: ManySearch) -> Iterator[tuple[LinkStep, Fanout]]:
    for source in range(len(unit.inputs)):
        sample = _sample(search, source)
        if sample is None:
            continue
        for number, keys in enumerate(unit.keys):
            for to in (target for target in keys if source in keys and target != source):
                step = LinkStep(source, to, number)
                yield step, _fanout(search, sample, step)


def _sample(search: ManySearch, source: int) -> Partials | None:
    """Return some of the new rows of an input, from all over its largest segment."""
    new = search.new_segments(source)
    if not new.segments:
        return None
    sizes = [segment.rows.t.size for segment in new.segments]
    number = int(np.argmax(sizes))
    rows = np.unique(np.linspace(0, sizes[number] - 1, limits.FANOUT_SAMPLE_ROWS).astype(np.int64))
    return Partials(source, BoundRows(new.segments, np.full(rows.size, number, np.int16), rows))


def _fanout(search: ManySearch, sample: Partials, step: LinkStep) -> Fanout:
    """Count the partners of sampled rows by one step, whatever predicates say."""
    h, valid = search.hashes(sample, step)
    since, until = search.bounds(sample, step.to)
    state = search.state(step.to, search.unit.keys[step.link][step.to].log, with_new=True)
    partners = np.zeros(len(sample), np.int64)
    for segment in state.segments:
        partners += np.where(valid, runs_in(h, since, until, segment.rows)[1], 0)
    at = int(np.argmax(partners))
    return Fanout(
        float(len(sample)), float(partners.sum()), int(partners[at]), _key_text(search, sample, step, at)
    )


def _key_text(search: ManySearch, sample: Partials, step: LinkStep, at: int) -> str:
    """Format the key of one sampled row."""
    keys = search.unit.keys[step.link][step.source]
    parts = [
        search.key_part(sample.only(np.array([at])), step.source, step.link, part)[0].as_py()
        for part in range(keys.parts)
    ]
    if not parts:
        h, _ = search.hashes(sample, step)
        parts = [int(unmixed(h[at : at + 1])[0])]
    return ", ".join(str(part)[: limits.MAX_SHOWN_KEY_CHARACTERS] for part in parts)
