"""The papers' figures: for each paper its simulation, its sweep, its figures with the claims they check.

`papers.cli` lists the papers; ``penstock lab list`` the figures.
"""
