"""Hooks of `mkdocs`: add the pages at the root of the repository, and remove the marks that tests read."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FROM_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(!?\[[^\]]*\])\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
CODE = re.compile(r"^(```\w+)[ \t]+\w+[ \t]*$", re.MULTILINE)


def with_site_links(text: str, folder: Path, up: str = "") -> str:
    """Return a text with links of the site; a link to a file outside the documents becomes its words."""

    def of_site(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        path = (folder / target).resolve()
        name = path.relative_to(ROOT).as_posix()
        if name in FROM_ROOT:
            return f"{words}({up}{FROM_ROOT[name]}{anchor})"
        if not path.is_relative_to(DOCS):
            return words.strip("[]")
        return f"{words}({path.relative_to(DOCS).as_posix()}{anchor})" if folder == ROOT else link[0]

    return LINK.sub(of_site, text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand at the root of the repository."""
    for source, page in FROM_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=with_site_links(text, ROOT)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Remove the marks behind a fence's language, and links that leave the documents."""
    place = page.file.src_uri
    if place not in FROM_ROOT.values():
        markdown = with_site_links(markdown, (DOCS / place).parent, "../" * place.count("/"))
    return CODE.sub(r"\1", markdown)
