"""What a contest gave, for people: a table, a picture, and a block of Markdown for the documents.

In:  `Measured`.  Out: Rich tables, a picture, text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from matplotlib.figure import Figure as Picture
from rich.table import Table

from penstock.errors import InputError
from penstock.lab.contest import STOPPED, middle, ratios
from penstock.lab.peers import PEERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.lab.contest import Outcome
    from penstock.lab.results import Measured
    from penstock.lab.targets import Judgement

HEADINGS = (
    "engine",
    "steady rows/s",
    "whole run rows/s",
    "Penstock is faster",
    "CPU s",
    "peak GiB",
    "state held",
    "counts",
)


def rows_of(measured: Measured) -> list[list[str]]:
    """Write one line for each engine: the middle of its rounds, and their spread."""
    return [_row(engine, runs, measured.runs.get("penstock", ())) for engine, runs in measured.runs.items()]


def _row(engine: str, runs: Sequence[Outcome], ours: Sequence[Outcome]) -> list[str]:
    """Write one engine's line."""
    shown = [each for each in runs if each.has_figures]
    title = PEERS[engine].title
    if not shown:
        return [title, *["-"] * 6, runs[0].verdict]
    faster = ratios(ours, runs) if ours else []
    stopped = any(each.verdict == STOPPED for each in shown)
    return [
        title,
        middle([each.steady_rate for each in shown], 0),
        middle([each.total_rate for each in shown], 0),
        middle(faster) if faster else "-",
        middle([each.cpu_seconds for each in shown], 0),
        middle([each.peak_bytes / 2**30 for each in shown], 1),
        _state(shown[0]),
        "stopped: the rate it had reached" if stopped else f"exact, {shown[0].results:,}",
    ]


def _state(outcome: Outcome) -> str:
    """Write what an engine tells of its state."""
    told = []
    if outcome.state_rows is not None:
        told.append(f"{outcome.state_rows:,} rows")
    if outcome.state_bytes is not None:
        told.append(f"{outcome.state_bytes / 2**20:,.0f} MiB")
    return ", ".join(told) or "not told"


def table_of(measured: Measured) -> Table:
    """Lay the lines out for a terminal."""
    table = Table(*HEADINGS, title=f"{measured.workload}, {measured.queries}")
    for row in rows_of(measured):
        table.add_row(*row)
    return table


def versions_of(series: Sequence[Measured]) -> list[str]:
    """List, for each engine that ran, its versions and settings."""
    found: dict[str, str] = {}
    for run in (each for measured in series for runs in measured.runs.values() for each in runs):
        told = {**run.versions, **run.settings}
        if told:
            listed = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in told.items())
            found[run.engine] = f"{PEERS[run.engine].title}: {PEERS[run.engine].settings}; {listed}"
    return list(found.values())


def targets_table(judgements: Sequence[Judgement]) -> Table:
    """Lay the targets out for a terminal."""
    table = Table("target", "wanted", "measured", "verdict", "")
    colours = {"met": "green", "goal met": "green", "not met": "red", "not measured": "dim"}
    for each in judgements:
        measured = "-" if each.measured is None else f"{each.measured:.2f}"
        verdict = f"[{colours[each.verdict]}]{each.verdict}[/]"
        table.add_row(each.name, each.wanted, measured, verdict, each.note)
    return table


def picture_of(series: Sequence[Measured]) -> Picture:
    """Draw the steady throughput of each engine as bars on a logarithmic scale, a panel for each query set."""
    drawing = Picture(figsize=(9, 0.8 + 2.4 * len(series)), layout="constrained", dpi=90)
    panels = drawing.subplots(len(series), 1, squeeze=False)
    for axes, measured in zip(panels[:, 0], series, strict=True):
        shown = {
            engine: good
            for engine, runs in measured.runs.items()
            if (good := [each for each in runs if each.has_figures])
        }
        rates = [sorted(each.steady_rate for each in runs)[len(runs) // 2] for runs in shown.values()]
        bars = axes.barh(
            [PEERS[engine].title for engine in shown],
            rates,
            color=["tab:blue" if engine == "penstock" else "tab:gray" for engine in shown],
        )
        marks = ["*" if any(each.verdict == STOPPED for each in runs) else "" for runs in shown.values()]
        labels = [f"{rate:,.0f}{mark}" for rate, mark in zip(rates, marks, strict=True)]
        axes.bar_label(bars, labels, fontsize=7, padding=2)
        axes.set_xscale("log")
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.tick_params(labelsize=8)
        axes.set_title(f"{measured.queries}: input rows a second, steady", fontsize=9)
    drawing.supxlabel("* stopped: the rate it had reached", fontsize=7)
    return drawing


def markdown_of(series: Sequence[Measured], machine: str) -> str:
    """Write the tables as Markdown."""
    parts = [f"On {machine}; median of the rounds, and their spread.\n"]
    for measured in series:
        lines = [HEADINGS, ["---"] * len(HEADINGS), *rows_of(measured)]
        table = "\n".join(
            "| " + " | ".join(each.replace("|", "\\|") for each in line) + " |" for line in lines
        )
        parts.append(f"**{measured.workload}, {measured.queries}**\n\n{table}\n")
    parts.append("\n".join(f"- {each}" for each in versions_of(series)) + "\n")
    return "\n".join(parts)


def fill_in(document: Path, marker: str, text: str) -> None:
    """Put text between a document's markers, in place of what was there."""
    before = document.read_text(encoding="utf-8")
    between = re.compile(rf"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    if not between.search(before):
        raise InputError(f"{document} has no lines <!-- {marker} --> and <!-- /{marker} --> to write between")
    document.write_text(between.sub(lambda found: f"{found[1]}{text}{found[2]}", before), encoding="utf-8")
