"""How many partners rows find: counted for a sample of each unit's new rows, by every link and from both of its ends.

The order in which new rows look for partners is chosen by it (`penstock.plan.probe_order`).  Only ways that are taken
would show in what units do; a sample shows the others too.

A key with very many rows on one side multiplies the results of every row on the other; of each step, the row with the
most partners is told too, with its key.

In:  a unit of a join of many streams.  Out: for each step, the rows that were sampled, and the partners they have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.engine.tasks.join_many import ManySearch
from penstock.engine.tasks.partials import Bound, Partials
from penstock.kernels.extend import runs_in
from penstock.kernels.key_hash import unmixed
from penstock.plan.probe_order import LinkStep
from penstock.state.recent import Fanout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.tasks.join_many import ManyTask
    from penstock.state.files import Files

MOST_SAMPLED = 256
"""New rows of one input that are looked at in one unit."""

MOST_LETTERS = 80
"""Letters of a key that are shown."""


def survey(files: Files, task: ManyTask) -> dict[str, Fanout]:
    """Count, for every step, some new rows and their partners."""
    search = ManySearch(task, files, (0, len(task.cuts) - 1))
    return {str(step): counted for step, counted in _counted(task, search)}


def _counted(task: ManyTask, search: ManySearch) -> Iterator[tuple[LinkStep, Fanout]]:
    for source in range(len(task.inputs)):
        sample = _sample(search, source)
        if sample is None:
            continue
        for number, keys in enumerate(task.keys):
            for to in (each for each in keys if source in keys and each != source):
                step = LinkStep(source, to, number)
                yield step, _fanout(search, sample, step)


def _sample(search: ManySearch, source: int) -> Partials | None:
    """Take some of the new rows of an input, from all over its largest segment."""
    new = search.new_segments(source)
    if not new.segments:
        return None
    sizes = [each.rows.t.size for each in new.segments]
    number = int(np.argmax(sizes))
    rows = np.unique(np.linspace(0, sizes[number] - 1, MOST_SAMPLED).astype(np.int64))
    return Partials(source, Bound(new.segments, np.full(rows.size, number, np.int16), rows))


def _fanout(search: ManySearch, sample: Partials, step: LinkStep) -> Fanout:
    """Count the partners of sampled rows by one step, whatever predicates say."""
    h, valid = search.hashes(sample, step)
    since, until = search.bounds(sample, step.to)
    state = search.state(step.to, search.task.keys[step.link][step.to].log, with_new=True)
    partners = np.zeros(len(sample), np.int64)
    for each in state.segments:
        partners += np.where(valid, runs_in(h, since, until, each.rows)[1], 0)
    at = int(np.argmax(partners))
    return Fanout(
        float(len(sample)), float(partners.sum()), int(partners[at]), _key_text(search, sample, step, at)
    )


def _key_text(search: ManySearch, sample: Partials, step: LinkStep, at: int) -> str:
    """Write the key of one sampled row, for people."""
    keys = search.task.keys[step.link][step.source]
    parts = [
        search.key_part(sample.only(np.array([at])), step.source, step.link, part)[0].as_py()
        for part in range(keys.parts)
    ]
    if not parts:
        h, _ = search.hashes(sample, step)
        parts = [int(unmixed(h[at : at + 1])[0])]
    return ", ".join(str(each)[:MOST_LETTERS] for each in parts)
