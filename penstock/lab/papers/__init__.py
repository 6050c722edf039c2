"""The papers' figures: for each paper its simulation, its sweep, its figures with the claims they check.

`penstock.lab.cli` lists the papers; `penstock lab list` the figures.
"""
