"""Paper 2, Figure 9: average response time of 30 queries, 24 of them with one window, which goes from w1 to w7.

Small-Large windows, hash join, no bursts.  Queries are averaged, each by its own average response time.
"""

from __future__ import annotations

from penstock.lab.figures.figure import Claim, Outcome, Panel
from penstock.lab.figures.p2_fig5 import best, gains
from penstock.lab.figures.p2_figure import AVERAGE_NOTE, SETTINGS_NOTE, draw, table_of
from penstock.lab.paper2_settings import POLICIES, TABLE_1, TUPLES, Setting, measure, skewed

WINDOWS = "Small-Large"
NAMES = [f"w{place + 1} = {window} s" for place, window in enumerate(TABLE_1[WINDOWS])]


def averages(seed: int, tuples: int = TUPLES, *, by_result: bool = False) -> dict[str, list[float]]:
    """Give the average response time of each policy, by the window that most queries have."""
    found: dict[str, list[float]] = {name: [] for name in POLICIES}
    for place in range(7):
        queries = skewed(place)
        for name, policy in POLICIES.items():
            each = measure(Setting(WINDOWS, queries=queries, tuples=tuples), policy, seed)
            found[name].append(each.per_result(queries) if by_result else each.per_query(queries))
    return found


def reproduce(seed: int) -> Outcome:
    """Run every distribution of the queries under every policy."""
    found, by_result = averages(seed), averages(seed, by_result=True)
    tables = (
        table_of("average response time of 30 queries", "80 % have", NAMES, found),
        table_of("the same, weighted by results", "80 % have", NAMES, by_result),
    )
    picture = draw(
        [Panel("30 queries, 80 % on one window", found)], [f"w{n}" for n in range(1, 8)], "80 % have"
    )
    return Outcome(tables, claims(found, by_result), (*SETTINGS_NOTE, AVERAGE_NOTE), picture)


def claims(found: dict[str, list[float]], by_result: dict[str, list[float]]) -> tuple[Claim, ...]:
    """Check what section 5.3 says."""
    names = [f"w{place + 1}" for place in range(7)]
    swf = [name for name, lwo, swf in zip(names, found["LWO"], found["SWF"], strict=True) if swf < lwo]
    return (
        best("MQT is lowest wherever the queries are", found, by_result),
        Claim(
            "SWF is better than LWO with most queries on small windows",
            {"w1", "w2", "w3"} <= set(swf),
            f"better at {', '.join(swf)}",
        ),
        Claim(
            "LWO is better than SWF with most on large ones", not {"w6", "w7"} & set(swf), _than_swf(found)
        ),
        Claim(
            "MQT adapts: it gains over LWO throughout",
            all(mqt < lwo for mqt, lwo in zip(found["MQT"], found["LWO"], strict=True)),
            gains(found, names, "LWO"),
        ),
    )


def _than_swf(found: dict[str, list[float]]) -> str:
    """Print both policies at the two largest windows."""
    pairs = zip(("w6", "w7"), found["LWO"][-2:], found["SWF"][-2:], strict=True)
    return ", ".join(f"{name} {1000 * lwo:.0f} ms for {1000 * swf:.0f} ms" for name, lwo, swf in pairs)
