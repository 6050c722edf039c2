"""Hooks of `mkdocs`: add the pages at the root of the repository, and remove the marks that tests read."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FROM_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
CODE = re.compile(r"^(```\w+)[ \t]+\w+[ \t]*$", re.MULTILINE)


def site_link(target: str, folder: Path, anchor: str) -> str:
    """Return a link of a document as a link of the site; files outside the documents become code."""
    path = (folder / target).resolve()
    name = path.relative_to(ROOT).as_posix()
    if name in FROM_ROOT:
        return f"]({FROM_ROOT[name]}{anchor})"
    if path.is_relative_to(ROOT / "docs"):
        return f"]({path.relative_to(ROOT / 'docs').as_posix()}{anchor})"
    return "]"


def converted(text: str, folder: Path) -> str:
    """Return a document's text with the site's links, and without the marks that tests read."""
    text = LINK.sub(lambda link: site_link(link[1], folder, link[2] or ""), text)
    return CODE.sub(r"\1", text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand at the root of the repository."""
    for source, page in FROM_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=converted(text, ROOT)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Remove the marks behind a fence's language, and links that leave the documents."""
    folder = ROOT / "docs" / Path(page.file.src_uri).parent

    def inside(link: re.Match[str]) -> str:
        path = (folder / link[1]).resolve()
        if path.is_relative_to(ROOT / "docs") or page.file.src_uri in FROM_ROOT.values():
            return link[0]
        up = "../" * page.file.src_uri.count("/")
        found = site_link(link[1], folder, link[2] or "")
        return found.replace("](", f"]({up}") if found != "]" else "]"

    return CODE.sub(r"\1", LINK.sub(inside, markdown))
