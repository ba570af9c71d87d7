"""Reads the documentation's pages: code, so that tests can run it, and links, so that tests can follow them.

docs/testing/code-blocks.md says how a page's blocks are marked.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s[^)]*)?\)")
_LINK_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_HEADING = re.compile(r"^#{1,6} (.+?)#*$", re.MULTILINE)
_ELSEWHERE = ("http://", "https://", "mailto:")

PYTHON = frozenset({"python"})
SHELL = frozenset({"console", "sh", "bash"})
_MARKER = re.compile(r" *<!-- *([a-z ]+?)(?:: *(.*?))? *-->")
_HIDDEN = re.compile(r"<!-- hidden(?: ([a-z ]+?)(?:: *(.*?))?)?")
_FENCE = re.compile(r"( *)(`{3,}|~{3,})([\w-]*)(.*)")
_TITLE = re.compile(r'title="([^"]+)"')
_MARKERS = frozenset({"not run", "background", "stop", "fails", "raises", "numbers vary", "needs", "output", "long", "files of"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of code of a page."""

    page: Path
    line: int
    """Of its first line of code, from 1."""
    language: str
    title: str | None
    """The file that a reader saves it as."""
    code: str
    markers: Mapping[str, str]
    """The comments before it: `{"not run": "needs a GPU"}`."""

    @property
    def place(self) -> str:
        """Where it is, as editors write it."""
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether it is code that the tests run, unless a marker says otherwise."""
        return self.title is None and self.language in PYTHON | SHELL


def blocks(page: Path) -> list[Block]:
    """Returns all fenced blocks of a page in their order, hidden ones included.

    Raises:
        ValueError: If a comment before a block is not a marker, or a fence is not closed.
    """
    return list(_blocks(page))


def page_markers(page: Path) -> dict[str, str]:
    """Returns the markers that concern a whole page: `files of` and `long`, wherever they are."""
    lines = page.read_text().splitlines()
    markers = [match for match in map(_MARKER.fullmatch, lines) if match]
    return {match[1]: match[2] or "" for match in markers if match[1] in ("files of", "long")}


def _blocks(page: Path) -> Iterator[Block]:
    lines = enumerate(page.read_text().splitlines(), start=1)
    markers: dict[str, str] = {}
    for number, line in lines:
        if marker := _MARKER.fullmatch(line):
            markers[marker[1]] = marker[2] or ""
        elif hidden := _HIDDEN.fullmatch(line):
            markers = {hidden[1]: hidden[2] or ""} if hidden[1] else {}
        elif fence := _FENCE.fullmatch(line):
            code: list[str] = []
            for _, below in lines:
                if below.strip() == fence[2]:
                    break
                code.append(below)
            else:
                raise ValueError(f"{page}:{number}: the block is not closed by {fence[2]}")
            title = _TITLE.search(fence[4])
            block = Block(
                page=page,
                line=number + 1,
                language=fence[3],
                title=title[1] if title else None,
                code=textwrap.dedent("\n".join(code)) + "\n",
                markers=markers,
            )
            if block.runs and not markers.keys() <= _MARKERS:
                raise ValueError(
                    f"{block.place}: {', '.join(markers.keys() - _MARKERS)}: expected a marker of {sorted(_MARKERS)}"
                )
            yield block
            markers = {}
        elif line.strip():
            markers = {}


def python_examples(page: Path) -> list[str]:
    """Returns the Python code of a page that a reader sees, block by block."""
    visible = re.sub(r"^<!-- hidden[^\n]*\n.*?^-->$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [block.code for block in blocks(page) if block.language in PYTHON and block.code in visible]


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
