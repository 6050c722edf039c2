"""Paper 4, Figure 9: average response time over the rate of the slow stream.

0.01 to 1 rows a second of the slow stream and 10 of the fast one with exponential gaps, a window of a minute, and
c = 0.5 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.figures.figure import Claim, Outcome, Panel
from penstock.lab.figures.p4_fig7 import switched, worst
from penstock.lab.figures.p4_figure import (
    SETTINGS_NOTE,
    draw,
    policy_tables,
    responses,
    seconds,
)
from penstock.lab.paper4 import EACH, ONE
from penstock.lab.paper4_settings import SLOWS, Setting, by_policy, measure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.lab.paper4_settings import Measured

SETTINGS = [Setting(slow) for slow in SLOWS]
SHARES = [each.share for each in SETTINGS]
NAMES = [f"{slow:g}" for slow in SLOWS]
MINUTE = 60.0
SMALL_ALPHA = 0.1


def averages(who: str, seed: int) -> dict[str, list[Measured]]:
    """Run every rate of the slow stream under every policy."""
    return by_policy(SETTINGS, who, seed)


def reproduce(seed: int) -> Outcome:
    """Run every rate under every policy, with a processor for each stream and with one."""
    own, one = averages(EACH, seed), averages(ONE, seed)
    tables = policy_tables("λ1 (rows/s)", NAMES, SHARES, own, one)
    panels = [Panel(EACH, responses(own)), Panel(ONE, responses(one))]
    picture = draw(panels, SLOWS, "λ1 (rows/s)", ["response time (s)"] * 2)
    earlier = [measure(each, "Adaptive", EACH, seed, SMALL_ALPHA) for each in SETTINGS]
    return Outcome(tables, (*claims(own, one), shifted(earlier)), NOTES, picture)


NOTES = (
    *SETTINGS_NOTE,
    "At 0.01 rows/s a run has a dozen slow rows: times there are those of a few long gaps, the same for every policy.",
)


def claims(own: Mapping[str, Sequence[Measured]], one: Mapping[str, Sequence[Measured]]) -> tuple[Claim, ...]:
    """Check what section 7.2.2 says of Figure 9."""
    times = responses(own)
    apart = [sync - hold for sync, hold in zip(times["Sync-Filter"], times["Filter-Order"], strict=True)]
    changed = switched(own["Adaptive"])
    return (
        Claim(
            "in all approaches the response grows as the slow stream slows",
            all(each == sorted(each, reverse=True) for each in times.values()),
            f"Filter-Order {', '.join(map(seconds, times['Filter-Order']))} s",
        ),
        Claim(
            "more than a minute at the slowest",
            min(each[0] for each in times.values()) > MINUTE,
            f"{seconds(min(each[0] for each in times.values()))} s",
        ),
        Claim(
            "Sync-Filter takes longer than Filter-Order everywhere",
            worst(own) == worst(one) == len(SLOWS) and min(apart) > 0,
            f"by {', '.join(f'{each:.2f}' for each in apart)} s",
        ),
        Claim(
            "Adaptive switches where the slow stream has 1 row/s, and only there",
            changed == [False] * (len(SLOWS) - 1) + [True],
            f"{', '.join(f'{each.switches:.0f}' for each in own['Adaptive'])} switches a run",
        ),
    )


def shifted(found: Sequence[Measured]) -> Claim:
    """Check that a smaller alpha has Adaptive switch at a lower rate."""
    first = next((slow for slow, each in zip(SLOWS, found, strict=True) if each.holding > 0.5), SLOWS[-1])
    return Claim(
        "a smaller alpha shifts the switching point to a lower rate",
        first < SLOWS[-1],
        f"alpha = {SMALL_ALPHA:g}: {first:g} rows/s; time held "
        f"{', '.join(f'{100 * each.holding:.0f} %' for each in found)}",
    )
