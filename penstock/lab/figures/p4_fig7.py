"""Paper 4, Figure 7: average response time over the cost of a join step.

1 and 10 rows a second with exponential gaps, a window of a minute, c from 1 µs to 1 ms: the more queries run at the
same time, the longer a step takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from penstock.lab.figures.figure import Claim, Outcome, Panel
from penstock.lab.figures.p4_figure import (
    SETTINGS_NOTE,
    draw,
    policy_tables,
    responses,
    seconds,
    size,
)
from penstock.lab.paper4 import EACH, ONE
from penstock.lab.paper4_settings import (
    ALPHA,
    FEW_KEYS,
    KEYS,
    STEPS,
    Setting,
    by_policy,
    held_with_few_keys,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.lab.paper4_settings import Measured

SETTINGS = [Setting(step=step) for step in STEPS]
AT = STEPS.index(Setting().step)
"""The place of 0.5 ms."""

SHARES = [each.share for each in SETTINGS]
NAMES = [f"{1000 * step:g}" for step in STEPS]
FLAT = 0.1
"""Small variations: by less than this part."""


def averages(who: str, seed: int) -> dict[str, list[Measured]]:
    """Run every cost of a step under every policy."""
    return by_policy(SETTINGS, who, seed)


def growth(times: Sequence[float]) -> float:
    """Give the part by which the largest is above the smallest."""
    return max(times) / min(times) - 1


def worst(found: Mapping[str, Sequence[Measured]]) -> int:
    """Count the settings in which no policy is slower than Sync-Filter."""
    times = responses(found)
    return sum(max(each) <= sync for *each, sync in zip(*times.values(), times["Sync-Filter"], strict=True))


def switched(found: Sequence[Measured]) -> list[bool]:
    """Tell in which settings Adaptive ever left sync-filter."""
    return [each.switches > 0 for each in found]


def reproduce(seed: int) -> Outcome:
    """Run every cost of a step under every policy, with a processor for each stream and with one."""
    own, one = averages(EACH, seed), averages(ONE, seed)
    tables = (
        *policy_tables("c (ms)", NAMES, SHARES, own, one),
        _few_keys(one, seed),
    )
    panels = [Panel(EACH, responses(own)), Panel(ONE, responses(one))]
    picture = draw(panels, [1000 * step for step in STEPS], "c (ms)", ["response time (s)"] * 2)
    return Outcome(tables, claims(own, one, seed), (*NOTES, _turn_note(own["Filter-Order"])), picture)


NOTES = (
    *SETTINGS_NOTE,
    (
        "At c = 0.5 ms the load is alpha itself: what is measured is now above it, now below, and Adaptive goes to and "
        "fro."
    ),
)


def _turn_note(found: Sequence[Measured]) -> str:
    """Say why Filter-Order is not flat to the end."""
    more = found[-1].response - found[0].response
    turn = found[-1].for_others - found[0].for_others
    return (
        "Filter-Order is flat as long as joining is done within the wait.  At 1 ms a row of the slow stream takes "
        "0.6 s, and what the fast stream's rows behind it have found must not leave before it; the analysis leaves "
        f"this out.  Of the {more:.2f} s more than at 1 µs, {turn:.2f} s are such waiting."
    )


def claims(
    own: Mapping[str, Sequence[Measured]], one: Mapping[str, Sequence[Measured]], seed: int
) -> tuple[Claim, ...]:
    """Check what sections 5.2 and 7.2.1 say of Figure 7."""
    sync, hold, adaptive = (responses(own)[name] for name in ("Sync-Filter", "Filter-Order", "Adaptive"))
    keeps_up = [number for number, each in enumerate(SHARES) if 2 * each < 1]
    alone = [responses(one)["Filter-Order"][number] for number in keeps_up]
    early = [each for number, each in enumerate(own["Adaptive"]) if SHARES[number] < ALPHA - 1e-9]
    late = [number for number in range(len(STEPS)) if number > AT]
    waiting, few = one["Sync-Filter"][AT].waiting, held_with_few_keys(SETTINGS[AT], "Filter-Order", seed)
    held = one["Filter-Order"][AT].held
    return (
        Claim(
            "Sync-Filter has the worst average everywhere",
            worst(own) == worst(one) == len(STEPS),
            f"{worst(own)} of {len(STEPS)}; one processor {worst(one)} of {len(STEPS)}",
        ),
        Claim(
            "Filter-Order shows small or no variations",
            growth(hold) < FLAT,
            f"{seconds(min(hold))} to {seconds(hold[AT])} s up to 0.5 ms, then "
            f"{', '.join(f'{hold[number]:.2f} s' for number in late)}; Sync-Filter {seconds(min(sync))} to "
            f"{seconds(max(sync))} s; one processor, where it keeps up, {seconds(min(alone))} to "
            f"{seconds(max(alone))} s",
        ),
        Claim(
            "Adaptive is Sync-Filter at the first three",
            not any(switched(early)) and adaptive[:3] == sync[:3],
            f"{sum(each.switches for each in early):g} switches",
        ),
        Claim(
            "Adaptive switches to Filter-Order at c = 0.5 ms",
            switched(own["Adaptive"])[AT],
            f"{100 * own['Adaptive'][AT].holding:.0f} % of the time, {own['Adaptive'][AT].switches:.0f} switches a run",
        ),
        Claim(
            "Adaptive is Filter-Order from there on",
            all(own["Adaptive"][number].holding > 0.9 for number in late),
            ", ".join(f"{100 * own['Adaptive'][number].holding:.0f} % of the time" for number in late),
        ),
        Claim(
            "with few results Filter-Order needs less memory",
            held.mean < waiting.mean,
            f"0.5 ms, {ONE}: {held.mean:.1f} results held, {waiting.mean:.1f} rows waiting under Sync-Filter",
        ),
        Claim(
            "with many it needs more",
            few.mean > waiting.mean,
            f"{few.mean:.0f} results held with {FEW_KEYS} keys",
        ),
    )


def _few_keys(one: Mapping[str, Sequence[Measured]], seed: int) -> Table:
    """Lay out the hold buffers by how many partners a row finds."""
    table = Table("policy", "waiting", f"held, {KEYS} keys", f"held, {FEW_KEYS} keys")
    table.title = f"buffers at c = 0.5 ms, {ONE}: on average / at most"
    for name, runs in one.items():
        here = runs[AT]
        few = held_with_few_keys(SETTINGS[AT], name, seed)
        table.add_row(name, size(here.waiting), size(here.held), size(few))
    return table
