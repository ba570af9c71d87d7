"""The code of pages that start servers runs: each page in a network namespace, so it has the ports that it shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.markdown import blocks
from tests.pages.page_run import needs_server

ROOT = Path(__file__).parents[2]
_ALL = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_PAGES = [page for page in _ALL if blocks(page) and needs_server(page)]
_NAMESPACE = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]


@pytest.fixture(scope="module")
def namespace() -> list[str]:
    """Yields the start of a command that runs in a network namespace of its own."""
    process = subprocess.run([*_NAMESPACE, "ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False)
    if process.returncode:
        pytest.skip(f"no network namespace can be made here: {process.stderr}")
    return [*_NAMESPACE, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, namespace: list[str]) -> None:
    process = subprocess.run(
        [*namespace, sys.executable, "-m", "tests.pages", str(page)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
