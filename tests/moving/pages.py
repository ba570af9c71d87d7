"""The code that the pages of docs/compare show, as files. `python -m tests.moving` and the unit test of these pages read it."""

import re
from pathlib import Path

COMPARE = Path(__file__).parents[2] / "docs" / "compare"
_FILE = re.compile(r'^```\w+ title="(?P<path>[\w/.]+)"\n(?P<text>.*?)^```', re.MULTILINE | re.DOTALL)


def files_of(page: str) -> dict[str, str]:
    """Returns the files that a page shows, by path: blocks of code with a title.

    Args:
        page: The page's name, without its suffix.
    """
    return {match["path"]: match["text"] for match in _FILE.finditer((COMPARE / f"{page}.md").read_text(encoding="utf-8"))}


def write_pipeline(page: str, folder: Path) -> None:
    """Writes the page's files into the folder, and models.py, which the pipelines share."""
    for path, text in ({"models.py": files_of("index")["models.py"]} | files_of(page)).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
