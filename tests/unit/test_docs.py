"""The documentation is complete, and its links lead somewhere."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from dyorc.config import Settings
from tests.markdown import anchors, links

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(path for folder in ("docs", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.md")),
]


def test_operations_page_lists_every_setting() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    for name in _settings(Settings):
        assert f"`{name}`".upper() in page


def _settings(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from _settings(type(field.default), f"{prefix}{name}__")
        else:
            yield f"{prefix}{name}"


def test_extras_that_are_mentioned_exist_and_the_readme_explains_each() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    sources = [*PAGES, *sorted((ROOT / "dyorc").rglob("*.py"))]
    mentioned = re.findall(r"dyorc\\?\[([a-z,]+)\\?\]", "".join(path.read_text() for path in sources))
    assert {"traces", "profile", "ocr"} <= {extra for each in mentioned for extra in each.split(",")} <= extras
    install = (ROOT / "README.md").read_text().partition("## Install\n")[2].partition("\n## ")[0]
    assert all(f"`{extra}`" in install for extra in extras)


def test_decisions_page_lists_every_decision() -> None:
    folder = ROOT / "docs" / "decisions"
    page = (folder / "README.md").read_text()
    for path in folder.glob("0*.md"):
        assert f"({path.name})" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    dead = [target for target in links(page) if not _leads_somewhere(page, target)]
    assert not dead


def _leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return file.exists() and file.is_relative_to(ROOT) and (not anchor or anchor in anchors(file))


def test_all_pages_are_checked() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/http.md", "docs/decisions/README.md"} <= names
    assert sum(len(links(page)) for page in PAGES) > 100


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = ROOT / "docs" / "http.md"
    assert _leads_somewhere(page, "../README.md")
    assert not _leads_somewhere(page, "nothing.md")
    assert not _leads_somewhere(page, "#nothing")
    assert not _leads_somewhere(page, str(tmp_path))
    other = tmp_path / "page.md"
    other.write_text("# `one` and [two](x.md)\n\n## Same\n\n```\n# not\n[this](a.md)\n```\n\n`[or](b.md)`\n\n## Same\n")
    assert anchors(other) == {"one-and-two", "same", "same-1"}
    assert links(other) == ["x.md"]
