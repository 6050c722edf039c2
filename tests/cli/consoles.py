"""The console blocks of the documents: commands, each with the output shown below it.

A line ``…`` in an output stands for any lines.  The prompt ``2$`` is a second terminal.
"""

import re

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = (
    (r"\d\d:\d\d:\d\d  ", "TIME  "),
    (r"after [\d.]+ seconds", "after N seconds"),
    (r"\b\d+\.\d+ (ms|s)\b", "N s"),
)
"""What differs from run to run, as a pattern, and what stands for it in comparisons."""


def commands(block):
    """List each command of a block: its prompt, its text, and the lines shown below it."""
    found = []
    for line in block.splitlines():
        if match := re.match(r"(2?\$) (.*)", line):
            found.append((match[1], match[2], []))
        else:
            found[-1][2].append(line)
    return found


def plain(lines):
    """Leave out what differs from run to run: progress, times, blank lines."""
    kept = [line.rstrip() for line in lines if line.strip()]
    kept = [line for line in kept if not re.match(r"\d\d:\d\d:\d\d  rows in", line)]
    for pattern, name in VARIES:
        kept = [re.sub(pattern, name, line) for line in kept]
    return kept


def shows(shown, printed):
    """Say whether a shown output is what was printed, its rows in any order, or stands in it with ``…`` between."""
    if "…" not in shown:
        return sorted(shown) == sorted(printed)
    rest = "\n".join(printed)
    for piece in filter(None, (piece.strip("\n") for piece in "\n".join(shown).split("…"))):
        _, found, rest = rest.partition(piece)
        if not found:
            return False
    return True
