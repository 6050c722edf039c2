"""Paper 2, Figure 6: average and longest response time by window, for Uniform and Mostly-Small windows.

The runs are those of Figure 5 (hash join).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lab.figures.figure import Claim, Outcome, Panel, percent
from penstock.lab.figures.p2_figure import SETTINGS_NOTE, draw, ms, table_of, window_names
from penstock.lab.paper2_settings import POLICIES, TABLE_1, TUPLES, Setting, alone, measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.lab.paper2_settings import Measured

DRAWN = ("Uniform", "Mostly-Small")
SMALL = 15
"""Windows of so many seconds or less are small."""

NEAR = 0.005
"""Seconds: about what one tuple takes to scan the largest window."""


def by_policy(setting: Setting, seed: int) -> dict[str, Measured]:
    """Run an experiment under every policy, and each query by itself."""
    found = {name: measure(setting, policy, seed) for name, policy in POLICIES.items()}
    return found | {"isolated": alone(setting, seed)}


def spread(times: tuple[float, ...]) -> float:
    """Give by how much the fastest window is below the slowest."""
    return 1 - min(times) / max(times)


def near_isolated(found: Mapping[str, Measured], windows: str) -> float:
    """Give by how many seconds small windows respond later than by themselves, under SWF and MQT, at most."""
    return max(
        found[policy].mean[place] - found["isolated"].mean[place]
        for policy in ("SWF", "MQT")
        for place, window in enumerate(TABLE_1[windows])
        if window <= SMALL
    )


def reproduce(seed: int) -> Outcome:
    """Run both distributions under every policy."""
    tables, panels = [], []
    for kind in ("mean", "longest"):
        for windows in DRAWN:
            found = by_policy(Setting(windows), seed)
            title = f"{'average' if kind == 'mean' else 'longest'} response, {windows}"
            series = {name: getattr(each, kind) for name, each in found.items()}
            tables.append(table_of(title, "window (s)", window_names(windows), series))
            panels.append(Panel(title, series))
    picture = draw(panels, [f"w{place + 1}" for place in range(7)], "window")
    return Outcome(tuple(tables), claims(seed), (*SETTINGS_NOTE, _ties(seed)), picture)


def claims(seed: int, tuples: int = TUPLES) -> tuple[Claim, ...]:
    """Check what section 5.1 says of Figure 6."""
    found = {windows: by_policy(Setting(windows, tuples=tuples), seed) for windows in DRAWN}
    uniform, small = found["Uniform"], found["Mostly-Small"]
    flat = {windows: spread(each["LWO"].mean) for windows, each in found.items()}
    flat_longest = {windows: spread(each["LWO"].longest) for windows, each in found.items()}
    late = {windows: near_isolated(each, windows) for windows, each in found.items()}
    pairs = [uniform["MQT"].mean[place] / uniform["SWF"].mean[place] for place in range(6)]
    half = small["SWF"].mean[-1] / uniform["SWF"].mean[-1]
    worst = {windows: (each["MQT"].longest[-1], each["SWF"].longest[-1]) for windows, each in found.items()}
    times = max(
        long / mean
        for each in found.values()
        for policy in POLICIES
        for long, mean in zip(each[policy].longest, each[policy].mean, strict=True)
    )
    return (
        Claim("LWO is nearly flat over the windows", max(flat.values()) < 0.25, _list(flat)),
        Claim("and so are its longest times", max(flat_longest.values()) < 0.25, _list(flat_longest)),
        Claim(
            "small windows respond within milliseconds of isolated execution under SWF and MQT",
            max(late.values()) < NEAR,
            ", ".join(f"{windows} at most {ms(each)} ms later" for windows, each in late.items()),
        ),
        Claim(
            "on Uniform windows MQT and SWF are alike for all but the largest",
            max(pairs) < 1.2 and min(pairs) > 0.8,
            f"MQT takes {min(pairs):.2f} to {max(pairs):.2f} times as long as SWF",
        ),
        Claim(
            "SWF's largest window takes half as long on Mostly-Small as on Uniform",
            0.35 < half < 0.65,
            f"{half:.2f} of it",
        ),
        Claim(
            "for the largest window MQT's longest time is below SWF's",
            all(mqt < swf for mqt, swf in worst.values()),
            ", ".join(f"{windows} {ms(mqt)} ms for {ms(swf)} ms" for windows, (mqt, swf) in worst.items()),
        ),
        Claim("the longest time can be 10 to 100 times the average", times >= 10, f"up to {times:.0f} times"),
    )


def _list(shares: Mapping[str, float]) -> str:
    """Print a spread for each distribution."""
    return ", ".join(
        f"{windows}: the fastest {percent(each)} below the slowest" for windows, each in shares.items()
    )


def _ties(seed: int) -> str:
    """Say what becomes of Uniform windows if MQT prefers inner rings where it has the choice."""
    setting = Setting("Uniform", inner_first=True)
    inner, swf = measure(setting, "mqt", seed), measure(Setting("Uniform"), "swf", seed)
    ratios = [mine / theirs for mine, theirs in zip(inner.mean, swf.mean, strict=True)]
    return (
        "On Uniform windows five rings are of one width and serve one query each.  MQT looks from the largest window "
        "to the smallest and prefers the outermost of them, so tuples go on to the end.  Preferring the innermost, it "
        f"takes SWF's steps: {min(ratios[:-1]):.2f} to {max(ratios[:-1]):.2f} times SWF's time, {ratios[-1]:.2f} for "
        "the largest window."
    )
