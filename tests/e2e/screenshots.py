"""Makes the pictures of the live page in ``docs/img``, of a real server under load.

python -m tests.e2e.screenshots [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import dyorc
from tests.browser import chromium, tab
from tests.example_load import Load, examples

_FOLDER = Path(__file__).parents[2] / "docs" / "img"
_NUM_THREADS, _NUM_EACH = 6, 3000
_LOAD_S = 60
_VIEWS = ("programs", "requests", "try", "jobs", "tenants", "scaling")
_VIEW_S = 3
_NUM_JOBS = 12
_MAX_BYTES = 250_000
_COLOURS = 256


def main(folder: Path) -> None:
    """Makes all pictures."""
    with chromium() as browser, examples() as server:
        load = Load(server)
        with load.running(_NUM_THREADS, _NUM_EACH), tab(browser, 1280, 1060) as watched:
            watched.open(f"{server.url}/ui/")
            watched.page.wait_for_timeout(_LOAD_S * 1000)  # so that the charts have a past
            watched.page.screenshot(path=folder / "ui-overview.png")
            _submit_jobs(server.url)
            for view in _VIEWS:
                watched.open(f"{server.url}/ui/#/{view}")
                watched.page.wait_for_timeout(_VIEW_S * 1000)
                watched.page.screenshot(path=folder / f"ui-{view}.png")
        with tab(browser, 1280, 860) as watched:
            watched.open(f"{server.url}/ui/#/requests/{_telling_request(server.url)}")
            watched.page.wait_for_selector(".tl-label[data-key]")
            watched.page.locator(".tl-row.call .tl-label").last.click()
            watched.page.locator(".batch").scroll_into_view_if_needed()
            watched.page.evaluate("scrollTo(0, 0)")
            watched.page.mouse.move(0, 0)
            watched.page.screenshot(path=folder / "ui-request.png")
    for name in ("overview", "request", *_VIEWS):
        shrink(folder / f"ui-{name}.png")


def _submit_jobs(url: str) -> None:
    """Submits some jobs, of which the last ones still wait or run when the picture is made."""
    image = np.zeros((1, 8, 8), np.float32)
    with dyorc.Client(url) as client:
        for number in range(_NUM_JOBS):
            client.submit("classify", image=image, idempotency_key=f"order-{number}")


def _telling_request(url: str) -> str:
    """Returns a slow request whose guess was right and shared its batch: it shows most of what a timeline can."""
    with dyorc.Client(url) as client:
        for summary in client.requests(workflow="guarded", order="slowest", limit=200):
            request = client.request(summary["request_id"])
            calls = [call for call in request["calls"] if call["is_guess"] and call["committed_ms"] is not None]
            sizes = [request["batches"][name]["size"] for call in calls for name in call["batches"]]
            if summary["cause"] == "queue" and any(size > 1 for size in sizes):
                return summary["request_id"]
    raise SystemExit("no request waited in a queue: the load was too light")


def shrink(path: Path) -> None:
    """Writes a picture with few colours, which a page like this has anyway."""
    with Image.open(path) as image:
        image.convert("RGB").quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
            path, optimize=True
        )
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise SystemExit(f"{path.name} has {size} bytes, expected at most {_MAX_BYTES}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else _FOLDER)
