"""Trees to meaning: names, conditions, windows, groups, promises."""
