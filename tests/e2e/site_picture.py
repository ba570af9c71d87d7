"""`python -m tests.e2e.site_picture PICTURE`: makes the picture of the first page of build/site (`make docs-picture`)."""

import sys
from pathlib import Path

from tests.browser import chromium, tab
from tests.documentation_site import served
from tests.e2e.screenshots import shrink

_SITE = Path(__file__).parents[2] / "build" / "site"


def main(picture: Path) -> None:
    """Makes the picture."""
    with served(_SITE) as address, chromium() as browser, tab(browser, 1280, 900) as watched:
        watched.open(f"{address}/")
        watched.page.screenshot(path=picture)
    shrink(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
