"""Read the fields of dataclasses from source, with the docstring below each: for the pages that are made from them."""

import ast
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Field(NamedTuple):
    """A field: its name, annotation, what its docstring says, and whether it has a default."""

    name: str
    annotation: ast.expr
    says: str
    optional: bool


def classes(path: str) -> list[ast.ClassDef]:
    """List the classes of a module, by its path below the root."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return [each for each in tree.body if isinstance(each, ast.ClassDef)]


def fields(node: ast.ClassDef) -> list[Field]:
    """List a class's fields."""
    found = []
    for place, each in enumerate(node.body):
        if isinstance(each, ast.AnnAssign) and not ast.unparse(each.annotation).startswith("ClassVar"):
            after = node.body[place + 1] if place + 1 < len(node.body) else None
            said = (
                after.value.value
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                else ""
            )
            found.append(
                Field(each.target.id, each.annotation, " ".join(said.split()), each.value is not None)
            )
    return found


def write_or_check(page: Path, text: str, script: str) -> None:
    """Write a page; with --check, only say if it is stale."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        sys.exit(f"{page.relative_to(ROOT)} is stale: run {script}")
