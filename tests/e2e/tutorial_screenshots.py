"""Makes the tutorial's pictures of the live page in ``docs/img``: the workflow of its first chapter, under load.

python -m tests.e2e.tutorial_screenshots [FOLDER]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import dyorc
from dyorc.testing import ServerProcess, serve_command
from tests.browser import chromium, tab
from tests.e2e.screenshots import shrink
from tests.markdown import blocks

_DOCS = Path(__file__).parents[2] / "docs"
_LOAD_S = 30
_RATE_RPS = 40


def main(folder: Path) -> None:
    """Makes all pictures."""
    with tempfile.TemporaryDirectory() as home:
        for block in blocks(_DOCS / "tutorial" / "1-cascade.md"):
            if block.title:
                (Path(home) / block.title).write_text(block.code)
        subprocess.run([sys.executable, "train.py"], cwd=home, check=True)
        with ServerProcess(serve_command("app.py:classify", in_process=True), folder=Path(home)) as server, chromium() as browser:
            server.wait_until_ready()
            with tab(browser, 1280, 900) as watched:
                watched.open(f"{server.url}/ui/")
                _load(server.url, Path(home))
                watched.page.screenshot(path=folder / "tutorial-ui.png")
            with tab(browser, 1280, 560) as watched:
                watched.open(f"{server.url}/ui/#/requests/{_slow_request(server.url)}")
                watched.page.wait_for_selector(".tl-label[data-key]")
                watched.page.screenshot(path=folder / "tutorial-request.png")
    for name in ("tutorial-ui.png", "tutorial-request.png"):
        shrink(folder / name)


def _load(url: str, home: Path) -> None:
    load = ["load", "run", url, "classify", "--pool", "test.npz", "--rate", str(_RATE_RPS), "--duration", str(_LOAD_S)]
    subprocess.run([sys.executable, "-m", "dyorc.cli.main", *load], cwd=home, check=True, stderr=subprocess.DEVNULL)


def _slow_request(url: str) -> str:
    """Returns a request that needed the large model and waited for it."""
    with dyorc.Client(url) as client:
        requests = client.requests(order="slowest", limit=200)
        return next((item["request_id"] for item in requests if item["cause"] == "queue"), requests[0]["request_id"])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else _DOCS / "img")
