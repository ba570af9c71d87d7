"""Reads the documentation's pages: code, so that tests can run it, and links, so that tests can follow them."""

import re
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s[^)]*)?\)")
_LINK_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_HEADING = re.compile(r"^#{1,6} (.+?)#*$", re.MULTILINE)
_ELSEWHERE = ("http://", "https://", "mailto:")


def python_examples(page: Path) -> list[str]:
    """Returns the Python code of a page, block by block."""
    return _BLOCK.findall(page.read_text())


def links(page: Path) -> list[str]:
    """Returns the targets of a page's links and pictures, as written."""
    return [target for target in _LINK.findall(_prose(page)) if not target.startswith(_ELSEWHERE)]


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    made: set[str] = set()
    for heading in _HEADING.findall(_FENCED.sub("", page.read_text())):
        text = _LINK_TEXT.sub(r"\1", heading).strip().lower()
        anchor = "".join(letter for letter in text if letter.isalnum() or letter in " -_").replace(" ", "-")
        number = found.get(anchor, 0)
        found[anchor] = number + 1
        made.add(f"{anchor}-{number}" if number else anchor)
    return made


def _prose(page: Path) -> str:
    """Returns a page without its code, whose brackets are not links."""
    return _CODE.sub("", _FENCED.sub("", page.read_text()))
