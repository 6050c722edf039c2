"""Draw a state: which query reads which slice, and the rows held against what the queries would hold one by one.

python draw_sharing.py STATE PICTURE.png
"""  # noqa: INP001

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt

from penstock.cli.look import State
from penstock.sql.units import show_duration

BLUE, ORANGE, GREY = "#3b6ea5", "#d98032", "#b8bec6"

mpl.use("agg")
source, picture = sys.argv[1:]
group = State.open(source).status().groups[0]
ages = sorted({(max(0, each.youngest - 1), each.oldest) for each in group.slices}, key=lambda each: each[1])
ends = [end for _, end in ages]
readers = {each.oldest: each.readers for each in group.slices}
queries = sorted(readers[ends[0]], key=lambda name: max(end for end in ends if name in readers[end]))

figure, (chain, rows) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(3, 2), layout="constrained")
for line, query in enumerate(queries):
    reach = sum(query in readers[end] for end in ends)
    chain.barh(line, reach, color=BLUE, height=0.6, alpha=0.85)
chain.set_yticks(range(len(queries)), queries)
chain.invert_yaxis()
chain.set_xticks(range(len(ends) + 1), ["0", *(show_duration(end) for end in ends)])
chain.grid(axis="x", color="white", linewidth=2)
chain.set_axisbelow(False)
chain.set_title(f"{len(queries)} queries, one chain of {len(ends)} slices")
chain.set_xlabel("age of the older row (not to scale): a query reads the slices its bar covers")

rows.bar(0, group.unshared_rows, color=GREY, width=0.6)
below = 0
for place, end in enumerate(ends):
    held = sum(each.state_rows for each in group.slices if each.oldest == end)
    rows.bar(
        1,
        held,
        bottom=below,
        color=ORANGE,
        alpha=0.35 + 0.6 * place / len(ends),
        width=0.6,
        edgecolor="white",
    )
    below += held
for place, count in enumerate((group.unshared_rows, group.state_rows)):
    rows.text(place, count, f"{count:,}", ha="center", va="bottom")
rows.set_xticks([0, 1], ["each query alone", "shared, slice by slice"])
rows.set_title("rows of state held")
for axes in (chain, rows):
    axes.spines[["top", "right"]].set_visible(False)
figure.savefig(picture, dpi=150)
