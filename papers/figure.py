"""What a figure of a paper is: tables, a picture, and the paper's claims, each held or not.

A `Paper` has one *sweep*: all runs its figures are drawn from, made by a seed, each run made once whoever asks for it.
A figure is a function from that sweep to an `Outcome`, printed and saved by `benchmarks.cli`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.figure import Figure as Picture

from benchmarks.printing import table

if TYPE_CHECKING:
    from rich.table import Table

Series = Mapping[str, Sequence[float]]

CALIBRATED, CHECK = "calibrated", "self-check"
"""Kinds of claims that prove less: held by the choice of something the paper leaves open; true by construction here."""

STYLES = {
    **dict.fromkeys(("Selection-PullUp", "Mem-Opt", "LWO", "Sync-Filter", "WJoin"), ("tab:red", "s")),
    **dict.fromkeys(("Selection-PushDown", "SWF", "Filter-Order", "PJoin"), ("tab:green", "^")),
    **dict.fromkeys(("State-Slice-Chain", "CPU-Opt", "MQT", "Adaptive", "PWJoin"), ("tab:blue", "o")),
    **dict.fromkeys(("isolated", "Eq. 1", "optimal"), ("tab:gray", "x")),
    **dict.fromkeys(("W-Join", "known"), ("tab:red", "s")),
    **dict.fromkeys(("MSF", "measured at J3"), ("tab:green", "^")),
    **dict.fromkeys(("WO-Join", "monitored", "Theorem 3.1", "average"), ("tab:blue", "o")),
    "DBF": ("tab:orange", "D"),
    "Hybrid": ("tab:purple", "v"),
}
"""Colour and marker of each series, the same in every figure."""

HOLLOW = {"WJoin", "WO-Join"}
"""Series on which another may lie: their marks are large and hollow, so that it shows."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of a paper, whether it held here, and the number that says so."""

    text: str
    held: bool
    number: str
    kind: str = ""

    def __str__(self) -> str:
        verdict = f"{'held' if self.held else 'did not hold'}{', calibrated' * (self.kind == CALIBRATED)}"
        if self.kind == CHECK:
            verdict = "self-check" if self.held else "self-check failed"
        return f"{self.text}: {verdict} ({self.number})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What reproducing a figure gives, put together step by step: tables, claims, remarks, and pictures."""

    tables: list[Table] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)

    def claim(self, text: str, held: object, number: str, kind: str = "") -> None:
        """Add a claim."""
        self.claims.append(Claim(text, bool(held), number, kind))

    def every(self, text: str, cases: Iterable[object], more: str = "", kind: str = "") -> None:
        """Claim something of every case."""
        told = [bool(each) for each in cases]
        self.claim(text, all(told), f"{sum(told)} of {len(told)}{more}", kind)

    def note(self, *texts: str) -> None:
        """Add remarks on how it was done."""
        self.notes.extend(texts)

    def table(self, title: str, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
        """Add a table."""
        self.tables.append(table(title, headings, rows))

    def series(
        self, title: str, first: str, names: Iterable[object], series: Series, show: Callable[[float], str]
    ) -> None:
        """Add a table of series: a row for each setting, a column for each series."""
        rows = [(name, *(show(y[n]) for y in series.values())) for n, name in enumerate(names)]
        self.table(title, (first, *series), rows)

    def draw(
        self,
        panels: Mapping[str, Series],
        x: Sequence[float] | Sequence[str],
        x_name: str,
        y_name: str,
        *,
        columns: int = 3,
        log: str = "",
    ) -> None:
        """Draw panels (a), (b), ... over one x axis: numbers, or names.  `log` names the logarithmic axes.

        A series called "LWO, simulated" is drawn as large hollow marks in the colour of LWO; of many points every so
        manieth is marked.  Axes that are not logarithmic begin at zero; the legend stands above all panels, where it
        hides nothing.
        """
        columns = min(columns, len(panels))
        rows = -(-len(panels) // columns)
        size = (3.7 if columns > 2 else 5.5) * columns, 3.1 * rows + 0.3
        picture = Picture(figsize=size, dpi=90, layout="constrained")
        named = isinstance(x[0], str)
        shown: dict[str, Any] = {}
        for number, (title, series) in enumerate(panels.items()):
            axes = picture.add_subplot(rows, columns, number + 1)
            for name, y in series.items():
                kind, _, simulated = name.partition(", ")
                colour, marker = STYLES[kind]
                look: dict[str, Any] = {"color": colour, "marker": marker, "linewidth": 1.2, "markersize": 4}
                look["markevery"] = max(1, len(y) // 10)
                if kind in HOLLOW:
                    look |= {"markersize": 8, "fillstyle": "none"}
                if simulated:
                    look |= {"linestyle": "none", "markersize": 9, "fillstyle": "none"}
                shown[name] = axes.plot(range(len(y)) if named else x, y, label=name, **look)[0]
            axes.set(xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
            if named:
                axes.set_xticks(range(len(x)), [str(each) for each in x])
            if "y" not in log:
                axes.set_ylim(0, 1.08 * (max(max(y) for y in series.values()) or 1))
            axes.set_title(f"({chr(ord('a') + number)}) {title}" if len(panels) > 1 else title, fontsize=9)
            axes.set_xlabel(x_name, fontsize=8)
            axes.set_ylabel(y_name, fontsize=8)
            axes.tick_params(which="both", labelsize=7)
            axes.grid(visible=True, linewidth=0.3)
        where: dict[str, Any] = {"loc": "outside upper center", "ncols": len(shown), "frameon": False}
        picture.legend(shown.values(), shown, fontsize=8, **where)
        self.pictures.append(picture)


class Figure(NamedTuple):
    """A figure or table: how it is reproduced from its paper's sweep, and about how many seconds that takes.

    `on_spark` measures the same on the engine by a seed, where that can be done, and tells how far it is.
    """

    name: str
    title: str
    seconds: int
    reproduce: Callable[[Any], Outcome]
    on_spark: Callable[[int, Callable[[str], None]], Outcome] | None


class Paper:
    """A paper: its number, the sweep that a seed gives, and its figures, each a function with its seconds.

    The name of a figure is the prefix and the function's name, its title the first line of the function's docstring.
    """

    def __init__(
        self,
        number: int,
        sweep: Callable[[int], Any],
        prefix: str,
        seconds: Mapping[Any, int],
        **on_spark: Any,
    ) -> None:
        self.number, self.sweep, figures = number, sweep, []
        for figure, each in seconds.items():
            title, name = figure.__doc__.partition("\n")[0].rstrip("."), figure.__name__
            figures.append(Figure(f"{prefix}{name}", title, each, figure, on_spark.get(name)))
        self.figures = tuple(figures)
