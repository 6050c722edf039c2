"""The papers, read from top to bottom.  To add one: write its module, and name its `PAPER` here."""

from penstock.lab.papers import paper1, paper2, paper4
from penstock.lab.papers.figure import Paper

PAPERS: tuple[Paper, ...] = (paper1.PAPER, paper2.PAPER, paper4.PAPER)
