"""Reads pages as a browser would: their texts and pictures, and whether they are well formed."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

_VOID = {"meta", "br", "img", "link", "hr", "input"}
_SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """A page that was read; fails if an element is not closed, or closed by another's end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    @property
    def text(self) -> str:
        """All that can be read, styles left out."""
        return "\n".join(self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> without a beginning"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.texts.append(data)

    def is_complete_in_itself(self) -> bool:
        """Returns whether it runs nothing, and loads nothing from elsewhere."""
        names = {name for name, _ in self.attributes}
        loads = {"src", "href", "srcset", "data", "action"} & names
        scripts = {"script", "iframe", "object", "embed", "link"} & set(self.tags)
        return not loads and not scripts and not any(name.startswith("on") for name in names)


def pictures(text: str) -> list[ElementTree.Element]:
    """Returns the pictures of a page, read as XML."""
    found: list[ElementTree.Element] = []
    at = text.find("<svg")
    while at >= 0:
        end = text.index("</svg>", at) + len("</svg>")
        found.append(ElementTree.fromstring(text[at:end]))
        at = text.find("<svg", end)
    return found


def name_of(picture: ElementTree.Element) -> str:
    return picture.findtext(f"{_SVG}title") or ""


def words(picture: ElementTree.Element) -> list[str]:
    """Returns the texts that are seen in a picture."""
    return [element.text or "" for element in picture.iter(f"{_SVG}text")]


def hints(picture: ElementTree.Element, tag: str) -> list[str]:
    """Returns what elements of a kind say when the pointer rests on them."""
    return [
        element.findtext(f"{_SVG}title") or ""
        for element in picture.iter(f"{_SVG}{tag}")
        if element.find(f"{_SVG}title") is not None
    ]
