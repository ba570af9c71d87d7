"""The documentation's site builds without a warning, asks no host but its own, and can be searched."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import chromium, tab
from tests.documentation_site import PYTHON, build, served

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="MkDocs is not installed: make .venv-docs/.made")
_FETCHED = re.compile(r"<(?:script|img|source|iframe|video|audio|embed)\b[^>]*\bsrc=[\"']?([^\"'\s>]+)|<link\b([^>]*)>")
_HREF = re.compile(r"\bhref=[\"']?([^\"'\s>]+)")
_ELSEWHERE = re.compile(r"(?:[a-z]+:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the site once."""
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serves the site."""
    with served(site) as url:
        yield url


def _foreign(text: str) -> list[str]:
    """Returns what a page's HTML or a style fetches from elsewhere."""
    fetched = [src or "".join(_HREF.findall(link)) for src, link in _FETCHED.findall(text) if "canonical" not in link]
    fetched += re.findall(r"url\([\"']?([^\"')]+)", text)
    return [target for target in fetched if _ELSEWHERE.match(target)]


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    assert {str(path): foreign for path in [*pages, *site.rglob("*.css")] if (foreign := _foreign(path.read_text()))} == {}


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://a.b/c.js"></script>',
        '<link rel="stylesheet" href="//a.b/c.css">',
        "<img alt='' src='http://a.b/c.png'>",
        "a { background: url(https://a.b/c.woff2) }",
    ],
)
def test_a_foreign_file_is_seen(text: str) -> None:
    assert len(_foreign(text)) == 1
    assert _foreign('<a href="https://a.b">link</a> <img src="../c.png">') == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_page_needs_no_other_host_and_is_searched(address: str, scheme: str) -> None:
    with chromium() as browser, tab(browser, scheme="dark" if scheme == "dark" else "light") as watched:
        host = address.removeprefix("http://")
        watched.page.route("**/*", lambda route: route.continue_() if host in route.request.url else route.abort())
        watched.open(f"{address}/")
        assert watched.page.locator(".md-tabs__item").count() >= 6
        assert watched.page.locator("article img").first.evaluate("image => image.naturalWidth") > 100
        watched.page.locator(".md-search__input").fill("deadline")
        watched.page.locator(".md-search-result__link").first.wait_for()
        assert "deadline" in watched.page.locator(".md-search-result__list").inner_text().lower()
        assert watched.hosts == {host}


def test_pages_keep_nothing_of_the_repository(site: Path) -> None:
    """Comments for tests and links to sources do not come through."""
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert "<!-- hidden" not in text, path
        assert "<!-- not run" not in text, path
    assert not list(site.rglob("*.py"))


def test_programs_that_read_get_a_list_of_pages_and_their_text(site: Path) -> None:
    listing = (site / "llms.txt").read_text()
    assert listing.startswith("# DyOrc\n\n> ")
    pages = re.findall(r"\]\(([^)]*)\)", listing)
    assert len(pages) > 100
    assert [page for page in pages if not (site / page / "index.html").exists()] == []
    assert "async def" in (site / "llms-full.txt").read_text()


def test_there_is_no_sitemap_as_long_as_the_site_has_no_address(site: Path) -> None:
    assert list(site.glob("sitemap.xml*")) == []


def test_a_newcomer_is_led_to_installation_the_tutorial_and_the_examples(site: Path) -> None:
    home = (site / "index.html").read_text()
    row = next(row for row in home.split("<tr>") if "I am new here" in row)
    assert re.findall(_HREF, row)[:3] == ["how-to/install/", "tutorial/", "examples/"]
    tabs = home.split('class="md-tabs__list"')[1].split("</ul>")[0]
    assert "Examples" in tabs


def test_the_reference_shows_signatures_and_docstrings(site: Path) -> None:
    text = (site / "reference" / "api" / "index.html").read_text()
    for name in ("dyorc.program", "dyorc.when", "dyorc.run", "dyorc.Client", "dyorc.testing.serving"):
        assert f'id="{name}"' in text, name
