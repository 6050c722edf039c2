"""The glossary is true: its words are used, each is defined once, and words that were given up stay away."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
TERMS = [
    term.strip()
    for terms in re.findall(r"^\*\*(.+?)\*\* — ", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    for term in terms.split(",")
]
NEW = ("Claim", "Turn", "Stage", "Transition", "Job", "Route", "Input", "Expiry")

OLD_DIALECT = {
    "shunned": "excluded_masks",
    "pulled": "filter_last",
    "Stretch": "SegmentRange",
    "rungs?": "ring_runs, cut_times",
    "[Ll]adders?": "row_cuts",
    "take_up": "apply",
    "takeup": "transition",
    "forebears": "predecessors",
    "masks_at_the_door": "ingest_masks",
    "without_a_scene": "ignore_closed_pipe",
    "Silence": "IdleClock",
    "on_their_way": "mid_batch",
    "_busy": "has_input",
    "Horizon(?! —|\\*)": "Claim; in sentences: horizon",
    "MOST|QUICK|ENOUGH|BACK": "a name with a noun and a unit",
}
"""What is not said any more, as a pattern, and what is said instead."""


def pages():
    """Give the documents but the glossary, and but the decisions: these say what was thought at the time."""
    return [each for each in (ROOT / "docs").glob("*.md") if each != GLOSSARY]


def modules():
    return sorted((ROOT / "penstock").rglob("*.py"))


def text_of(paths):
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def test_the_glossary_has_terms_and_none_twice():
    assert len(TERMS) > 60
    assert [term for term, times in Counter(TERMS).items() if times > 1] == []
    assert set(NEW) <= set(TERMS)


def test_every_term_of_the_glossary_is_used():
    """In the code or the documents, in any form of the word; in code a space is an underscore or nothing."""
    text = text_of([*modules(), *pages()])
    for term in TERMS:
        stem = r"[ _-]?".join(map(re.escape, re.sub(r"[ey]$", "", term).split()))
        form = rf"(?i)(?<![a-z]){stem}(?:e|y|s|es|ies|d|ed|ing)?(?![a-z])"
        assert re.search(form, text), f"{term} is defined and not used"


@pytest.mark.parametrize("old", OLD_DIALECT)
def test_a_word_that_was_given_up_is_used_nowhere(old):
    word = re.compile(rf"(?<!\w)(?:{old})(?!\w)")
    for path in [*modules(), *pages(), GLOSSARY]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not word.search(line), f"{path}:{number}: say {OLD_DIALECT[old]}: {line.strip()}"
