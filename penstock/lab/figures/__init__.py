"""The papers' figures and tables as commands: ``penstock lab fig17``.

One file each, in the order of the papers.  A figure is a function from a seed to an `Outcome`: tables, a picture, and
the paper's claims, each held or not.  To add one: write its file, and add it to the list.
"""

from penstock.lab.figures import fig11, fig17, fig17_spark, fig18, fig19, table2
from penstock.lab.figures.figure import Claim, Figure, Outcome

FIGURES: tuple[Figure, ...] = (
    Figure("table2", 1, "a chain of two sliced joins, step by step", table2.reproduce),
    Figure("fig11", 1, "savings of state-slice over its rivals, by the cost model", fig11.reproduce),
    Figure("fig17", 1, "rows held: state-slice, pull-up, push-down", fig17.reproduce, fig17_spark.reproduce),
    Figure("fig18", 1, "service rate: state-slice, pull-up, push-down", fig18.reproduce),
    Figure("fig19", 1, "service rate: CPU-Opt chain against Mem-Opt chain", fig19.reproduce),
)

__all__ = ["FIGURES", "Claim", "Figure", "Outcome"]
