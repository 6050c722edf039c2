"""Aggregates: folds of pairs and rows into panes, and answers from panes; tasks and policy together."""
