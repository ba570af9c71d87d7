"""The documentation is complete, and its links lead somewhere."""

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
