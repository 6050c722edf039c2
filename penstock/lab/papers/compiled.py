"""The lab's one compiled loop: a processor that scans rings as a table of choices tells it.

Everything else in the lab is NumPy or plain Python; this loop makes a step for each of a hundred thousand tuples and
seven rings, in dozens of settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@njit(cache=True, nogil=True)
def scan(at: Floats, cost: Floats, choices: NDArray[np.int64]) -> Floats:
    """Tell when each tuple finished each ring.

    `choices` gives for each set of queues in which tuples wait, a bit for each, the ring to scan next; -1: none.
    Tuples pass a ring in the order of their arrival, so a queue is the tuples from its own next one to that of the ring
    before.
    """
    tuples, rings = cost.shape
    ends = np.zeros((tuples, rings))
    first = np.zeros(rings, np.int64)
    clock, arrived, waiting = 0.0, 0, 0
    while True:
        while arrived < tuples and at[arrived] <= clock:
            waiting |= 1
            arrived += 1
        ring = choices[waiting]
        if ring >= 0:
            clock += cost[first[ring], ring]
            ends[first[ring], ring] = clock
            first[ring] += 1
            if first[ring] == (first[ring - 1] if ring else arrived):
                waiting ^= 1 << ring
            if ring + 1 < rings:
                waiting |= 2 << ring
        elif arrived < tuples:
            clock = at[arrived]
        else:
            return ends
