"""The papers' figures and tables as commands: ``penstock lab fig17``.

One file each, in the order of the papers.  A figure is a function from a seed to an `Outcome`: tables, a picture, and
the paper's claims, each held or not.  To add one: write its file, and add it to the list.
"""

from penstock.lab.figures import (
    fig11,
    fig17,
    fig17_spark,
    fig18,
    fig19,
    p2_fig2,
    p2_fig3,
    p2_fig5,
    p2_fig6,
    p2_fig7,
    p2_fig8,
    p2_fig9,
    p2_memory,
    p2_spark,
    p4_fig5,
    p4_fig6,
    p4_fig7,
    p4_fig8,
    p4_fig9,
    p4_fig10,
    table2,
)
from penstock.lab.figures.figure import Claim, Figure, Outcome

FIGURES: tuple[Figure, ...] = (
    Figure("table2", 1, "a chain of two sliced joins, step by step", table2.reproduce),
    Figure("fig11", 1, "savings of state-slice over its rivals, by the cost model", fig11.reproduce),
    Figure("fig17", 1, "rows held: state-slice, pull-up, push-down", fig17.reproduce, fig17_spark.reproduce),
    Figure("fig18", 1, "service rate: state-slice, pull-up, push-down", fig18.reproduce),
    Figure("fig19", 1, "service rate: CPU-Opt chain against Mem-Opt chain", fig19.reproduce),
    Figure("p2-fig2", 2, "LWO when 50 tuples arrive at once: Eq. 1 and simulated", p2_fig2.reproduce),
    Figure("p2-fig3", 2, "SWF when 50 tuples arrive at once: Eq. 2 and simulated", p2_fig3.reproduce),
    Figure("p2-fig5", 2, "average response: LWO, SWF, MQT on four sets of windows", p2_fig5.reproduce),
    Figure(
        "p2-fig6", 2, "response by window: Uniform and Mostly-Small", p2_fig6.reproduce, p2_spark.reproduce
    ),
    Figure("p2-fig7", 2, "average response over the size of bursts", p2_fig7.reproduce),
    Figure("p2-fig8", 2, "response by window at bursts of five", p2_fig8.reproduce),
    Figure("p2-fig9", 2, "average response of 30 queries, 80 % on one window", p2_fig9.reproduce),
    Figure("p2-memory", 2, "input and output buffers relative to the join buffer", p2_memory.reproduce),
    Figure("p4-fig5", 4, "in order: the analysis over the cost of a step, and simulated", p4_fig5.reproduce),
    Figure(
        "p4-fig6", 4, "in order: the analysis over the slow stream's rate, and simulated", p4_fig6.reproduce
    ),
    Figure("p4-fig7", 4, "in order: response over the cost of a step", p4_fig7.reproduce),
    Figure("p4-fig8", 4, "the same relative to Sync-Filter", p4_fig8.reproduce),
    Figure("p4-fig9", 4, "in order: response over the slow stream's rate", p4_fig9.reproduce),
    Figure("p4-fig10", 4, "the same relative to Sync-Filter", p4_fig10.reproduce),
)

__all__ = ["FIGURES", "Claim", "Figure", "Outcome"]
