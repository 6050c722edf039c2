"""The blocks of code that the documents show, and what a block needs to run that its page has said before.

A fence names a language, and may say ``spark``: then only Spark can run it; or ``theirs``: then it is another engine's
and not run.  A block of text behind a block of SQL is the error that this gives.  Shell is for readers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from penstock.sql.text.tokens import Source

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"sql", "python", "console", "text"}
CREATED = re.compile(r"(?i)^CREATE (STREAM|QUERY) (\w+)")


@dataclass(frozen=True)
class Block:
    """A block of a page: its number there, what it is in, and the error that it gives, if that is shown."""

    page: str
    number: int
    language: str
    on_spark: bool
    text: str
    error: str = ""
    declared: tuple[str, ...] = ()
    """The statements that create streams and queries further up on the page."""

    def __str__(self) -> str:
        """Say where it is."""
        return f"{self.page}-{self.language}-{self.number}"

    @property
    def script(self) -> str:
        """Give it as a script: a bare SELECT is a query called example."""
        bare = self.text.lstrip().upper().startswith("SELECT")
        return f"CREATE QUERY example AS {self.text}" if bare else self.text

    @property
    def before(self) -> str:
        """Give the streams that its page has declared and it does not, and the queries that it speaks of."""
        own = {
            (each[1].upper(), each[2].lower()) for each in map(CREATED.match, statements(self.script)) if each
        }
        needed = []
        for statement in self.declared:
            kind, name = (each.lower() for each in CREATED.match(statement).groups())
            if (kind.upper(), name) in own or (kind == "query" and not re.search(rf"\b{name}\b", self.text)):
                continue
            needed.append(f"{statement};\n")
        return "".join(needed)


def statements(script: str) -> list[str]:
    """Give a script's statements, each as it is written."""
    source = Source(script)
    return [source.slice(tokens) for tokens in source.statements]


def created(script: str) -> tuple[str, ...]:
    """Give the statements of a script that create streams and queries."""
    return tuple(each for each in statements(script) if CREATED.match(each))


def blocks_of(page: Path) -> list[Block]:
    """List the blocks of a page, in order."""
    name, listed = page.relative_to(ROOT).as_posix(), []
    readme = (ROOT / "examples" / "monitor.sql").read_text(encoding="utf-8") if name == "README.md" else ""
    declared = created(readme)
    text = page.read_text(encoding="utf-8")
    fences = [fence for fence in FENCE.finditer(text) if "theirs" not in fence[2].split()]
    for number, fence in enumerate(fences):
        language, marks, text = fence.groups()
        assert language in LANGUAGES, f"{name}: a block is in {language!r}"
        after = fences[number + 1] if number + 1 < len(fences) else None
        error = after[3].strip() if language == "sql" and after and after[1] == "text" else ""
        on_spark = "spark" in marks.split()
        block = Block(name, number, language, on_spark, text, error, () if on_spark else declared)
        listed.append(block)
        if language == "sql" and not on_spark and not error:
            declared += created(text)
    return listed


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def blocks(language: str, *, on_spark: bool) -> list[Block]:
    """List the blocks in a language, of those for Spark or of the others."""
    return [each for each in BLOCKS if each.language == language and each.on_spark == on_spark]
