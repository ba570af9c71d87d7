"""The blocks of the tutorial and of the how-to pages run as the pages show them, and print what they show."""

import subprocess
from pathlib import Path

import pytest

from tests.leaks import no_leaks
from tests.page_blocks import blocks_of
from tests.run_page import command

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
PAGES = sorted(
    page for folder in ("tutorial", "how-to") for page in (_DOCS / folder).glob("*.md") if any(b.title or b.output for b in blocks_of(page))
)
_TIMEOUT_S = 280
_NOT_RUN = {
    "1-cascade.md": 1,
}
"""How many blocks of a page are not run; each says why in the page."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    with no_leaks():
        done = subprocess.run(
            command(page, folder), cwd=_ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr


def test_blocks_are_left_out_only_where_it_is_known() -> None:
    left_out = {page.name: sum(1 for block in blocks_of(page) if block.not_run) for page in PAGES}
    assert {name: number for name, number in left_out.items() if number} == _NOT_RUN


def test_all_chapters_are_among_the_pages() -> None:
    assert [page.name for page in PAGES if page.parent.name == "tutorial"] == [f"{chapter}.md" for chapter in _CHAPTERS]


_CHAPTERS = ("1-cascade", "2-serve", "3-look", "4-batches-and-guesses", "5-update", "6-size")
