"""Debian's chromium, driven by Playwright; and what is asked of every page that it shows."""

import contextlib
import json
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tests.real import require_mark

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
_TRACED = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
_AUDIT = (Path(__file__).parent / "browser_audit.js").read_text()
TIMEOUT_MS = 60_000
"""Long enough for a machine under load."""


@dataclass
class Watched:
    """A tab that records everything that should not happen.

    Attributes:
        complaints: Errors and warnings of the console, exceptions, requests that failed or were refused.
        hosts: Where requests went.
    """

    page: "Page"
    complaints: list[str] = field(default_factory=list[str])
    hosts: set[str] = field(default_factory=set[str])

    def open(self, address: str) -> None:
        """Goes to an address, and waits until its view is there."""
        self.page.goto(address)
        self.page.wait_for_selector("h1")

    def audit(self) -> dict[str, Any]:
        """Returns what is wrong with what is shown: ``faint`` texts, ``nameless`` controls, ``too_wide``, ``headings``."""
        return self.page.evaluate(_AUDIT)

    def assert_accessible(self) -> None:
        """Checks that texts have contrast, controls have names, there is one main heading, and nothing is too wide."""
        found = self.audit()
        assert found["faint"] == [], f"too little contrast: {found['faint']}"
        assert found["nameless"] == [], f"controls without a name: {found['nameless']}"
        assert found["headings"] == 1, f"{found['headings']} main headings"
        assert found["too_wide"] <= 0, f"the page is {found['too_wide']} px wider than the screen: {found['widest']}"

    def trace_tasks(self, act: str) -> tuple[Any, list[float]]:
        """Runs JavaScript that returns a promise. Returns its value, and from a trace how much of the CPU each task of the page's
        main thread took meanwhile, in milliseconds, the longest last."""
        session = self.page.context.new_cdp_session(self.page)
        events: list[dict[str, Any]] = []
        over: list[object] = []
        session.on("Tracing.dataCollected", lambda part: events.extend(part["value"]))
        session.on("Tracing.tracingComplete", lambda event: over.append(event))
        session.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": {"includedCategories": _TRACED}})
        value = self.page.evaluate(act)
        session.send("Tracing.end")
        while not over:
            self.page.wait_for_timeout(20)
        session.detach()
        threads = {event["tid"] for event in events if event["name"] == "FunctionCall"}
        tasks = [one for one in events if one["name"] == "RunTask" and one["ph"] == "X" and one["tid"] in threads]
        return value, sorted(task.get("tdur", task["dur"]) / 1000 for task in tasks)


@contextlib.contextmanager
def chromium() -> "Generator[Browser]":
    """Runs a browser; skips the test where none is installed."""
    require_mark("a browser")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no chromium on this machine (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (pip install playwright)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def tab(
    browser: "Browser",
    width: int = 1280,
    height: int = 900,
    scheme: Literal["light", "dark"] = "light",
    allowed: Sequence[str] = (),
    device_scale_factor: float = 1,
) -> Generator[Watched]:
    """Opens a tab. At its end, nothing may have gone wrong in it except what contains one of the `allowed` texts."""
    size: Any = {"width": width, "height": height}
    with browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=device_scale_factor) as context:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        found = Watched(page)
        page.on(
            "console",
            lambda line: found.complaints.append(f"{line.type}: {line.text}") if line.type in {"error", "warning"} else None,
        )
        page.on("pageerror", lambda error: found.complaints.append(f"exception: {error}"))
        page.on("request", lambda request: found.hosts.add(request.url.split("/")[2]))
        yield found
        wrong = [one for one in found.complaints if not any(text in one for text in allowed)]
        assert wrong == [], json.dumps(wrong, indent=1)
