"""Paper 1, Figure 17: rows held by each sharing strategy, for three queries, over the rate of the streams.

Panels (a) to (c) vary the windows, (d) to (f) the selectivity of the selection.  What each panel holds fixed is our
choice: the paper's text says only that (b) and (e) differ in S⋈ alone.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from rich.table import Table

from penstock.lab.figures.figure import Claim, Outcome, Panel, draw_lines, percent
from penstock.lab.paper1_settings import RATES, SETTINGS, Setting, sharing_runs
from penstock.plan.cost import saving

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

PANELS = (
    Setting("Mostly-Small", 0.5, 0.1),
    Setting("Uniform", 0.5, 0.1),
    Setting("Mostly-Large", 0.5, 0.1),
    Setting("Uniform", 0.2, 0.025),
    Setting("Uniform", 0.5, 0.025),
    Setting("Uniform", 0.8, 0.025),
)


def rows_held(setting: Setting, rate: int, seed: int) -> dict[str, float]:
    """Give the average number of rows in the states, by strategy."""
    return {name: run.cost.rows for name, run in sharing_runs(setting, rate, seed).items()}


def reproduce(seed: int) -> Outcome:
    """Run every setting at every rate."""
    table = Table(
        "windows", "Sσ", "S⋈", "pull-up", "state-slice", "push-down", title="rows held at 80 rows/s"
    )
    for setting in SETTINGS:
        held = rows_held(setting, RATES[-1], seed)
        rows = (f"{each:,.0f}" for each in held.values())
        table.add_row(setting.windows, str(setting.select), str(setting.join), *rows)
    return Outcome((table,), claims(seed), (), _draw(seed))


def claims(seed: int, rates: tuple[int, ...] = RATES) -> tuple[Claim, ...]:
    """Check what section 7.2 says of memory."""
    least = 0
    up, down = [], []
    for setting in SETTINGS:
        held = [rows_held(setting, rate, seed) for rate in rates]
        least += all(min(each, key=lambda name: each[name]) == "State-Slice-Chain" for each in held)
        up.append(mean(saving(each["State-Slice-Chain"], each["Selection-PullUp"]) for each in held))
        down.append(mean(saving(each["State-Slice-Chain"], each["Selection-PushDown"]) for each in held))
    inside = sum(0.2 <= each <= 0.3 for each in (*up, *down))
    joins = [[rows_held(Setting("Uniform", 0.5, join), rates[-1], seed) for join in (0.025, 0.1, 0.4)]]
    return (
        Claim(
            "state-slice holds the least state in every setting",
            least == len(SETTINGS),
            f"{least} of {len(SETTINGS)}",
        ),
        Claim(
            "memory savings range from 20 % to 30 %",
            inside == len(up) + len(down),
            f"over pull-up {percent(min(up))} to {percent(max(up))}, mean {percent(mean(up))}; over push-down "
            f"{percent(min(down))} to {percent(max(down))}, mean {percent(mean(down))}; "
            f"{inside} of {len(up) + len(down)} within",
        ),
        Claim(
            "the join's selectivity does not affect memory",
            all(each == same[0] for same in joins for each in same),
            "the same rows for S⋈ = 0.025, 0.1 and 0.4",
        ),
    )


def _draw(seed: int) -> Picture:
    """Draw the six panels."""
    panels = []
    for setting in PANELS:
        held = [rows_held(setting, rate, seed) for rate in RATES]
        title = f"{setting.windows}, Sσ = {setting.select}, S⋈ = {setting.join}"
        panels.append(Panel(title, {name: [each[name] for each in held] for name in held[0]}))
    return draw_lines(panels, RATES, "stream rate (rows/s)", "rows held")
