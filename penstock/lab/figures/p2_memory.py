"""Paper 2, section 5.4: the most tuples waiting and the most results held, relative to the join buffer.

A join buffer holds λ w_max = 60,000 tuples of one stream.  The input buffer is counted per stream; a result that is
held for several queries is counted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from penstock.lab.figures.figure import Claim, Outcome, Panel
from penstock.lab.figures.p2_figure import SETTINGS_NOTE, draw
from penstock.lab.paper2_settings import BURSTS, HASH, POLICIES, TABLE_1, TUPLES, Setting, measure

if TYPE_CHECKING:
    from collections.abc import Iterable

JOIN_BUFFER = HASH.rate * TABLE_1["Uniform"][-1]
SETTINGS = (*((windows, 1) for windows in TABLE_1), *(("Small-Large", burst) for burst in BURSTS[1:]))


@dataclass(frozen=True, slots=True)
class Buffers:
    """The largest buffers of a run, as shares of the join buffer, and its longest response time in seconds."""

    input: float
    output: float
    longest: float


def buffers(windows: str, burst: int, policy: str, seed: int, tuples: int = TUPLES) -> Buffers:
    """Run an experiment and look at its buffers."""
    found = measure(Setting(windows, burst, tuples=tuples), policy, seed)
    return Buffers(
        found.input_buffer / 2 / JOIN_BUFFER, found.output_buffer / JOIN_BUFFER, max(found.longest)
    )


def reproduce(seed: int) -> Outcome:
    """Look at the buffers of every run of Figures 5 and 7."""
    found = {
        name: [buffers(*setting, policy, seed) for setting in SETTINGS] for name, policy in POLICIES.items()
    }
    table = Table("windows", "burst", *(f"{name} {kind}" for kind in ("in", "out") for name in POLICIES))
    table.title = "largest input and output buffer, % of the join buffer"
    for place, (windows, burst) in enumerate(SETTINGS):
        here = [each[place] for each in found.values()]
        shares = [each.input for each in here] + [each.output for each in here]
        table.add_row(windows, str(burst), *(f"{100 * each:.2f}" for each in shares))
    ticks = [f"{''.join(part[0] for part in windows.split('-'))} {burst}" for windows, burst in SETTINGS]
    panels = [
        Panel("largest input buffer", {name: [e.input for e in each] for name, each in found.items()}),
        Panel(
            "largest output buffer",
            {name: [e.output for e in found[name]] for name in ("SWF", "MQT")},
        ),
    ]
    picture = draw(panels, ticks, "windows (initials) and mean burst", "share of the join buffer")
    return Outcome((table,), claims(found), NOTES, picture)


NOTES = (
    *SETTINGS_NOTE,
    (
        "Each tuple that waits in front of the last ring holds what it has found so far, about 115 results: with SWF, "
        "16 such tuples are 3 % of the join buffer.  MQT brings a tuple to the end before it turns to the large rings "
        "of the next."
    ),
)


def claims(found: dict[str, list[Buffers]]) -> tuple[Claim, ...]:
    """Check what section 5.4 says."""
    swf, mqt = found["SWF"], found["MQT"]
    longest = max(each.longest for runs in found.values() for each in runs)
    return (
        Claim(
            "SWF's input buffer stays below 10 % of the join buffer",
            max(each.input for each in swf) < 0.1,
            f"at most {_most(each.input for each in swf)}; MQT {_most(each.input for each in mqt)}, "
            f"LWO {_most(each.input for each in found['LWO'])}",
        ),
        *(
            Claim(
                f"{name}'s output buffer stays below 3 % of the join buffer",
                max(each.output for each in runs) < 0.03,
                f"at most {_most(each.output for each in runs[:4])} without bursts, "
                f"{_most(each.output for each in runs[4:])} with; below in "
                f"{sum(each.output < 0.03 for each in runs)} of {len(runs)}",
            )
            for name, runs in (("SWF", swf), ("MQT", mqt))
        ),
        Claim(
            "response times reach 2 minutes with large bursts",
            longest >= 120,
            f"the longest is {longest:.0f} s",
        ),
    )


def _most(shares: Iterable[float]) -> str:
    """Print the largest share."""
    return f"{100 * max(shares):.2f} %"
