"""The page of HTTP's routes is as a real server describes itself."""

import runpy
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_routes_is_up_to_date() -> None:
    writer = runpy.run_path(str(_DOCS / "write_reference.py"))
    page = writer["http_page"](writer["served_description"]())
    assert (_DOCS / "reference" / "http-routes.md").read_text() == page, "make docs-reference"
